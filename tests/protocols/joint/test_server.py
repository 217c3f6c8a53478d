"""What a server takes from the other one, by stage."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from tallyroom.protocols.aggregation.contract import Memory
from tallyroom.protocols.aggregation.joint_server import JOINT_ACCEPTS, JointServer, JointStage
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.run.machines import party_machine, server_machine
from tallyroom.protocols.statistics.choices import Mode
from tallyroom.protocols.wire.machine import Continue, Failed, Rejected
from tallyroom.protocols.wire.messages import Message, Phase, Role, address, body_of
from tests.samples import a_query, holdings_of

CHOICE = a_query(statistic=Mode(lower=0.0, upper=1.0, bins=4), noise=Placement.JOINT)
NOISE = a_query(epsilon=Fraction(1), noise=Placement.JOINT)
EVERYONE = np.packbits(np.ones(4, dtype=bool)).tobytes()
STAGES = {
    (JointStage.NOTHING, Phase.PREPARE): CHOICE,
    (JointStage.NOTHING, Phase.TOGETHER): NOISE,
    (JointStage.AWAITED, Phase.TOGETHER): CHOICE,
    (JointStage.BEGUN, Phase.PREPARE): NOISE,
    (JointStage.BEGUN, Phase.TOGETHER): CHOICE,
}
"""A query in which a server gets there; nobody waits for noise."""


def server_in(stage: JointStage, phase: Phase, query: Query) -> JointServer:
    """Server 0, which garbles: it hears an opening first."""
    server = server_machine(query, 0, Randomness.from_seed(1, "server-0"), Memory())
    assert isinstance(server, JointServer)
    server.start()
    if stage is JointStage.BEGUN and phase is Phase.TOGETHER:
        holdings = holdings_of([0.1, 0.4, 0.6, 0.9], 4)
        said = party_machine(query, holdings, Randomness.from_seed(1, "parties")).start()
        assert not isinstance(said, Rejected | Failed)
        for message in said.messages:
            if message.receivers[0] == 0:
                assert isinstance(server.receive(message), Continue)
        release = told(query, Phase.RELEASE, Role.COORDINATOR, 0, EVERYONE)
        assert isinstance(server.receive(release), Continue)
    assert server.stage(phase) is stage
    return server


def told(query: Query, phase: Phase, role: Role, sender: int, body: bytes) -> Message:
    return Message(query.run, phase, role, Role.SERVER, address(sender), address(0), body_of(body))


def opening(query: Query) -> bytes:
    """What server 1 says first."""
    step = server_machine(query, 1, Randomness.from_seed(1, "server-1"), Memory()).start()
    assert isinstance(step, Continue)
    return bytes(step.messages[0].body[0])


@pytest.mark.parametrize(("stage", "phase"), STAGES)
@pytest.mark.parametrize(("role", "sender"), list(product(Role, (0, 1, 2))))
def test_the_other_server_is_heard_as_the_table_says_and_nobody_else(
    stage: JointStage, phase: Phase, role: Role, sender: int
) -> None:
    query = STAGES[stage, phase]
    server = server_in(stage, phase, query)
    message = told(query, phase, role, sender, opening(query) if query is NOISE else b"1234")
    step = server.receive(message)
    if JOINT_ACCEPTS.get((stage, phase)) is role and sender == 1:
        # Those four bytes are no opening: a computation that has begun ends with it.
        ends = stage is JointStage.BEGUN and query is CHOICE
        assert isinstance(step, Failed if ends else Continue)
    else:
        assert isinstance(step, Rejected)
        assert server.stage(phase) is stage


def test_what_is_said_again_is_not_worth_keeping_again() -> None:
    server = server_in(JointStage.BEGUN, Phase.PREPARE, NOISE)
    message = told(NOISE, Phase.PREPARE, Role.SERVER, 1, opening(NOISE))
    first = server.receive(message)
    assert isinstance(first, Continue)
    assert len(first.messages) == 1
    assert not first.repeated
    assert server.receive(message) == Continue(repeated=True)


def test_an_opening_that_waits_cannot_become_another() -> None:
    server = server_in(JointStage.AWAITED, Phase.TOGETHER, CHOICE)
    first = told(CHOICE, Phase.TOGETHER, Role.SERVER, 1, bytes(8))
    other = told(CHOICE, Phase.TOGETHER, Role.SERVER, 1, bytes(9))
    assert server.receive(first) == Continue()
    assert server.receive(first) == Continue(repeated=True)
    assert isinstance(server.receive(other), Failed)
