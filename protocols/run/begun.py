"""Which runs were begun, so that none is begun again, in bounded memory.

Runs are numbered: the first 44 bits of a run's nonce are a time and grow from run to run, the other
20 tell runs of one time apart. A deployed coordinator goes by its clock, in milliseconds, so that
one that lost its store goes on; simulations count. Whoever takes part keeps the largest numbers
that it has begun, with the names of their runs, and a mark: every number up to the mark counts as
begun, whether it was or not. Runs may therefore start in any order among the newest, and an old one
never starts again.

The number is in a run's name, which every message carries and every role signs for, and in the
label of all randomness that is drawn for the run.
"""

import heapq
from collections.abc import Callable

from tallyroom.protocols.wire.messages import NONCE_BYTES

MOST_NAMES = 1 << 16
"""Runs that are known by name; older ones are below the mark."""
AHEAD_SECONDS = 300.0
"""How far a coordinator's clock may be ahead of ours, as with certificates."""

Clock = Callable[[], float]
"""Tells the seconds since 1970."""

TELLING_BITS = 20


def number(time: int, telling: int) -> bytes:
    """The nonce of a run of this time, and what tells it from others of the same."""
    low = telling % (1 << TELLING_BITS)
    return (time << TELLING_BITS | low).to_bytes(NONCE_BYTES, "big")


def time_of(nonce: bytes) -> int:
    return int.from_bytes(nonce, "big") >> TELLING_BITS


def milliseconds(seconds: float) -> int:
    """The time of a run that begins then."""
    return int(seconds * 1000)


def last_number(seconds: float) -> bytes:
    """The largest number of that time."""
    return number(milliseconds(seconds), -1)


class Begun:
    """With a `clock`, numbers of the future are refused: whoever chooses numbers could raise the
    mark past all that will ever be asked. It can refuse us five minutes of runs so, no more."""

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
        while len(self._numbers) > (self._most or MOST_NAMES):
            self.mark = heapq.heappop(self._numbers)
            del self._names[self.mark]

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
