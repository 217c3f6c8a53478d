"""How long runs waited for others that did not answer."""

import time
from collections import OrderedDict
from collections.abc import Callable

MOST_RUNS = 4096
"""Of more, those that took a step last are known."""


class Waits:
    """A run that takes no step until its deadline has waited since its last step."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._runs: OrderedDict[bytes, tuple[float, float]] = OrderedDict()
        """When each run took its last step, and how long it has waited."""

    def step(self, run: bytes) -> None:
        self._runs[run] = self._clock(), self.waited(run)
        self._runs.move_to_end(run)
        if len(self._runs) > MOST_RUNS:
            self._runs.popitem(last=False)

    def expire(self, run: bytes) -> None:
        """A deadline passed, which is a step too."""
        if run in self._runs:
            last, waited = self._runs[run]
            self._runs[run] = last, waited + self._clock() - last
        self.step(run)

    def waited(self, run: bytes) -> float:
        """The seconds of all waits of a run."""
        return self._runs.get(run, (0.0, 0.0))[1]

    def forget(self, run: bytes) -> None:
        self._runs.pop(run, None)
