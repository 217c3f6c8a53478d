"""Passes messages to the block of a party host and routes its replies.

Parties of one host exchange messages in memory, metered as if they were on different hosts.
Messages to parties elsewhere are handed on at once and in order; messages to stations are returned
to the caller, which sends them.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tallyroom.parties.block import PartyBlock
from tallyroom.protocols.wire.loop import Reply
from tallyroom.protocols.wire.messages import Message
from tallyroom.protos.tasks import Tasks
from tallyroom.protos.waits import Waits

log = logging.getLogger(__name__)

EARLY_SECONDS = 120.0
"""How long a message waits for the run that it belongs to."""
MOST_EARLY_BYTES = 64 << 20
"""The limit on waiting messages: a peer must not fill the memory with runs that never begin."""
LEAST_EARLY_BYTES = 8 << 10
"""The least that a waiting message counts for: every arrival looks at all of them."""
MOST_EARLY_OF_ONE = 8 << 20
"""The share of one party: it must not take the place of all others."""


@dataclass(frozen=True, eq=False)
class _Early:
    message: Message
    since: float
    sender: int
    size: int


class Dispatcher:
    """Passes one message at a time to one block.

    `post` takes messages to parties elsewhere, and does not wait. `carry` takes messages to
    stations that are due because a deadline passed.
    """

    def __init__(
        self, block: PartyBlock, post: Callable[[Message], None], carry: Callable[[Reply], None]
    ) -> None:
        self.block = block
        self._post = post
        self._carry = carry
        self._lock = asyncio.Lock()
        self._early: list[_Early] = []
        self._timers: dict[bytes, asyncio.Task[None]] = {}
        self._ends: dict[bytes, float] = {}
        self._tasks = Tasks()
        self.waits = Waits()

    async def tell(self, message: Message) -> Reply:
        """Returns the block's reply, with its messages to stations. The work is finished even if
        the caller hangs up."""
        return await self._tasks.finish(self._tell(message))

    async def hear(self, message: Message) -> Reply:
        """Does the same for a message from another party. If it arrived before the coordinator's,
        it waits. Raises `BufferError` if too many bytes are waiting already."""
        return await self._tasks.finish(self._hear(message))

    async def proceed(self, run: bytes) -> Reply:
        """Returns the block's next reply after an outcome with `more`."""
        return await self._tasks.finish(self._proceed(run))

    def ends(self, run: bytes) -> float:
        """When the deadline of a run passes, by the clock of the event loop; 0 if it has none."""
        return self._ends.get(run, 0.0)

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()

    async def _tell(self, message: Message) -> Reply:
        async with self._lock:
            return await self._move(message)

    async def _hear(self, message: Message) -> Reply:
        async with self._lock:
            if not self.block.is_early(message):
                return await self._move(message)
            now = asyncio.get_running_loop().time()
            self._early = [one for one in self._early if one.since > now - EARLY_SECONDS]
            size = max(message.wire_bytes, LEAST_EARLY_BYTES)
            early = _Early(message, now, int(message.senders[0]), size)
            waiting = sum(one.size for one in self._early)
            theirs = sum(one.size for one in self._early if one.sender == early.sender)
            if waiting + early.size > MOST_EARLY_BYTES or theirs + early.size > MOST_EARLY_OF_ONE:
                raise BufferError("too many messages wait for their run")
            self._early.append(early)
            return Reply(message.run)

    async def _move(self, message: Message) -> Reply:
        """Runs in a thread: computations between two parties would stall the event loop, and so
        would waiting for a full disk."""
        outcome = self._sort(await asyncio.to_thread(self.block.handle, message))
        self.waits.step(message.run)
        return outcome

    async def _proceed(self, run: bytes) -> Reply:
        async with self._lock:
            return self._sort(self.block.proceed(run))

    async def _expire(self, run: bytes, timer: asyncio.Task[None] | None) -> Reply:
        """Does nothing if the timer was replaced while it waited for the lock."""
        async with self._lock:
            if self._timers.get(run) is not timer:
                return Reply(run)
            self.waits.expire(run)
            outcome = self._sort(self.block.expire(run))
        self._carry(outcome)  # not left to the timer, which may have just been replaced
        return outcome

    def _loop_back(self, message: Message) -> None:
        """Queues messages between our own parties behind waiting messages of others: otherwise a
        busy host would seem dead to them."""

        async def follow() -> Reply:
            outcome = await self._hear(message)
            for refusal in outcome.refused:
                log.error("refused %s: %s", refusal.sender, refusal.reason)
            self._carry(outcome)
            return outcome

        self._tasks.spawn(follow())

    def _divide(self, message: Message) -> tuple[Message | None, Message | None]:
        """Splits a message between parties into the part for this host and the part for others."""
        mine = np.isin(message.receivers, self.block.holdings.ids)
        inside, outside = (np.flatnonzero(chosen) for chosen in (mine, ~mine))
        return (
            message.select(inside) if len(inside) else None,
            message.select(outside) if len(outside) else None,
        )

    def _due(self) -> list[Message]:
        """Takes out early messages whose run has begun."""
        sorted_out = [(one, self.block.is_early(one.message)) for one in self._early]
        self._early = [one for one, early in sorted_out if early]
        return [one.message for one, early in sorted_out if not early]

    def _sort(self, outcome: Reply) -> Reply:
        """Called within the lock, so that replies leave in the order in which they were made."""
        for run in {outcome.run, *self.block.deadlines}:
            self._watch(run)
        for message in self._due():
            self._loop_back(message)
        for message in outcome.messages:
            if message.between_parties:
                inside, outside = self._divide(message)
                if outside is not None:
                    self._post(outside)
                if inside is not None:
                    self._loop_back(inside)
        outcome.messages = [m for m in outcome.messages if not m.between_parties]
        return outcome

    def _watch(self, run: bytes) -> None:
        """Expires a run when its time is up; a new deadline replaces the previous one."""
        seconds = self.block.deadlines.pop(run, None)
        if run in self._timers and (seconds is not None or not self.block.is_open(run)):
            self._timers.pop(run).cancel()
            del self._ends[run]
        if seconds is None or not self.block.is_open(run):
            return

        async def expire() -> None:
            await asyncio.sleep(seconds)
            await self._tasks.finish(self._expire(run, asyncio.current_task()))

        self._ends[run] = asyncio.get_running_loop().time() + seconds
        self._timers[run] = self._tasks.spawn(expire())
