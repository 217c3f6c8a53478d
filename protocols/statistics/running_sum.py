"""Running sums of a stream under continual release (S0 Theorem 3)."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from tallyroom.protocols.algebra.ring import FixedPoint, Vector
from tallyroom.protocols.cells import numbers
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.contract import Encoding, Integers, NoisySum
from tallyroom.protocols.plans.encodings import clipped
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.interval import Interval
from tallyroom.protocols.plans.measurement import Measurement
from tallyroom.protocols.plans.stream import Stream
from tallyroom.protocols.privacy.noise_law import Sensitivity
from tallyroom.protocols.privacy.sums_over_time import (
    AUTO,
    SUM_STRATEGIES,
    BlocksAsTheyFill,
    SumsStrategy,
    sums_strategy,
)
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.registry import look_up
from tallyroom.protocols.statistics.bounded import BoundedColumn
from tallyroom.protocols.statistics.drawing import Style
from tallyroom.protocols.statistics.estimates import Curve, Estimate
from tallyroom.protocols.statistics.option import SUMS, option, role
from tallyroom.protocols.statistics.release import ANYWHERE, Answer, Release

MAX_STEPS = 1 << 18
NONE = np.zeros(0, dtype=np.uint64)
LARGEST = 2.0**62


MOST_BATCHES = 4096


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
    in_batch: int = 1
    """How many times make up a step."""

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
        last = self.steps * self.in_batch
        times = steps_of(numbers(holdings.column(self.time), 1.0), last) // self.in_batch
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
        AUTO,
        "Which sums get noise; auto takes the least variance, tree is S0's.",
        choices=(AUTO, *SUM_STRATEGIES),
    )

    stream: bool = option(False, "Tell the sums batch by batch, as records arrive.")
    batches: int = option(0, "Of a stream: how many batches; 0 for one at every time.")

    name: ClassVar[str] = "running-sum"
    topic: ClassVar[str] = SUMS
    style: ClassVar[Style] = Style("steps", "time", "sum up to the time")

    def __post_init__(self) -> None:
        super().__post_init__()
        look_up("strategy", self.strategy, dict.fromkeys((AUTO, *SUM_STRATEGIES)))
        if not 1 <= self.steps <= MAX_STEPS:
            raise LocalError(f"--steps must be between 1 and {MAX_STEPS}, not {self.steps}")

        if self.stream:
            self._check_stream()
        elif self.batches:
            raise LocalError("--batches is of a stream: --stream")

    def _check_stream(self) -> None:
        if self.strategy != AUTO:
            raise LocalError("a stream releases sums of blocks: leave --strategy out")
        most = min(self.steps, MOST_BATCHES)
        if not 0 <= self.batches <= most or not (self.batches or self.steps == most):
            raise LocalError(f"--batches of a stream must be between 1 and {most}")

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.value, self.time)

    @property
    def valued(self) -> tuple[str, ...]:
        return (self.value,)

    @cached_property
    def encoding(self) -> SumsOverTime:
        return SumsOverTime(self.value, self.time, *self.bounds, self.told, self.in_batch)

    @property
    def in_batch(self) -> int:
        return -(-self.steps // (self.batches or self.steps))

    @property
    def told(self) -> int:
        """How many sums are told."""
        return -(-self.steps // self.in_batch)

    def plan(self, facts: Facts) -> NoisySum:
        sums = self.encoding
        counted = "the number of records up to each time" if sums.counts_records else ""
        of = (self.told, sums.grid.steps, sums.counts_records)
        if self.stream:
            return Stream(sums, BlocksAsTheyFill(*of), (self.time,), counted)
        strategy = sums_strategy(self.strategy, *of, facts.records, facts.law)
        return NoisySum(sums, strategy, (self.time,), counted)

    def read(self, release: Release) -> Answer:
        if (noise := release.noise) is None:
            found = self._in_units(*release.values.reshape(-1, self.told))
            return Answer(self._curve(found), None, release.records, foretold=True)
        assert isinstance(release.plan, NoisySum)
        assert isinstance(release.plan.strategy, SumsStrategy)
        strategy, step = release.plan.strategy, self.encoding.grid.step
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
        sums: Column = np.cumsum(np.bincount(self._times(holdings), values, self.steps))
        return self._curve(sums[self._told_at - 1])

    def _times(self, holdings: Holdings) -> Integers:
        """The times, for the truth. Raises `LocalError` for an invalid time."""
        times = holdings.column(self.time)
        if (times != np.rint(times)).any() or times.min() < 1 or times.max() > self.steps:
            raise LocalError(f"column {self.time!r} must hold whole numbers from 1 to {self.steps}")
        return steps_of(times, self.steps)

    def _curve(self, sums: Column) -> Estimate:
        return Curve(self._told_at.astype(float).tolist(), sums.tolist())

    @property
    def _told_at(self) -> Integers:
        """The times at which sums are told: the last of each batch."""
        return np.minimum(np.arange(1, self.told + 1) * self.in_batch, self.steps)
