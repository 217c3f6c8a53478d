"""Encodings in which every record has a weight: a column clipped to [0, U] for a public U.

A record in no group, or without a number as its weight, weighs nothing. On the grid a weight is a
whole number of steps of U/`STEPS`.
"""

from dataclasses import dataclass

import numpy as np

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.plans.contract import Encoding, Integers
from tallyroom.protocols.plans.encodings import EqualBins, Names, clipped, sum_by_party
from tallyroom.protocols.plans.groups import Groups, by_group
from tallyroom.protocols.plans.scaled import ScaledColumn
from tallyroom.protocols.privacy.noise_law import Sensitivity
from tallyroom.protocols.records import Holdings

STEPS = 1 << 18
MAX_RECORDS = 1 << 26
"""Sums of weights times values, 2^36 a record, stay within the ring, noise included."""


@dataclass(frozen=True)
class Weights:
    """The column of weights, and the largest weight."""

    column: str
    upper: float

    def of(self, holdings: Holdings) -> Integers:
        """In steps; a cell that is no number weighs nothing."""
        share = np.clip(clipped(holdings.column(self.column), 0.0, self.upper) / self.upper, 0, 1)
        return np.rint(share * STEPS).astype(np.int64)

    @property
    def step(self) -> float:
        return self.upper / STEPS

    @property
    def words(self) -> str:
        return f"weights are rounded to multiples of {self.step:.3g}"


@dataclass(frozen=True)
class WeightedSums(Encoding):
    """Σwz and Σw, of values scaled to z within [−1, 1] and weights scaled to w within [0, 1]; for
    each group, where there are any.

    A record is (wz, w), in the triangle of (0, 0), (−1, 1) and (1, 1), whose corners are 2 apart at
    most in either norm. Of two groups or more it leaves one and enters another: 2 each in the L1
    norm, and 2 each in the square of the L2 norm.
    """

    scaled: ScaledColumn
    weights: Weights
    groups: Groups | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        own = (self.scaled.name, self.weights.column)
        return tuple(dict.fromkeys((*own, *(self.groups.columns if self.groups else ()))))

    @property
    def length(self) -> int:
        return 2 * (self.groups.count if self.groups else 1)

    @property
    def sensitivity(self) -> Sensitivity:
        unit = STEPS**2
        if self.groups is None or self.groups.count == 1:
            return Sensitivity(2 * unit, 4 * unit**2)
        return Sensitivity(4 * unit, 4 * unit**2)

    @property
    def measurement(self) -> None:
        return None

    def encode(self, holdings: Holdings) -> Vector:
        weight = self.weights.of(holdings)
        z = np.rint(self.scaled.of(holdings) * STEPS).astype(np.int64)
        rows = np.stack([weight * z, weight * STEPS], axis=1)
        if self.groups is None:
            return sum_by_party(rows.view(np.uint64), holdings)
        return by_group(rows, self.groups, holdings)

    @property
    def grid_step(self) -> float:
        return self.scaled.half / STEPS

    @property
    def grid_words(self) -> str:
        return f"values are rounded to multiples of {self.grid_step:.3g}, {self.weights.words}"


@dataclass(frozen=True)
class WeightedCells(Encoding):
    """The weights of the records in each cell. A replaced record takes its weight out of one cell,
    and adds another to one."""

    cells: EqualBins | Names
    weights: Weights

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.cells.columns, self.weights.column)))

    @property
    def length(self) -> int:
        return self.cells.length

    @property
    def sensitivity(self) -> Sensitivity:
        apart = 2 if self.length > 1 else 1
        return Sensitivity(apart * STEPS, apart * STEPS**2)

    @property
    def measurement(self) -> None:
        return None

    def encode(self, holdings: Holdings) -> Vector:
        rows = np.zeros((holdings.rows, self.length), dtype=np.int64)
        rows[np.arange(holdings.rows), self.cells.measured(holdings)] = self.weights.of(holdings)
        return sum_by_party(rows.view(np.uint64), holdings)

    @property
    def grid_step(self) -> float:
        return self.weights.step

    @property
    def grid_words(self) -> str:
        return self.weights.words
