"""A grid for columns of which only the order matters: it needs no public bounds."""

from dataclasses import dataclass

import numpy as np

from tallyroom.protocols.cells import numbers
from tallyroom.protocols.kernels.contract import Grid, Integers
from tallyroom.protocols.records import Column


@dataclass(frozen=True)
class OrderedGrid(Grid):
    """All numbers, rounded to 24 significant bits, by an integer that grows with them.

    A number's rank among the 32-bit floating-point numbers: what rounds to the same one is tied.
    """

    low: int = -(1 << 31)
    high: int = (1 << 31) - 1

    def encode(self, values: Column) -> Integers:
        """What is no number counts as the lowest."""
        largest = np.finfo(np.float32).max
        clipped = np.clip(numbers(values, -np.inf), -largest, largest)
        rounded = clipped.astype(np.float32) + np.float32(0)  # no -0
        pattern = rounded.view(np.int32)
        # Sign and magnitude to two's complement: negative numbers grow towards zero.
        ranks = np.where(pattern < 0, pattern ^ np.int32(0x7FFFFFFF), pattern)
        return ranks.astype(np.int64)
