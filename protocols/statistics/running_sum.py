"""Running sums of a stream under continual release (S0 Theorem 3)."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from tallyroom.protocols.algebra.ring import FixedPoint, Vector
from tallyroom.protocols.cells import numbers
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.names import look_up
from tallyroom.protocols.plans.contract import Encoding, Integers, NoisySum
from tallyroom.protocols.plans.encodings import clipped
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.interval import Interval
from tallyroom.protocols.plans.measurement import Measurement
from tallyroom.protocols.privacy.noise_law import Sensitivity
from tallyroom.protocols.privacy.sums_over_time import SUM_STRATEGIES, SumsStrategy
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.bounded import BoundedColumn
from tallyroom.protocols.statistics.drawing import Style
from tallyroom.protocols.statistics.estimates import Curve, Estimate
from tallyroom.protocols.statistics.option import option, role
from tallyroom.protocols.statistics.release import ANYWHERE, Answer, Release

MAX_STEPS = 1 << 18
NONE = np.zeros(0, dtype=np.uint64)
LARGEST = 2.0**62


def steps_of(times: Column, steps: int) -> Integers:
    """The step of each record, from 0. An invalid time counts as the nearest step: a party that
    refused it would reveal something about its records without noise, and about any column that is
    asked for as time."""
    return np.clip(np.rint(times), 1, steps).astype(np.int64) - 1


@dataclass(frozen=True)
class SumsOverTime(Encoding):
    """The sums of values, above the lower bound, up to each time; and, where that bound is not 0,
    how many values came up to each time."""

    column: str
    time: str
    lower: float
    upper: float
    steps: int

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column, self.time)

    @cached_property
    def grid(self) -> FixedPoint:
        return FixedPoint.for_bounds(self.lower, self.upper)

    @property
    def counts_records(self) -> bool:
        return self.grid.origin != 0

    @property
    def length(self) -> int:
        return (1 + self.counts_records) * self.steps

    @property
    def sensitivity(self) -> Sensitivity:
        """The times are public: a value changes, at its time."""
        return Sensitivity(self.steps * self.grid.steps, self.steps * self.grid.steps**2)

    @property
    def measurement(self) -> Measurement | None:
        return None

    def encode(self, holdings: Holdings) -> Vector:
        values = clipped(holdings.column(self.column), self.lower, self.upper)
        parties = len(holdings.ids)
        party = np.repeat(np.arange(parties), holdings.counts)
        sums = np.zeros((parties, self.length), dtype=np.uint64)
        times = steps_of(numbers(holdings.column(self.time), 1.0), self.steps)
        np.add.at(sums, (party, times), self.grid.encode(values))
        if self.counts_records:
            np.add.at(sums, (party, self.steps + times), np.uint64(1))
        parts = np.cumsum(sums.reshape(parties, -1, self.steps), axis=2, dtype=np.uint64)
        return parts.reshape(parties, self.length)

    @property
    def grid_step(self) -> float:
        return self.grid.step

    @property
    def grid_words(self) -> str:
        return f"values are rounded to multiples of {self.grid_step:.3g}"


@dataclass(frozen=True)
class RunningSum(BoundedColumn):
    """Running totals: the sum of all values up to each of `--steps` times.

    Adjacent streams differ in the value at one time; the times themselves are public.

    Values count from the lower bound. Where that is not 0, parties also submit how many of their
    values came up to each time. That is released as it is: the times are public, and adjacent
    streams have the same.
    """

    time: str = role("time", "The column of times, whole numbers from 1 on.")
    steps: int = option(1024, "How many times there are.")
    strategy: str = option(
        "hierarchy", "Which sums get noise; tree is S0's.", choices=tuple(SUM_STRATEGIES)
    )

    name: ClassVar[str] = "running-sum"
    style: ClassVar[Style] = Style("steps", "time", "sum up to the time")

    def __post_init__(self) -> None:
        super().__post_init__()
        look_up("strategy", self.strategy, SUM_STRATEGIES)
        if not 1 <= self.steps <= MAX_STEPS:
            raise LocalError(f"--steps must be between 1 and {MAX_STEPS}, not {self.steps}")

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.value, self.time)

    @property
    def valued(self) -> tuple[str, ...]:
        return (self.value,)

    @cached_property
    def encoding(self) -> SumsOverTime:
        return SumsOverTime(self.value, self.time, *self.bounds, self.steps)

    @cached_property
    def sums_strategy(self) -> SumsStrategy:
        sums = self.encoding
        kind = SUM_STRATEGIES[self.strategy]
        return kind(self.steps, sums.grid.steps, sums.counts_records)

    def plan(self, facts: Facts) -> NoisySum:
        sums = self.encoding
        counted = "the number of records up to each time" if sums.counts_records else ""
        return NoisySum(sums, self.sums_strategy, (self.time,), counted)

    def read(self, release: Release) -> Answer:
        if (noise := release.noise) is None:
            found = self._in_units(*release.values.reshape(-1, self.steps))
            return Answer(self._curve(found), None, release.records, foretold=True)
        strategy, step = self.sums_strategy, self.encoding.grid.step
        values = release.integers[: strategy.measured].astype(np.float64)
        sums = np.clip(np.rint(strategy.sums(values)), -LARGEST, LARGEST).astype(np.int64)
        found = self._in_units(sums.view(np.uint64), release.values[strategy.measured :])
        errors = np.sqrt(strategy.sum_variances(noise.variance)) * step
        interval = Interval.around(found, errors, noise.width(strategy.noises_in_sum), ANYWHERE)
        return Answer(self._curve(found), interval, release.records, foretold=noise.law_is_public)

    def _in_units(self, sums: Vector, counts: Vector = NONE) -> Column:
        """The sums of values, from those above the lower bound in steps of the grid."""
        return self.encoding.grid.decode_all(sums, counts if len(counts) else np.zeros_like(sums))

    def reference(self, holdings: Holdings) -> Estimate:
        values = self.raw(holdings)
        return self._curve(np.cumsum(np.bincount(self._times(holdings), values, self.steps)))

    def _times(self, holdings: Holdings) -> Integers:
        """The times, for the truth. Raises `LocalError` for an invalid time."""
        times = holdings.column(self.time)
        if (times != np.rint(times)).any() or times.min() < 1 or times.max() > self.steps:
            raise LocalError(f"column {self.time!r} must hold whole numbers from 1 to {self.steps}")
        return steps_of(times, self.steps)

    def _curve(self, sums: Column) -> Estimate:
        return Curve(np.arange(1.0, self.steps + 1).tolist(), sums.tolist())
