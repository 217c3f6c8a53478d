"""Runtimes that run the message loop in this process, and `inprocess`, where all roles live in it.

Where roles compute is up to the runtime: here (`inprocess`), or in actors of a cluster (`ray`).
How a question is asked, how its progress is told and how its run ends is the same for both.
"""

import datetime as dt
import os
import time
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Generic

import numpy as np
from numpy.typing import NDArray

from tallyroom.parties.block import PartyBlock
from tallyroom.parties.consent import Consent
from tallyroom.protocols.aggregation.contract import Ids, Total
from tallyroom.protocols.errors import RunFailed
from tallyroom.protocols.identity.certificates import Authority, Credentials, Identity
from tallyroom.protocols.identity.signing import SigningIdentity
from tallyroom.protocols.privacy.ledger import Filter
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.run.participant import Participant, next_time
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.wire.loop import InMemory, Job, MessageLoop, Node, Reply
from tallyroom.protocols.wire.machine import Failed
from tallyroom.protocols.wire.messages import Message, Phase, Role
from tallyroom.protocols.wire.meter import Bill, Meter, relayed
from tallyroom.servers.aggregation_server import AggregationServer
from tallyroom.servers.coordinator import Coordinator
from tallyroom.simulation.lying_servers import LyingServer
from tallyroom.simulation.misbehaviour import HONEST, ScriptedBlock
from tallyroom.simulation.runtimes.contract import Layout, Opened, Progress, Report, Runtime, silent
from tallyroom.storage.ledger import Ledger

LIFETIME = dt.timedelta(days=365)
MOST_KEPT = 100
"""Releases that are given again without being made anew."""
REPORT_SECONDS = 0.2
"""Between two reports of one phase."""


@dataclass(frozen=True)
class BegunRun:
    """A question that the coordinator took: its query, the run it is asked in, and what the
    coordinator says first. `earlier` is the run whose release answers it; then nothing is asked."""

    query: Query
    run: bytes
    reply: Reply
    earlier: bytes | None = None


@dataclass
class RunAccounts:
    """What stations (servers and coordinator) and hosts metered of a run, and the CPU time of
    servers."""

    stations: list[Meter]
    hosts: list[Meter]
    cpu_seconds: float = 0.0
    prepare_cpu_seconds: float = 0.0


class LoopRuntime(Runtime, Generic[Node]):
    """A runtime that carries every message of a run itself."""

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self._kept: OrderedDict[bytes, tuple[Query, Total]] = OrderedDict()
        self._authority = b""

    @abstractmethod
    def _begin(self, question: Question) -> BegunRun:
        """As the function `begin`, wherever the coordinator lives."""

    @abstractmethod
    def _close(self, query: Query, run: bytes, contributors: Ids) -> tuple[bool, list[bytes]]:
        """As the function `close`, wherever the coordinator lives."""

    @abstractmethod
    def _loop(self) -> MessageLoop[Node]:
        """All roles, for one run."""

    @abstractmethod
    def _settle(self, run: bytes) -> RunAccounts:
        """Ends what is under way in a run."""

    @abstractmethod
    def _forget(self, runs: Iterable[bytes]) -> None:
        """Everybody drops all there is of these runs but their names."""

    @abstractmethod
    def _progress(self, run: bytes, phase: str) -> Progress: ...

    def on_way(self, message: Message) -> Iterable[Message]:
        """Sees every message, and says what arrives in its place: tests lie here."""
        return (message,)

    def ask(self, question: Question, report: Report) -> Opened:
        started = time.perf_counter()
        begun = self._begin(question)
        if begun.earlier is not None:
            return self._opened(question, self._kept[begun.earlier][1])
        run, released, told = begun.run, 0.0, 0.0

        def tell(phase: str) -> None:
            nonlocal told
            due = phase == "release" or time.perf_counter() - told >= REPORT_SECONDS
            if due and report is not silent:
                report(self._progress(run, phase))
                told = time.perf_counter()

        def on_way(message: Message) -> Iterable[Message]:
            nonlocal released
            if message.phase is Phase.RELEASE and not released:
                released = time.perf_counter()
                tell("release")
            return self.on_way(message)

        loop = self._loop()
        loop.on_way = on_way
        tell("submit")
        loop.take(loop.coordinator, begun.reply)
        while (finished := loop.finished) is None:
            loop.carry_on(run)
            if not released:
                tell("submit")
        ended = time.perf_counter()
        metered = self._settle(run)
        if isinstance(finished, Failed):
            self._forget([run])
            raise RunFailed(finished.reason)
        total = finished.output
        assert isinstance(total, Total)
        keeps, over = self._close(begun.query, run, total.contributors)
        if keeps:
            self._kept[run] = begun.query, total
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        self._forget(over)
        released = released or ended
        seconds = {"submit": released - started, "release": ended - released}
        return self._opened(question, total, metered, seconds)

    def _opened(
        self,
        question: Question,
        total: Total,
        metered: RunAccounts | None = None,
        seconds: dict[str, float] | None = None,
    ) -> Opened:
        """What a run gave. Without accounts it is what an earlier question released of the same
        tree: it costs nothing."""
        spent = RunAccounts([], []) if metered is None else metered
        hosts = [meter.between_parties() for meter in spent.hosts]
        if self.layout.peer == "relay":
            hosts = [relayed(meter) for meter in hosts]
        return Opened(
            total.vector,
            total.contributors,
            total.records,
            Bill([*spent.stations, *hosts], len(self.layout.holdings.ids)),
            seconds or {},
            total.caught,
            spent.cpu_seconds,
            total.refused,
            total.lost_pairs,
            reused=metered is None,
            question=question,
            refusals=total.refusals,
            refusing=total.refusing,
            evidence=total.evidence,
            authority=self._authority,
            prepare_cpu_seconds=spent.prepare_cpu_seconds,
        )


