"""The coordinator's desk: party hosts join it, analysts ask it, servers answer it."""

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import grpc
import grpc.aio
import numpy as np

from protocols.errors import LocalError, PeerError, RunFailed, TallyError
from protocols.identity import Credentials, Identity
from protocols.machine import Done, Failed
from protocols.machines import stages
from protocols.messages import Message, Phase, Role
from protocols.meter import Meter
from protocols.participant import Outcome
from protocols.privacy.ledger import Composition
from protocols.query import Query
from protos import tally_pb2 as pb
from protos.accounts import accounts_to_wire
from protos.channel import Context, caller
from protos.tasks import Tasks
from servers.coordinator import MAX_RECORDS_EACH, Coordinator, Question, beginning, begun
from servers.enrolment import EnrolmentConfig
from servers.metrics import Metrics, watch_ledger
from servers.peer_desk import PeerDesk
from servers.post import Mailboxes, Post
from servers.server_link import GRACE_SECONDS, ServerLink
from storage.journal import Journal, Kind
from storage.ledger import Ledger
from storage.store import Store

log = logging.getLogger(__name__)

POLL_SECONDS = 0.2


@dataclass(frozen=True)
class CoordinatorConfig:
    credentials: Credentials
    parties: int
    servers: tuple[str, ...]
    listen: str = "127.0.0.1:0"
    store: Path | None = None
    cap: Fraction | None = None
    seed: int | None = None
    enrolment: EnrolmentConfig | None = None
    metrics: str | None = None
    cap_delta: float | None = None
    composition: Composition = Composition.SUM
    max_records_per_party: int = MAX_RECORDS_EACH


@dataclass
class Run:
    """What the desk waits for: the end of a run, and what to show meanwhile."""

    query: Query
    ended: asyncio.Future[Done]
    phase: str = "submit"
    began: float = field(default_factory=time.perf_counter)
    released: float = 0.0
    over: float = 0.0


