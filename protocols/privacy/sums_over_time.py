"""Strategies for the sums of values up to each of N times, which are public.

Adjacent streams differ in one value. The tree of S0's Theorem 3 adds the noises above a time's leaf
to the sum up to that time. Sums of blocks of times do better, as counts do for curves
(`protocols.privacy.hierarchy`): with h levels of blocks one value moves h block sums, and the sums
up to each time are their best linear unbiased estimates. Nothing is public here that would be the
sum of all values, so the widest blocks are few: at N = 1024, five, each of 15 of 15 times.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.hierarchy import BlockLevels, Index, equal_noises, fewest_noises
from tallyroom.protocols.privacy.noise_law import NoiseLaw, Sensitivity, noise_law_named
from tallyroom.protocols.privacy.square_root import SquareRootFactor
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

    def sums_so_far(self, noisy: Reals) -> Reals:
        """Estimates of the sums up to each time from the blocks that are complete by then."""
        free = np.ones(self.cells, dtype=np.bool_)
        return self._added_up(self._upward(noisy, free, self._subtree_variances(free))[::-1])

    @cached_property
    def variances_so_far(self) -> Reals:
        """The variance of every entry of `sums_so_far`, in units of a block's."""
        return self._added_up(self._subtree_variances(np.ones(self.cells, dtype=np.bool_)))

    def _added_up(self, levels: list[Reals]) -> Reals:
        """Over the widest complete blocks that make up the times up to each: what each block has
        by itself."""
        found, upto = np.zeros(self.cells), np.arange(1, self.cells + 1)
        for level, values in enumerate(levels):
            running = np.concatenate([[0.0], np.cumsum(values)])
            complete, siblings = upto // self.widths[level], self._children(level - 1)
            first = complete // siblings * siblings if level else np.zeros_like(complete)
            found += running[complete] - running[first]
        return found

    @cached_property
    def ends(self) -> Index:
        """The time that completes each block; 0 for one that no time does."""
        _, right = self.node_ends()
        whole = np.repeat(self.widths, self.level_sizes)
        return np.where(right % whole == 0, right, 0)

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
    return _best(times, lambda blocks: blocks.sum_variances)


@lru_cache(maxsize=16)
def best_blocks_so_far(times: int) -> TimeBlocks:
    """The same where each sum is told at its time."""
    return replace(_best(times, lambda blocks: blocks.variances_so_far), complete=False)


def _best(times: int, variances: Callable[[TimeBlocks], Reals]) -> TimeBlocks:
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
    return min(near, key=lambda each: each.levels**2 * float(variances(each).mean()))


MOST_WIDEST = 24
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

    def mean_variance(self, noise_variance: float) -> float:
        return float(self.sum_variances(noise_variance).mean())

    @property
    @abstractmethod
    def noises_in_sum(self) -> float:
        """How many noises of equal weight an estimated sum contains, as in
        `CurveStrategy.noises_in_count`."""


@dataclass(frozen=True)
class BlocksOverTime(SumsStrategy):
    """Sums of blocks of times under noise, and their best linear unbiased estimates."""

    shape: tuple[int, int] = field(init=False)
    """Branching and levels. They follow from the number of steps by a comparison of doubles: where
    machines found others, their plans would not be the same."""

    name: ClassVar[str] = "hierarchy"

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", (self.blocks.branching, self.blocks.levels))

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
class BlocksAsTheyFill(BlocksOverTime):
    """The same, released block by block: each at the time that completes it. Blocks stand in that
    order; no value of one that is never completed is released."""

    name: ClassVar[str] = "stream"

    @cached_property
    def blocks(self) -> TimeBlocks:
        return best_blocks_so_far(self.steps)

    @cached_property
    def _order(self) -> Index:
        ends = self.blocks.ends
        return np.argsort(ends, kind="stable")[int((ends == 0).sum()) :]

    @cached_property
    def completed(self) -> Index:
        """How many blocks are complete by each time, from none before the first on."""
        return np.searchsorted(self.blocks.ends[self._order], np.arange(self.steps + 1), "right")

    @property
    def noises(self) -> int:
        return len(self._order)

    @property
    def measured(self) -> int:
        return len(self._order)

    def measure(self, total: Vector) -> Vector:
        nodes = self.blocks.node_counts(total[: self.steps])[self._order]
        return np.concatenate([nodes, total[self.steps :]])

    def sums(self, released: Reals) -> Reals:
        """Each as it is told at its time."""
        nodes = np.zeros(self.blocks.nodes)
        nodes[self._order] = released
        return self.blocks.sums_so_far(nodes)

    def sum_variances(self, noise_variance: float) -> Reals:
        return noise_variance * self.blocks.variances_so_far

    @cached_property
    def noises_in_sum(self) -> float:
        """A block's own noise, where one is all that there is."""
        return 1.0


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


@dataclass(frozen=True)
class SquareRootOverTime(SumsStrategy):
    """The square-root factorisation of sums over time, for noise calibrated to the L2 norm."""

    name: ClassVar[str] = "square-root"

    @cached_property
    def factor(self) -> SquareRootFactor:
        return SquareRootFactor(self.steps)

    @cached_property
    def sensitivity(self) -> Sensitivity:
        moved = self.factor.of_value
        return Sensitivity(moved.l1 * self.largest, moved.squared_l2 * self.largest**2)

    @property
    def noises(self) -> int:
        return self.steps

    @property
    def measured(self) -> int:
        return self.steps

    def measure(self, total: Vector) -> Vector:
        return np.concatenate([self.factor.measure(total[: self.steps]), total[self.steps :]])

    def place(self, noise: Vector) -> Vector:
        return np.concatenate([noise, np.zeros(self.released - self.steps, dtype=np.uint64)])

    def sums(self, released: Reals) -> Reals:
        return self.factor.prefix_sums(released)

    def sum_variances(self, noise_variance: float) -> Reals:
        return noise_variance * self.factor.variances

    @cached_property
    def noises_in_sum(self) -> float:
        return fewest_noises(lambda at: self.factor.weights(at, False), self.steps)

    def words(self, law: NoiseLaw) -> str:
        return f"{self.name}: {law.words(1 / self.factor.one)} on {self.steps} weighted sums"


SUM_STRATEGIES: Mapping[str, type[SumsStrategy]] = {
    BlocksOverTime.name: BlocksOverTime,
    TreeOverTime.name: TreeOverTime,
    SquareRootOverTime.name: SquareRootOverTime,
}
AUTO = "auto"
MOST_IN_RING = 1 << 61
"""Weighted sums up to here leave room for noise."""


def sums_strategy(
    name: str, steps: int, largest: int, counts_records: bool, records: int, law: str
) -> SumsStrategy:
    """The strategy of that name, for so many records. `auto` is blocks under Laplace noise, and
    else the one of least mean variance. Raises `LocalError` for weighted sums that do not fit the
    ring."""
    of = (steps, largest, counts_records)
    if name not in (AUTO, SquareRootOverTime.name):
        return SUM_STRATEGIES[name](*of)
    blocks, root = BlocksOverTime(*of), SquareRootOverTime(*of)
    fits = records * largest * root.factor.one <= MOST_IN_RING
    if name == root.name:
        if not fits:
            raise LocalError(
                f"weighted sums of {records} values do not fit 64 bits: --strategy {blocks.name}"
            )
        return root
    if not (fits and noise_law_named(law).of_l2):
        return blocks
    return min(
        (blocks, root),
        key=lambda each: each.sensitivity.squared_l2 * each.mean_variance(1.0),
    )
