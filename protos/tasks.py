"""Work that a process does beside what it waits for: kept until done, and seen if it fails."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

log = logging.getLogger(__name__)

Result = TypeVar("Result")


class Tasks:
    """The tasks of one owner. The event loop itself holds them only weakly, and tells of one that
    failed when it is collected, if ever."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Begins work that nobody waits for: should it fail, it is logged."""
        task = self.begin(work)
        task.add_done_callback(_log_failure)
        return task

    def begin(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Begins work whose failure the caller sees to."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def finish(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Waits for work that goes on to its end when the caller hangs up."""
        task = self.begin(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_log_failure)
            raise

    async def close(self) -> None:
        """Cancels what is not done, and waits for it to end."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _log_failure(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("something went wrong: %s", error, exc_info=error)
