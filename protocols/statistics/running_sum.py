"""Running sums of a stream under continual release (S0 Theorem 3)."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from tallyroom.protocols.algebra.ring import FixedPoint, Vector
from tallyroom.protocols.cells import numbers
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.contract import Encoding, Integers, NoisySum, Strategy
from tallyroom.protocols.plans.encodings import clipped
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.interval import Interval
from tallyroom.protocols.plans.measurement import Measurement
from tallyroom.protocols.privacy.noise_law import NoiseLaw, Sensitivity
from tallyroom.protocols.privacy.tree import Tree
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.bounded import BoundedColumn
from tallyroom.protocols.statistics.drawing import Style
from tallyroom.protocols.statistics.estimates import Curve, Estimate
from tallyroom.protocols.statistics.option import option, role
from tallyroom.protocols.statistics.release import ANYWHERE, Answer, Release

MAX_STEPS = 1 << 18


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
class TreeOverTime(Strategy):
    """S0's tree of noises on the sums up to each of `steps` times, of values of at most `largest`.
    Where records are counted too, the counts have no noise."""

    steps: int
    largest: int
    counts_records: bool

    measures: ClassVar[bool] = False

    @property
    def tree(self) -> Tree:
        return Tree(self.steps)

    @property
    def sensitivity(self) -> Sensitivity:
        """Of the node noises: a change at one time shifts all later sums, a half-open interval,
        which ⌈(L+1)/2⌉ nodes explain."""
        nodes = math.ceil((self.tree.levels + 1) / 2)
        return Sensitivity(nodes * self.largest, nodes * self.largest**2)

    @property
    def noises(self) -> int:
        return (2 << self.tree.levels) - 1

    @property
    def released(self) -> int:
        return (1 + self.counts_records) * self.steps

    def measure(self, total: Vector) -> Vector:
        return total

    def place(self, noise: Vector) -> Vector:
        placed = self.tree.whole_noise(noise)
        return np.concatenate([placed, np.zeros(self.released - self.steps, dtype=np.uint64)])

    def words(self, law: NoiseLaw) -> str:
        return f"tree: {law.words()} on the nodes of {self.tree.levels} levels"


@dataclass(frozen=True)
class RunningSum(BoundedColumn):
    """Running totals: the sum of all values up to each of `--steps` times.

    Adjacent streams differ in the value at one time; the times themselves are public. A release of
    all sums at once is what the same noise gives when they are published one by one as time goes.

    Values count from the lower bound. Where that is not 0, parties also submit how many of their
    values came up to each time. That is released as it is: the times are public, and adjacent
    streams have the same.
    """

    time: str = role("time", "The column of times, whole numbers from 1 on.")
    steps: int = option(1024, "How many times there are.")

    name: ClassVar[str] = "running-sum"
    style: ClassVar[Style] = Style("steps", "time", "sum up to the time")

    def __post_init__(self) -> None:
        super().__post_init__()
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

    def plan(self, facts: Facts) -> NoisySum:
        sums = self.encoding
        counted = "the number of records up to each time" if sums.counts_records else ""
        strategy = TreeOverTime(self.steps, sums.grid.steps, sums.counts_records)
        return NoisySum(sums, strategy, (self.time,), counted)

    def read(self, release: Release) -> Answer:
        grid, tree = self.encoding.grid, Tree(self.steps)
        sums, *counts = release.values.reshape(-1, self.steps)
        found = grid.decode_all(sums, counts[0] if counts else np.zeros_like(sums))
        estimate = self._curve(found)
        if (noise := release.noise) is None:
            return Answer(estimate, None, release.records, foretold=True)
        error = math.sqrt(tree.count_variance(noise.variance)) * grid.step
        width = noise.width(tree.count_variance(1.0))
        interval = Interval.around(found, np.full(self.steps, error), width, ANYWHERE)
        return Answer(estimate, interval, release.records, foretold=noise.law_is_public)

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
