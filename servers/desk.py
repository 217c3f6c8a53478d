"""The coordinator process: `tally coordinator`. Party hosts join it, analysts ask it."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import grpc
import grpc.aio
import numpy as np

from protocols.errors import LocalError, PeerError, RunFailed, TallyError
from protocols.identity import Credentials, Identity
from protocols.machine import Done, Failed
from protocols.messages import Message, Phase, Role, decode
from protocols.participant import Outcome
from protocols.query import Query
from protocols.randomness import Randomness
from protos import tally_pb2 as pb
from protos.channel import Context, caller, new_server, open_channel, serving, stop_signal
from protos.tally_pb2_grpc import (
    DeskServicer,
    PostStub,
    add_DeskServicer_to_server,
    add_PostServicer_to_server,
)
from servers.accounts import accounts_to_wire
from servers.coordinator import Coordinator, Question
from servers.ledger import Ledger
from servers.post import Mailboxes, Post
from servers.process import Ready

log = logging.getLogger(__name__)

POLL_SECONDS = 0.2
GRACE_SECONDS = 10.0
"""How long after the parties' deadline the servers may take to answer."""


@dataclass(frozen=True)
class CoordinatorConfig:
    credentials: Credentials
    parties: int
    servers: tuple[str, ...]
    listen: str = "127.0.0.1:0"
    ledger: Path | None = None
    cap: Fraction | None = None
    seed: int | None = None


@dataclass
class Run:
    """What the desk waits for: the end of a run, and what to show meanwhile."""

    query: Query
    ended: asyncio.Future[Done]
    phase: str = "submit"
    began: float = field(default_factory=time.perf_counter)
    released: float = 0.0
    over: float = 0.0


