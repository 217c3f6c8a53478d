"""`inprocess`: all machines in one process, messages in a queue."""

import datetime as dt
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import ClassVar

from tallyroom.parties.consent import Consent
from tallyroom.protocols.aggregation.contract import Ids
from tallyroom.protocols.identity.certificates import Authority, Credentials, Identity
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.run.participant import Participant, Reply
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.run.receipts import signer
from tallyroom.protocols.wire.messages import Phase, Role
from tallyroom.protocols.wire.meter import Meter, tallies_by_link
from tallyroom.servers.aggregation_server import AggregationServer
from tallyroom.servers.coordinator import Coordinator
from tallyroom.simulation.runtimes.carried import Accounts, Carried, WorkItem, do, submitted_to
from tallyroom.simulation.runtimes.contract import Layout, Progress
from tallyroom.simulation.runtimes.coordinator_facade import (
    BegunRun,
    Closed,
    CoordinatorFacade,
    time_after,
)
from tallyroom.simulation.scripted_parties import ScriptedBlock
from tallyroom.storage.ledger import Ledger

LIFETIME = dt.timedelta(days=365)


class InProcess(Carried[Participant]):
    name: ClassVar[str] = "inprocess"
    summary: ClassVar[str] = "all roles in one process; the fastest, for research"
    block: ClassVar[type[ScriptedBlock]] = ScriptedBlock

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self._ledgers: list[Ledger] = []
        self._credentials: list[Credentials] = []
        self._consents: list[Consent] = []
        self._errands: deque[WorkItem[Participant]] = deque()
        self._server_cpu_seconds = 0.0
        self._prepare_cpu_seconds = 0.0

    def start(self) -> None:
        layout = self.layout
        parties = Randomness.for_role(layout.seed, "parties")
        self._blocks = [
            self.block(
                block, parties, self._consent(f"host-{number}"), misbehaviour=layout.misbehaviour
            )
            for number, block in enumerate(layout.holdings.blocks(layout.hosts))
        ]
        now = dt.datetime.now(dt.UTC)
        authority = Authority.create("simulation", now, LIFETIME)
        self._credentials = [
            authority.issue(Identity(Role.SERVER, i, i), now, LIFETIME)
            for i in range(layout.servers)
        ]
        self._authority = self._credentials[0].authority
        self._servers = [
            AggregationServer(
                i,
                self._ledger(f"server-{i}"),
                Randomness.for_role(layout.seed, f"server-{i}"),
                sign=signer(self._credentials[i]),
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
        self._desk = CoordinatorFacade(self._coordinator)
        for server, held in enumerate(self._credentials):
            self._coordinator.certificates.keep(server, held.certificate)
        counts = layout.holdings.counts.astype("uint32")
        self._coordinator.enrol(layout.holdings.ids, counts, layout.holdings.version(parties))

    def stop(self) -> None:
        for ledger in self._ledgers:
            ledger.close()
        for consent in self._consents:
            consent.close()

    # --- where participants live: here ---

    @property
    def server_places(self) -> Sequence[Participant]:
        return self._servers

    @property
    def coordinator_place(self) -> Participant:
        return self._coordinator

    @property
    def host_places(self) -> Sequence[tuple[Ids, Participant]]:
        return [(block.holdings.ids, block) for block in self._blocks]

    def _put(self, question: Question) -> BegunRun:
        self._errands.clear()
        self._server_cpu_seconds = self._prepare_cpu_seconds = 0.0
        now = time_after(self._coordinator.last_time, self.layout.seed is not None)
        return self._desk.put(question, self._kept, now)

    def _close(self, query: Query, run: bytes, contributors: Ids) -> Closed:
        return self._desk.close(query, run, contributors)

    def _send(self, errand: WorkItem[Participant]) -> None:
        self._errands.append(errand)

    def _next(self) -> tuple[WorkItem[Participant], Reply]:
        errand = self._errands.popleft()
        begun = time.process_time()
        outcome = do(errand.place, errand)
        if errand.place.role is Role.SERVER:
            spent = time.process_time() - begun
            self._server_cpu_seconds += spent
            if errand.message is not None and errand.message.phase is Phase.PREPARE:
                self._prepare_cpu_seconds += spent
        return errand, outcome

    @property
    def _under_way(self) -> bool:
        return bool(self._errands)

    def _settle(self, run: bytes) -> Accounts:
        self._errands.clear()
        return Accounts(
            [p.meters.pop(run, Meter()) for p in (*self._servers, self._coordinator)],
            [p.meters.pop(run, Meter()) for p in self._blocks],
            self._server_cpu_seconds,
            self._prepare_cpu_seconds,
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
        links = tallies_by_link(meters if ours is None else [*meters, ours])
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
        self._ledgers.append(Ledger(folder, self.layout.cap, self.layout.cap_delta))
        return self._ledgers[-1]

    def _consent(self, host: str) -> Consent | None:
        if self.layout.policy is None:
            return None
        consent = Consent(self.layout.policy, self.layout.store_of(host))
        consent.joined(self.layout.servers)
        self._consents.append(consent)
        return consent