class Desk(PeerDesk):
    def __init__(self, config: CoordinatorConfig) -> None:
        super().__init__()
        self._config = config
        self._store = Store(config.store)
        self._ledger = Ledger(self._store.ledger, config.cap, config.cap_delta, config.composition)
        self.coordinator = Coordinator(
            len(config.servers),
            config.parties,
            self._ledger,
            self._store.randomness(config.seed, "coordinator"),
            config.max_records_per_party,
        )
        self.mailboxes = Mailboxes()
        journal = Journal(self._store.folder / "runs") if self._store.durable else None
        self.post = Post(self.coordinator, self.mailboxes, self._carry, journal)
        self.post.lost = self._host_lost
        self.servers = [
            ServerLink(index, target, config.credentials)
            for index, target in enumerate(config.servers)
        ]
        self._runs: dict[bytes, Run] = {}
        self._joined = asyncio.Condition()
        self._background = Tasks()

    def resume(self) -> None:
        """Takes up the runs of the journal where they were left."""
        if self.post.journal is None:
            return
        for run, records in self.post.journal.runs():
            if not records or records[0][0] is not Kind.QUERY:
                continue  # it was cut off before it asked anybody
            query, counts = begun(run, records[0][1])
            self._runs[run] = Run(query, asyncio.get_running_loop().create_future())
            outcomes = [self.coordinator.start(query, counts)]
            outcomes += self.post.replay(run, records[1:])
            self._background.spawn(self._resume_run(self._runs[run], outcomes))

    async def _resume_run(self, run: Run, outcomes: list[Outcome]) -> None:
        finished = next((outcome.finished for outcome in outcomes if outcome.finished), None)
        if isinstance(finished, Done):  # nobody needs to hear of it again
            self._end(run, finished)
            self.coordinator.conclude(run.query, finished)
            return
        for outcome in outcomes:
            await self._carry(outcome)

    def listen_to_servers(self) -> None:
        for server in self.servers:
            self._background.spawn(self._listen(server))

    def watch(self, metrics: Metrics) -> None:
        watch_ledger(metrics, self._ledger)
        metrics.watch(
            "tally_parties_present", "Parties that are here.", lambda: self.coordinator.enrolled
        )
        metrics.watch(
            "tally_runs", "Runs in progress.", lambda: sum(map(self.is_running, self._runs))
        )

    async def close(self) -> None:
        await self._background.close()
        for server in self.servers:
            await server.channel.close()
        self.post.close()
        self._ledger.close()
        self._store.close()

    # --- what party hosts and analysts call ---

    async def Join(self, request: pb.JoinRequest, context: Context) -> pb.Welcome:  # noqa: N802
        identity = await caller(context)
        if len(request.parties) % 4 or len(request.records) != len(request.parties):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "not one number for each party")
        ids = np.frombuffer(request.parties, dtype="<u4")
        records = np.frombuffer(request.records, dtype="<u4")
        if identity.role is not Role.PARTY or not identity.covers(ids):
            reason = f"{identity.name} may not join as these parties"
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, reason)
        try:
            self.coordinator.enrol(ids, records)
        except LocalError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        self.mailboxes.of(identity)
        for run in self._runs.values():  # it may have missed the question while it was away
            if not run.ended.done() and run.phase == "submit":
                self.mailboxes.deliver(self.coordinator.remind(run.query, ids))
                for message in self.coordinator.told(run.query.run):
                    self.mailboxes.deliver(message, identity)
        async with self._joined:
            self._joined.notify_all()
        return pb.Welcome(servers=self._config.servers, parties=self._config.parties)

    async def Ask(  # noqa: N802
        self, request: pb.Question, context: Context
    ) -> AsyncIterator[pb.Event]:
        identity = await caller(context)
        if identity.role is not Role.ANALYST:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "only an analyst may ask")
        try:
            question = Question.decode(request.json)
            run = self._runs.get(self.coordinator.run_of(question))
            if run is None:
                async for progress in self._wait_for_parties(question):
                    yield progress
                run = await self._begin(self.coordinator.query(question))
            async for progress in self._conduct(run):
                yield progress
            yield pb.Event(answer=await self._answer(run))
        except RunFailed as error:
            yield pb.Event(failure=pb.Failure(reason=str(error)))
        except TallyError as error:
            yield pb.Event(failure=pb.Failure(reason=str(error), our_input=True))

    # --- how a run goes ---

    async def _wait_for_parties(self, question: Question) -> AsyncIterator[pb.Event]:
        """Waits for all of them, or until the deadline for the least number that will do."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + question.deadline
        least = question.minimum or self._config.parties
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

    def is_running(self, run: bytes) -> bool:
        return run in self._runs and not self._runs[run].ended.done()

    async def _begin(self, query: Query) -> Run:
        """A run is in the journal before anybody hears of it."""
        run = self._runs[query.run] = Run(query, asyncio.get_running_loop().create_future())
        try:
            async with self.post.lock:
                outcome = self.coordinator.ask(query)
                if (journal := self.post.journal) and outcome.messages:
                    record = beginning(query, self.coordinator.records)
                    journal.append(query.run, Kind.QUERY, record)
                    await journal.commit()
        except OSError as error:
            self._drop(run)
            raise RunFailed(f"the coordinator cannot keep a run: {error.strerror}") from None
        self._background.spawn(self._carry(outcome))
        return run

    async def _conduct(self, run: Run) -> AsyncIterator[pb.Event]:
        clock = asyncio.get_running_loop().time
        deadline = clock() + stages(run.query) * run.query.deadline + GRACE_SECONDS
        while not run.ended.done():
            await asyncio.wait([run.ended], timeout=POLL_SECONDS)
            if run.ended.done():
                break
            if clock() > deadline:
                await self._lose_those_away(run)
                with contextlib.suppress(OSError):  # at the next look
                    await self.post.expire(run.query.run)
                    deadline = clock() + GRACE_SECONDS
            statuses = await asyncio.gather(*(s.status(run.query.run) for s in self.servers))
            yield self._progress(
                run.phase,
                submissions=min(status.submissions for status in statuses),
                size=sum(status.bytes for status in statuses),
            )
        try:
            await asyncio.shield(run.ended)
        except RunFailed:
            self._drop(run)
            raise

    async def _lose_those_away(self, run: Run) -> None:
        """A run that is out of time ends with the name of who is away, not of who waits for it."""
        for server in self.servers:
            if server.away is not None:
                await self._lose_server(run.query.run, server, server.away)

    def _drop(self, run: Run) -> None:
        self._runs.pop(run.query.run, None)
        self.reports(run.query.run)
        self.coordinator.abandon(run.query.run)

    async def _answer(self, run: Run) -> pb.Answer:
        total = self.coordinator.conclude(run.query, run.ended.result())
        stations = [await server.accounts(run.query) for server in self.servers]
        stations += self.reports(run.query.run)
        if not self._store.durable:
            self._drop(run)
        stations.append(accounts_to_wire(self.coordinator.meters.pop(run.query.run, Meter())))
        members = np.zeros(self._config.parties, dtype=bool)
        members[total.contributors] = True
        return pb.Answer(
            records=total.records,
            total=total.vector.astype("<u8").tobytes(),
            contributors=np.packbits(members).tobytes(),
            stations=stations,
            parties=self._config.parties,
            submit_seconds=(run.released or run.over) - run.began,
            release_seconds=run.over - (run.released or run.over),
            caught=[pb.Caught(party=party, reason=reason) for party, reason in total.caught],
            refused=total.refused,
            refusals=[pb.PartyRefusal(party=p, reason=reason) for p, reason in total.refusals],
            refusing=total.refusing,
        )

    def _progress(self, phase: str, submissions: int = 0, size: int = 0) -> pb.Event:
        return pb.Event(
            progress=pb.Progress(
                enrolled=self.coordinator.enrolled,
                parties=self._config.parties,
                phase=phase,
                submissions=submissions,
                bytes=size,
            )
        )

    # --- carriage ---

    async def _carry(self, outcome: Outcome) -> None:
        """In order: servers must know a run before its parties submit to it."""
        run = self._runs.get(outcome.run)
        for message in outcome.messages:
            if run is not None and message.phase is Phase.RELEASE:
                run.phase = "release"
                run.released = time.perf_counter()
            if message.receiver_role is Role.SERVER:
                await self._send(message)
            else:
                self.mailboxes.deliver(message)
        if outcome.finished is not None and run is not None:
            self._end(run, outcome.finished)

    async def _send(self, message: Message) -> None:
        """Servers that keep a store come back: they are tried again for as long as the run, unless
        that can do without."""
        server = self.servers[int(message.receivers[0])]
        while True:
            try:
                refused = await server.send(message)
                break
            except grpc.aio.AioRpcError as error:
                run = self._runs.get(message.run)
                waits = self._store.durable and not self.coordinator.can_spare(message.run)
                if not waits or run is None or run.ended.done():
                    await self._lose_server(
                        message.run, server, f"cannot be reached: {error.details()}"
                    )
                    return
                log.warning("%s: %s; sending again", server.name, error.details())
                await asyncio.sleep(POLL_SECONDS)
        for reason in refused:
            if message.phase is not Phase.EXCUSE:  # it may come after the roster went out
                self._fail(message.run, f"{server.name} refused: {reason}")

    async def _listen(self, server: ServerLink) -> None:
        """Hears one server for as long as it lives; a run that needs it dies with it."""
        for attempt in itertools.count():
            try:
                messages = await server.subscribe()
                if attempt:
                    self._background.spawn(self._remind(server.index))
                async for message, data in messages:
                    await self.post.deliver(message, data)
                reason = "closed its stream"
            except grpc.aio.AioRpcError as error:
                reason = f"is gone: {error.details()}"
            except PeerError as error:
                reason = f"is refused: {error.reason}"
            except OSError as error:  # it says it again once it is heard again
                reason = f"cannot be heard: {error.strerror or error}"
            server.away = reason
            log.warning("%s %s", server.name, reason)
            if not self._store.durable:
                for run in list(self._runs):
                    await self._lose_server(run, server, reason)
            await asyncio.sleep(POLL_SECONDS)

    async def _lose_server(self, run: bytes, server: ServerLink, reason: str) -> None:
        async with self.post.lock:
            outcome = self.coordinator.lose_server(run, server.index, reason)
        await self._carry(outcome)

    async def _remind(self, server: int) -> None:
        """A server that was away is asked again, and says again what it had said."""
        for run in list(self._runs.values()):
            if not run.ended.done():
                await self._send(self.coordinator.remind_server(run.query, server))

    def _host_lost(self, identity: Identity) -> None:
        """A party host is gone: the servers need not wait for what it has not submitted."""
        if identity.role is not Role.PARTY:
            return
        ids = np.arange(identity.first, identity.last + 1, dtype=np.uint32)
        ids = ids[ids < self._config.parties]
        self.coordinator.leave(ids)
        if self._store.durable:
            return  # it may come back before the deadline

        async def lose() -> None:
            for run in list(self._runs):
                async with self.post.lock:
                    outcome = self.coordinator.lose(run, ids)
                await self._carry(outcome)

        self._background.spawn(lose())

    def _end(self, run: Run, finished: Done | Failed) -> None:
        if run.ended.done():
            return
        run.over = time.perf_counter()
        match finished:
            case Done():
                run.ended.set_result(finished)
            case Failed(reason):
                run.ended.set_exception(RunFailed(reason))

    def _fail(self, run: bytes, reason: str) -> None:
        if run in self._runs:
            self._end(self._runs[run], Failed(reason))