class Desk(DeskServicer):
    def __init__(self, config: CoordinatorConfig) -> None:
        self._config = config
        self._ledger = Ledger(config.ledger, config.cap)
        self.coordinator = Coordinator(
            len(config.servers),
            config.parties,
            self._ledger,
            Randomness.for_role(config.seed, "coordinator"),
        )
        self.mailboxes = Mailboxes()
        self.post = Post(self.coordinator, self.mailboxes, self._carry)
        self.post.lost = self._host_lost
        self._channels = [
            open_channel(target, Identity(Role.SERVER, i, i), config.credentials)
            for i, target in enumerate(config.servers)
        ]
        self._stubs = [PostStub(channel) for channel in self._channels]
        self._runs: dict[bytes, Run] = {}
        self._joined = asyncio.Condition()
        self._background: set[asyncio.Task[None]] = set()

    def listen_to_servers(self) -> None:
        for index in range(len(self._stubs)):
            self._spawn(self._listen(index))

    async def close(self) -> None:
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        for channel in self._channels:
            await channel.close()
        self._ledger.close()

    # --- what party hosts and analysts call ---

    async def Join(self, request: pb.JoinRequest, context: Context) -> pb.Welcome:  # noqa: N802
        identity = await caller(context)
        ids = np.frombuffer(request.parties[: len(request.parties) & ~3], dtype="<u4")
        records = np.frombuffer(request.records[: len(request.records) & ~3], dtype="<u4")
        if identity.role is not Role.PARTY or not identity.covers(ids):
            reason = f"{identity.name} may not join as these parties"
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, reason)
        try:
            self.coordinator.enrol(ids, records)
        except LocalError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        self.mailboxes.of(identity)
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
            async for progress in self._wait_for_parties(question):
                yield progress
            query = self.coordinator.query(question)
            run = Run(query, asyncio.get_running_loop().create_future())
            self._runs[query.run] = run
            try:
                async for progress in self._conduct(run):
                    yield progress
                yield pb.Event(answer=await self._answer(run))
            finally:
                del self._runs[query.run]
                self.coordinator.abandon(query.run)
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

    async def _conduct(self, run: Run) -> AsyncIterator[pb.Event]:
        async with self.post.lock:
            await self._carry(self.coordinator.ask(run.query))
        deadline = asyncio.get_running_loop().time() + run.query.deadline + GRACE_SECONDS
        while not run.ended.done():
            await asyncio.wait([run.ended], timeout=POLL_SECONDS)
            if run.ended.done():
                break
            if asyncio.get_running_loop().time() > deadline:
                async with self.post.lock:
                    await self._carry(self.coordinator.expire(run.query.run))
            statuses = await asyncio.gather(
                *(self._status(i, run.query.run) for i in range(len(self._stubs)))
            )
            yield self._progress(
                run.phase,
                submissions=min(status.submissions for status in statuses),
                size=sum(status.bytes for status in statuses),
            )
        await run.ended

    async def _answer(self, run: Run) -> pb.Answer:
        total, records = self.coordinator.records_of(run.ended.result())
        stations = [
            await stub.Accounts(pb.RunRef(run=run.query.run), timeout=GRACE_SECONDS)
            for stub in self._stubs
        ]
        stations.append(accounts_to_wire(self.coordinator.meters.pop(run.query.run)))
        members = np.zeros(self._config.parties, dtype=bool)
        members[total.contributors] = True
        return pb.Answer(
            records=records,
            total=total.vector.astype("<u8").tobytes(),
            contributors=np.packbits(members).tobytes(),
            stations=stations,
            parties=self._config.parties,
            submit_seconds=run.released - run.began,
            release_seconds=run.over - run.released,
        )

    async def _status(self, server: int, run: bytes) -> pb.RunStatus:
        try:
            reference = pb.RunRef(run=run)
            status: pb.RunStatus = await self._stubs[server].Status(
                reference, timeout=GRACE_SECONDS
            )
            return status
        except grpc.aio.AioRpcError:
            return pb.RunStatus()

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
        server = int(message.receivers[0])
        name = Role.SERVER.named(server)
        try:
            receipt = await self._stubs[server].Send(
                pb.Parcel(message=message.encode()), timeout=GRACE_SECONDS, wait_for_ready=True
            )
        except grpc.aio.AioRpcError as error:
            self._fail(message.run, f"{name} cannot be reached: {error.details()}")
            return
        for refusal in receipt.refused:
            self._fail(message.run, f"{name} refused: {refusal.reason}")

    async def _listen(self, server: int) -> None:
        """Hears one server for as long as it lives; a run that it took part in dies with it."""
        name = Role.SERVER.named(server)
        while True:
            try:
                stream = self._stubs[server].Receive(pb.Subscription(), wait_for_ready=True)
                async for parcel in stream:
                    message = decode(parcel.message, name)
                    if not Identity(Role.SERVER, server, server).speaks_for(message):
                        raise PeerError(name, f"claims to be {message.sender}")
                    await self.post.deliver(message)
                reason = "closed its stream"
            except grpc.aio.AioRpcError as error:
                reason = f"is gone: {error.details()}"
            except PeerError as error:
                reason = f"is refused: {error.reason}"
            log.warning("%s %s", name, reason)
            for run in list(self._runs):
                self._fail(run, f"{name} {reason}")
            await asyncio.sleep(0.5)

    def _host_lost(self, identity: Identity) -> None:
        """A party host is gone: the servers need not wait for what it has not submitted."""
        if identity.role is not Role.PARTY:
            return
        ids = np.arange(identity.first, identity.last + 1, dtype=np.uint32)
        ids = ids[ids < self._config.parties]
        self.coordinator.leave(ids)

        async def lose() -> None:
            for run in list(self._runs):
                async with self.post.lock:
                    await self._carry(self.coordinator.lose(run, ids))

        self._spawn(lose())

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

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


async def run_coordinator(config: CoordinatorConfig, ready: Ready) -> None:
    """Serves until the process is told to stop."""
    desk = Desk(config)
    server, port = new_server(config.credentials, config.listen)
    add_PostServicer_to_server(desk.post, server)
    add_DeskServicer_to_server(desk, server)
    async with serving(server):
        desk.listen_to_servers()
        ready(port)
        await stop_signal()
        await desk.close()
