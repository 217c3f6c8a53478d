"""The share of records whose cell has one of some public names."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.categories import parse_categories
from tallyroom.protocols.cells import places
from tallyroom.protocols.plans.contract import Encoding, Integers, NoisySum, PlainSum
from tallyroom.protocols.plans.encodings import sum_by_party
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.groups import ByGroup, Groups
from tallyroom.protocols.plans.interval import Interval, count_deviations
from tallyroom.protocols.plans.measurement import BoundedNumber, OneHot
from tallyroom.protocols.privacy.noise_law import Sensitivity
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.statistics.contract import ReadInParts, ReadsNames
from tallyroom.protocols.statistics.estimates import Estimate
from tallyroom.protocols.statistics.option import SUMS, option, role
from tallyroom.protocols.statistics.release import Answer, Release

SPAN = (0.0, 1.0)


@dataclass(frozen=True)
class HasName(Encoding):
    """1 for a record whose cell has one of the names, 0 for any other."""

    column: str
    names: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def length(self) -> int:
        return 1

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity.of_number(1)

    @property
    def measurement(self) -> BoundedNumber:
        return BoundedNumber(most=1)

    def measured(self, holdings: Holdings) -> Integers:
        place = places(holdings.column(self.column), self.names)
        return (place < len(self.names)).astype(np.int64)

    def encode(self, holdings: Holdings) -> Vector:
        return sum_by_party(self.measured(holdings).view(np.uint64)[:, None], holdings)

    @property
    def grid_step(self) -> float:
        return 0.0

    @property
    def grid_words(self) -> str:
        return "names count exactly"


@dataclass(frozen=True)
class HasNameOrNot(HasName):
    """The same as one of two cells: without, with."""

    @property
    def length(self) -> int:
        return 2

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity.of_counts(2)

    @property
    def measurement(self) -> OneHot:  # type: ignore[override]
        return OneHot(2)

    def encode(self, holdings: Holdings) -> Vector:
        return holdings.count_by_party(self.measured(holdings), 2)


@dataclass(frozen=True)
class Proportion(ReadInParts, ReadsNames):
    """The share of records that have one of the names in a column."""

    value: str = role("value", "The column of names.")
    names: str = option("1", "The names whose share is told, as A,B; public.")

    name: ClassVar[str] = "proportion"
    topic: ClassVar[str] = SUMS

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self._names

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return parse_categories(self.names)

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.value,)

    @property
    def named_columns(self) -> tuple[str, ...]:
        return (self.value,)

    def plan(self, facts: Facts) -> NoisySum:
        one = HasName(self.value, self._names)
        return NoisySum(one, PlainSum.of(one), reusable=True)

    def plan_of(self, facts: Facts, groups: Groups) -> NoisySum:
        cells = ByGroup(HasNameOrNot(self.value, self._names), groups)
        return NoisySum(cells, PlainSum.of(cells), reusable=True)

    def parts_of(self, release: Release, groups: Groups) -> list[Release]:
        return [release.part(2 * at, 2 * at + 2) for at in range(groups.count)]

    def read(self, release: Release) -> Answer:
        """A count among all records, whose number is public."""
        counted = float(release.integers[0])
        told = release.linear(counted / release.records, 1 / release.records)
        share = counted if release.exact else min(max(counted, 0.0), float(release.records))
        estimate = share / release.records
        interval = None if told.interval is None else _within(told.interval, estimate)
        return _sampled(estimate, interval, release.records, told.foretold)

    def read_of(self, release: Release, groups: Groups) -> list[Answer]:
        return [share_of(part) for part in self.parts_of(release, groups)]

    def reference(self, holdings: Holdings) -> Estimate:
        found = HasName(self.value, self._names).measured(holdings)
        return float(np.mean(found)) if len(found) else math.nan


def share_of(release: Release) -> Answer:
    """A group's share, from how many are without and with. Its interval are all shares p for which
    (1 − p)·with − p·without is not unlikely (Fieller 1954)."""
    without, counted = (float(each) for each in release.integers)
    whole = without + counted
    if (noise := release.noise) is None:
        share = counted / whole if whole else math.nan
        return _sampled(share, None, round(whole), True)
    share = min(max(counted / whole, 0.0), 1.0) if whole >= 1 else 0.5
    variance = float(np.mean(noise.deviations(2) ** 2))
    ends = _likely(counted, whole, noise.width() ** 2 * variance)
    error = math.sqrt(variance * ((1 - share) ** 2 + share**2)) / max(whole, 1.0)
    low, high = np.array([ends[0]]), np.array([ends[1]])
    interval = Interval(np.array([min(error, 1.0)]), low, high).holding(np.array([share]))
    return _sampled(share, interval, max(1, round(whole)), False)


def _likely(counted: float, whole: float, most: float) -> tuple[float, float]:
    """All p within [0, 1] with (counted − p·whole)² ≤ most·((1 − p)² + p²)."""
    square = whole**2 - 2 * most
    cross, rest = counted * whole - most, counted**2 - most
    within = cross**2 - square * rest
    if square <= 0 or within < 0:
        return SPAN
    ends = [(cross + sign * math.sqrt(within)) / square for sign in (-1, 1)]
    return min(max(ends[0], 0.0), 1.0), min(max(ends[1], 0.0), 1.0)


def _within(interval: Interval, estimate: float) -> Interval:
    clipped = Interval(interval.errors, np.clip(interval.low, *SPAN), np.clip(interval.high, *SPAN))
    return clipped.holding(np.array([estimate]))


def _sampled(share: float, noise: Interval | None, records: int, foretold: bool) -> Answer:
    """With the interval of the population, as counts have it."""
    values = np.array([share])
    deviations = count_deviations(values * records, records) / max(records, 1)
    population = Interval.sampled(values, noise, deviations, SPAN)
    return Answer(share, noise, records, foretold=foretold, population=population)
