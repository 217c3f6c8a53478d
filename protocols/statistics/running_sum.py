"""Running sums of a stream under continual release (S0 Theorem 3)."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from protocols.errors import LocalError
from protocols.privacy.tree import Tree
from protocols.records import Column, Holdings
from protocols.ring import FixedPoint, Vector
from protocols.statistics.contract import Curve, Estimate, Statistic

MAX_STEPS = 1 << 18


@dataclass(frozen=True)
class RunningSum(Statistic):
    """The sum of all values up to each of `steps` times, every one published with tree noise.

    Adjacent streams differ in the value at one time; the times themselves are public. A release of
    all sums at once is what the same noise gives when they are published one by one as time goes.
    """

    time: str = "time"
    steps: int = 1024

    name: ClassVar[str] = "running-sum"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.steps <= MAX_STEPS:
            raise LocalError(f"--steps must be between 1 and {MAX_STEPS}, not {self.steps}")

    @property
    def grid(self) -> FixedPoint:
        return FixedPoint.for_bounds(*self.bounds)

    @property
    def tree(self) -> Tree:
        return Tree(self.steps)

    @property
    def length(self) -> int:
        return self.steps

    @property
    def sensitivity(self) -> int:
        """Of the node noises: a change at one time shifts all later sums, a half-open interval,
        which ⌈(L+1)/2⌉ nodes explain."""
        return math.ceil((self.tree.levels + 1) / 2) * self.grid.steps(*self.bounds)

    @property
    def noises(self) -> int:
        return (2 << self.tree.levels) - 1

    def place(self, noise: Vector) -> Vector:
        return self.tree.whole_noise(noise)

    def encode(self, holdings: Holdings) -> Vector:
        values = self.grid.encode(self.clip(holdings.column(self.value)))
        parties = len(holdings.ids)
        party = np.repeat(np.arange(parties), holdings.counts)
        sums = np.zeros((parties, self.steps), dtype=np.uint64)
        np.add.at(sums, (party, self._times(holdings)), values)
        return np.cumsum(sums, axis=1, dtype=np.uint64)

    def decode(self, released: Vector, records: int, exact: bool = False) -> Estimate:
        return self._curve(self.grid.decode(released))

    def reference(self, holdings: Holdings) -> Estimate:
        values = self.clip(holdings.column(self.value))
        return self._curve(np.cumsum(np.bincount(self._times(holdings), values, self.steps)))

    def deviations(self, noise_variance: float, records: int) -> Column:
        deviation = math.sqrt(self.tree.count_variance(noise_variance))
        return np.full(self.steps, math.ldexp(deviation, -self.grid.fraction_bits))

    def mechanism_words(self, scale: float) -> str:
        levels = self.tree.levels
        return f"tree: discrete Laplace of scale {scale:.6g} on the nodes of {levels} levels"

    def _times(self, holdings: Holdings) -> np.typing.NDArray[np.int64]:
        times = holdings.column(self.time)
        if (times != np.rint(times)).any() or times.min() < 1 or times.max() > self.steps:
            raise LocalError(f"column {self.time!r} must hold whole numbers from 1 to {self.steps}")
        return times.astype(np.int64) - 1

    def _curve(self, sums: Column) -> Estimate:
        return Curve(np.arange(1.0, self.steps + 1).tolist(), sums.tolist())
