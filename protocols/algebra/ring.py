"""Vectors over Z_2^64 and the fixed-point grid that puts real numbers on them."""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.errors import LocalError

Vector = NDArray[np.uint64]

PRECISION_BITS = 30
"""A public range has up to 2^30 grid steps: 2^33 of the largest values still fit the ring."""


def add_rows(rows: NDArray[np.uint8]) -> Vector:
    """The sum of vectors that came as little-endian bytes, one a row."""
    total: Vector = np.ascontiguousarray(rows).view("<u8").sum(axis=0, dtype=np.uint64)
    return total


def add_shares(shares: list[Vector]) -> Vector:
    total: Vector = np.stack(shares).sum(axis=0, dtype=np.uint64)
    return total


def signed(vector: Vector) -> NDArray[np.int64]:
    """The representative of each element in [-2^63, 2^63)."""
    return vector.view(np.int64)


@dataclass(frozen=True)
class FixedPoint:
    """Multiples of 2^-fraction_bits, counted from the one nearest to the lower bound.

    A value in the range is a whole number of steps from 0 to `steps`, as fine beside the range
    wherever that lies: time stamps around 1.7e9 within one second have 2^-30 of a second.
    """

    fraction_bits: int
    origin: int
    """The lower bound, in steps from zero."""
    steps: int
    """How many of them the range has: the most that one value moves a sum, exactly."""

    @classmethod
    def for_bounds(cls, lower: float, upper: float) -> "FixedPoint":
        """The grid for values in a public range. It depends on the bounds alone, never on data."""
        bits = PRECISION_BITS - math.frexp(upper - lower)[1]
        magnitude = math.frexp(max(abs(lower), abs(upper)))[1]
        if not lower < upper or not -900 < bits < 900 or magnitude > 930:
            # A sum of many such values must be a double.
            raise LocalError(f"bounds [{lower}, {upper}] are out of the range of fixed point")
        step = Fraction(2) ** -bits
        origin = round(Fraction(lower) / step)
        return cls(bits, origin, round(Fraction(upper) / step) - origin)

    @property
    def step(self) -> float:
        return math.ldexp(1.0, -self.fraction_bits)

    def encode(self, values: NDArray[np.float64]) -> Vector:
        """Rounds to the grid. The values are within the bounds that the grid was made for.

        Both terms are doubles without a fraction, and their difference is below 2^31: exact.
        """
        steps = np.rint(np.ldexp(values, self.fraction_bits)) - float(self.origin)
        return steps.astype(np.int64).view(np.uint64)

    def decode(self, total: int, records: int) -> float:
        """The sum of `records` values, from the sum of their steps."""
        return float((total + records * self.origin) * Fraction(2) ** -self.fraction_bits)

    def decode_all(self, totals: Vector, records: Vector) -> NDArray[np.float64]:
        pairs = zip(signed(totals).tolist(), signed(records).tolist(), strict=True)
        return np.array([self.decode(total, count) for total, count in pairs], dtype=np.float64)
