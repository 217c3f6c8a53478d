"""What a party writes before it speaks is tried again while its disk is full."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from tallyroom.protocols.errors import NotWritten

Result = TypeVar("Result")

RETRY_SECONDS = 0.5
Hindered = Callable[[bytes, str], None]
"""Hears which run waits, and why; called in the thread of whoever waits."""


class Patience:
    def __init__(self, hindered: Hindered) -> None:
        self._hindered = hindered
        self._stopped = threading.Event()

    def write(self, run: bytes, seconds: float, work: Callable[[], Result]) -> Result:
        """Does the work, again and again for so many seconds. Raises what it raised at last."""
        until = time.monotonic() + seconds
        while True:
            try:
                return work()
            except (OSError, NotWritten) as error:
                if self._stopped.is_set() or time.monotonic() > until:
                    raise
                self._hindered(run, why_not_written(error))
            self._stopped.wait(RETRY_SECONDS)

    def stop(self) -> None:
        """Whoever waits gives up: the process ends, and is asked again when it is back."""
        self._stopped.set()


def why_not_written(error: OSError | NotWritten) -> str:
    """One line that names no file: others read it."""
    if isinstance(error, NotWritten):
        return f"it waits for its disk: {error}"
    return f"it waits for its disk: {error.strerror or 'it cannot be written'}"
