"""Sum and mean of a clipped column."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tallyroom.protocols.plans.contract import NoisySum, PlainSum
from tallyroom.protocols.plans.encodings import ClippedNumber
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.groups import Groups, MeanByGroup, SumByGroup
from tallyroom.protocols.plans.interval import Interval
from tallyroom.protocols.plans.scaled import ScaledColumn
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.bounded import BoundedColumn
from tallyroom.protocols.statistics.contract import ReadInParts
from tallyroom.protocols.statistics.estimates import Estimate
from tallyroom.protocols.statistics.option import SUMS
from tallyroom.protocols.statistics.release import Answer, Release
from tallyroom.protocols.statistics.weighted import MayWeigh, weighted_mean, weighted_plan


@dataclass(frozen=True)
class Sum(ReadInParts, BoundedColumn):
    """The sum of values clipped to public bounds, on a fixed-point grid.

    How many records there are is public, and with it what the lower bound contributes.
    """

    name: ClassVar[str] = "sum"
    topic: ClassVar[str] = SUMS

    @property
    def encoding(self) -> ClippedNumber:
        return ClippedNumber(self.value, *self.bounds)

    def plan(self, facts: Facts) -> NoisySum:
        number = self.encoding
        return NoisySum(number, PlainSum.of(number, unit=number.grid.step))

    def read(self, release: Release) -> Answer:
        return self._read(release, 1.0)

    def _read(self, release: Release, divisor: float) -> Answer:
        grid = self.encoding.grid
        total = grid.decode(int(release.integers[0]), release.records)
        return release.linear(total / divisor, grid.step / divisor)

    def plan_of(self, facts: Facts, groups: Groups) -> NoisySum:
        sums = SumByGroup(self.value, *self.bounds, groups)
        return NoisySum(sums, PlainSum.of(sums, unit=sums.grid.step, summed="values"))

    def parts_of(self, release: Release, groups: Groups) -> list[Release]:
        size = len(release.values) // groups.count
        return [release.part(at * size, (at + 1) * size) for at in range(groups.count)]

    def read_of(self, release: Release, groups: Groups) -> list[Answer]:
        step = SumByGroup(self.value, *self.bounds, groups).grid.step
        parts = self.parts_of(release, groups)
        return [part.linear(float(part.integers[0]) * step, step) for part in parts]

    def reference(self, holdings: Holdings) -> Estimate:
        return float(np.sum(self.raw(holdings)))


@dataclass(frozen=True)
class Mean(Sum, MayWeigh):
    """The sum divided by the number of records, which is public; or the weighted mean."""

    name: ClassVar[str] = "mean"

    @property
    def _scaled(self) -> ScaledColumn:
        return ScaledColumn(self.value, *self.bounds)

    def plan(self, facts: Facts) -> NoisySum:
        return weighted_plan(self, facts) if self.weights else super().plan(facts)

    def read(self, release: Release) -> Answer:
        if self.weights:
            return weighted_mean(release, self._scaled)
        return self._read(release, release.records)

    def plan_of(self, facts: Facts, groups: Groups) -> NoisySum:
        if self.weights:
            return weighted_plan(self, facts, groups)
        means = MeanByGroup(self.encoding, groups)
        return NoisySum(
            means, PlainSum.of(means, unit=means.grid_step, summed="values and weights")
        )

    def read_of(self, release: Release, groups: Groups) -> list[Answer]:
        if self.weights:
            parts = self.parts_of(release, groups)
            return [weighted_mean(part, self._scaled) for part in parts]
        means = MeanByGroup(self.encoding, groups)
        return [mean_of(part, means) for part in self.parts_of(release, groups)]

    def reference(self, holdings: Holdings) -> Estimate:
        values = self.raw(holdings)
        if not self.weights:
            return float(np.mean(values))
        weights = self.raw_weights(holdings)
        return float(np.average(values, weights=weights)) if weights.sum() > 0 else math.nan


def mean_of(release: Release, means: MeanByGroup) -> Answer:
    """The mean of a group's records, from how far they lie above the middle and how many they are,
    both by noisy sums. Its interval are all means for which the noise would not be unlikely
    (Fieller 1954); where it tells nothing of how many there are, that is the whole range."""
    grid, middle = means.number.grid, means.middle
    above, counted = (float(each) for each in release.integers)
    low, high = -middle, grid.steps - middle
    zero = (grid.origin + middle) * grid.step
    if release.noise is None:
        records = round(counted / middle)
        mean = zero + above / records * grid.step if records else math.nan
        return Answer(mean, None, records, foretold=True)
    records = max(1, round(counted / middle))
    found = min(max(above / records, low), high)
    share = found / middle
    variance = release.noise.variance
    error = math.sqrt(variance * (1 + share**2)) / records
    alike = (1 + share**2) ** 2 / (1 + share**4)
    width = release.noise.width(round(4 * alike) / 4)  # few widths, each computed once
    ends = _likely(above, counted / middle, width**2 * variance, 1 / middle**2)
    within = np.clip(ends, low, high)
    interval = Interval(
        np.array([min(error, high - low) * grid.step]),
        zero + np.minimum(within[:1], found) * grid.step,
        zero + np.maximum(within[1:], found) * grid.step,
    )
    return Answer(zero + found * grid.step, interval, records)


def _likely(above: float, records: float, most: float, share: float) -> Column:
    """The ends of all x with (above − records·x)² ≤ most·(1 + share·x²)."""
    square = records**2 - most * share
    within = above**2 * most * share + most * square
    if square <= 0:
        return np.array([-math.inf, math.inf])
    half = math.sqrt(max(within, 0.0))
    return np.array([above * records - half, above * records + half]) / square
