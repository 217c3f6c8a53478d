"""`ray`: every role is an actor of a Ray cluster, on one machine or on many.

One actor for each block of parties, for each server and for the coordinator. Messages travel as
bytes through the process that asks, which keeps what everybody was told (`handles`); so its line
bounds what a cluster gains, and computing is what is spread. All of it is a simulation: a Ray
cluster is one trust domain, and nothing is private from whoever runs it.
"""

import datetime as dt
import os
from collections.abc import Iterable, Sequence
from typing import ClassVar

import numpy as np

from tallyroom.protocols.aggregation.contract import Ids
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.identity.certificates import Authority, Identity
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.run.party_states import party_states
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.wire.loop import Job, MessageLoop, Reply
from tallyroom.protocols.wire.messages import Message, Phase, Role
from tallyroom.protocols.wire.meter import Bill, Direction, Meter
from tallyroom.simulation.runtimes.actor_handles import ActorHandle, RecordedCall
from tallyroom.simulation.runtimes.actors import (
    Call,
    CoordinatorRecipe,
    HostRecipe,
    Recipe,
    ServerRecipe,
    Spent,
)
from tallyroom.simulation.runtimes.cluster import connect, disconnect, the_engine
from tallyroom.simulation.runtimes.contract import Layout, Progress
from tallyroom.simulation.runtimes.inprocess import (
    BegunRun,
    LoopRuntime,
    RunAccounts,
    submitted_to,
    time_after,
)
from tallyroom.simulation.runtimes.spread_bulk import SpreadBulk

LIFETIME = dt.timedelta(days=365)
SECRET_BYTES = 16


class ActorLoop(MessageLoop[ActorHandle]):
    """The message loop over actors, which work side by side."""

    at_once: ClassVar[int] = 1 << 16

    def __init__(
        self,
        everybody: Iterable[ActorHandle],
        servers: Sequence[ActorHandle],
        coordinator: ActorHandle,
    ) -> None:
        super().__init__(servers, coordinator)
        self._everybody = list(everybody)

    @property
    def busy(self) -> bool:
        return any(handle.busy for handle in self._everybody)

    def post(self, job: Job[ActorHandle]) -> None:
        data = None if job.message is None else job.message.encode()
        job.node.tell(RecordedCall(job.kind, job.run, data, job))

    def next(self) -> tuple[Job[ActorHandle], Reply]:
        heads = {handle.head: handle for handle in self._everybody if handle.busy}
        ready, _ = the_engine().wait(list(heads), num_returns=1)
        handle = heads[ready[0]]
        job, answer = handle.answer()
        answer.raise_error()
        assert job is not None
        return job, answer.reply(job.run, handle.name)


