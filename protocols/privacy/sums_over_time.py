"""Strategies for the sums of values up to each of N times, which are public.

Adjacent streams differ in one value. The tree of S0's Theorem 3 adds the noises above a time's leaf
to the sum up to that time. Sums of blocks of times do better, as counts do for curves
(`protocols.privacy.hierarchy`): with h levels of blocks one value moves h block sums, and the sums
up to each time are their best linear unbiased estimates. Nothing is public here that would be the
sum of all values, so the widest blocks are few: at N = 1024, five, each of 15 of 15 times.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.privacy.hierarchy import BlockLevels, equal_noises
from tallyroom.protocols.privacy.noise_law import NoiseLaw, Sensitivity
from tallyroom.protocols.privacy.strategies import Strategy
from tallyroom.protocols.privacy.tree import Tree

Reals = NDArray[np.float64]


@dataclass(frozen=True)
class TimeBlocks(BlockLevels):
    """Blocks of times, `branching` to one of the level above on each of `levels` levels.

    With `complete` false, times go on after the last one: a block that they may still fill has no
    value yet.
    """

    branching: int
    levels: int
    complete: bool = True

    @cached_property
    def widths(self) -> tuple[int, ...]:
        return tuple(self.branching**level for level in reversed(range(self.levels)))

    def _is_open(self, level: int) -> bool:
        return not self.complete and self.cells % self.widths[level] > 0

    def sums(self, noisy: Reals) -> Reals:
        """Best linear unbiased estimates of the sums up to each time, from noisy block sums."""
        known: Reals = np.cumsum(self.cell_counts(noisy, 0.0))
        return known + self.total(noisy) * self.total_shares

    @property
    def sum_variances(self) -> Reals:
        """The variance of every entry of `sums`, in units of a block's."""
        variances: Reals = self.prefix_variances(1.0) + self.total_variance * self.total_shares**2
        return variances

    def prefix_weights(self, last: int) -> Reals:
        """As `BlockLevels.prefix_weights`, of an entry of `sums`."""
        nodes = np.zeros(self.nodes)
        nodes[self.slices()[-1]] = np.arange(self.cells) <= last
        return self.node_counts(self.sums(nodes))


@lru_cache(maxsize=16)
def best_blocks(times: int) -> TimeBlocks:
    """The blocks of least mean variance of a sum up to a time.

    For every number of levels, each number of widest blocks is tried with the least branching that
    reaches N. What a rough rule puts far behind its best is left out.
    """
    choices = [TimeBlocks(times, max(2, times), 1)]
    for levels in range(2, max(2, times.bit_length() + 1)):
        for widest in range(2, MOST_WIDEST + 1):
            branching = _least_branching(times, widest, levels)
            choices.append(TimeBlocks(times, branching, levels))
    rough = {
        each: _rough_variance(each)
        for each in choices
        if each.levels == 1 or each.widths[0] < times
    }
    near = [each for each in rough if rough[each] <= NEAR * min(rough.values())]
    return min(near, key=lambda each: each.levels**2 * float(each.sum_variances.mean()))


MOST_WIDEST = 16
NEAR = 1.3


def _least_branching(times: int, widest: int, levels: int) -> int:
    branching: int = max(2, math.floor((times / widest) ** (1 / (levels - 1))) - 1)
    while widest * branching ** (levels - 1) < times:
        branching += 1
    return branching


def _rough_variance(blocks: TimeBlocks) -> float:
    """As if every sum were told by the blocks before it, half of those beside each other."""
    return blocks.levels**2 * (blocks.level_sizes[0] + (blocks.levels - 1) * blocks.branching)


@dataclass(frozen=True)
class SumsStrategy(Strategy):
    """A strategy over the sums up to each of `steps` times, of values of at most `largest`. Where
    records are counted too, the counts have no noise."""

    steps: int
    largest: int
    counts_records: bool

    name: ClassVar[str]

    @property
    @abstractmethod
    def measured(self) -> int:
        """How many values are released under noise; counts of records follow them."""

    @property
    def released(self) -> int:
        return self.measured + self.counts_records * self.steps

    @abstractmethod
    def sums(self, released: Reals) -> Reals:
        """Unbiased estimates of the sums, from the `measured` values."""

    @abstractmethod
    def sum_variances(self, noise_variance: float) -> Reals:
        """The variance of every estimated sum."""

    @property
    @abstractmethod
    def noises_in_sum(self) -> float:
        """How many noises of equal weight an estimated sum contains, as in
        `CurveStrategy.noises_in_count`."""


@dataclass(frozen=True)
class BlocksOverTime(SumsStrategy):
    """Sums of blocks of times under noise, and their best linear unbiased estimates."""

    name: ClassVar[str] = "hierarchy"

    @cached_property
    def blocks(self) -> TimeBlocks:
        return best_blocks(self.steps)

    @property
    def sensitivity(self) -> Sensitivity:
        """A value is in one block of every level."""
        levels = self.blocks.levels
        return Sensitivity(levels * self.largest, levels * self.largest**2)

    @property
    def noises(self) -> int:
        return self.blocks.nodes

    @property
    def measured(self) -> int:
        return self.blocks.nodes

    def measure(self, total: Vector) -> Vector:
        return np.concatenate([self.blocks.node_counts(total[: self.steps]), total[self.steps :]])

    def place(self, noise: Vector) -> Vector:
        return np.concatenate([noise, np.zeros(self.released - self.measured, dtype=np.uint64)])

    def sums(self, released: Reals) -> Reals:
        return self.blocks.sums(released)

    def sum_variances(self, noise_variance: float) -> Reals:
        return noise_variance * self.blocks.sum_variances

    @cached_property
    def noises_in_sum(self) -> float:
        return equal_noises(self.blocks, self.steps)

    def words(self, law: NoiseLaw) -> str:
        blocks = self.blocks
        levels = "one level" if blocks.levels == 1 else f"{blocks.levels} levels"
        return f"{self.name}: {law.words()} on the sums of {blocks.nodes} blocks of {levels}"


@dataclass(frozen=True)
class TreeOverTime(SumsStrategy):
    """S0's tree of noises on the sums (Theorem 3)."""

    name: ClassVar[str] = "tree"
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
    def measured(self) -> int:
        return self.steps

    def measure(self, total: Vector) -> Vector:
        return total

    def place(self, noise: Vector) -> Vector:
        placed = self.tree.whole_noise(noise)
        return np.concatenate([placed, np.zeros(self.released - self.steps, dtype=np.uint64)])

    def sums(self, released: Reals) -> Reals:
        return released

    def sum_variances(self, noise_variance: float) -> Reals:
        return np.full(self.steps, self.tree.count_variance(noise_variance))

    @property
    def noises_in_sum(self) -> float:
        return self.tree.count_variance(1.0)

    def words(self, law: NoiseLaw) -> str:
        return f"tree: {law.words()} on the nodes of {self.tree.levels} levels"


SUM_STRATEGIES: Mapping[str, type[SumsStrategy]] = {
    kind.name: kind for kind in (BlocksOverTime, TreeOverTime)
}
