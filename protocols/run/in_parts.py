"""A large block of parties, computed and sent part by part.

A batch of parties is exactly its batches of one, so a host of a million parties need not hold a
million submissions: it computes the next part when the last one is sent. Memory is bounded by a
part, and a server that is slow to take submissions slows down their making.
"""

from collections.abc import Iterator
from itertools import chain, pairwise

import numpy as np

from tallyroom.protocols.aggregation.contract import Aggregator
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.query import Query
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.wire.machine import Continue, Done, Failed, Machine, Rejected, Step
from tallyroom.protocols.wire.messages import Message

PART_BYTES = 2 << 20
"""About what a part sends to one server: large enough that a message costs next to nothing."""


def parts(aggregator: Aggregator, query: Query, holdings: Holdings) -> Iterator[Holdings]:
    """The same parties in parts of about `PART_BYTES`, or all together where they must be."""
    counts, which = np.unique(holdings.counts, return_inverse=True)
    sizes = np.array([aggregator.row_bytes(query, int(count)) for count in counts])[which]
    part = np.cumsum(sizes) // PART_BYTES
    edges = [0, *(np.flatnonzero(np.diff(part)) + 1).tolist(), len(part)]
    return (holdings.between(first, last) for first, last in pairwise(edges))


def in_parts(machines: Iterator[Machine]) -> Machine:
    """One machine from those of the parts, of which there is at least one.

    Raises `LocalError` if the first cannot be made.
    """
    first = next(machines)
    second = next(machines, None)
    return first if second is None else InParts(chain((first, second), machines))


def proceed(machine: Machine) -> Step:
    """The next part of what a machine says."""
    return machine.proceed() if isinstance(machine, InParts) else Continue()


class InParts:
    """Parties that speak once, one part after the other."""

    def __init__(self, machines: Iterator[Machine]) -> None:
        self._machines = machines
        self._next = next(machines)

    def start(self) -> Step:
        return self.proceed()

    def proceed(self) -> Step:
        try:
            step = self._next.start()
            following = next(self._machines, None)
        except LocalError as error:
            return Failed(str(error))
        if following is None or isinstance(step, Rejected | Failed):
            return step
        if not isinstance(step, Done):
            return Failed("these parties speak more than once: they cannot be sent in parts")
        self._next = following
        return Continue(step.messages, step.spends, more=True)

    def receive(self, message: Message) -> Step:
        return Rejected(message.sender, f"a party expects no {message.phase.label}")

    def expire(self) -> Step:
        return Done()