def begin(
    coordinator: Coordinator, question: Question, kept: Container[bytes], of_time: int | None
) -> BegunRun:
    """Puts a question to the coordinator. `kept` are runs whose answers are there still, `of_time`
    numbers the run: a coordinator that is told again what it forgot numbers it as before. Raises
    `LocalError` and `RunFailed`."""
    query = coordinator.query(question, of_time)
    earlier = coordinator.releases.released(query, coordinator.data)
    if earlier is not None and earlier in kept:
        return BegunRun(query, query.run, Reply(query.run), earlier)
    coordinator.releases.disown(query, coordinator.data)
    run = coordinator.name_of(query)
    return BegunRun(query, run, coordinator.ask(query))


def close(
    coordinator: Coordinator, query: Query, run: bytes, contributors: Ids
) -> tuple[bool, list[bytes]]:
    """A run has its answer: whether that may be given again, and which runs are to be forgotten.
    A run that asked a stored tree again is remembered as that tree."""
    releases, data = coordinator.releases, coordinator.data
    keeps = False
    if run == query.run:
        releases.remember(run, query, data, contributors)
        keeps = releases.released(query, data) == run
    over = [] if releases.holds(run) else [run]
    over += releases.outdated
    releases.outdated.clear()
    return keeps, over


def time_after(last: int, seeded: bool) -> int | None:
    """The number of the run after that of time `last`; under a seed a run is named for its key."""
    return None if seeded else next_time(last, time.time())


def submitted_to(meters: Iterable[Meter], parties: int) -> NDArray[np.bool_]:
    """Whose submissions all servers hold that have any, by what servers metered."""
    heard = [found for meter in meters if (found := meter.submitted(parties)).any()]
    return np.logical_and.reduce(heard) if heard else np.zeros(parties, dtype=bool)


class ParticipantLoop(InMemory[Participant]):
    """The message loop over participants in this process."""

    cpu_seconds = 0.0
    prepare_cpu_seconds = 0.0

    def perform(self, job: Job[Participant]) -> Reply:
        begun = time.process_time()
        reply = job.node.perform(job.kind, job.run, job.message)
        if job.node.role is Role.SERVER:
            spent = time.process_time() - begun
            self.cpu_seconds += spent
            if job.message is not None and job.message.phase is Phase.PREPARE:
                self.prepare_cpu_seconds += spent
        return reply


