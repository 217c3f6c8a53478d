"""The collector of prio3, against its table and beyond it."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from tallyroom.protocols.aggregation.contract import Total
from tallyroom.protocols.aggregation.prio3.aggregator import Prio3
from tallyroom.protocols.aggregation.prio3.collector import Prio3Collector
from tallyroom.protocols.aggregation.prio3.server import STEP
from tallyroom.protocols.aggregation.verifying_collector import COLLECTOR_STAGES, CollectorStage
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.wire.machine import Continue, Done, Failed, Rejected
from tallyroom.protocols.wire.messages import Message, Phase, Role
from tests.protocols.aggregation.prio3_honest import (
    ACCEPTED,
    COLLECTOR,
    EVERYONE,
    QUERY,
    ROSTERS,
    SHARES,
    VECTORS,
    VERIFIERS,
    bytes_of,
    changed,
    flipped,
)
from tests.protocols.aggregation.prio3_runs import PARTIES
from tests.samples import bitmap

COLLECTOR_HEARS = dict(
    zip(CollectorStage, ([], ROSTERS, [*VERIFIERS, *ACCEPTED], SHARES), strict=True)
)


def collector_in(stage: CollectorStage) -> Prio3Collector:
    records = np.ones(PARTIES, dtype=np.int64)
    collector = Prio3().collector(QUERY, records, Randomness(bytes(16)))
    assert isinstance(collector, Prio3Collector)
    collector.start()
    for each, messages in COLLECTOR_HEARS.items():
        for message in messages:
            assert not isinstance(collector.receive(message), Rejected)
        if each is stage:
            break
    assert collector.stage is stage
    return collector


@pytest.mark.parametrize(("stage", "phase", "role"), list(product(CollectorStage, Phase, Role)))
def test_a_collector_takes_what_its_table_says_and_nothing_else(
    stage: CollectorStage, phase: Phase, role: Role
) -> None:
    collector = collector_in(stage)
    right = {
        Phase.ROSTER: ROSTERS[0],
        Phase.VERIFY: VERIFIERS[0],
        Phase.SHARE: SHARES[0],
    }
    message = replace(right.get(phase, ROSTERS[0]), phase=phase, sender_role=role)
    step = collector.receive(message)
    if COLLECTOR_STAGES.get((stage, phase)) is role:
        assert isinstance(step, Failed if phase is Phase.GIVE_UP else Continue)
    else:
        assert isinstance(step, Rejected)
        assert collector.stage is stage


def test_the_table_is_the_protocol() -> None:
    assert set(COLLECTOR_STAGES.values()) == {Role.SERVER}
    asked = {(stage.name, phase) for stage, phase in COLLECTOR_STAGES} - {
        (stage.name, Phase.GIVE_UP) for stage in CollectorStage
    }
    assert asked == {
        ("ROSTERS", Phase.ROSTER),
        ("CHECKING", Phase.VERIFY),
        ("SHARES", Phase.SHARE),
    }


BAD_ANSWERS: dict[str, tuple[CollectorStage, Message]] = {
    "a roster without a key": (CollectorStage.ROSTERS, changed(ROSTERS[0], EVERYONE)),
    "an empty roster": (CollectorStage.ROSTERS, changed(ROSTERS[0], b"")),
    "a roster with padding": (CollectorStage.ROSTERS, flipped(ROSTERS[0], -1)),
    "verifiers cut short": (
        CollectorStage.CHECKING,
        changed(VERIFIERS[0], bytes_of(VERIFIERS[0])[:-1]),
    ),
    "verifiers of another step": (CollectorStage.CHECKING, flipped(VERIFIERS[0], 0)),
    "no step": (CollectorStage.CHECKING, changed(VERIFIERS[0], b"\0")),
    "acceptance too soon": (CollectorStage.CHECKING, ACCEPTED[0]),
    "an unknown server": (
        CollectorStage.CHECKING,
        replace(VERIFIERS[0], senders=np.array([2], dtype=np.uint32)),
    ),
    "a short share": (CollectorStage.SHARES, changed(SHARES[0], bytes_of(SHARES[0])[:-16])),
    "a share past the modulus": (
        CollectorStage.SHARES,
        changed(SHARES[0], bytes_of(SHARES[0])[:-16] + bytes([255]) * 16),
    ),
}


@pytest.mark.parametrize("name", BAD_ANSWERS)
def test_what_a_collector_rejects_leaves_no_trace(name: str) -> None:
    stage, bad = BAD_ANSWERS[name]
    collector = collector_in(stage)
    step = collector.receive(bad)
    assert isinstance(step, Rejected)
    assert step.sender == bad.sender
    begin = {CollectorStage.ROSTERS: 0, CollectorStage.CHECKING: 2, CollectorStage.SHARES: 6}
    for message in COLLECTOR.heard[begin[stage] :]:
        step = collector.receive(message)
    assert isinstance(step, Done)
    assert isinstance(step.output, Total)
    assert step.output.vector.tolist() == VECTORS.sum(axis=0).tolist()


@pytest.mark.parametrize("index", range(8))
def test_a_server_answers_each_step_once(index: int) -> None:
    """Also what it said before, as a server does that is asked again, is refused later."""
    collector = collector_in(CollectorStage.ROSTERS)
    for number, message in enumerate(COLLECTOR.heard):
        collector.receive(message)
        if number >= index:
            assert isinstance(collector.receive(COLLECTOR.heard[index]), Rejected)
    assert collector.stage is CollectorStage.OVER


def test_an_acceptance_with_a_padding_bit_is_refused() -> None:
    collector = collector_in(CollectorStage.CHECKING)
    for message in VERIFIERS:
        collector.receive(message)
    assert isinstance(collector.receive(flipped(ACCEPTED[0], -1)), Rejected)
    assert collector.receive(ACCEPTED[0]) == Continue()


def test_the_release_is_over_those_whom_all_servers_accept() -> None:
    collector = collector_in(CollectorStage.CHECKING)
    for message in VERIFIERS:
        collector.receive(message)
    collector.receive(changed(ACCEPTED[0], STEP.pack(1) + bitmap(PARTIES, [0, 1, 2, 3, 5])))
    step = collector.receive(ACCEPTED[1])
    assert isinstance(step, Continue)
    released = bitmap(PARTIES, [0, 1, 2, 3, 5])
    assert [(m.phase, bytes_of(m)) for m in step.messages] == [(Phase.RELEASE, released)] * 2


def test_lost_parties_are_excused_while_rosters_are_awaited_only() -> None:
    lost = np.array([1], dtype=np.uint32)
    step = collector_in(CollectorStage.ROSTERS).lose(lost)
    assert isinstance(step, Continue)
    assert len(step.messages) == 2
    for stage in (CollectorStage.CHECKING, CollectorStage.SHARES):
        assert collector_in(stage).lose(lost) == Continue()


@pytest.mark.parametrize("stage", [CollectorStage.CHECKING, CollectorStage.SHARES])
def test_no_server_can_be_missed(stage: CollectorStage) -> None:
    for end in ("expire", "lose"):
        collector = collector_in(stage)
        lost = collector.expire() if end == "expire" else collector.lose_servers({1}, "is gone")
        assert isinstance(lost, Failed)
        assert "server-1" in lost.reason
        assert collector.stage is CollectorStage.OVER
