"""What a party host does with a message: tells its block, and sorts what that answers.

Parties of one host hear each other in memory, metered as if they were apart. What is for parties
elsewhere is handed on at once and in order; what is for stations, the shell sends.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tallyroom.parties.block import PartyBlock
from tallyroom.protocols.run.participant import Reply
from tallyroom.protocols.wire.messages import Message, Phase
from tallyroom.protos.tasks import Tasks

log = logging.getLogger(__name__)

EARLY_SECONDS = 120.0
"""For how long a message waits for the run that it belongs to."""
MOST_EARLY_BYTES = 64 << 20
"""What may wait so: a peer that speaks of runs that never come must not fill the memory."""
LEAST_EARLY_BYTES = 8 << 10
"""What a small one counts for: all are looked at whenever one comes."""
MOST_EARLY_OF_ONE = 8 << 20
"""What of that may be one party's: it must not take the place of all others."""


@dataclass(frozen=True, eq=False)
class _Early:
    message: Message
    since: float
    sender: int
    size: int


class Dispatcher:
    """Tells one block one thing at a time.

    `post` takes messages to parties elsewhere, and does not wait. `carry` takes what is to be sent
    to stations because a deadline passed.
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

    async def tell(self, message: Message) -> Reply:
        """What the block answers, with the messages to stations. It goes on to its end when the
        caller hangs up."""
        return await self._tasks.finish(self._tell(message))

    async def hear(self, message: Message) -> Reply:
        """The same for another party's message, which may have overtaken the coordinator's: it
        waits then. Raises `BufferError` if too much waits already."""
        return await self._tasks.finish(self._hear(message))

    async def proceed(self, run: bytes) -> Reply:
        """What the block says after an outcome with `more`."""
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
        """Computations between two parties take a while: they must not stop the event loop."""
        if message.phase in (Phase.PAIRING, Phase.PAIR):
            outcome = await asyncio.to_thread(self.block.handle, message)
        else:
            outcome = self.block.handle(message)
        return self._sort(outcome)

    async def _proceed(self, run: bytes) -> Reply:
        async with self._lock:
            return self._sort(self.block.proceed(run))

    async def _expire(self, run: bytes, timer: asyncio.Task[None] | None) -> Reply:
        """Only if the timer was not set anew while it waited for the lock."""
        async with self._lock:
            if self._timers.get(run) is not timer:
                return Reply(run)
            outcome = self._sort(self.block.expire(run))
        self._carry(outcome)  # not left to the timer, which a new one may have replaced just now
        return outcome

    def _loop_back(self, message: Message) -> None:
        """Parties of this host queue behind others that wait to be heard: a host at work on its own
        must not seem dead to them."""

        async def follow() -> Reply:
            outcome = await self._hear(message)
            for refusal in outcome.refused:
                log.error("refused %s: %s", refusal.sender, refusal.reason)
            self._carry(outcome)
            return outcome

        self._tasks.spawn(follow())

    def _divide(self, message: Message) -> tuple[Message | None, Message | None]:
        """What of a message between parties is for those of this host, and what is not."""
        mine = np.isin(message.receivers, self.block.holdings.ids)
        inside, outside = (np.flatnonzero(chosen) for chosen in (mine, ~mine))
        return (
            message.select(inside) if len(inside) else None,
            message.select(outside) if len(outside) else None,
        )

    def _due(self) -> list[Message]:
        """What came early, and is not any more."""
        sorted_out = [(one, self.block.is_early(one.message)) for one in self._early]
        self._early = [one for one, early in sorted_out if early]
        return [one.message for one, early in sorted_out if not early]

    def _sort(self, outcome: Reply) -> Reply:
        """Within the lock, so that what was answered first is on its way first."""
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
        """Expires a run when its time is up; a deadline that was set anew replaces the last."""
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
