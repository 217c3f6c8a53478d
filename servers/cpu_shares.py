"""What each of several computations took of a process's CPU time.

Native loops have threads of their own, so only the process knows what they took. While several
computations go on at once, each is taken for an equal part of it.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class CpuShares:
    """Any thread may use it. `clock` tells the CPU seconds of the process."""

    def __init__(self, clock: Callable[[], float] = time.process_time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._shares: dict[object, float] = {}
        self._seen = clock()

    @contextmanager
    def measured(self) -> Iterator[Callable[[], float]]:
        """Yields a function that tells, once the block has ended, what it took."""
        work = object()
        self._settle()
        with self._lock:
            self._shares[work] = 0.0
        taken: list[float] = []
        try:
            yield lambda: taken[0]
        finally:
            self._settle()
            with self._lock:
                taken.append(self._shares.pop(work))

    def _settle(self) -> None:
        with self._lock:
            now = self._clock()
            for work in self._shares:
                self._shares[work] += (now - self._seen) / len(self._shares)
            self._seen = now
