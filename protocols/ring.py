"""Vectors over Z_2^64 and the fixed-point grid that puts real numbers on them."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protocols.errors import LocalError

Vector = NDArray[np.uint64]

PRECISION_BITS = 30
"""A public bound is put near 2^30 grid steps: 2^33 of the largest values still fit the ring."""


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
    """Multiples of 2^-fraction_bits, as two's complement in Z_2^64."""

    fraction_bits: int

    @classmethod
    def for_bounds(cls, lower: float, upper: float) -> "FixedPoint":
        """The grid for values in a public range. It depends on the bounds alone, never on data."""
        magnitude = max(abs(lower), abs(upper))
        if magnitude == 0:
            return cls(PRECISION_BITS)
        bits = PRECISION_BITS - math.frexp(magnitude)[1]
        if not -900 < bits < 900:  # a sum of many such values must be a double
            raise LocalError(f"bounds [{lower}, {upper}] are out of the range of fixed point")
        return cls(bits)

    def encode(self, values: NDArray[np.float64]) -> Vector:
        """Rounds to the grid. The values are within the bounds that the grid was made for."""
        return np.rint(np.ldexp(values, self.fraction_bits)).astype(np.int64).view(np.uint64)

    def decode(self, vector: Vector) -> NDArray[np.float64]:
        return np.ldexp(signed(vector).astype(np.float64), -self.fraction_bits)

    def steps(self, lower: float, upper: float) -> int:
        """How many grid steps lie between two encoded bounds, exactly."""
        encoded = signed(self.encode(np.array([lower, upper])))
        return int(encoded[1]) - int(encoded[0])
