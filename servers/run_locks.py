"""One lock for each run: what belongs to one run is done in order, and runs go on side by side.

Runs of one number share a lock, whatever they ask: of these, only one may begin.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tallyroom.protocols.wire.messages import NONCE_BYTES

POLL_SECONDS = 0.01


class RunLocks:
    def __init__(self) -> None:
        self._locks: dict[bytes, asyncio.Lock] = {}
        self._wanted: dict[bytes, int] = {}
        self._held = 0
        self._closed = False

    @asynccontextmanager
    async def of(self, run: bytes) -> AsyncIterator[None]:
        """Holds the lock of this run. Nobody gets one any more after `close`."""
        number = run[:NONCE_BYTES]
        self._wanted[number] = self._wanted.get(number, 0) + 1
        try:
            async with self._locks.setdefault(number, asyncio.Lock()):
                if self._closed:
                    await asyncio.get_running_loop().create_future()
                self._held += 1
                try:
                    yield
                finally:
                    self._held -= 1
        finally:
            self._wanted[number] -= 1
            if not self._wanted[number]:
                del self._wanted[number], self._locks[number]

    async def close(self) -> None:
        """Returns when no lock is held."""
        self._closed = True
        while self._held:
            await asyncio.sleep(POLL_SECONDS)
