"""Deadlines in one process: parties that wait for a server do not give up before it speaks."""

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import pytest

from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.aggregation.additive import Additive
from tallyroom.protocols.aggregation.contract import Bulk
from tallyroom.protocols.aggregation.one_round import OneRoundParty, OneRoundServer
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.registry import AGGREGATORS
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.wire.machine import Continue, Machine, Step
from tallyroom.protocols.wire.messages import Message, Phase, Role, address, body_of
from tallyroom.simulation import Federation
from tests.registering import register


class WaitingParty(OneRoundParty):
    """Submits when it is told to."""

    def start(self) -> Step:
        return Continue()

    def receive(self, message: Message) -> Step:
        return super().start()


class LateServer(OneRoundServer):
    """Tells the parties to submit when its first deadline has passed."""

    told = False

    def expire(self) -> Step:
        if self.told:
            return super().expire()
        self.told = True
        everyone = np.arange(self._query.parties, dtype=np.uint32)
        sender = address(self._index)
        run = self._query.run
        body = body_of(b"now")
        return Continue(
            (Message(run, Phase.KEYS, Role.SERVER, Role.PARTY, sender, everyone, body),)
        )


class Late(Additive):
    """Additive shares, asked for late."""

    name: ClassVar[str] = "late"
    stages: ClassVar[int] = 2

    def party(self, query: Query, holdings: Holdings, randomness: Randomness) -> Machine:
        return WaitingParty(self, query, holdings, randomness)

    def server(self, query: Query, index: int, randomness: Randomness, bulk: Bulk) -> Machine:
        return LateServer(self, query, index, randomness, bulk)


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    register(monkeypatch, AGGREGATORS, "late", f"{__name__}:Late")
    yield
    aggregator_named.cache_clear()


@pytest.mark.parametrize("hosts", [1, 3])
def test_parties_without_a_deadline_wait_for_the_servers(hosts: int) -> None:
    with Federation(parties=6, aggregator="late", hosts=hosts) as federation:
        result = federation.run(Histogram(value="score", bins=4), "inf")
    assert result.estimate == result.truth
    assert not any("contributed" in note for note in result.notes)
