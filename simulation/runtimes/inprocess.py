"""`inprocess`: all machines in one process, messages in a queue."""

import datetime as dt
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar

import numpy as np

from parties.block import PartyBlock
from parties.consent import Consent
from protocols.aggregation.contract import Total
from protocols.errors import RunFailed
from protocols.identity.certificates import Authority, Credentials, Identity
from protocols.randomness import Randomness
from protocols.run.machine import Done, Failed
from protocols.run.messages import Message, Phase, Role
from protocols.run.meter import Bill, Meter, relayed, tallies_by_link
from protocols.run.participant import Outcome, Participant
from protocols.run.query import Query
from protocols.run.question import Question
from protocols.run.receipts import signer
from protocols.run.router import Router
from servers.aggregation_server import AggregationServer
from servers.coordinator import Coordinator
from simulation.runtimes.contract import Opened, Plan, Progress, Report, Runtime
from simulation.scripted_parties import ScriptedBlock
from storage.ledger import Ledger

MOST_KEPT = 100
"""Releases that are given again without being made anew."""
LIFETIME = dt.timedelta(days=365)
REPORT_SECONDS = 0.2
"""Between two reports of one phase."""


class InProcess(Runtime):
    name: ClassVar[str] = "inprocess"
    summary: ClassVar[str] = "all roles in one process; the fastest, for research"
    block: ClassVar[type[ScriptedBlock]] = ScriptedBlock

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._ledgers: list[Ledger] = []
        self._kept: OrderedDict[bytes, Total] = OrderedDict()
        self._credentials: list[Credentials] = []
        self._consents: list[Consent] = []
        self._server_cpu_seconds = 0.0
        self._prepare_cpu_seconds = 0.0

    def start(self) -> None:
        plan = self.plan
        parties = Randomness.for_role(plan.seed, "parties")
        self._blocks = [
            self.block(
                block, parties, self._consent(f"host-{number}"), misbehaviour=plan.misbehaviour
            )
            for number, block in enumerate(plan.holdings.blocks(plan.hosts))
        ]
        now = dt.datetime.now(dt.UTC)
        authority = Authority.create("simulation", now, LIFETIME)
        self._credentials = [
            authority.issue(Identity(Role.SERVER, i, i), now, LIFETIME) for i in range(plan.servers)
        ]
        self._servers = [
            AggregationServer(
                i,
                self._ledger(f"server-{i}"),
                Randomness.for_role(plan.seed, f"server-{i}"),
                sign=signer(self._credentials[i]),
            )
            for i in range(plan.servers)
        ]
        self._coordinator = Coordinator(
            plan.servers,
            len(plan.holdings.ids),
            self._ledger("coordinator"),
            Randomness.for_role(plan.seed, "coordinator"),
            seeded=plan.seed is not None,
        )
        for server, held in enumerate(self._credentials):
            self._coordinator.certificates.keep(server, held.certificate)
        counts = plan.holdings.counts.astype("uint32")
        self._coordinator.enrol(plan.holdings.ids, counts, plan.holdings.version(parties))

    def ask(self, question: Question, report: Report) -> Opened:
        started = time.perf_counter()
        self._server_cpu_seconds = self._prepare_cpu_seconds = 0.0
        query = self._coordinator.query(question)
        if (opened := self._again(question, query)) is not None:
            return opened
        run = self._coordinator.name_of(query)
        clock = {"submit": started}
        finished: Done | Failed | None = None
        queue = self._router = self._everybody()
        unfinished: deque[PartyBlock] = deque()
        parties = len(self.plan.holdings.ids)
        last = 0.0

        def tell(phase: str) -> None:
            nonlocal last
            if phase == "submit" and time.perf_counter() - last < REPORT_SECONDS:
                return
            report(self._progress(run, phase))
            last = time.perf_counter()

        tell("submit")

        def take(outcome: Outcome, by: Participant, asked_by: Role | None = None) -> None:
            nonlocal finished
            queue.send(outcome.messages)
            if outcome.more and isinstance(by, PartyBlock):
                unfinished.append(by)
            if by is self._coordinator and outcome.finished:
                finished = outcome.finished
            for refusal in outcome.refused:
                if asked_by is Role.COORDINATOR or asked_by is by.role is Role.SERVER:
                    finished = Failed(f"{self._name(by)} refused: {refusal.reason}")

        take(self._coordinator.ask(query), self._coordinator)
        while finished is None:
            if not queue and unfinished:
                block = unfinished.popleft()
                take(block.proceed(query.run), block)
                continue
            if not queue:  # everybody waits: that is what a passed deadline means here
                self._pass_deadline(run, take, queue)
                continue
            message = queue.next()
            if message.phase is Phase.RELEASE and "release" not in clock:
                clock["release"] = time.perf_counter()
                tell("release")
            elif "release" not in clock:
                tell("submit")
            for receiver, part in self._receivers(message):
                with self._timed(receiver, message.phase is Phase.PREPARE):
                    outcome = receiver.handle(part)
                take(outcome, receiver, message.sender_role)
        ended = time.perf_counter()
        if isinstance(finished, Failed):
            self._forget(run)
            raise RunFailed(finished.reason)
        total = finished.output
        assert isinstance(total, Total)
        if run == query.run:  # not one that asked a stored tree again
            self._keep(query, total)
        stations = [p.meters.pop(run, Meter()) for p in (*self._servers, self._coordinator)]
        hosts = [p.meters.pop(run, Meter()).between_parties() for p in self._blocks]
        if self.plan.peer == "relay":
            hosts = [relayed(meter) for meter in hosts]
        if not self._coordinator.releases.holds(run):
            self._forget(run)
        released = clock.get("release", ended)
        return Opened(
            total.vector,
            total.contributors,
            total.records,
            Bill([*stations, *hosts], parties),
            {"submit": released - started, "release": ended - released},
            total.caught,
            self._server_cpu_seconds,
            total.refused,
            total.lost_pairs,
            question=question,
            refusals=total.refusals,
            refusing=total.refusing,
            evidence=total.evidence,
            authority=self._credentials[0].authority,
            prepare_cpu_seconds=self._prepare_cpu_seconds,
        )

    def _progress(self, run: bytes, phase: str) -> Progress:
        parties = len(self.plan.holdings.ids)
        meters = [meter for each in self._servers if (meter := each.meters.get(run)) is not None]
        ours = self._coordinator.meters.get(run)
        heard = [found for meter in meters if (found := meter.submitted(parties)).any()]
        submitted = np.logical_and.reduce(heard) if heard else np.zeros(parties, dtype=bool)
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

    def _again(self, question: Question, query: Query) -> Opened | None:
        """What an earlier question released of the same tree: it costs nothing."""
        releases, data = self._coordinator.releases, self._coordinator.data
        total = self._kept.get(releases.released(query, data) or b"")
        if total is None:
            releases.disown(query, data)
            return None
        return Opened(
            total.vector,
            total.contributors,
            total.records,
            Bill([], len(self.plan.holdings.ids)),
            caught=total.caught,
            refused=total.refused,
            refusals=total.refusals,
            refusing=total.refusing,
            reused=True,
            question=question,
            evidence=total.evidence,
            authority=self._credentials[0].authority,
        )

    def _keep(self, query: Query, total: Total) -> None:
        releases, data = self._coordinator.releases, self._coordinator.data
        releases.remember(query.run, query, data, total.contributors)
        if releases.released(query, data) == query.run:
            self._kept[query.run] = total
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        while releases.outdated:
            self._forget(releases.outdated.pop())

    def _forget(self, run: bytes) -> None:
        for participant in (*self._servers, *self._blocks, self._coordinator):
            participant.forget(run)

    @contextmanager
    def _timed(self, participant: Participant, preparing: bool = False) -> Iterator[None]:
        """Adds up the CPU time of servers."""
        begun = time.process_time()
        yield
        if participant.role is Role.SERVER:
            spent = time.process_time() - begun
            self._server_cpu_seconds += spent
            self._prepare_cpu_seconds += spent if preparing else 0.0

    def _pass_deadline(
        self, run: bytes, take: Callable[[Outcome, Participant], None], queue: Router[Participant]
    ) -> None:
        """Parties give up on each other first, then servers on parties, then the coordinator.

        Only parties that set a deadline: others wait for the servers for as long as the run goes.
        """
        timed = [b for b in self._blocks if b.deadlines.pop(run, None) is not None]
        waiting: list[list[Participant]] = [[*timed], [*self._servers], [self._coordinator]]
        for participants in waiting:
            for participant in participants:
                with self._timed(participant):
                    outcome = participant.expire(run)
                take(outcome, participant)
            if queue:
                return

    def stop(self) -> None:
        for ledger in self._ledgers:
            ledger.close()
        for consent in self._consents:
            consent.close()

    def _everybody(self) -> Router[Participant]:
        router: Router[Participant] = Router(self._servers, self._coordinator)
        for block in self._blocks:
            router.join(block.holdings.ids, block)
        return router

    def _receivers(self, message: Message) -> list[tuple[Participant, Message]]:
        return self._router.receivers(message)

    def _name(self, participant: Participant) -> str:
        if isinstance(participant, AggregationServer):
            return Role.SERVER.named(participant.index)
        return participant.role.label

    def _ledger(self, keeper: str) -> Ledger:
        folder = self.plan.store_of(keeper)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            folder /= "ledger.sqlite"
        self._ledgers.append(Ledger(folder, self.plan.cap, self.plan.cap_delta))
        return self._ledgers[-1]

    def _consent(self, host: str) -> Consent | None:
        if self.plan.policy is None:
            return None
        consent = Consent(self.plan.policy, self.plan.store_of(host))
        consent.joined(self.plan.servers)
        self._consents.append(consent)
        return consent
