"""Whether a station can do its work: it does not call itself healthy while nothing can be written.

Looked at every few seconds: the disk takes a file and the ledger a lock, and no release waits.
"""

import asyncio
import logging
import os
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from grpc_health.v1 import health, health_pb2

from tallyroom.protocols.errors import NotWritten
from tallyroom.protos.tasks import Tasks
from tallyroom.storage.ledger import Ledger

log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
PROBE_BYTES = 4096

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class Health:
    """`reason` says what is wrong; empty if nothing is."""

    def __init__(self, folder: Path | None, ledger: Ledger, waiting: Callable[[], int]) -> None:
        self.service = health.aio.HealthServicer()
        self.reason = ""
        self._folder = folder
        self._ledger = ledger
        self._waiting = waiting

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        tasks = Tasks()
        tasks.spawn(self._watch())
        try:
            yield
        finally:
            await tasks.close()

    async def _watch(self) -> None:
        while True:
            reason = await asyncio.to_thread(self.look)
            if bool(reason) != bool(self.reason):
                log.error("not healthy: %s", reason) if reason else log.warning("healthy again")
            self.reason = reason
            await self.service.set("", NOT_SERVING if reason else SERVING)
            await asyncio.sleep(LOOK_SECONDS)

    def look(self) -> str:
        """What is wrong now."""
        try:
            if self._folder is not None:
                _probe(self._folder)
            self._ledger.probe()
        except OSError as error:
            return f"the store cannot be written: {error.strerror}"
        except NotWritten as error:
            return str(error)
        waiting = self._waiting()
        return f"{waiting} releases wait for the ledger" if waiting else ""


def _probe(folder: Path) -> None:
    with tempfile.TemporaryFile(dir=folder) as file:
        os.write(file.fileno(), bytes(PROBE_BYTES))
        os.fsync(file.fileno())
