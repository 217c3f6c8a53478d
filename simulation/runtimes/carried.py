"""Runtimes in which one carrier brings every message of a run to whom it is addressed.

Where participants live is up to the runtime: in this process (`inprocess`), or in actors of a
cluster (`ray`). Who gets what, when a deadline has passed and how a run ends is decided here, for
all of them.
"""

import time
from abc import abstractmethod
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import islice
from typing import ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tallyroom.parties.block import PartyBlock
from tallyroom.protocols.aggregation.contract import Ids, Total
from tallyroom.protocols.errors import RunFailed
from tallyroom.protocols.query import Query
from tallyroom.protocols.run.participant import Participant, Reply
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.wire.machine import Done, Failed
from tallyroom.protocols.wire.messages import Message, Phase, Role
from tallyroom.protocols.wire.meter import Bill, Meter, relayed
from tallyroom.protocols.wire.router import Router
from tallyroom.simulation.runtimes.contract import Layout, Opened, Progress, Report, Runtime
from tallyroom.simulation.runtimes.coordinator_facade import BegunRun, Closed

MOST_KEPT = 100
"""Releases that are given again without being made anew."""
REPORT_SECONDS = 0.2
"""Between two reports of one phase."""

Place = TypeVar("Place")
"""Where a participant lives: whatever the runtime knows it by."""


class SeatTask(Enum):
    TAKE = auto()  # a message
    PROCEED = auto()  # the next part of what a block says
    EXPIRE = auto()  # the deadline has passed


@dataclass(frozen=True, eq=False)
class WorkItem(Generic[Place]):
    """What a participant is to do, and at whose word: nobody's unless it takes a message."""

    place: Place
    task: SeatTask
    run: bytes
    message: Message | None = None

    @property
    def asked_by(self) -> Role | None:
        return None if self.message is None else self.message.sender_role


@dataclass
class Accounts:
    """What participants metered of a run, and the CPU time of servers."""

    stations: list[Meter]
    hosts: list[Meter]
    cpu_seconds: float = 0.0
    prepare_cpu_seconds: float = 0.0


