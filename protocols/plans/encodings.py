"""Encodings that several statistics share: a bounded number, one cell of many, and a step."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import FixedPoint, Vector, signed
from tallyroom.protocols.categories import OTHER
from tallyroom.protocols.cells import numbers, places
from tallyroom.protocols.plans.contract import Encoding, Integers
from tallyroom.protocols.plans.measurement import BoundedNumber, Measurement, OneHot, Step
from tallyroom.protocols.plans.thresholds import ThresholdGrid
from tallyroom.protocols.privacy.hierarchy import Hierarchy
from tallyroom.protocols.privacy.noise_law import Sensitivity
from tallyroom.protocols.records import Column, Holdings


def clipped(values: Column, lower: float, upper: float) -> Column:
    """Within the bounds. A cell that is no number counts as the lower one."""
    return np.clip(numbers(values, lower), lower, upper)


def sum_by_party(rows: Vector, holdings: Holdings) -> Vector:
    """Adds up the rows of each party's records in the ring."""
    summed: Vector = np.add.reduceat(rows, holdings.starts, axis=0)
    return summed


def possible_counts(counts: Integers, tables: tuple[int, ...], most: int) -> NDArray[np.bool]:
    """Which rows of counts 1 to `most` records make, each of which counts once in every table;
    `tables` are the lengths of the parts of a row."""
    within = ((counts >= 0) & (counts <= most)).all(axis=1)
    held = np.add.reduceat(counts, np.cumsum((0, *tables[:-1])), axis=1)
    alike = (held == held[:, :1]).all(axis=1)
    found: NDArray[np.bool] = within & alike & (held[:, 0] >= 1) & (held[:, 0] <= most)
    return found


@dataclass(frozen=True)
class ClippedNumber(Encoding):
    """A column within public bounds, on a fixed-point grid: a record is a whole number of steps
    above the lower bound."""

    column: str
    lower: float
    upper: float

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    @cached_property
    def grid(self) -> FixedPoint:
        return FixedPoint.for_bounds(self.lower, self.upper)

    @property
    def length(self) -> int:
        return 1

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity.of_number(self.grid.steps)

    @property
    def measurement(self) -> Measurement:
        return BoundedNumber(most=self.grid.steps)

    def measured(self, holdings: Holdings) -> Integers:
        values = clipped(holdings.column(self.column), self.lower, self.upper)
        return signed(self.grid.encode(values))

    def encode(self, holdings: Holdings) -> Vector:
        return sum_by_party(self.measured(holdings).view(np.uint64)[:, None], holdings)

    @property
    def grid_step(self) -> float:
        return self.grid.step

    @property
    def grid_words(self) -> str:
        return f"values are rounded to multiples of {self.grid_step:.3g}"


@dataclass(frozen=True)
class EqualBins(Encoding):
    """A column within public bounds, in bins of equal width. Bins are half-open but for the last,
    as numpy's are; values outside fall in the end bins."""

    column: str
    lower: float
    upper: float
    bins: int
    randomizer: str = "auto"

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    @cached_property
    def edges(self) -> Column:
        return np.linspace(self.lower, self.upper, self.bins + 1)

    @property
    def length(self) -> int:
        return self.bins

    @property
    def sensitivity(self) -> Sensitivity:
        """A replaced record leaves one bin and enters another."""
        return Sensitivity.of_counts(2 if self.bins > 1 else 0)

    @property
    def measurement(self) -> Measurement:
        return OneHot(self.bins, self.randomizer)

    def measured(self, holdings: Holdings) -> Integers:
        values = clipped(holdings.column(self.column), self.lower, self.upper)
        bins = np.searchsorted(self.edges, values, side="right").astype(np.int64) - 1
        return np.minimum(bins, self.bins - 1)

    def encode(self, holdings: Holdings) -> Vector:
        return holdings.count_by_party(self.measured(holdings), self.bins)

    @property
    def grid_step(self) -> float:
        return 0.0

    @property
    def grid_words(self) -> str:
        return "values count exactly"


@dataclass(frozen=True)
class Names(Encoding):
    """A column of names: one of those that are public, or another."""

    column: str
    names: tuple[str, ...]
    randomizer: str = "auto"

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def labels(self) -> tuple[str, ...]:
        """What is counted: the names, and all others."""
        return (*self.names, OTHER)

    @property
    def length(self) -> int:
        return len(self.names) + 1

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity.of_counts(2 if self.names else 0)

    @property
    def measurement(self) -> Measurement:
        return OneHot(self.length, self.randomizer)

    def measured(self, holdings: Holdings) -> Integers:
        return places(holdings.column(self.column), self.names)

    def encode(self, holdings: Holdings) -> Vector:
        return holdings.count_by_party(self.measured(holdings), self.length)

    @property
    def grid_step(self) -> float:
        return 0.0

    @property
    def grid_words(self) -> str:
        return "values count exactly"


@dataclass(frozen=True)
class UpToThresholds(Encoding):
    """A column within public bounds, compared with thresholds: a record counts at the first that it
    is at most, and at all above. `shape` is the hierarchy whose nodes are released, if any are.

    `grid_step` and `grid_words` are about what is read off the sum, so they do not belong to its
    identity.
    """

    column: str
    thresholds: ThresholdGrid
    shape: Hierarchy | None = None
    randomizer: str = "auto"
    grid_step: float = field(default=0.0, repr=False, compare=False)
    grid_words: str = field(default="values count exactly", repr=False, compare=False)

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def length(self) -> int:
        return self.thresholds.count

    @property
    def sensitivity(self) -> Sensitivity:
        """A record that moves from the first cell to the last leaves all thresholds but one."""
        return Sensitivity.of_counts(self.length - 1)

    @property
    def measurement(self) -> Measurement:
        """A key knows the value's place among the thresholds, so x ≤ τ_i is decided between the two
        doubles, whatever the domain."""
        return Step(self.length, self.shape, self.randomizer)

    def measured(self, holdings: Holdings) -> Integers:
        """For each value the first threshold that it is at most, by its index."""
        lower, upper = self.thresholds.lower, self.thresholds.upper
        values = clipped(holdings.column(self.column), lower, upper)
        return np.searchsorted(self.thresholds.values, values, side="left").astype(np.int64)

    def encode(self, holdings: Holdings) -> Vector:
        """Each party's own counts at the thresholds: S0 §4.1, for any `sum` aggregator."""
        cells = holdings.count_by_party(self.measured(holdings), self.length)
        return np.cumsum(cells, axis=1)
