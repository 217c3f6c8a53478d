"""One run of an aggregator's machines in memory, message by message, as the runtimes run them.

For tests and benchmarks: parties can be held back, their messages changed or lost on the way.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from tallyroom.protocols.aggregation.contract import Aggregator, Ids, Memory, Records, Total
from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.plans.contract import NoisySum, PlainSum
from tallyroom.protocols.plans.encodings import EqualBins
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.wire.machine import Done, Failed, Machine, Rejected
from tallyroom.protocols.wire.messages import Message, Phase, Role
from tallyroom.protocols.wire.router import Router, heard


@dataclass(frozen=True, repr=False)
class Given(EqualBins):
    """Whatever the records are. To other roles it is a histogram like any."""

    vectors: Vector = field(kw_only=True, repr=False, compare=False)

    def __repr__(self) -> str:
        return repr(EqualBins(self.column, self.lower, self.upper, self.bins))

    def encode(self, holdings: Holdings) -> Vector:
        return self.vectors


class GivenVectors(Histogram):
    """Encodes to vectors that are given, so that any vector can be summed."""

    def __init__(self, vectors: Vector) -> None:
        super().__init__(lower=0.0, upper=1.0, bins=vectors.shape[1])
        object.__setattr__(self, "vectors", vectors)

    def plan(self, facts: Facts) -> NoisySum:
        given = Given("value", 0.0, 1.0, self.bins, vectors=self.__dict__["vectors"])
        return NoisySum(given, PlainSum(self.bins, given.sensitivity))


Way = Callable[[Message], Iterable[Message]]
"""What becomes of a party's message on its way to a server: itself, others, nothing."""


class Exchange:
    """All roles of one run. `sent` is every message that parties sent, as it left them."""

    def __init__(
        self,
        aggregator: Aggregator,
        query: Query,
        seed: int = 1,
        way: Way = lambda m: (m,),
        records: Records | None = None,
    ) -> None:
        self.aggregator = aggregator
        self.query = query
        self.way = way
        self.randomness = Randomness.from_seed(seed, "parties")
        self.servers = [
            aggregator.server(query, i, Randomness.from_seed(seed, f"server-{i}"), Memory())
            for i in range(query.servers)
        ]
        if records is None:
            records = np.ones(query.parties, dtype=np.int64)
        coordinator = Randomness.from_seed(seed, "coordinator")
        collector = aggregator.collector(query, records, coordinator)
        self._router: Router[Machine] = Router(self.servers, collector)
        self.blocks: list[tuple[Ids, Machine]] = []
        self.sent: list[Message] = []
        self.rejected: list[Rejected] = []
        self.failed: Failed | None = None
        self.total: Total | None = None
        for server in self.servers:
            self._take(server.start())
        self._take(self.collector.start())

    @property
    def collector(self) -> Machine:
        return self._router.coordinator

    @collector.setter
    def collector(self, machine: Machine) -> None:
        """Another in its place: one that listens, or lies."""
        self._router.coordinator = machine

    def join(self, ids: Ids, vectors: Vector) -> None:
        """A block of parties takes part; `run` lets its messages go."""
        query = replace(self.query, statistic=GivenVectors(vectors))
        holdings = Holdings(ids, np.arange(len(ids)), {"value": np.zeros(len(ids))})
        self.enter(ids, self.aggregator.party(query, holdings, self.randomness))

    def enter(self, ids: Ids, machine: Machine) -> None:
        """A block of parties takes part with a machine that is given."""
        self.blocks.append((ids, machine))
        self._take(machine.start(), by_party=True)
        self._router.join(ids, machine)

    def run(self, *messages: Message) -> None:
        """Delivers these messages and all that follow from them."""
        self._router.send(messages)
        while self._router:
            message = self._router.next()
            if message.phase is Phase.QUERY:
                continue  # each role is built from the query here; nobody needs to be told
            for machine, part in self._router.receivers(message):
                for step in heard(machine, part):
                    self._take(step, message.receiver_role is Role.PARTY)

    def expire(self) -> None:
        """Deadlines pass until the run ends or nobody has anything more to say."""
        for _ in range(4 + 4 * self.aggregator.stages):
            self.run()
            if self.total is not None or self.failed is not None:
                return
            for server in self.servers:
                self._take(server.expire())
            if not self._router:
                self._take(self.collector.expire())
        self.run()

    def _take(self, step: object, by_party: bool = False) -> None:
        match step:
            case Rejected():
                self.rejected.append(step)
            case Failed():
                self.failed = self.failed or step
            case Done(output=Total() as total):
                self.total = total
        messages: tuple[Message, ...] = getattr(step, "messages", ())
        if by_party:
            self.sent.extend(messages)
            messages = tuple(m for message in messages for m in self.way(message))
        self._router.send(messages)
