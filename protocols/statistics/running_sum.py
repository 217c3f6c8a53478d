"""Running sums of a stream under continual release (S0 Theorem 3)."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tallyroom.protocols.algebra.ring import FixedPoint, Vector
from tallyroom.protocols.cells import numbers
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.tree import Tree
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.bounded import BoundedColumn
from tallyroom.protocols.statistics.drawing import Style
from tallyroom.protocols.statistics.estimates import Curve, Estimate
from tallyroom.protocols.statistics.legacy import Legacy
from tallyroom.protocols.statistics.option import option, role

MAX_STEPS = 1 << 18


@dataclass(frozen=True)
class RunningSum(Legacy, BoundedColumn):
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

    @property
    def taken_as_public(self) -> tuple[str, ...]:
        return (self.time,)

    @property
    def released_exactly(self) -> str:
        """Where bounds are not given yet, they may be such that it does."""
        counts = self.lower is None or self.length > self.steps
        return "the number of records up to each time" if counts else ""

    @property
    def grid(self) -> FixedPoint:
        return FixedPoint.for_bounds(*self.bounds)

    @property
    def tree(self) -> Tree:
        return Tree(self.steps)

    @property
    def length(self) -> int:
        return self.steps if self.grid.origin == 0 else 2 * self.steps

    @property
    def sensitivity(self) -> int:
        """Of the node noises: a change at one time shifts all later sums, a half-open interval,
        which ⌈(L+1)/2⌉ nodes explain."""
        return math.ceil((self.tree.levels + 1) / 2) * self.grid.steps

    @property
    def noises(self) -> int:
        return (2 << self.tree.levels) - 1

    def place(self, noise: Vector) -> Vector:
        """On the sums, and none on the counts."""
        placed = self.tree.whole_noise(noise)
        return np.concatenate([placed, np.zeros(self.length - self.steps, dtype=np.uint64)])

    def encode(self, holdings: Holdings) -> Vector:
        values = self.grid.encode(self.clip(holdings.column(self.value)))
        parties = len(holdings.ids)
        party = np.repeat(np.arange(parties), holdings.counts)
        sums = np.zeros((parties, self.length), dtype=np.uint64)
        times = self._steps(numbers(holdings.column(self.time), 1.0))
        np.add.at(sums, (party, times), values)
        if self.length > self.steps:
            np.add.at(sums, (party, self.steps + times), np.uint64(1))
        parts = np.cumsum(sums.reshape(parties, -1, self.steps), axis=2, dtype=np.uint64)
        return parts.reshape(parties, self.length)

    def decode(self, released: Vector, records: int, exact: bool = False) -> Estimate:
        sums, *counts = released.reshape(-1, self.steps)
        return self._curve(self.grid.decode_all(sums, counts[0] if counts else np.zeros_like(sums)))

    def reference(self, holdings: Holdings) -> Estimate:
        values = self.raw(holdings)
        return self._curve(np.cumsum(np.bincount(self._times(holdings), values, self.steps)))

    @property
    def grid_step(self) -> float:
        return self.grid.step

    def deviations(self, noise_variance: float, records: int) -> Column:
        deviation = math.sqrt(self.tree.count_variance(noise_variance))
        return np.full(self.steps, deviation * self.grid.step)

    def noises_in_value(self, records: int) -> float:
        return self.tree.count_variance(1.0)

    def mechanism_words(self, scale: float) -> str:
        levels = self.tree.levels
        return f"tree: discrete Laplace of scale {scale:.6g} on the nodes of {levels} levels"

    def _steps(self, times: Column) -> np.typing.NDArray[np.int64]:
        """From 0. What is no time counts at the nearest: a party that refused it would tell of its
        records without noise, and of any column."""
        return np.clip(np.rint(times), 1, self.steps).astype(np.int64) - 1

    def _times(self, holdings: Holdings) -> np.typing.NDArray[np.int64]:
        """For the truth. Raises `LocalError` for what is no time."""
        times = holdings.column(self.time)
        if (times != np.rint(times)).any() or times.min() < 1 or times.max() > self.steps:
            raise LocalError(f"column {self.time!r} must hold whole numbers from 1 to {self.steps}")
        return self._steps(times)

    def _curve(self, sums: Column) -> Estimate:
        return Curve(np.arange(1.0, self.steps + 1).tolist(), sums.tolist())
