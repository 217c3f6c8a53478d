"""Counts in equal bins over a public range, or of names."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.categories import parse_categories
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.local import AUTO, RANDOMIZERS
from tallyroom.protocols.plans.contract import NoisySum, PlainSum, Plan
from tallyroom.protocols.plans.encodings import EqualBins, Names
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.groups import ByGroup, Groups
from tallyroom.protocols.plans.interval import Interval
from tallyroom.protocols.plans.weights import MAX_RECORDS, WeightedCells
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.registry import look_up
from tallyroom.protocols.statistics.bounded import BoundedColumn
from tallyroom.protocols.statistics.contract import ReadInParts, ReadsNames
from tallyroom.protocols.statistics.estimates import Bins, Counts, Estimate
from tallyroom.protocols.statistics.option import DISTRIBUTIONS, option
from tallyroom.protocols.statistics.release import Answer, Release
from tallyroom.protocols.statistics.weighted import MayWeigh

MAX_BINS = 1 << 20


@dataclass(frozen=True)
class CountedInBins(ReadsNames, BoundedColumn):
    """A statistic of how many records are in each of some bins.

    Bins are half-open but for the last, as numpy's are; values outside fall in the end bins.
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

    topic: ClassVar[str] = DISTRIBUTIONS

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.bins <= MAX_BINS:
            raise LocalError(f"--bins must be between 1 and {MAX_BINS}, not {self.bins}")
        look_up("randomizer", self.randomizer, dict.fromkeys((AUTO, *RANDOMIZERS)))
        if self.categories:
            parse_categories(self.categories)

    @property
    def named_columns(self) -> tuple[str, ...]:
        return (self.value,) if self.categories else ()

    @property
    def valued(self) -> tuple[str, ...]:
        """Names have no bounds."""
        return () if self.categories else super().valued

    @cached_property
    def _bins(self) -> EqualBins:
        return EqualBins(self.value, *self.bounds, self.bins, self.randomizer)

    @cached_property
    def _names(self) -> Names:
        return Names(self.value, parse_categories(self.categories), self.randomizer)

    @property
    def edges(self) -> Column:
        return self._bins.edges

    @property
    def _cells(self) -> EqualBins | Names:
        return self._names if self.categories else self._bins

    def _counts(self, counts: NDArray[np.generic]) -> Estimate:
        heights = counts.astype(np.float64).tolist()
        if self.categories:
            return Counts(list(self._names.labels), heights)
        return Bins(self.edges[:-1].tolist(), heights, float(self.edges[-1]))


@dataclass(frozen=True)
class Histogram(ReadInParts, CountedInBins, MayWeigh):
    """Counts in bins of equal width, or of the names in a column of text.

    With `categories` it counts those names, which are public; any other name counts as `other`.
    """

    name: ClassVar[str] = "histogram"

    def plan(self, facts: Facts) -> Plan:
        if not self.weights:
            return NoisySum(self._cells, PlainSum.of(self._cells))
        if facts.records > MAX_RECORDS:
            raise LocalError(f"--weights takes up to {MAX_RECORDS} records, not {facts.records}")
        weighed = WeightedCells(self._cells, self.weighed_by)
        return NoisySum(weighed, PlainSum.of(weighed, unit=weighed.grid_step, summed="weights"))

    def plan_of(self, facts: Facts, groups: Groups) -> Plan:
        if self.weights:
            raise LocalError("--weights of a histogram is about all records: leave out --by")
        encoding = ByGroup(self._cells, groups)
        return NoisySum(encoding, PlainSum.of(encoding))

    def parts_of(self, release: Release, groups: Groups) -> list[Release]:
        size = self._cells.length
        return [release.part(at * size, (at + 1) * size) for at in range(groups.count)]

    def read(self, release: Release) -> Answer:
        if self.weights:
            return self._read_weights(release)
        counts = release.integers
        if not self.nonnegative:
            return release.counts(self._counts(counts))
        return release.counts(self._counts(np.maximum(counts, 0)), (0.0, math.inf))

    def _read_weights(self, release: Release) -> Answer:
        step = self.weighed_by.step
        found: Column = release.integers.astype(np.float64) * step
        least = 0.0 if self.nonnegative else -math.inf
        estimate = self._counts(np.maximum(found, least))
        if (noise := release.noise) is None:
            return Answer(estimate, None, release.records, foretold=True)
        errors = noise.deviations(len(found)) * step
        interval = Interval.around(found, errors, noise.width(), (least, math.inf))
        return Answer(estimate, interval, release.records, foretold=noise.law_is_public)

    def reference(self, holdings: Holdings) -> Estimate:
        """The counts of the raw records; values outside the range are in no bin."""
        weights = self.raw_weights(holdings) if self.weights else None
        if self.categories:
            cells = self._names.measured(holdings)
            return self._counts(np.bincount(cells, weights, minlength=self._names.length))
        counts, _ = np.histogram(self.raw(holdings), bins=self.edges, weights=weights)
        return self._counts(counts)
