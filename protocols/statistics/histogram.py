"""Counts in equal bins over a public range."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import Vector, signed
from tallyroom.protocols.categories import OTHER, parse_categories
from tallyroom.protocols.cells import places
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.local import AUTO, RANDOMIZERS
from tallyroom.protocols.names import look_up
from tallyroom.protocols.plans.interval import Interval
from tallyroom.protocols.plans.measurement import Measurement, OneHot
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.bounded import BoundedColumn
from tallyroom.protocols.statistics.estimates import Bins, Counts, Estimate
from tallyroom.protocols.statistics.legacy import Legacy
from tallyroom.protocols.statistics.option import option

MAX_BINS = 1 << 20


@dataclass(frozen=True)
class Histogram(Legacy, BoundedColumn):
    """Counts in bins of equal width, or of the names in a column of text.

    Bins are half-open but for the last, as numpy's are; values outside fall in the end bins. With
    `categories` it counts those names, which are public; any other name counts as `other`.
    """

    bins: int = option(10, "How many bins of equal width.")
    nonnegative: bool = option(
        False, "Make no count negative: those of empty bins are then too high on average."
    )
    categories: str = option("", "Names in a column of text to count, as A,B,C; public.")
    randomizer: str = option(
        AUTO,
        "In the local model: what randomizes reports; auto takes the least variance.",
        choices=(AUTO, *RANDOMIZERS),
    )

    name: ClassVar[str] = "histogram"
    after_release: ClassVar[frozenset[str]] = frozenset({"nonnegative"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.bins <= MAX_BINS:
            raise LocalError(f"--bins must be between 1 and {MAX_BINS}, not {self.bins}")
        look_up("randomizer", self.randomizer, dict.fromkeys((AUTO, *RANDOMIZERS)))
        if self.categories:
            parse_categories(self.categories)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """What is counted, if it is names: the categories, and all others."""
        return (*parse_categories(self.categories), OTHER) if self.categories else ()

    @property
    def cells(self) -> int:
        return len(self.names) or self.bins

    @property
    def named_columns(self) -> tuple[str, ...]:
        return (self.value,) if self.categories else ()

    @property
    def valued(self) -> tuple[str, ...]:
        """Names have no bounds."""
        return () if self.categories else super().valued

    @property
    def edges(self) -> NDArray[np.float64]:
        return np.linspace(*self.bounds, self.bins + 1)

    @property
    def length(self) -> int:
        return self.cells

    @property
    def sensitivity(self) -> int:
        """A replaced record leaves one bin and enters another."""
        return 2 if self.cells > 1 else 0

    @property
    def measurement(self) -> Measurement:
        return OneHot(self.cells, self.randomizer)

    def measured(self, holdings: Holdings) -> NDArray[np.int64]:
        """The bin of every record."""
        if self.names:
            return places(holdings.column(self.value), self.names[:-1])
        values = self.clip(holdings.column(self.value))
        bins = np.searchsorted(self.edges, values, side="right").astype(np.int64) - 1
        return np.minimum(bins, self.bins - 1)

    def encode(self, holdings: Holdings) -> Vector:
        return holdings.count_by_party(self.measured(holdings), self.cells)

    def decode(self, released: Vector, records: int, exact: bool = False) -> Estimate:
        counts = signed(released).astype(np.float64)
        return self._counts(np.maximum(counts, 0.0) if self.nonnegative else counts)

    def interval(
        self, released: Vector, records: int, noise_variance: float, width: float
    ) -> Interval:
        """Around the counts as they were released, also where none is told below 0."""
        counts = signed(released).astype(np.float64)
        span = (0.0, math.inf) if self.nonnegative else self.span
        deviations = self.deviations(noise_variance, records)
        return Interval.of_counts(counts, deviations, width, span)

    @property
    def whole_noises(self) -> bool:
        return True

    def deviations(self, noise_variance: float, records: int) -> Column:
        return np.full(self.cells, math.sqrt(noise_variance))

    def reference(self, holdings: Holdings) -> Estimate:
        """Of the raw records: those outside the range are in no bin."""
        if self.names:
            return self._counts(np.bincount(self.measured(holdings), minlength=self.cells))
        counts, _ = np.histogram(self.raw(holdings), bins=self.edges)
        return self._counts(counts)

    def _counts(self, counts: NDArray[np.generic]) -> Estimate:
        heights = counts.astype(np.float64).tolist()
        if self.names:
            return Counts(list(self.names), heights)
        return Bins(self.edges[:-1].tolist(), heights, float(self.edges[-1]))
