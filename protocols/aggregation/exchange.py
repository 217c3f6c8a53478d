"""The message loop over bare machines, for tests, benchmarks and the aggregators' contract suite.

Parties can be held back, their messages changed or lost on the way.
"""

from collections.abc import Sequence
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
from tallyroom.protocols.wire.loop import InMemory, Job, JobKind, OnWay, Reply, unchanged
from tallyroom.protocols.wire.machine import (
    Continue,
    Done,
    Failed,
    Machine,
    Rejected,
    Spend,
    Step,
    proceed,
)
from tallyroom.protocols.wire.messages import Message, Phase, Role


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
        return NoisySum(given, PlainSum.of(given))


class MachineLoop(InMemory[Machine]):
    """The message loop over bare machines: no ledger, no meter, nobody to ask again.

    What came of it is `total` or `failed`; `rejected` has every refusal, `spends` what servers
    would have written in their ledgers, `sent` every message as it left its sender. With `chance`,
    jobs are done in random order, and a message of several rows may come in two parts.
    """

    def __init__(
        self,
        servers: Sequence[Machine],
        coordinator: Machine,
        on_way: OnWay = unchanged,
        chance: int | None = None,
    ) -> None:
        super().__init__(servers, coordinator, on_way)
        self.rejected: list[Rejected] = []
        self.spends: list[Spend] = []
        self.sent: list[Message] = []
        self.failed: Failed | None = None
        self.total: Total | None = None
        self._chance = None if chance is None else np.random.default_rng(chance)
        self._over: list[Machine] = []

    def settle(self) -> None:
        """Carries messages until nobody has anything more to say before a deadline."""
        while self.busy or self._unfinished:
            self.carry_on(b"")

    def finish(self) -> None:
        """To the end: deadlines pass where everybody waits."""
        while self.total is None and self.failed is None:
            self.carry_on(b"")

    def say(self, machine: Machine, step: Step) -> None:
        """A step that a machine took by itself."""
        self.take(machine, self._reply(machine, step))

    def is_over(self, machine: Machine) -> bool:
        """Whether a party has done all that it has to do."""
        return any(machine is each for each in self._over)

    def next(self) -> tuple[Job[Machine], Reply]:
        if self._chance is not None:
            self._jobs.rotate(-int(self._chance.integers(len(self._jobs))))
            job = self._jobs[0]
            if job.message is not None and job.message.links > 1 and self._chance.integers(2):
                cut = int(self._chance.integers(1, job.message.links))
                first = job.message.select(np.arange(cut))
                rest = job.message.select(np.arange(cut, job.message.links))
                self._jobs[0] = replace(job, message=first)
                self._jobs.append(replace(job, message=rest))
        return super().next()

    def perform(self, job: Job[Machine]) -> Reply:
        machine, message = job.node, job.message
        if message is not None:
            return self._heard(machine, message)
        if self.is_over(machine):
            return Reply(job.run)
        step = proceed(machine) if job.kind is JobKind.PROCEED else machine.expire()
        return self._reply(machine, step)

    def _heard(self, machine: Machine, message: Message) -> Reply:
        """As participants do: a message that is refused is heard again row by row, so that what one
        sender did wrong is not held against the others."""
        if message.phase is Phase.QUERY:
            return Reply(message.run)  # each machine was made from the query
        if self.is_over(machine):
            return Reply(message.run, refused=[Rejected(message.sender, "the run is over")])
        step = machine.receive(message)
        if isinstance(step, Rejected) and message.links > 1:
            for single in message.split():
                self.take(machine, self._heard(machine, single))
            return Reply(message.run)
        return self._reply(machine, step)

    def _reply(self, machine: Machine, step: Step) -> Reply:
        match step:
            case Rejected():
                return Reply(b"", refused=[step])
            case Failed():
                return Reply(b"", finished=step)
            case Continue() | Done():
                self.spends += step.spends
                self.sent += step.messages
        if isinstance(step, Continue):
            return Reply(b"", list(step.messages), more=step.more)
        return Reply(b"", list(step.messages), finished=step)

    def conclude(self, node: Machine, finished: Done | Failed) -> None:
        match finished:
            case Failed():
                self.failed = self.failed or finished
            case Done(output=Total() as total):
                self.total = total
            case Done() if self.role_of(node) is Role.PARTY:
                self._over.append(node)

    def refuse(self, node: Machine, refusal: Rejected, message: Message | None) -> None:
        self.rejected.append(refusal)


class Exchange(MachineLoop):
    """All roles of one run of an aggregator. `way` gets what parties send."""

    def __init__(
        self,
        aggregator: Aggregator,
        query: Query,
        seed: int = 1,
        way: OnWay = unchanged,
        records: Records | None = None,
    ) -> None:
        self.aggregator = aggregator
        self.query = query
        self.randomness = Randomness.from_seed(seed, "parties")
        servers = [
            aggregator.server(query, i, Randomness.from_seed(seed, f"server-{i}"), Memory())
            for i in range(query.servers)
        ]
        if records is None:
            records = np.ones(query.parties, dtype=np.int64)
        coordinator = Randomness.from_seed(seed, "coordinator")
        super().__init__(
            servers,
            aggregator.collector(query, records, coordinator),
            lambda m: way(m) if m.sender_role is Role.PARTY else (m,),
        )
        for machine in (*servers, self.coordinator):
            self.say(machine, machine.start())

    @property
    def sent_by_parties(self) -> list[Message]:
        return [message for message in self.sent if message.sender_role is Role.PARTY]

    def join(self, ids: Ids, vectors: Vector) -> None:
        """A block of parties takes part; `run` lets its messages go."""
        query = replace(self.query, statistic=GivenVectors(vectors))
        holdings = Holdings(ids, np.arange(len(ids)), {"value": np.zeros(len(ids))})
        self.enter(ids, self.aggregator.party(query, holdings, self.randomness))

    def enter(self, ids: Ids, host: Machine) -> None:
        self.say(host, host.start())
        super().enter(ids, host)

    def run(self, *messages: Message) -> None:
        """Delivers these messages and all that follow from them."""
        for message in messages:
            self.send(message)
        self.settle()

    def expire(self) -> None:
        """Deadlines pass until the run ends or nobody has anything more to say."""
        for _ in range(12 + 12 * self.aggregator.stages):
            self.settle()
            if self.total is not None or self.failed is not None:
                return
            self.pass_deadline(b"")
        self.settle()
