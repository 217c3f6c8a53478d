"""A grid for columns where only the order of values matters. It needs no public bounds."""

from dataclasses import dataclass

import numpy as np

from tallyroom.protocols.cells import numbers
from tallyroom.protocols.kernels.contract import Grid, Integers
from tallyroom.protocols.records import Column


@dataclass(frozen=True)
class OrderedGrid(Grid):
    """All numbers, rounded to 24 significant bits and encoded as integers in the same order.

    The code is the rank among the 32-bit floating-point numbers; numbers that round to the same one
    are tied.
    """

    low: int = -(1 << 31)
    high: int = (1 << 31) - 1

    def encode(self, values: Column) -> Integers:
        """The ranks of values. A cell that is not a number counts as the lowest."""
        largest = np.finfo(np.float32).max
        clipped = np.clip(numbers(values, -np.inf), -largest, largest)
        rounded = clipped.astype(np.float32) + np.float32(0)  # no -0
        pattern = rounded.view(np.int32)
        # Sign and magnitude to two's complement: negative numbers grow towards zero.
        ranks = np.where(pattern < 0, pattern ^ np.int32(0x7FFFFFFF), pattern)
        return ranks.astype(np.int64)