class Carried(Runtime, Generic[Place]):
    """`at_once` is how many blocks of parties may compute their next parts side by side: each part
    is memory."""

    at_once: ClassVar[int] = 1

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self._kept: OrderedDict[bytes, tuple[Query, Total]] = OrderedDict()
        self._authority = b""
        self._router: Router[Place] | None = None

    # --- where participants live ---

    @property
    @abstractmethod
    def server_places(self) -> Sequence[Place]:
        """In the order of their indices."""

    @property
    @abstractmethod
    def coordinator_place(self) -> Place: ...

    @property
    @abstractmethod
    def host_places(self) -> Sequence[tuple[Ids, Place]]:
        """With the parties that live there."""

    @abstractmethod
    def _put(self, question: Question) -> BegunRun:
        """As `CoordinatorFacade.put`."""

    @abstractmethod
    def _close(self, query: Query, run: bytes, contributors: Ids) -> Closed:
        """As `CoordinatorFacade.close`."""

    @abstractmethod
    def _send(self, errand: WorkItem[Place]) -> None:
        """Has an errand done, after those that were sent to the same place before."""

    @abstractmethod
    def _next(self) -> tuple[WorkItem[Place], Reply]:
        """What came of an errand that is under way."""

    @property
    @abstractmethod
    def _under_way(self) -> bool: ...

    @abstractmethod
    def _settle(self, run: bytes) -> Accounts:
        """Ends what is under way, and takes the accounts of a run."""

    @abstractmethod
    def _forget(self, runs: Iterable[bytes]) -> None:
        """Everybody drops all there is of these runs but their names."""

    @abstractmethod
    def _progress(self, run: bytes, phase: str) -> Progress: ...

    def _carried(self, message: Message) -> None:
        """A message is on its way: for those who watch."""

    # --- one run ---

    def ask(self, question: Question, report: Report) -> Opened:
        started = time.perf_counter()
        begun = self._put(question)
        if begun.earlier is not None:
            return self._again(question, self._kept[begun.earlier][1])
        run, released, told = begun.run, 0.0, 0.0
        finished: Done | Failed | None = None
        self._router = self._everybody()
        unfinished: deque[Place] = deque()
        waiting_for: list[list[Place]] = [
            [place for _, place in self.host_places],
            [*self.server_places],
            [self.coordinator_place],
        ]
        patience = 0

        def tell(phase: str) -> None:
            nonlocal told
            if phase == "submit" and time.perf_counter() - told < REPORT_SECONDS:
                return
            report(self._progress(run, phase))
            told = time.perf_counter()

        def take(outcome: Reply, by: Place, asked_by: Role | None = None) -> None:
            nonlocal finished, released
            for message in outcome.messages:
                self._carried(message)
                if message.phase is Phase.RELEASE and not released:
                    released = time.perf_counter()
                    tell("release")
                for place, part in self._receivers(message):
                    self._send(WorkItem(place, SeatTask.TAKE, part.run, part))
            if outcome.more:
                unfinished.append(by)
            if by is self.coordinator_place and outcome.finished:
                finished = outcome.finished
            for refusal in outcome.refused:
                role = self._role(by)
                if asked_by is Role.COORDINATOR:
                    finished = Failed(f"{self._name(by)} refused: {refusal.reason}")
                elif asked_by is role is Role.SERVER:
                    why = f"{refusal.sender}: {refusal.reason}"
                    finished = Failed(f"{self._name(by)} refused {why}")

        tell("submit")
        take(begun.outcome, self.coordinator_place)
        while finished is None:
            if not self._under_way and unfinished:
                for place in list(islice(unfinished, self.at_once)):
                    unfinished.popleft()
                    self._send(WorkItem(place, SeatTask.PROCEED, begun.query.run))
            elif not self._under_way:
                # Everybody waits: that is what a passed deadline means here. Parties give up on
                # each other first, then servers on parties, then the coordinator.
                for place in waiting_for[patience]:
                    self._send(WorkItem(place, SeatTask.EXPIRE, run))
                patience = (patience + 1) % len(waiting_for)
            else:
                errand, outcome = self._next()
                if outcome.messages:
                    patience = 0
                take(outcome, errand.place, errand.asked_by)
                if not released:
                    tell("submit")
        ended = time.perf_counter()
        accounts = self._settle(run)
        if isinstance(finished, Failed):
            self._forget([run])
            raise RunFailed(finished.reason)
        total = finished.output
        assert isinstance(total, Total)
        self._conclude(begun, total)
        released = released or ended
        seconds = {"submit": released - started, "release": ended - released}
        return self._opened(question, total, accounts, seconds)

    def _conclude(self, begun: BegunRun, total: Total) -> None:
        closed = self._close(begun.query, begun.run, total.contributors)
        if closed.keeps:
            self._kept[begun.run] = begun.query, total
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        self._forget(closed.over)

    def _opened(
        self, question: Question, total: Total, accounts: Accounts, seconds: dict[str, float]
    ) -> Opened:
        hosts = [meter.between_parties() for meter in accounts.hosts]
        if self.layout.peer == "relay":
            hosts = [relayed(meter) for meter in hosts]
        return Opened(
            total.vector,
            total.contributors,
            total.records,
            Bill([*accounts.stations, *hosts], len(self.layout.holdings.ids)),
            seconds,
            total.caught,
            accounts.cpu_seconds,
            total.refused,
            total.lost_pairs,
            question=question,
            refusals=total.refusals,
            refusing=total.refusing,
            evidence=total.evidence,
            authority=self._authority,
            prepare_cpu_seconds=accounts.prepare_cpu_seconds,
        )

    def _again(self, question: Question, total: Total) -> Opened:
        """What an earlier question released of the same tree: it costs nothing."""
        return Opened(
            total.vector,
            total.contributors,
            total.records,
            Bill([], len(self.layout.holdings.ids)),
            caught=total.caught,
            refused=total.refused,
            refusals=total.refusals,
            refusing=total.refusing,
            reused=True,
            question=question,
            evidence=total.evidence,
            authority=self._authority,
        )

    def _everybody(self) -> Router[Place]:
        router: Router[Place] = Router(self.server_places, self.coordinator_place)
        for ids, place in self.host_places:
            router.join(ids, place)
        return router

    def _receivers(self, message: Message) -> list[tuple[Place, Message]]:
        assert self._router is not None
        return self._router.receivers(message)

    def _role(self, place: Place) -> Role:
        if place is self.coordinator_place:
            return Role.COORDINATOR
        return Role.SERVER if place in self.server_places else Role.PARTY

    def _name(self, place: Place) -> str:
        role = self._role(place)
        servers = list(self.server_places)
        return role.named(servers.index(place)) if role is Role.SERVER else role.label


def submitted_to(meters: Iterable[Meter], parties: int) -> NDArray[np.bool_]:
    """Whose submissions all servers hold that have any, by what servers metered."""
    heard = [found for meter in meters if (found := meter.submitted(parties)).any()]
    return np.logical_and.reduce(heard) if heard else np.zeros(parties, dtype=bool)


def do(participant: Participant, errand: WorkItem[Participant]) -> Reply:
    """An errand, where the participant is. Only parties that set a deadline hear that it passed:
    others wait for the servers for as long as the run goes."""
    match errand.task, errand.message:
        case SeatTask.TAKE, message if message is not None:
            return participant.handle(message)
        case SeatTask.PROCEED, _ if isinstance(participant, PartyBlock):
            return participant.proceed(errand.run)
        case SeatTask.EXPIRE, _:
            timed = participant.deadlines.pop(errand.run, None) is not None
            if timed or participant.role is not Role.PARTY:
                return participant.expire(errand.run)
    return Reply(errand.run)
