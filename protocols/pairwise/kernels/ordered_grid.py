"""A grid for columns of which only the order matters: it needs no public bounds."""

from dataclasses import dataclass

import numpy as np

from protocols.errors import LocalError
from protocols.pairwise.kernels.contract import Grid, Integers
from protocols.records import Column


@dataclass(frozen=True)
class OrderedGrid(Grid):
    """All numbers, rounded to 24 significant bits, by an integer that grows with them.

    A number's rank among the 32-bit floating-point numbers: what rounds to the same one is tied.
    """

    low: int = -(1 << 31)
    high: int = (1 << 31) - 1

    def encode(self, values: Column) -> Integers:
        if not np.isfinite(values).all():
            raise LocalError("a column has values that are not finite numbers")
        largest = np.finfo(np.float32).max
        rounded = np.clip(values, -largest, largest).astype(np.float32) + np.float32(0)  # no -0
        pattern = rounded.view(np.int32)
        # Sign and magnitude to two's complement: negative numbers grow towards zero.
        ranks = np.where(pattern < 0, pattern ^ np.int32(0x7FFFFFFF), pattern)
        return ranks.astype(np.int64)
