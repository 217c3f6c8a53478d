"""Sums over submissions that are kept in blocks, in this process or by workers.

A server's share of a sum is linear in its submissions, so it can be computed block by block,
wherever the blocks are, and added up.
"""

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.aggregation.contract import Bulk, Ids
from tallyroom.protocols.algebra.ring import Vector


class PartialSum(Protocol):
    """Computes what one block adds to the sum. It may be sent to another process."""

    def __call__(self, ids: Ids, block: NDArray[np.uint8]) -> Vector: ...


@runtime_checkable
class DistributedBulk(Protocol):
    """A bulk whose blocks are held by workers."""

    def total(self, part: PartialSum, length: int) -> Vector:
        """The sum of `part` over all blocks, which has `length` elements."""


def total_over(bulk: Bulk, part: PartialSum, length: int) -> Vector:
    """The sum of `part` over all blocks, modulo 2^64."""
    if isinstance(bulk, DistributedBulk):
        return bulk.total(part, length)
    total = np.zeros(length, dtype=np.uint64)
    for ids, block in bulk.blocks():
        total += part(ids, block)
    return total
