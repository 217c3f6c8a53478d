"""Survival and cumulative hazard over time, of records some of which are censored.

Events and censorings are two classes of one curve over time, so the release is that of a
classifier's curves (`protocols.privacy.class_curves`): the counts up to each threshold of both
classes, for no more noise than one of them would take. Whether the event happened and when are
protected together. All that follows is read off that release and spends nothing.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import ClassVar

import numpy as np

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.contract import NoisySum, Plan
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.groups import Groups, UpToByGroup
from tallyroom.protocols.plans.interval import Interval
from tallyroom.protocols.privacy.class_curves import ClassCurves, Smoothing
from tallyroom.protocols.privacy.group_curves import GroupCurves
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.registry import look_up
from tallyroom.protocols.statistics.bounded import Bounded, finite_column
from tallyroom.protocols.statistics.contract import OfGroups
from tallyroom.protocols.statistics.drawing import Style
from tallyroom.protocols.statistics.estimates import Estimate
from tallyroom.protocols.statistics.event_times import EventTimes, TimeGrid
from tallyroom.protocols.statistics.labels import positives_of
from tallyroom.protocols.statistics.life_table import (
    ACTUARIAL,
    METHODS,
    LifeTable,
    falls_to,
    raw_life_table,
)
from tallyroom.protocols.statistics.noise_draws import drawn_noise, generator_of
from tallyroom.protocols.statistics.option import SURVIVAL, option, role
from tallyroom.protocols.statistics.release import Answer, Noise, Release
from tallyroom.protocols.statistics.survival_estimates import (
    HazardCurve,
    SurvivalCurve,
    TimeCurve,
)

MAX_THRESHOLDS = 1 << 16
EXACT_POINTS = 1024
LEAST, MOST = 4, 64
DRAWS = 100
LEAST_LEFT = 0.01
"""A smaller share that survives tells nothing about a hazard."""


def points_for(records: int, epsilon: Fraction | None) -> int:
    """N for evenly spaced thresholds: 1.1 times the cube root of nε, which balances noise and the
    curve between thresholds. On lung, GBSG2 and ACTG175 no other number has a mean error over time
    that is less by more than a tenth."""
    if epsilon is None:
        return EXACT_POINTS
    return min(max(round(1.1 * math.cbrt(float(records * epsilon))), LEAST), MOST)


@dataclass(frozen=True)
class OfEventTimes(Bounded):
    """A statistic of times until an event, at public thresholds."""

    lower: float | None = option(0.0, "Time at which all are followed.")
    upper: float | None = option(None, "Public last time of the curve.")
    time: str = role("time", "The column of times until the event or the censoring.")
    event: str = role("event", "The column that is 1 where the event happened, 0 where censored.")
    positive: float | None = option(None, "The mark of an event, if it is not 1.")
    thresholds: int = option(
        0, "How many points in time; 0 chooses by the number of records and ε."
    )
    at: tuple[float, ...] = option(
        (), "A public point in time; repeat it for more. Evenly spaced, if left out."
    )
    method: str = option(
        ACTUARIAL,
        "How the censored between two thresholds count: as at risk half of the time, or, by the "
        "product limit, all of it, which is exact where every time is a threshold.",
        choices=METHODS,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        look_up("method", self.method, dict.fromkeys(METHODS))
        if self.time == self.event:
            raise LocalError(f"column {self.time!r} cannot be both --time and --event")
        if self.positive is not None and not math.isfinite(self.positive):
            raise LocalError(f"--positive is a finite number, not {self.positive}")
        if not 0 <= self.thresholds <= MAX_THRESHOLDS:
            raise LocalError(
                f"--thresholds must be between 0 and {MAX_THRESHOLDS}, not {self.thresholds}"
            )
        if len(self.at) >= MAX_THRESHOLDS:
            raise LocalError(f"{len(self.at)} of --at are too many: {MAX_THRESHOLDS - 1} at most")
        if not all(map(math.isfinite, self.at)) or any(a >= b for a, b in pairwise(self.at)):
            raise LocalError("times of --at must rise, and be finite numbers")
        if self.at and self.thresholds not in (0, len(self.at) + 1):
            raise LocalError(
                f"--thresholds {self.thresholds} does not match {len(self.at)} of --at and the "
                "upper bound: leave it out"
            )
        self._check_within()

    def _check_within(self) -> None:
        if not self.at or self.lower is None or self.upper is None:
            return
        if not self.lower <= self.at[0] <= self.at[-1] < self.upper:
            raise LocalError(
                f"times of --at must lie within [{self.lower:g}, {self.upper:g}] and below the "
                "upper bound, which is always one"
            )

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.time, self.event)

    @property
    def valued(self) -> tuple[str, ...]:
        return (self.time,)

    @property
    def mark(self) -> float:
        return 1.0 if self.positive is None else float(self.positive)

    def grid(self, points: int) -> TimeGrid:
        lower, upper = self.bounds
        at = tuple(map(float, self.at))
        return TimeGrid(lower, upper, len(at) + 1 if at else points, at)

    def planned_grid(self, facts: Facts) -> TimeGrid:
        return self.grid(self.thresholds or points_for(facts.records, facts.record_epsilon))

    def happened(self, holdings: Holdings) -> Column:
        """1 where the event happened, for the truth. Raises `LocalError` for other marks."""
        return positives_of(holdings.column(self.event), self.event, self.positive).astype(float)

    def true_table(self, holdings: Holdings) -> LifeTable:
        return raw_life_table(finite_column(holdings, self.time), self.happened(holdings))


@dataclass(frozen=True)
class SurvivalTable(OfGroups, OfEventTimes):
    """What is read off both classes' curves over time."""

    shape: ClassVar[type[TimeCurve]]
    style: ClassVar[Style] = Style("steps", "time", "cumulative hazard")

    def plan(self, facts: Facts) -> Plan:
        encoding = EventTimes(self.time, self.event, self.mark, self.planned_grid(facts))
        return NoisySum(encoding, ClassCurves(encoding.grid.cells), reusable=True)

    def plan_of(self, facts: Facts, groups: Groups) -> Plan:
        """Both classes of every group are curves of one release."""
        of_each = replace(facts, records=max(facts.records // groups.count, 1))
        one = EventTimes(self.time, self.event, self.mark, self.planned_grid(of_each))
        curves = GroupCurves(one.grid.cells, 2 * groups.count)
        return NoisySum(UpToByGroup(one, groups), curves, reusable=True)

    @abstractmethod
    def sampling(self, table: LifeTable) -> Column:
        """The standard deviations of sampling at the thresholds."""

    @abstractmethod
    def order(self, table: LifeTable) -> Column:
        """Those of the order in which records leave between thresholds."""

    @abstractmethod
    def drawn_off(self, table: LifeTable) -> Column:
        """How far the shares of few at risk may be off, which were drawn towards that of all."""

    def read(self, release: Release) -> Answer:
        [answer] = self._answers(release)
        return replace(answer, records=release.records)

    def read_of(self, release: Release, groups: Groups) -> list[Answer]:
        return self._answers(release)

    def _answers(self, release: Release) -> list[Answer]:
        """One for each life table of the release."""
        reading = _Reading(release, self.method)
        if (noise := release.noise) is None:
            return [self._exactly(table) for table in reading.tables]
        redrawn = zip(*reading.redrawn(noise), strict=True)
        return [
            self._with_noise(table, drawn, noise)
            for table, drawn in zip(reading.tables, redrawn, strict=True)
        ]

    def _exactly(self, table: LifeTable) -> Answer:
        estimate = self.shape(table)
        population = Interval.sampled(estimate.values(), None, self.sampling(table), self.span)
        told = self.with_ends(estimate, population)
        return Answer(told, None, round(table.at_risk[0]), (), None, True)

    def _with_noise(self, table: LifeTable, drawn: Sequence[LifeTable], noise: Noise) -> Answer:
        estimate = self.shape(table)
        values = estimate.values()
        curves = np.stack([self.shape.curve(each) for each in drawn])
        bias = curves.mean(axis=0) - values
        errors = np.hypot(curves.std(axis=0, ddof=1), self.order(table))
        width = noise.width(max(len(values) / 2, 1.0))
        interval = Interval.around(values - bias, errors, width, self.span).holding(values)
        off = self.drawn_off(table)
        low, high = (np.clip(end, *self.span) for end in (interval.low - off, interval.high + off))
        interval = replace(interval, low=low, high=high)
        population = Interval.sampled(values, interval, self.sampling(table), self.span)
        told = self.with_ends(estimate, population)
        return Answer(told, interval, round(table.at_risk[0]), population=population)

    @property
    def span(self) -> tuple[float, float]:
        return (0.0, 1.0)

    def with_ends(self, estimate: TimeCurve, population: Interval) -> TimeCurve:
        """The estimate with what follows from its interval of the population."""
        return estimate

    def reference(self, holdings: Holdings) -> Estimate:
        """The product limit of the raw records; told at evenly spaced thresholds until it is
        compared with an estimate."""
        _ = self.bounds
        whole = self.true_table(holdings)
        points = self.grid(self.thresholds or EXACT_POINTS)
        return self.shape(whole, whole).beside(
            self.shape(LifeTable(points.lower, points.x, points.x, points.x, 0.0))
        )


@dataclass(frozen=True)
class KaplanMeier(SurvivalTable):
    """The share that survives each time, of records some of which are censored."""

    name: ClassVar[str] = "kaplan-meier"
    topic: ClassVar[str] = SURVIVAL
    shape: ClassVar[type[TimeCurve]] = SurvivalCurve
    style: ClassVar[Style] = Style("falls", "time", "share that survives")

    def sampling(self, table: LifeTable) -> Column:
        return table.survival_deviations

    def order(self, table: LifeTable) -> Column:
        return table.order_deviations

    def drawn_off(self, table: LifeTable) -> Column:
        found: Column = table.survival * table.drawn_off
        return found

    def with_ends(self, estimate: TimeCurve, population: Interval) -> TimeCurve:
        """The median's interval ends where the band of the curve falls to one half."""
        assert isinstance(estimate, SurvivalCurve)
        table = estimate.table_of
        ends = (
            falls_to(0.5, table.start, table.ends, np.minimum.accumulate(end), table.method)
            for end in (population.low, population.high)
        )
        low, high = ends
        return replace(estimate, ends_of_median=(low, high))


@dataclass(frozen=True)
class NelsonAalen(SurvivalTable):
    """The cumulative hazard over time, of records some of which are censored."""

    name: ClassVar[str] = "nelson-aalen"
    topic: ClassVar[str] = SURVIVAL
    shape: ClassVar[type[TimeCurve]] = HazardCurve

    def sampling(self, table: LifeTable) -> Column:
        return table.hazard_deviations

    def order(self, table: LifeTable) -> Column:
        """The hazard is −log S, so its errors are those of S over S."""
        left = np.maximum(table.survival, LEAST_LEFT)
        found: Column = table.order_deviations / left
        return found

    def drawn_off(self, table: LifeTable) -> Column:
        return table.drawn_off

    @property
    def span(self) -> tuple[float, float]:
        return (0.0, math.inf)


@dataclass(frozen=True)
class _Reading:
    """Life tables from a release of both classes' curves: of all records, or of each group."""

    release: Release
    method: str

    @cached_property
    def _grid(self) -> TimeGrid:
        plan = self.release.plan
        assert isinstance(plan, NoisySum)
        times = plan.encoding.one if isinstance(plan.encoding, UpToByGroup) else plan.encoding
        assert isinstance(times, EventTimes)
        return times.grid

    @cached_property
    def _curves(self) -> ClassCurves | GroupCurves:
        plan = self.release.plan
        assert isinstance(plan, NoisySum)
        assert isinstance(plan.strategy, ClassCurves | GroupCurves)
        return plan.strategy

    @cached_property
    def tables(self) -> list[LifeTable]:
        if self.release.noise is not None:
            return self._of_noisy(self.release.integers.astype(np.float64), self.release.noise)
        cells = np.diff(self.release.integers, prepend=0).astype(np.float64)
        if isinstance(self._curves, GroupCurves):
            cells = cells[:-1]
        return self._of(cells, 0.0)

    def _of(self, cells: Column, noise: float) -> list[LifeTable]:
        grid = self._grid
        return [
            LifeTable(
                grid.lower,
                grid.x,
                events[:-1],
                censored[:-1],
                float(censored[-1] + events[-1]),
                self.method,
                noise,
            )
            for censored, events in cells.reshape(-1, 2, grid.cells)
        ]

    def _of_noisy(self, released: Column, noise: Noise) -> list[LifeTable]:
        curves, records = self._curves, self.release.records
        if isinstance(curves, GroupCurves):
            rows = curves.counts(released, records)
        else:
            [found] = curves.estimates(released, records, Smoothing())
            rows = np.stack([found.negatives * found.negative, found.positives * found.positive])
        return self._of(np.diff(rows, prepend=0.0, axis=1), noise.variance)

    def redrawn(self, noise: Noise) -> list[list[LifeTable]]:
        """Life tables of releases with the noise drawn anew, if the estimate were the truth."""
        curves, cells = self._curves, np.empty(0)
        for table in self.tables:
            beyond = table.beyond, 0.0
            cells = np.concatenate([cells, table.censored, beyond[:1], table.events, beyond[1:]])
        if isinstance(curves, GroupCurves):
            cells = np.append(cells, max(self.release.records - cells.sum(), 0.0))
        total = np.rint(np.cumsum(cells)).astype(np.int64).view(np.uint64)
        measured = curves.measure(total).view(np.int64).astype(np.float64)
        drawn = drawn_noise(noise, (DRAWS, curves.noises), generator_of(self.release.values))
        placed = [curves.place(np.rint(each).astype(np.int64)) for each in drawn]
        return [self._of_noisy(measured + each, noise) for each in placed]
