"""The coordinator's service: party hosts join it, analysts ask it. `runs` conducts the runs."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio
import numpy as np

from tallyroom.protocols.aggregation.contract import Ids
from tallyroom.protocols.errors import LocalError, PeerError, RunFailed, TallyError
from tallyroom.protocols.identity.certificates import Credentials, Identity
from tallyroom.protocols.privacy.ledger import Cap, Composition, Filter
from tallyroom.protocols.run.party_states import MOST_SHOWN
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.run.refusal import MAX_REASON_BYTES
from tallyroom.protocols.wire.loop import Reply
from tallyroom.protocols.wire.messages import Role
from tallyroom.protocols.wire.meter import Bill, Tally
from tallyroom.protos import tally_pb2 as pb
from tallyroom.protos.channel import Context, caller, certificate_of
from tallyroom.protos.progress import added, links_from_wire, links_to_wire, submitted_from_wire
from tallyroom.servers.allowances import Asker
from tallyroom.servers.coordinator import MAX_RECORDS_EACH, Coordinator
from tallyroom.servers.dispatch import POLL_SECONDS, Dispatch
from tallyroom.servers.enrolment import EnrolmentConfig
from tallyroom.servers.health import Health
from tallyroom.servers.message_service import Mailboxes, MessageService
from tallyroom.servers.metrics import Metrics, watch_ledger, watch_store
from tallyroom.servers.peer_directory import PeerDirectory
from tallyroom.servers.run import LiveRuns, Run, analyst_of
from tallyroom.servers.runs import Runs
from tallyroom.servers.server_link import ServerLink
from tallyroom.storage.answers import Answers
from tallyroom.storage.certificates import Certificates
from tallyroom.storage.journal import Journal
from tallyroom.storage.store import Store

log = logging.getLogger(__name__)

MAX_KEY = 200


@dataclass(frozen=True)
class CoordinatorConfig:
    credentials: Credentials
    parties: int
    servers: tuple[str, ...]
    listen: str = "127.0.0.1:0"
    store: Path | None = None
    cap: Cap = None
    seed: int | None = None
    enrolment: EnrolmentConfig | None = None
    metrics: str | None = None
    cap_delta: float | None = None
    composition: Composition = Composition.SUM
    max_records_per_party: int = MAX_RECORDS_EACH


NO_LINKS: Mapping[str, Tally] = {}


class CoordinatorService(PeerDirectory):
    def __init__(self, config: CoordinatorConfig) -> None:
        super().__init__()
        self._config = config
        self._store = Store(config.store)
        self._ledger = self._store.open_ledger(
            Filter.of(config.cap, config.cap_delta, config.composition)
        )
        self.coordinator = Coordinator(
            len(config.servers),
            config.parties,
            self._ledger,
            self._store.randomness(config.seed, "coordinator"),
            config.max_records_per_party,
            seeded=config.seed is not None,
        )
        if self._store.durable:
            self.coordinator.certificates = Certificates(self._store.folder / "certificates")
        self.mailboxes = Mailboxes()
        journal = Journal(self._store.folder / "runs") if self._store.durable else None
        self.post = MessageService(self.coordinator, self.mailboxes, self._carry, journal)
        self.post.lost = self._host_lost
        self.servers = [
            ServerLink(index, target, config.credentials, config.servers)
            for index, target in enumerate(config.servers)
        ]
        live = LiveRuns()
        self.dispatch = Dispatch(
            self.coordinator, self.post, self.mailboxes, self.servers, live, self._store.durable
        )
        self.runs = Runs(
            self.coordinator,
            self.post,
            self.dispatch,
            live,
            self.servers,
            Answers(self._store.folder / "answers", self._store.durable),
            self.reports,
            self._store.durable,
            time.time if config.seed is None else None,
        )
        self.health = Health(config.store, self._ledger, lambda: self.coordinator.waiting)
        self._joined = asyncio.Condition()

    async def _carry(self, outcome: Reply) -> None:
        await self.dispatch.carry(outcome)

    @property
    def durable(self) -> bool:
        return self._store.durable

    def watch(self, metrics: Metrics) -> None:
        watch_ledger(metrics, self._ledger)
        watch_store(metrics, self.health, self.coordinator)
        self.runs.ended = metrics.ended
        metrics.watch(
            "tally_servers_away",
            "Servers that are not connected.",
            lambda: sum(server.away is not None for server in self.servers),
        )
        metrics.watch(
            "tally_parties_present", "Parties that have joined.", lambda: self.coordinator.enrolled
        )
        metrics.watch(
            "tally_runs",
            "Runs in progress.",
            lambda: sum(not run.ended.done() for run in self.runs.live.all()),
        )

    async def close(self) -> None:
        await self.post.stop()
        await self.runs.close()
        await self.dispatch.close()
        for server in self.servers:
            await server.channel.close()
        self.post.close()
        self._ledger.close()
        self._store.close()

    # --- calls from party hosts ---

    async def Join(self, request: pb.JoinRequest, context: Context) -> pb.Welcome:  # noqa: N802
        identity = await caller(context)
        if len(request.parties) % 4 or len(request.records) != len(request.parties):
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, "there must be one number of records per party"
            )
        ids = np.frombuffer(request.parties, dtype="<u4")
        records = np.frombuffer(request.records, dtype="<u4")
        if identity.role is not Role.PARTY or not identity.covers(ids):
            reason = f"{identity.name} may not join as these parties"
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, reason)
        try:
            self.coordinator.enrol(ids, records, request.version)
        except LocalError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        self.mailboxes.of(identity)
        self._remind(identity, ids)
        async with self._joined:
            self._joined.notify_all()
        return pb.Welcome(servers=self._config.servers, parties=self._config.parties)

    def _remind(self, identity: Identity, ids: Ids) -> None:
        """Repeats what a host may have missed while it was away, except for runs that some servers
        do not know yet: they would refuse its submissions, and it is asked in turn anyway."""
        for run in self.runs.live.all():
            open_to_parties = run.phase == "submit" or self.coordinator.awaits_parties(run.run)
            submits = run.asked.done() and open_to_parties and not run.asks_again
            if submits and not run.ended.done():
                self.mailboxes.deliver(self.coordinator.remind(run.query, ids))
                for message in self.coordinator.told(run.run):
                    self.mailboxes.deliver(message, identity)

    def _host_lost(self, identity: Identity) -> None:
        if identity.role is Role.PARTY:
            ids = np.arange(identity.first, identity.last + 1, dtype=np.uint32)
            ids = ids[ids < self._config.parties]
            self.coordinator.leave(ids)
            self.dispatch.lose_parties()

    async def Hinder(self, request: pb.Hindrance, context: Context) -> pb.Receipt:  # noqa: N802
        identity = await caller(context)
        if identity.role is not Role.PARTY:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "only a party host is hindered")
        short = 0 < len(request.reason.encode()) <= MAX_REASON_BYTES
        if not short or not request.reason.isprintable():
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a reason is one printable line")
        if (run := self.runs.live.of(request.run)) is not None:
            log.warning("%s: %s", identity.name, request.reason)
            run.hinder(identity.name, request.reason)
        return pb.Receipt()

    def is_running(self, run: bytes) -> bool:
        found = self.runs.live.of(run)
        return found is not None and not found.ended.done()

    # --- calls from analysts ---

    async def Ask(  # noqa: N802
        self, request: pb.Question, context: Context
    ) -> AsyncIterator[pb.Event]:
        asker = await self._asker(context)
        try:
            question = self.coordinator.keyed(Question.decode(request.json))
            name = self.coordinator.named(question.key)
            asked = question.encode()
            kept, run = self.runs.kept(name), self.runs.live.asked(name)
            if kept is None and run is None:
                async for progress in self._wait_for_parties(question):
                    yield progress
                kept = self.runs.kept(name)  # another call may have asked it in the meantime
            if kept is not None:
                _must_be_same((asker.name, asked), (analyst_of(kept), kept.question))
                for event in kept.events:
                    yield event
                return
            run = run or await self.runs.begin(question, asker)
            _must_be_same((asker.name, asked), (run.analyst, run.question))
            async for event in self._follow(run):
                yield event
        except RunFailed as error:
            yield pb.Event(failure=pb.Failure(reason=str(error)))
        except TallyError as error:
            yield pb.Event(failure=pb.Failure(reason=str(error), our_input=True))

    async def Resume(  # noqa: N802
        self, request: pb.QuestionKey, context: Context
    ) -> AsyncIterator[pb.Event]:
        asker, name = await self._named(request, context)
        kept, run = self.runs.kept(name), self.runs.live.asked(name)
        if kept is not None and analyst_of(kept) == asker.name:
            for event in kept.events:
                yield event
        elif run is not None and run.analyst == asker.name:
            try:
                async for event in self._follow(run):
                    yield event
            except RunFailed as error:
                yield pb.Event(failure=pb.Failure(reason=str(error)))
        else:
            reason = "this key is unknown: no question was asked under it, or it was too long ago"
            yield pb.Event(failure=pb.Failure(reason=reason, our_input=True))

    async def Cancel(self, request: pb.QuestionKey, context: Context) -> pb.Cancelled:  # noqa: N802
        asker, name = await self._named(request, context)
        run = self.runs.live.asked(name)
        if run is not None and run.analyst != asker.name:
            return pb.Cancelled(words="this key is unknown")
        return await self.runs.cancel(name)

    async def _asker(self, context: Context) -> Asker:
        identity = await caller(context)
        if identity.role is not Role.ANALYST:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "only an analyst may ask")
        try:
            return Asker.of(identity, certificate_of(context))
        except PeerError as error:
            return await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))

    async def _named(self, request: pb.QuestionKey, context: Context) -> tuple[Asker, bytes]:
        asker = await self._asker(context)
        if not 0 < len(request.key) <= MAX_KEY:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "not a valid question key")
        return asker, self.coordinator.named(request.key)

    async def _wait_for_parties(self, question: Question) -> AsyncIterator[pb.Event]:
        """Waits for all parties, or until the deadline for the minimum number needed."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + question.deadline
        least = question.min_parties or self._config.parties
        while (enrolled := self.coordinator.enrolled) < self._config.parties:
            if loop.time() > deadline:
                if enrolled >= least:
                    return
                raise RunFailed(
                    f"only {enrolled} of {self._config.parties} parties joined within "
                    f"{question.deadline:g} seconds and {least} are needed"
                )
            yield self._progress("enrol")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS), self._joined:
                    await self._joined.wait()

    async def _follow(self, run: Run) -> AsyncIterator[pb.Event]:
        """Reports a run's progress until it is over. The run goes on if the caller hangs up."""
        if not run.over.done():
            yield self._progress(run.phase)
        while not run.over.done():
            await asyncio.wait([run.over], timeout=POLL_SECONDS)
            if run.over.done():
                break
            if run.stalled:
                raise RunFailed(run.stalled)
            statuses = await asyncio.gather(*(s.status(run.run) for s in self.servers))
            yield self._progress(
                run.phase,
                submissions=min(status.submissions for status in statuses),
                size=sum(status.bytes for status in statuses),
                links=self._links(run.run, statuses),
                states=self._states(run, statuses),
            )
        for event in run.over.result():
            yield event

    def _links(self, run: bytes, statuses: Sequence[pb.RunStatus]) -> dict[str, Tally]:
        if not any(status.links for status in statuses):
            return {}
        ours = self.coordinator.meters.get(run)
        own = Bill([] if ours is None else [ours], 0).by_link()
        return added([own, *(links_from_wire(status.links) for status in statuses)])

    def _states(self, run: Run, statuses: Sequence[pb.RunStatus]) -> bytes:
        if self._config.parties > MOST_SHOWN or not any(status.links for status in statuses):
            return b""  # too many parties, or the servers have closed their accounts
        submitted = submitted_from_wire(statuses, self._config.parties)
        closed = run.phase == "release"
        return self.coordinator.states(run.run, submitted, closed).tobytes()

    def _progress(
        self,
        phase: str,
        submissions: int = 0,
        size: int = 0,
        links: Mapping[str, Tally] = NO_LINKS,
        states: bytes = b"",
    ) -> pb.Event:
        return pb.Event(
            progress=pb.Progress(
                enrolled=self.coordinator.enrolled,
                parties=self._config.parties,
                phase=phase,
                submissions=submissions,
                bytes=size,
                links=links_to_wire(links),
                states=states,
            )
        )


def _must_be_same(asked: tuple[str, str], before: tuple[str, str]) -> None:
    """Raises `LocalError` if another question had the same key, or another analyst asked it."""
    if asked != before:
        raise LocalError("another question was asked under this key before: choose a new one")
