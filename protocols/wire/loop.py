"""START HERE: how a run goes, from the question to the sum.

A run is a conversation between roles. Each role hears one message at a time and replies with
messages to others; this loop carries them until the coordinator has the answer. A mean under
`additive` goes like this:

    coordinator          QUERY   → servers, parties   what is asked: the plan, ε, who takes part
    each party           SUBMIT  → servers            its records, clipped to public bounds, encoded
                                                      as integers mod 2^64 and split into one random
                                                      share for each server
    each server          ROSTER  → coordinator        which parties it heard, never what they sent
    coordinator          RELEASE → servers            the parties that all servers heard
    each server          SHARE   → coordinator        the sum of its shares of those parties, plus
                                                      the full noise; ε is in its ledger first
    coordinator          adds the shares: what hid them cancels, the sum and the noise are left

Other aggregators speak more: under `masking` parties first agree on masks, in statistics of pairs
they speak to each other. The loop is the same. What a role makes of a message is decided by its
machine (`wire.machine`), made by the aggregator; a `Participant` puts a ledger, a meter and the
checks of who may say what around it (`run.participant`).

The runtime `inprocess` runs this loop over participants, `ray` over actors of a cluster, tests and
the aggregators' contract suite over bare machines (`aggregation.exchange`). The other runtimes put
a network in its place, with the same participants at its ends.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.wire.machine import Done, Failed, Rejected
from tallyroom.protocols.wire.messages import Message, Role

Node = TypeVar("Node")
"""Whatever plays a role: a participant, a bare machine, an actor in a cluster."""

OnWay = Callable[[Message], Iterable[Message]]
"""Sees every message on its way, and says what arrives in its place: itself, others, nothing."""


@dataclass
class Reply:
    """What a role answers: messages to carry, senders refused, and how the run ended.

    With `more`, the next messages are to be fetched (`JobKind.PROCEED`) once these are sent.
    `repeated` is how many said only what was heard before. `unpaid` says why the reply has to wait:
    what it spends cannot be written yet (`Participant.pay`).
    """

    run: bytes
    messages: list[Message] = field(default_factory=list)
    refused: list[Rejected] = field(default_factory=list)
    finished: Done | Failed | None = None
    more: bool = False
    repeated: int = 0
    unpaid: str = ""


ABSENT = -1
"""Where a party is that has not joined."""


class JobKind(Enum):
    HEAR = auto()  # a message
    PROCEED = auto()  # send the next part of what a block of parties has to say
    EXPIRE = auto()  # the deadline has passed


@dataclass(frozen=True, eq=False)
class Job(Generic[Node]):
    """What one role has to do next."""

    node: Node
    kind: JobKind
    run: bytes
    message: Message | None = None


def unchanged(message: Message) -> Iterable[Message]:
    return (message,)


class MessageLoop(ABC, Generic[Node]):
    """The roles of one run, and the messages between them, in the order in which they were sent.

    `servers` are in the order of their indices; parties `enter` in blocks. `at_once` is how many
    blocks may compute their next parts side by side: each part is memory.
    """

    at_once: ClassVar[int] = 1

    def __init__(
        self, servers: Sequence[Node], coordinator: Node, on_way: OnWay = unchanged
    ) -> None:
        self.servers = list(servers)
        self.coordinator = coordinator
        self.hosts: list[tuple[NDArray[np.uint32], Node]] = []
        self._host_of = np.empty(0, dtype=np.intp)
        self.on_way = on_way
        self.finished: Done | Failed | None = None
        self._unfinished: deque[tuple[Node, bytes]] = deque()
        self._expired = 0
        self._early: list[Message] = []

    def enter(self, ids: NDArray[np.uint32], host: Node) -> None:
        """A block of parties is here, and gets what was said to it before."""
        missing = int(ids.max(initial=0)) + 1 - len(self._host_of)
        self._host_of = np.pad(self._host_of, (0, max(0, missing)), constant_values=ABSENT)
        self._host_of[ids] = len(self.hosts)
        self.hosts.append((ids, host))
        early, self._early = self._early, []
        for message in early:
            self.send(message)

    # --- the loop ---

    def carry_on(self, run: bytes) -> None:
        """One step: a role does its next job, or parties send more, or a deadline passes."""
        if self.busy:
            job, reply = self.next()
            self.take(job.node, reply, job)
        elif self._unfinished:
            for _ in range(min(self.at_once, len(self._unfinished))):
                node, of_run = self._unfinished.popleft()
                self.post(Job(node, JobKind.PROCEED, of_run))
        else:
            self.pass_deadline(run)

    def take(self, node: Node, reply: Reply, job: Job[Node] | None = None) -> None:
        """Sends what a role said, and notes how the run ended."""
        for message in reply.messages:
            self._expired = 0
            for arriving in self.on_way(message):
                self.send(arriving)
        if reply.more:
            self._unfinished.append((node, reply.run))
        if reply.finished is not None:
            self.conclude(node, reply.finished)
        for refusal in reply.refused:
            self.refuse(node, refusal, job.message if job is not None else None)

    def pass_deadline(self, run: bytes) -> None:
        """Everybody waits: that is what a passed deadline means here. Parties give up on each other
        first, then servers on parties, then the coordinator."""
        waiting = ([host for _, host in self.hosts], self.servers, [self.coordinator])
        for node in waiting[self._expired]:
            self.post(Job(node, JobKind.EXPIRE, run))
        self._expired = (self._expired + 1) % len(waiting)

    def conclude(self, node: Node, finished: Done | Failed) -> None:
        """A role is done. The run is over when the coordinator is."""
        if node is self.coordinator:
            self.finished = finished

    def refuse(self, node: Node, refusal: Rejected, message: Message | None) -> None:
        """A message was refused. A party's is left out, and the run goes on; it ends where the
        coordinator is refused, or a server by another."""
        sender = None if message is None else message.sender_role
        if sender is Role.COORDINATOR:
            self.finished = Failed(f"{self.name_of(node)} refused: {refusal.reason}")
        elif sender is self.role_of(node) is Role.SERVER:
            why = f"{refusal.sender}: {refusal.reason}"
            self.finished = Failed(f"{self.name_of(node)} refused {why}")

    # --- who gets what ---

    def send(self, message: Message) -> None:
        """Splits a message among those that it is addressed to. What is said to parties that have
        not joined is kept for them."""
        if message.receiver_role is not Role.PARTY:
            to_server = message.receiver_role is Role.SERVER
            station = self.servers[int(message.receivers[0])] if to_server else self.coordinator
            self.post(Job(station, JobKind.HEAR, message.run, message))
            return
        known = message.receivers < len(self._host_of)
        at = np.full(len(known), ABSENT)
        at[known] = self._host_of[message.receivers[known]]
        for place in np.unique(at).tolist():
            part = _part(message, at == place)
            if place == ABSENT:
                self._early.append(part)
            else:
                self.post(Job(self.hosts[place][1], JobKind.HEAR, message.run, part))

    def role_of(self, node: Node) -> Role:
        if node is self.coordinator:
            return Role.COORDINATOR
        return Role.SERVER if any(node is server for server in self.servers) else Role.PARTY

    def name_of(self, node: Node) -> str:
        role = self.role_of(node)
        return role.named(list(self.servers).index(node)) if role is Role.SERVER else role.label

    # --- how jobs are done ---

    @property
    @abstractmethod
    def busy(self) -> bool:
        """Whether anybody has a job to do."""

    @abstractmethod
    def post(self, job: Job[Node]) -> None:
        """Has a job done, after those that were posted to the same role before."""

    @abstractmethod
    def next(self) -> tuple[Job[Node], Reply]:
        """The next job, and what came of it."""


class InMemory(MessageLoop[Node]):
    """The loop where roles do their jobs here, one after another."""

    def __init__(
        self, servers: Sequence[Node], coordinator: Node, on_way: OnWay = unchanged
    ) -> None:
        super().__init__(servers, coordinator, on_way)
        self._jobs: deque[Job[Node]] = deque()

    @property
    def busy(self) -> bool:
        return bool(self._jobs)

    def post(self, job: Job[Node]) -> None:
        self._jobs.append(job)

    def next(self) -> tuple[Job[Node], Reply]:
        job = self._jobs.popleft()
        return job, self.perform(job)

    @abstractmethod
    def perform(self, job: Job[Node]) -> Reply:
        """Lets a role do its job."""


def _part(message: Message, mine: NDArray[np.bool_]) -> Message:
    return message if mine.all() else message.select(np.flatnonzero(mine))
