"""The message service: carries messages to a participant and its answers back to their receivers.

It is thin: it checks the caller against the message, the participant decides, and errors become
gRPC statuses here and nowhere else.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

import grpc
import numpy as np

from tallyroom.protocols.errors import NotWritten
from tallyroom.protocols.identity.certificates import Identity
from tallyroom.protocols.run.participant import Participant
from tallyroom.protocols.run.party_states import MOST_SHOWN
from tallyroom.protocols.wire.loop import Reply
from tallyroom.protocols.wire.machine import Failed
from tallyroom.protocols.wire.messages import RUN_BYTES, Message, Phase, Role, decode
from tallyroom.protos import tally_pb2 as pb
from tallyroom.protos.accounts import accounts_to_wire
from tallyroom.protos.channel import Context, caller, received
from tallyroom.protos.progress import status_to_wire
from tallyroom.protos.tally_pb2_grpc import MessagesServicer
from tallyroom.protos.tasks import Tasks
from tallyroom.protos.waits import Waits
from tallyroom.servers.cpu_shares import CpuShares
from tallyroom.servers.run_locks import RunLocks
from tallyroom.storage.journal import Journal, Kind, Record

log = logging.getLogger(__name__)

CERTIFICATE = "certificate-bin"
"""The metadata key under which a server sends its certificate before its first message."""
RETRY_SECONDS = 1.0
"""How long to wait for room on a full disk, or for a ledger that another process holds."""
STOP_SECONDS = 2.0
"""How long a process that is told to stop may still compute."""
MOST_WAITING = 1000
"""How many messages may wait for a party: one that never reads must not fill the memory."""
MOST_LISTED = 10_000
"""How many runs one reply to the coordinator lists."""

Carry = Callable[[Reply], Awaitable[None]]


class Mailboxes:
    """Messages that wait for their receivers to fetch them, in order."""

    def __init__(self) -> None:
        self._queues: dict[Identity, asyncio.Queue[Message]] = {}

    def of(self, identity: Identity) -> asyncio.Queue[Message]:
        return self._queues.setdefault(identity, asyncio.Queue())

    def empty(self, identity: Identity) -> asyncio.Queue[Message]:
        """Starts a new mailbox; messages in the old one are repeated in other ways."""
        self._queues[identity] = asyncio.Queue()
        return self._queues[identity]

    def deliver(self, message: Message, only: Identity | None = None) -> None:
        """Splits a message among the mailboxes of its receivers.

        With `only`, that receiver alone gets its part, which it may have missed.
        """
        for identity, queue in self._queues.items():
            if only is not None and identity != only:
                continue
            if identity.role is message.receiver_role:
                mine = (message.receivers >= identity.first) & (message.receivers <= identity.last)
                if not mine.any():
                    continue
                if identity.role is Role.PARTY and queue.qsize() >= MOST_WAITING:
                    queue.get_nowait()  # the party does not read; it hears the rest when it joins
                queue.put_nowait(message if mine.all() else message.select(np.flatnonzero(mine)))

    def discard(self, run: bytes) -> None:
        """Drops messages of a finished run that wait for parties, so that they do no work for
        it."""
        for identity, queue in self._queues.items():
            if identity.role is Role.PARTY:
                waiting = [queue.get_nowait() for _ in range(queue.qsize())]
                for message in waiting:
                    if message.run != run:
                        queue.put_nowait(message)


class MessageService(MessagesServicer):
    """`carry` sends the participant's answer once the message that caused it is in the journal."""

    def __init__(
        self, participant: Participant, mailboxes: Mailboxes, carry: Carry, journal: Journal | None
    ) -> None:
        self.participant = participant
        self.mailboxes = mailboxes
        self.journal = journal
        self.locks = RunLocks()
        self._cpu = CpuShares()
        self._carry = carry
        # If the caller hangs up, the answer to its message must still be carried: otherwise the run
        # would wait for ever.
        self._tasks = Tasks()
        self._timers: dict[bytes, asyncio.Task[None]] = {}
        self._paying: set[bytes] = set()
        participant.patient = journal is not None
        self._cpu_seconds: dict[bytes, float] = {}
        self._prepare_cpu_seconds: dict[bytes, float] = {}
        self.waits = Waits()
        self.certificate = b""
        self.subscribers: set[Identity] = set()
        self.lost: Callable[[Identity], None] = lambda _: None
        self.shown: Callable[[pb.Subscription], None] = lambda _: None
        """Called when the coordinator shows what was signed here; raises `NotWritten`."""
        self.told_servers: Callable[[Sequence[str]], None] = lambda _: None
        """Called when the coordinator says where the servers are."""

    async def deliver(self, message: Message, data: bytes) -> Reply:
        """Takes one message of a run at a time, off the event loop: merging shares may take a
        while, and other runs go on meanwhile.

        An acknowledged message is in the journal. A message that was refused as a whole is not, and
        a repeated one is there once. Raises `OSError` or `NotWritten` if it cannot be stored: then
        it was not accepted, and may be sent again.
        """
        return await self._tasks.finish(self._take(message, data))

    async def expire(self, run: bytes) -> None:
        """Tells the machine that the deadline passed, as a journaled event. Raises `OSError`."""
        await self._tasks.finish(self._expire(run, None))

    async def _take(self, message: Message, data: bytes) -> Reply:
        async with self.locks.of(message.run):
            if not self.participant.awaits(message):  # it will be refused: not worth a write
                return self.participant.handle(message)
            if self.participant.was_asked(message):  # the participant repeats its answer
                outcome = self.participant.handle(message)
            else:
                kind = Kind.ASK if self.participant.forgets_for(message) else Kind.MESSAGE
                with self._written(message.run, kind, data) as keep:
                    handle = partial(self.participant.handle, message)
                    preparing = message.phase is Phase.PREPARE
                    outcome = await asyncio.to_thread(self._timed, message.run, handle, preparing)
                    if len(outcome.refused) + outcome.repeated < message.links:
                        keep()
        return await self._carry_on(outcome)

    async def _expire(self, run: bytes, timer: asyncio.Task[None] | None) -> Reply:
        """For a timer: does nothing if the timer was replaced while it waited for the lock."""
        async with self.locks.of(run):
            superseded = timer is not None and self._timers.get(run) is not timer
            if superseded or not self.participant.is_open(run):
                return Reply(run)
            with self._written(run, Kind.EXPIRE, b"") as keep:
                expire = partial(self.participant.expire, run)
                self.waits.expire(run)
                outcome = await asyncio.to_thread(self._timed, run, expire)
                if outcome.messages or outcome.unpaid:
                    keep()
        return await self._carry_on(outcome)

    def _timed(self, run: bytes, work: Callable[[], Reply], preparing: bool = False) -> Reply:
        """Adds up the process's CPU time during `work`."""
        with self._cpu.measured() as taken:
            outcome = work()
        if run in self.participant.meters:  # refused messages must not use memory
            self.waits.step(run)
            spent = taken()
            self._cpu_seconds[run] = self._cpu_seconds.get(run, 0.0) + spent
            if preparing:
                earlier = self._prepare_cpu_seconds.get(run, 0.0)
                self._prepare_cpu_seconds[run] = earlier + spent
        return outcome

    @contextmanager
    def _written(self, run: bytes, kind: Kind, data: bytes) -> Iterator[Callable[[], None]]:
        """Writes before the machine is told: it never learns what there was no room to store.

        The record is taken back unless the yielded function is called.
        """
        begin = self.journal.append(run, kind, data) if self.journal else 0
        kept = []
        try:
            yield lambda: kept.append(True)
        finally:
            if self.journal:
                self.journal.taken(run)
                if not kept:
                    self.journal.retract(run, begin)

    async def _carry_on(self, outcome: Reply) -> Reply:
        """The participant has moved on: what it says is carried as soon as the disk has room."""
        while self.journal:
            try:
                await self.journal.commit()
                break
            except OSError as error:
                log.error("cannot write the journal: %s; trying again", error)
                await asyncio.sleep(RETRY_SECONDS)
        self.watch_deadline(outcome.run)
        if outcome.unpaid:
            self.pay_later(outcome)
        await self._carry(outcome)
        return outcome

    def pay_later(self, outcome: Reply) -> None:
        """Pays for an unpaid step as soon as the ledger can be written, past any deadline."""
        if outcome.run not in self._paying:
            log.error("run %s waits: %s", outcome.run.hex(), outcome.unpaid)
            self._paying.add(outcome.run)
            self._tasks.spawn(self._pay(outcome.run))

    async def _pay(self, run: bytes) -> None:
        outcome = Reply(run, unpaid=self.participant.unpaid(run))
        while outcome.unpaid:
            await asyncio.sleep(RETRY_SECONDS)
            async with self.locks.of(run):
                outcome = await asyncio.to_thread(self.participant.pay, run)
        self._paying.discard(run)
        await self._carry_on(outcome)

    async def give_up(self, run: bytes, reason: str) -> None:
        """Ends a run that cannot go on here, and tells the coordinator. This is not journaled:
        whatever caused it happens again after a restart."""
        async with self.locks.of(run):
            outcome = self.participant.advance(run, lambda _: Failed(reason))
        await self._carry_on(outcome)

    def replay(self, run: bytes, records: Iterable[Record]) -> list[Reply]:
        """Replays the journal to a new participant and returns its answers, to be carried.

        Waits while the ledger cannot be read: nothing may be begun in ignorance of it.
        """
        outcomes = []
        self.participant.replaying = True
        try:
            for kind, data in records:
                while True:
                    try:
                        outcomes += self._replayed(run, kind, data)
                        break
                    except NotWritten as error:
                        log.error("cannot resume run %s: %s; trying again", run.hex(), error)
                        time.sleep(RETRY_SECONDS)
                        outcomes.append(self.participant.pay(run))
        finally:
            self.participant.replaying = False
        self.watch_deadline(run)
        for outcome in outcomes:
            if outcome.unpaid:
                self.pay_later(outcome)
        return outcomes

    def _replayed(self, run: bytes, kind: Kind, data: bytes) -> list[Reply]:
        if kind in (Kind.MESSAGE, Kind.ASK):
            return [self.participant.handle(decode(data, "journal"))]
        return [self.participant.expire(run)] if kind is Kind.EXPIRE else []

    async def forget(self, run: bytes) -> None:
        """Drops a run for good. Raises `OSError` if that cannot be recorded."""
        async with self.locks.of(run):
            if self.journal:
                await self.journal.forget(run)
            self._let_go(run)

    async def let_go(self, run: bytes) -> None:
        """Drops a run whose name is kept elsewhere."""
        async with self.locks.of(run):
            self.unjournal(run)
            self._let_go(run)

    def unjournal(self, run: bytes) -> None:
        if self.journal:
            self.journal.drop(run)

    def _let_go(self, run: bytes) -> None:
        self.mailboxes.discard(run)
        self.participant.forget(run)
        self._cpu_seconds.pop(run, None)
        self._prepare_cpu_seconds.pop(run, None)
        self.waits.forget(run)
        if (timer := self._timers.pop(run, None)) is not None:
            timer.cancel()

    async def stop(self) -> None:
        """Finishes what is in hand, if that does not take long, and takes on nothing any more."""
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await self.locks.close()

    def close(self) -> None:
        if self.journal:
            self.journal.close()

    async def Send(self, request: pb.Parcel, context: Context) -> pb.Receipt:  # noqa: N802
        identity, message, data = await received(request, context)
        if not identity.speaks_for(message):
            claim = f"{identity.name}: claims to be {message.sender}"
            log.warning("refused: %s", claim)
            return await context.abort(grpc.StatusCode.PERMISSION_DENIED, claim)
        if message.between_servers and self.participant.is_early(message):
            reason = "the run has not begun here yet"
            return await context.abort(grpc.StatusCode.UNAVAILABLE, reason)
        try:
            outcome = await self.deliver(message, data)
        except (OSError, NotWritten) as error:
            log.error("not accepted: %s", error)
            words = error.strerror if isinstance(error, OSError) else None
            reason = f"cannot store a submission: {words or error}"
            return await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, reason)
        for refusal in outcome.refused:
            log.warning("refused %s: %s", refusal.sender, refusal.reason)
        return pb.Receipt(
            refused=[pb.Refusal(sender=r.sender, reason=r.reason) for r in outcome.refused]
        )

    async def Receive(  # noqa: N802
        self, request: pb.Subscription, context: Context
    ) -> AsyncIterator[pb.Parcel]:
        identity = await caller(context)
        if identity.role is Role.ANALYST or identity in self.subscribers:
            await context.abort(grpc.StatusCode.ALREADY_EXISTS, f"{identity.name} already listens")
        if identity.role is Role.COORDINATOR:
            self.told_servers(request.servers)
            try:
                self.shown(request)
            except NotWritten as error:
                await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        queue = self._queue_for(identity)
        self.subscribers.add(identity)
        try:  # a caller that hangs up before it is greeted must not stay registered as listening
            await context.send_initial_metadata(self._introduction)
            while True:
                message = await queue.get()
                for chunk in message.chunks():
                    yield pb.Parcel(message=chunk.encode())
        finally:
            self.subscribers.discard(identity)
            self.lost(identity)

    @property
    def _introduction(self) -> tuple[tuple[str, bytes], ...]:
        """The certificate whose key signs the receipts on this stream."""
        return ((CERTIFICATE, self.certificate),) if self.certificate else ()

    def _queue_for(self, identity: Identity) -> asyncio.Queue[Message]:
        """Repeats what a party may have missed when it returns to a server."""
        if identity.role is not Role.PARTY or self.participant.role is not Role.SERVER:
            return self.mailboxes.of(identity)
        queue = self.mailboxes.empty(identity)
        for run in self.participant.open_runs():
            for message in self.participant.told(run):
                self.mailboxes.deliver(message, identity)
        return queue

    async def Status(self, request: pb.RunRef, context: Context) -> pb.RunStatus:  # noqa: N802
        await self._coordinator_only(request, context)
        return status_to_wire(self.participant.meters.get(request.run), MOST_SHOWN)

    async def Accounts(self, request: pb.RunRef, context: Context) -> pb.AccountList:  # noqa: N802
        await self._coordinator_only(request, context)
        meter = self.participant.meters.pop(request.run, None)
        spent = self._cpu_seconds.pop(request.run, 0.0)
        prepared = self._prepare_cpu_seconds.pop(request.run, 0.0)
        waited = self.waits.waited(request.run)
        return accounts_to_wire(meter, spent, prepared, waited) if meter else pb.AccountList()

    async def Kept(self, request: pb.Subscription, context: Context) -> pb.RunList:  # noqa: N802
        await self._from_coordinator(context)
        return pb.RunList(runs=self.participant.kept_runs()[:MOST_LISTED])

    async def _from_coordinator(self, context: Context) -> None:
        identity = await caller(context)
        if identity.role is not Role.COORDINATOR:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "only the coordinator may ask")

    async def _coordinator_only(self, request: pb.RunRef, context: Context) -> None:
        await self._from_coordinator(context)
        if len(request.run) != RUN_BYTES:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "not a valid run name")

    async def Forget(self, request: pb.RunRef, context: Context) -> pb.Receipt:  # noqa: N802
        await self._coordinator_only(request, context)
        if self.participant.begun.is_ahead(request.run):  # this name would raise our mark
            reason = "this run's number is ahead of our clock"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, reason)
        try:
            await self._tasks.finish(self.forget(request.run))
        except OSError as error:
            log.error("cannot forget a run: %s", error)
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"cannot forget: {error}")
        return pb.Receipt()

    def watch_deadline(self, run: bytes) -> None:
        """Expires a run when its time is up; a new deadline replaces the previous one."""
        seconds = self.participant.deadlines.pop(run, None)
        if seconds is None:
            return

        async def expire() -> None:
            await asyncio.sleep(seconds)
            while True:
                try:
                    await self._tasks.finish(self._expire(run, asyncio.current_task()))
                    return
                except (OSError, NotWritten) as error:
                    log.error("cannot record that a deadline passed: %s; trying again", error)
                    await asyncio.sleep(RETRY_SECONDS)

        if (running := self._timers.pop(run, None)) is not None:
            running.cancel()
        self._timers[run] = self._tasks.spawn(expire())
