"""`ray`: every role is an actor of a Ray cluster, on one machine or on many.

One actor for each block of parties, for each server and for the coordinator. Messages travel as
bytes through the process that asks, which keeps what everybody was told (`places`); so its line
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
from tallyroom.protocols.run.participant import Reply
from tallyroom.protocols.run.party_states import party_states
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.wire.messages import Message, Phase, Role
from tallyroom.protocols.wire.meter import Direction, Meter, tallies_by_link
from tallyroom.simulation.runtimes.carried import Accounts, Carried, WorkItem, submitted_to
from tallyroom.simulation.runtimes.cluster import connect, disconnect, the_engine
from tallyroom.simulation.runtimes.contract import Layout, Progress
from tallyroom.simulation.runtimes.coordinator_facade import BegunRun, Closed, time_after
from tallyroom.simulation.runtimes.places import ActorPlace, Told
from tallyroom.simulation.runtimes.seats import (
    Call,
    CoordinatorSeating,
    HostSeating,
    Seating,
    ServerSeating,
    Spent,
)
from tallyroom.simulation.runtimes.spread_bulk import SpreadBulk

LIFETIME = dt.timedelta(days=365)
SECRET_BYTES = 16


class Ray(Carried[ActorPlace]):
    name: ClassVar[str] = "ray"
    summary: ClassVar[str] = "actors of a Ray cluster, on one machine or many; one trust domain"
    own_hosts: ClassVar[int] = 0
    trust: ClassVar[str] = "simulation: a Ray cluster is one trust domain"
    at_once: ClassVar[int] = 1 << 16

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self._ours = False
        self.places: dict[str, ActorPlace] = {}
        self._hosts: list[tuple[Ids, ActorPlace]] = []
        self._servers: list[ActorPlace] = []
        self._watched: dict[tuple[Role, int], Meter] = {}
        self._refusing: set[int] = set()
        self._last_time = 0

    def start(self) -> None:
        self._ours = connect()
        try:
            self._seat_everybody()
            for place in self.places.values():
                place.ready()
        except BaseException:
            self.stop()
            raise

    def _seat_everybody(self) -> None:
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
            seating = ServerSeating(
                secret,
                layout.store_of(name),
                i,
                credentials,
                layout.cap,
                layout.cap_delta,
                SpreadBulk,
            )
            self._servers.append(self._seat(name, seating))
        holdings = layout.holdings
        self._seat(
            "coordinator",
            CoordinatorSeating(
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
            host = HostSeating(
                secret,
                layout.store_of(name),
                block,
                authority.issue(identity, now, LIFETIME),
                layout.servers,
                layout.policy,
                layout.misbehaviour,
            )
            self._hosts.append((block.ids, self._seat(name, host)))

    def _seat(self, name: str, seating: Seating) -> ActorPlace:
        self.places[name] = ActorPlace(name, seating)
        return self.places[name]

    def stop(self) -> None:
        for place in self.places.values():
            place.stop()
        self.places.clear()
        self._hosts.clear()
        self._servers.clear()
        if self._ours:
            disconnect()
            self._ours = False

    # --- where participants live: in actors ---

    @property
    def server_places(self) -> Sequence[ActorPlace]:
        return self._servers

    @property
    def coordinator_place(self) -> ActorPlace:
        if not self.places:
            raise LocalError("the federation is not started")
        return self.places["coordinator"]

    @property
    def host_places(self) -> Sequence[tuple[Ids, ActorPlace]]:
        return self._hosts

    def _put(self, question: Question) -> BegunRun:
        self._watched.clear()
        self._refusing.clear()
        place = self.coordinator_place
        now = time_after(self._last_time, self.layout.seed is not None)
        answer = place.ask(Call.PUT, b"", (question, frozenset(self._kept), now))
        told = place.journal[-1]
        if answer.error is not None:
            place.journal.remove(told)
            answer.raise_error()
        begun: BegunRun = answer.result
        if begun.earlier is not None:
            place.journal.remove(told)
        else:
            self._last_time = now or 0
        told.run = begun.run
        outcome = answer.outcome(begun.run, place.name)
        return BegunRun(begun.query, begun.run, outcome, begun.earlier)

    def _close(self, query: Query, run: bytes, contributors: Ids) -> Closed:
        closed: Closed = self.coordinator_place.ask(
            Call.CLOSE, run, (query, run, contributors)
        ).result
        return closed

    def _send(self, errand: WorkItem[ActorPlace]) -> None:
        data = None if errand.message is None else errand.message.encode()
        errand.place.tell(Told(errand.task, errand.run, data, errand))

    def _next(self) -> tuple[WorkItem[ActorPlace], Reply]:
        heads = {place.head: place for place in self.places.values() if place.busy}
        ready, _ = the_engine().wait(list(heads), num_returns=1)
        place = heads[ready[0]]
        errand, answer = place.answer()
        answer.raise_error()
        assert errand is not None
        return errand, answer.outcome(errand.run, place.name)

    @property
    def _under_way(self) -> bool:
        return any(place.busy for place in self.places.values())

    def _settle(self, run: bytes) -> Accounts:
        for place in self.places.values():
            place.tell(Told(Call.SETTLE, run))
        accounts: dict[str, Spent] = {}
        for name, place in self.places.items():
            while place.busy:
                _, answer = place.answer()
                accounts[name] = answer.result  # the last one is the one that was asked for
        hosts = {name for name in self.places if name.startswith("host-")}
        return Accounts(
            [spent.meter for name, spent in accounts.items() if name not in hosts],
            [spent.meter for name, spent in accounts.items() if name in hosts],
            sum(spent.cpu_seconds for spent in accounts.values()),
            sum(spent.prepare_cpu_seconds for spent in accounts.values()),
        )

    def _forget(self, runs: Iterable[bytes]) -> None:
        over = list(runs)
        kept = [(query, total.contributors) for query, total in self._kept.values()]
        self.coordinator_place.memoir.kept = kept
        for place in self.places.values():
            place.forget(over)

    # --- who watches ---

    def _carried(self, message: Message) -> None:
        """What stations meter in their actors is told when the run is over; until then, what was
        carried is."""
        if message.between_parties:
            return
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
        links = tallies_by_link(self._watched.values())
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
