"""Either server is started anew at any stage, with its secret and what it had heard: the answer,
noise included, is what it would have been, and the other one hears nothing new."""

from collections import deque
from fractions import Fraction

import numpy as np
import pytest

from tallyroom.protocols.aggregation.contract import Memory
from tallyroom.protocols.aggregation.joint_server import JointServer
from tallyroom.protocols.joint.base_transfers import BaseTransfers
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.run.machines import party_machine, server_machine
from tallyroom.protocols.statistics.choices import TopK
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.wire.machine import Continue, Done
from tallyroom.protocols.wire.messages import Message, Phase, Role, address, body_of
from tests.samples import a_query, holdings_of

VALUES = [0.1, 0.4, 0.6, 0.9]
EVERYONE = np.packbits(np.ones(4, dtype=bool)).tobytes()
QUERIES = {
    "noise": a_query(
        statistic=Histogram(lower=0.0, upper=1.0, bins=4),
        epsilon=Fraction(1),
        noise=Placement.JOINT,
    ),
    "choices": a_query(
        statistic=TopK(lower=0.0, upper=1.0, bins=3, k=2),
        epsilon=Fraction(1),
        noise=Placement.JOINT,
    ),
}


def server(query: Query, index: int, bases: BaseTransfers | None = None) -> JointServer:
    """As a process begins: without `bases`, they are made anew, from its secret."""
    secret = Randomness.from_seed(1, f"server-{index}")
    kept = None if bases is None else lambda: bases
    machine = server_machine(query, index, secret, Memory(), bases=kept)
    assert isinstance(machine, JointServer)
    return machine


KEPT = [BaseTransfers(Randomness.from_seed(1, f"server-{index}")) for index in (0, 1)]


class Storm:
    """Both servers, of which `victim` is lost after so many messages. `said` has the bodies of all
    that went from either to the other, `shares` what both released."""

    def __init__(self, query: Query, victim: int, after: int) -> None:
        self.query, self.victim, self.after = query, victim, after
        self.servers = {index: server(query, index, KEPT[index]) for index in (0, 1)}
        self.heard: dict[int, list[Message]] = {0: [], 1: []}
        self.said: set[bytes] = set()
        self.shares: dict[int, set[bytes]] = {0: set(), 1: set()}
        self.waiting: deque[Message] = deque()
        self.delivered = 0
        for index in (0, 1):
            self._keep(index, self.servers[index].start())
        source = Randomness.from_seed(1, "parties")
        submitted = party_machine(query, holdings_of(VALUES, 4), source).start()
        assert isinstance(submitted, Continue | Done)
        self.waiting.extend(submitted.messages)
        for index in (0, 1):
            release = Message(
                query.run,
                Phase.RELEASE,
                Role.COORDINATOR,
                Role.SERVER,
                address(0),
                address(index),
                body_of(EVERYONE),
            )
            self.waiting.append(release)

    def run(self) -> "Storm":
        while self.waiting:
            message = self.waiting.popleft()
            index = int(message.receivers[0])
            self.heard[index].append(message)
            self._keep(index, self.servers[index].receive(message))
            self.delivered += 1
            if self.delivered == self.after:
                self._start_anew()
        return self

    def _start_anew(self) -> None:
        """It says again what it said, which may be on its way already."""
        index = self.victim
        self.servers[index] = server(self.query, index)
        self._keep(index, self.servers[index].start())
        for message in self.heard[index]:
            self._keep(index, self.servers[index].receive(message))

    def _keep(self, index: int, step: object) -> None:
        assert isinstance(step, Continue), step
        for message in step.messages:
            if message.phase is Phase.SHARE:
                self.shares[index].add(message.body.tobytes())
            elif message.receiver_role is Role.SERVER:
                self.said.add(message.body.tobytes())
                self.waiting.append(message)


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("victim", [0, 1])
def test_an_answer_does_not_depend_on_who_was_lost_when(name: str, victim: int) -> None:
    query = QUERIES[name]
    calm = Storm(query, victim, after=-1).run()
    assert [len(shares) for shares in calm.shares.values()] == [1, 1]
    submissions = 2 * query.parties
    for after in range(submissions - 1, calm.delivered + 1):
        stormy = Storm(query, victim, after).run()
        assert stormy.shares == calm.shares
        assert stormy.said == calm.said