class InProcess(LoopRuntime[Participant]):
    name: ClassVar[str] = "inprocess"
    summary: ClassVar[str] = "all roles in one process; the fastest, for research"
    honest_block: ClassVar[type[PartyBlock]] = PartyBlock

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self._ledgers: list[Ledger] = []
        self._credentials: list[Credentials] = []
        self._consents: list[Consent] = []

    def role_processes(self) -> dict[str, list[int]]:
        return {"all": [os.getpid()]}

    def start(self) -> None:
        layout = self.layout
        parties = Randomness.for_role(layout.seed, "parties")
        block: Callable[..., PartyBlock] = self.honest_block
        if layout.misbehaviour != HONEST:
            block = partial(ScriptedBlock, misbehaviour=layout.misbehaviour)
        self._blocks = []
        for number, holdings in enumerate(layout.holdings.blocks(layout.hosts)):
            self._blocks.append(block(holdings, parties, self._consent(f"host-{number}")))
        now = dt.datetime.now(dt.UTC)
        authority = Authority.create("simulation", now, LIFETIME)
        self._credentials = [
            authority.issue(Identity(Role.SERVER, i, i), now, LIFETIME)
            for i in range(layout.servers)
        ]
        self._authority = self._credentials[0].authority
        self._servers = [
            (LyingServer if i in layout.misbehaviour.servers else AggregationServer)(
                i,
                self._ledger(f"server-{i}"),
                Randomness.for_role(layout.seed, f"server-{i}"),
                signing=SigningIdentity.of(self._credentials[i]),
            )
            for i in range(layout.servers)
        ]
        self._coordinator = Coordinator(
            layout.servers,
            len(layout.holdings.ids),
            self._ledger("coordinator"),
            Randomness.for_role(layout.seed, "coordinator"),
            seeded=layout.seed is not None,
        )
        for server, held in enumerate(self._credentials):
            self._coordinator.certificates.keep(server, held.certificate)
        counts = layout.holdings.counts.astype("uint32")
        self._coordinator.enrol(layout.holdings.ids, counts, layout.holdings.version(parties))

    def stop(self) -> None:
        for ledger in self._ledgers:
            ledger.close()
        for consent in self._consents:
            consent.close()

    def _begin(self, question: Question) -> BegunRun:
        now = time_after(self._coordinator.last_time, self.layout.seed is not None)
        return begin(self._coordinator, question, self._kept, now)

    def _close(self, query: Query, run: bytes, contributors: Ids) -> tuple[bool, list[bytes]]:
        return close(self._coordinator, query, run, contributors)

    def _loop(self) -> MessageLoop[Participant]:
        self._running = ParticipantLoop(self._servers, self._coordinator)
        for block in self._blocks:
            self._running.enter(block.holdings.ids, block)
        return self._running

    def _settle(self, run: bytes) -> RunAccounts:
        return RunAccounts(
            [p.meters.pop(run, Meter()) for p in (*self._servers, self._coordinator)],
            [p.meters.pop(run, Meter()) for p in self._blocks],
            self._running.cpu_seconds,
            self._running.prepare_cpu_seconds,
        )

    def _forget(self, runs: Iterable[bytes]) -> None:
        for run in runs:
            for participant in (*self._servers, *self._blocks, self._coordinator):
                participant.forget(run)

    def _progress(self, run: bytes, phase: str) -> Progress:
        parties = len(self.layout.holdings.ids)
        meters = [meter for each in self._servers if (meter := each.meters.get(run)) is not None]
        ours = self._coordinator.meters.get(run)
        submitted = submitted_to(meters, parties)
        links = Bill(meters if ours is None else [*meters, ours], parties).by_link()
        return Progress(
            phase,
            parties,
            parties,
            int(submitted.sum()),
            sum(tally.bytes for tally in links.values()),
            links=links,
            states=self._coordinator.states(run, submitted, closed=phase == "release"),
        )

    def _ledger(self, keeper: str) -> Ledger:
        folder = self.layout.store_of(keeper)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            folder /= "ledger.sqlite"
        self._ledgers.append(Ledger(folder, Filter.of(self.layout.cap, self.layout.cap_delta)))
        return self._ledgers[-1]

    def _consent(self, host: str) -> Consent | None:
        if self.layout.policy is None:
            return None
        consent = Consent(self.layout.policy, self.layout.store_of(host))
        consent.joined(self.layout.servers)
        self._consents.append(consent)
        return consent