class Ray(LoopRuntime[ActorHandle]):
    name: ClassVar[str] = "ray"
    summary: ClassVar[str] = "actors of a Ray cluster, on one machine or many; one trust domain"
    own_hosts: ClassVar[int] = 0
    trust: ClassVar[str] = "simulation: a Ray cluster is one trust domain"

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self._ours = False
        self.handles: dict[str, ActorHandle] = {}
        self._hosts: list[tuple[Ids, ActorHandle]] = []
        self._servers: list[ActorHandle] = []
        self._watched: dict[tuple[Role, int], Meter] = {}
        self._refusing: set[int] = set()
        self._last_time = 0

    def start(self) -> None:
        self._ours = connect()
        try:
            self._start_actors()
            for handle in self.handles.values():
                handle.ready()
        except BaseException:
            self.stop()
            raise

    def _start_actors(self) -> None:
        """Secrets are drawn here: an actor that is made anew has to draw what it drew before."""
        layout, now = self.layout, dt.datetime.now(dt.UTC)
        secret = layout.seed
        if secret is None:
            secret = int.from_bytes(os.urandom(SECRET_BYTES), "little")
        authority = Authority.create("simulation", now, LIFETIME)
        servers = [
            authority.issue(Identity(Role.SERVER, i, i), now, LIFETIME)
            for i in range(layout.servers)
        ]
        self._authority = servers[0].authority
        for i, credentials in enumerate(servers):
            name = Role.SERVER.named(i)
            recipe = ServerRecipe(
                secret,
                layout.store_of(name),
                i,
                credentials,
                layout.cap,
                layout.cap_delta,
                SpreadBulk,
            )
            self._servers.append(self._start_actor(name, recipe))
        holdings = layout.holdings
        self._start_actor(
            "coordinator",
            CoordinatorRecipe(
                secret,
                layout.store_of("coordinator"),
                holdings.ids,
                holdings.counts.astype(np.uint32),
                holdings.version(Randomness.from_seed(secret, "parties")),
                tuple(each.certificate for each in servers),
                layout.seed is not None,
                layout.cap,
                layout.cap_delta,
            ),
        )
        for number, block in enumerate(holdings.blocks(layout.hosts)):
            name = f"host-{number}"
            identity = Identity(Role.PARTY, int(block.ids[0]), int(block.ids[-1]))
            host = HostRecipe(
                secret,
                layout.store_of(name),
                block,
                authority.issue(identity, now, LIFETIME),
                layout.servers,
                layout.policy,
                layout.misbehaviour,
            )
            self._hosts.append((block.ids, self._start_actor(name, host)))

    def _start_actor(self, name: str, recipe: Recipe) -> ActorHandle:
        self.handles[name] = ActorHandle(name, recipe)
        return self.handles[name]

    def stop(self) -> None:
        for handle in self.handles.values():
            handle.stop()
        self.handles.clear()
        self._hosts.clear()
        self._servers.clear()
        if self._ours:
            disconnect()
            self._ours = False

    @property
    def coordinator_handle(self) -> ActorHandle:
        if not self.handles:
            raise LocalError("the federation is not started")
        return self.handles["coordinator"]

    def _loop(self) -> MessageLoop[ActorHandle]:
        loop = ActorLoop(self.handles.values(), self._servers, self.coordinator_handle)
        for ids, handle in self._hosts:
            loop.enter(ids, handle)
        return loop

    def _begin(self, question: Question) -> BegunRun:
        self._watched.clear()
        self._refusing.clear()
        handle = self.coordinator_handle
        now = time_after(self._last_time, self.layout.seed is not None)
        answer = handle.ask(Call.QUESTION, b"", (question, frozenset(self._kept), now))
        told = handle.journal[-1]
        if answer.error is not None:
            handle.journal.remove(told)
            answer.raise_error()
        begun: BegunRun = answer.result
        if begun.earlier is not None:
            handle.journal.remove(told)
        else:
            self._last_time = now or 0
        told.run = begun.run
        reply = answer.reply(begun.run, handle.name)
        return BegunRun(begun.query, begun.run, reply, begun.earlier)

    def _close(self, query: Query, run: bytes, contributors: Ids) -> tuple[bool, list[bytes]]:
        closed: tuple[bool, list[bytes]] = self.coordinator_handle.ask(
            Call.CLOSE, run, (query, run, contributors)
        ).result
        return closed

    def _settle(self, run: bytes) -> RunAccounts:
        for handle in self.handles.values():
            handle.tell(RecordedCall(Call.SETTLE, run))
        spent_by: dict[str, Spent] = {}
        for name, handle in self.handles.items():
            while handle.busy:
                _, answer = handle.answer()
                spent_by[name] = answer.result  # the last one is the one that was asked for
        hosts = {name for name in self.handles if name.startswith("host-")}
        return RunAccounts(
            [spent.meter for name, spent in spent_by.items() if name not in hosts],
            [spent.meter for name, spent in spent_by.items() if name in hosts],
            sum(spent.cpu_seconds for spent in spent_by.values()),
            sum(spent.prepare_cpu_seconds for spent in spent_by.values()),
        )

    def _forget(self, runs: Iterable[bytes]) -> None:
        over = list(runs)
        kept = [(query, total.contributors) for query, total in self._kept.values()]
        self.coordinator_handle.lasting.kept = kept
        for handle in self.handles.values():
            handle.forget(over)

    # --- who watches ---

    def on_way(self, message: Message) -> Iterable[Message]:
        """What stations meter in their actors is told when the run is over; until then, what was
        carried is."""
        if not message.between_parties:
            self._watch(message)
        return (message,)

    def _watch(self, message: Message) -> None:
        if message.phase is Phase.REFUSE and message.sender_role is Role.PARTY:
            self._refusing.update(message.senders.tolist())
        if message.sender_role is Role.PARTY:
            station = message.receiver_role, int(message.receivers[0])
            direction = Direction.RECEIVED
        else:
            station, direction = (message.sender_role, int(message.senders[0])), Direction.SENT
        self._watched.setdefault(station, Meter()).record(direction, message)

    def _progress(self, run: bytes, phase: str) -> Progress:
        parties = len(self.layout.holdings.ids)
        servers = [meter for (role, _), meter in self._watched.items() if role is Role.SERVER]
        submitted = submitted_to(servers, parties)
        refusing = np.isin(np.arange(parties), list(self._refusing))
        links = Bill(self._watched.values(), 0).by_link()
        closed = phase == "release"
        return Progress(
            phase,
            parties,
            parties,
            int(submitted.sum()),
            sum(tally.bytes for tally in links.values()),
            links=links,
            states=party_states(np.ones(parties, dtype=bool), submitted, refusing, closed),
        )
