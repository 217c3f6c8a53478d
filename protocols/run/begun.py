"""Which runs were begun, so that none is begun again, in bounded memory.

Runs are numbered (`protocols.wire.numbers`), and numbers grow. Whoever takes part keeps the largest
that it has begun, with the names of their runs, and a mark: every number up to the mark counts as
begun, whether it was or not. Runs may therefore start in any order among the newest, and an old one
never starts again.

The number is in a run's name, which every message carries and every role signs for, and in the
label of all randomness that is drawn for the run.
"""

import heapq
import math
from collections.abc import Callable

from tallyroom.protocols.wire.messages import NONCE_BYTES
from tallyroom.protocols.wire.numbers import last_number, milliseconds

MOST_NAMES = 1 << 16
"""Runs that are known by name; older ones are below the mark."""
AHEAD_SECONDS = 300.0
"""How far a coordinator's clock may be ahead of ours, as with certificates."""
BEHIND_SECONDS = 86400.0
"""How old a run may be that begins here: no longer than parties are waited for. What is drawn from
the number of a run can only be chosen among those of a day."""

Clock = Callable[[], float]
"""Tells the seconds since 1970."""


def next_time(last: int, now: float) -> int:
    """What numbers the run after one of time `last`: larger, also where the clock was set back.

    Unless that is of the future, because the clock was wrong or an earlier version named runs
    otherwise: nobody would take the runs that follow.
    """
    ahead = last >= milliseconds(now + AHEAD_SECONDS)
    return milliseconds(now) if ahead else max(milliseconds(now), last + 1)


class BegunRuns:
    """With a `clock`, numbers of the future are refused: whoever chooses numbers could raise the
    mark past all that will ever be asked. With those that are left, it takes the next five minutes
    from us at most. Without one, as in simulations, all names are kept, however many: there, runs
    may be named for their keys, in no order."""

    def __init__(self, most: int | None = None) -> None:
        self.mark = b""
        self.clock: Clock | None = None
        self._most = most
        self._names: dict[bytes, bytes] = {}
        self._numbers: list[bytes] = []

    def __len__(self) -> int:
        return len(self._names)

    def add(self, run: bytes) -> None:
        """The smallest number makes room for a new one, and the mark is raised to it."""
        number = run[:NONCE_BYTES]
        if self.like(run) is not None:
            return
        self._names[number] = run
        heapq.heappush(self._numbers, number)
        while len(self._numbers) > self._limit:
            self.mark = heapq.heappop(self._numbers)
            del self._names[self.mark]

    @property
    def _limit(self) -> float:
        return self._most or (math.inf if self.clock is None else MOST_NAMES)

    def like(self, run: bytes) -> bytes | None:
        """The run that was begun under the number of this one: itself, or one that asks another
        question; None if there is none. Below the mark every run counts as begun."""
        number = run[:NONCE_BYTES]
        return run if number <= self.mark else self._names.get(number)

    def is_ahead(self, run: bytes) -> bool:
        """Whether the number of a run is of a time that is still to come."""
        if self.clock is None:
            return False
        return run[:NONCE_BYTES] > last_number(self.clock() + AHEAD_SECONDS)

    def is_outdated(self, run: bytes) -> bool:
        """Whether it is of a time that is long past."""
        if self.clock is None:
            return False
        return run[:NONCE_BYTES] < last_number(max(0.0, self.clock() - BEHIND_SECONDS))
