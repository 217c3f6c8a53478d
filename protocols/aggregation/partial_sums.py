"""Sums over submissions that are kept in blocks, here or spread over workers.

A server's share of a sum is linear in its submissions: what is counted on some of them can be added
to what is counted on others, wherever that was done.
"""

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.aggregation.contract import Bulk, Ids
from tallyroom.protocols.algebra.ring import Vector


class PartialSum(Protocol):
    """What one block adds to the sum. It may be computed in another process: what it is made of
    travels there."""

    def __call__(self, ids: Ids, block: NDArray[np.uint8]) -> Vector: ...


@runtime_checkable
class Spread(Protocol):
    """A bulk whose blocks are with workers."""

    def total(self, part: PartialSum, length: int) -> Vector:
        """The sum of `length` counts over all blocks."""


def total_over(bulk: Bulk, part: PartialSum, length: int) -> Vector:
    """The sum, modulo 2^64, of what every block adds to it."""
    if isinstance(bulk, Spread):
        return bulk.total(part, length)
    total = np.zeros(length, dtype=np.uint64)
    for ids, block in bulk.blocks():
        total += part(ids, block)
    return total
