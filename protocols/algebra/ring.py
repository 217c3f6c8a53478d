"""Vectors over Z_2^64 and the fixed-point grid that puts real numbers on them."""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.errors import LocalError

Vector = NDArray[np.uint64]

PRECISION_BITS = 30
"""A public range has up to 2^30 grid steps, so that 2^33 of the largest values fit the ring."""


def add_rows(rows: NDArray[np.uint8]) -> Vector:
    """The sum of vectors given as rows of little-endian bytes."""
    total: Vector = np.ascontiguousarray(rows).view("<u8").sum(axis=0, dtype=np.uint64)
    return total


def add_shares(shares: list[Vector]) -> Vector:
    total: Vector = np.stack(shares).sum(axis=0, dtype=np.uint64)
    return total


def signed(vector: Vector) -> NDArray[np.int64]:
    """Each element's representative in [-2^63, 2^63)."""
    return vector.view(np.int64)


@dataclass(frozen=True)
class FixedPoint:
    """Multiples of 2^-fraction_bits, counted from the one nearest to the lower bound.

    A value in the range becomes a whole number of steps from 0 to `steps`. How fine a step is
    depends on the width of the range and not on where it lies: for time stamps around 1.7e9 that
    span one second, a step is 2^-30 of a second.
    """

    fraction_bits: int
    origin: int
    """The lower bound, in steps from zero."""
    steps: int
    """How many steps the range has. This is exactly the most by which one value moves a sum."""

    @classmethod
    def for_bounds(cls, lower: float, upper: float) -> "FixedPoint":
        """The grid for values in a public range. It depends only on the bounds, never on data."""
        bits = PRECISION_BITS - math.frexp(upper - lower)[1]
        magnitude = math.frexp(max(abs(lower), abs(upper)))[1]
        if not lower < upper or not -900 < bits < 900 or magnitude > 930:
            # A sum of many such values must fit a double.
            raise LocalError(f"bounds [{lower}, {upper}] are out of the range of fixed point")
        step = Fraction(2) ** -bits
        origin = round(Fraction(lower) / step)
        return cls(bits, origin, round(Fraction(upper) / step) - origin)

    @property
    def step(self) -> float:
        return math.ldexp(1.0, -self.fraction_bits)

    def encode(self, values: NDArray[np.float64]) -> Vector:
        """Rounds to the grid. The values must be within the bounds that the grid was made for.

        The result is exact: both terms are whole doubles, and their difference is below 2^31.
        """
        steps = np.rint(np.ldexp(values, self.fraction_bits)) - float(self.origin)
        return steps.astype(np.int64).view(np.uint64)

    def decode(self, total: int, records: int) -> float:
        """The sum of `records` values, from the sum of their steps."""
        return float((total + records * self.origin) * Fraction(2) ** -self.fraction_bits)

    def decode_all(self, totals: Vector, records: Vector) -> NDArray[np.float64]:
        pairs = zip(signed(totals).tolist(), signed(records).tolist(), strict=True)
        return np.array([self.decode(total, count) for total, count in pairs], dtype=np.float64)
