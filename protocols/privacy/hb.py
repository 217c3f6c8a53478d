"""HB: counts in blocks of few, wide levels, in one and two dimensions (Qardaji, Yang, Li 2013).

A grid of R × C cells is cut into squares of b^(h−1), …, b, 1 cells a side (cut off at the edges),
each level a partition of the grid; every block's count gets noise. The root is left out: n is
public and exact. One record counts in one block a level, so replacing it moves the counts by 2h in
the 1-norm, and discrete Laplace noise of scale 2h/ε on every block is ε-DP (δ = 0; the paper counts
add/remove, hence h/ε). Measuring is linear, so it applies to shares of counts: nobody needs to be
trusted with exact cells. Estimating is generalised least squares in two passes, O(RC), and spends
nothing. In one dimension it is `hierarchy.Hierarchy` with the branching of `hb_branching`.

The branching is the one whose mean rectangle is answered with least variance when blocks are simply
added up, h² times the mean number of blocks. The paper's (b−1)h − 2(b+1)/3 is that mean's limit
for long ranges in one dimension; here the mean is exact, for any sizes. Least squares then does
better than that (`GridHierarchy.rectangle_variance`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.privacy.hierarchy import Hierarchy, hb_branching
from tallyroom.protocols.privacy.noise_law import Sensitivity
from tallyroom.protocols.privacy.tree import Number, checked_epsilon

Vector = NDArray[np.float64]
Grid = NDArray[np.float64]


def line(cells: int) -> Hierarchy:
    """HB over `cells` cells in a row. Raises ValueError if there are no cells."""
    return Hierarchy(cells, hb_branching(cells))


def grid(rows: int, columns: int) -> "GridHierarchy":
    """HB over a grid. Raises ValueError for no cell."""
    return GridHierarchy(rows, columns, grid_branching(rows, columns))


@dataclass(frozen=True)
class GridHierarchy:
    """The blocks over a grid of `rows` × `columns` cells, b = `branching` a side.

    Vectors of node values hold one level after another, the widest blocks first, each row by row.
    Raises ValueError for no cell, or a b below 2 or above the longer side (or 2).
    """

    rows: int
    columns: int
    branching: int

    def __post_init__(self) -> None:
        if self.rows < 1 or self.columns < 1:
            raise ValueError(f"a grid needs cells, not {self.rows} × {self.columns}")
        most = max(2, self.rows, self.columns)
        if not 2 <= self.branching <= most:
            raise ValueError(f"b must be within 2..{most}, not {self.branching}")

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """The sides of a whole block of each level: b^(h−1), …, b, 1; none for a single cell."""
        return _widths(max(self.rows, self.columns), self.branching)

    @property
    def height(self) -> int:
        return len(self.widths)

    @cached_property
    def level_shapes(self) -> tuple[tuple[int, int], ...]:
        return tuple((-(-self.rows // w), -(-self.columns // w)) for w in self.widths)

    @property
    def nodes(self) -> int:
        return sum(rows * columns for rows, columns in self.level_shapes)

    @property
    def sensitivity(self) -> Sensitivity:
        """As `Hierarchy.sensitivity`."""
        return Sensitivity.of_counts(2 * self.height)

    def scale(self, epsilon: float) -> float:
        """Scale of a node's Laplace noise for an ε-DP release of all nodes."""
        return self.sensitivity.l1 / checked_epsilon(epsilon)

    def node_counts(self, cells: NDArray[Number]) -> NDArray[Number]:
        """Counts of all nodes from those of the cells; linear, so shares go in as well.

        Unsigned shares wrap in the ring of their type. Raises ValueError for another shape.
        """
        if cells.shape != (self.rows, self.columns):
            raise ValueError(f"cells of shape {cells.shape} for {self.rows} × {self.columns}")
        if not self.height:
            return cells[:0, 0]
        levels = [cells]
        for level in reversed(range(self.height - 1)):
            levels.append(self._sum_children(levels[-1], level))
        return np.concatenate([level.ravel() for level in reversed(levels)])

    def cell_counts(self, noisy: Vector, n: float) -> Grid:
        """Best linear unbiased estimates of the cells from noisy nodes, their sum n; O(RC).

        Raises ValueError for a wrong number of nodes, or values or an n that are not finite.
        """
        noisy = np.asarray(noisy, dtype=np.float64)
        if noisy.shape != (self.nodes,):
            raise ValueError(f"node values of shape {noisy.shape} for {self.nodes} nodes")
        if not (np.isfinite(noisy).all() and math.isfinite(n)):
            raise ValueError("a node value or n is NaN or infinite")
        if not self.height:
            return np.full((1, 1), float(n))
        values, q = self._levels(noisy), self._subtree_variances
        # Upward: a node's own value (variance 1) against its children's sum (variance Q).
        upward = [values[-1]]
        for level in reversed(range(self.height - 1)):
            total = self._sum_children(upward[-1], level)
            upward.append(q[level] * values[level] + (1.0 - q[level]) * total)
        # Downward: the parent's estimate settles its children, by their variances.
        settled = np.full((1, 1), float(n))
        for level, estimate in enumerate(reversed(upward)):
            missing = settled - self._sum_children(estimate, level - 1)
            share = missing / self._sum_children(q[level], level - 1)
            settled = estimate + q[level] * self._spread(share, level)
        return settled

    def rectangle_variance(self, rows: slice, columns: slice, node_variance: float) -> float:
        """Variance of the estimated count of a rectangle of cells.

        The estimates are x̂ = Σ·Mᵀy for node values y and the covariance Σ of x̂ (in units of a
        node's variance). With w the rectangle's indicator put on the leaves, Mᵀy = w, so the
        estimator itself gives Σw, and the variance is wᵀΣw.
        """
        weight = np.zeros((self.rows, self.columns))
        weight[rows, columns] = 1.0
        leaves = np.zeros(self.nodes)
        if self.height:
            leaves[-weight.size :] = weight.ravel()
        return node_variance * float((weight * self.cell_counts(leaves, 0.0)).sum())

    @cached_property
    def _subtree_variances(self) -> list[Grid]:
        """Variance of the best estimate of a node from its own subtree, in units of a node's."""
        variances = [np.ones((self.rows, self.columns))]
        for level in reversed(range(self.height - 1)):
            below = self._sum_children(variances[-1], level)
            variances.append(below / (1.0 + below))
        return variances[::-1]

    def _levels(self, nodes: Vector) -> list[Grid]:
        ends = np.cumsum([0] + [rows * columns for rows, columns in self.level_shapes])
        return [
            nodes[start:end].reshape(shape)
            for (start, end), shape in zip(pairwise(ends), self.level_shapes, strict=True)
        ]

    def _sum_children(self, values: NDArray[Number], level: int) -> NDArray[Number]:
        """Sums over the children of each node of `level`, or of the root for −1."""
        rows, columns = self.level_shapes[level] if level >= 0 else (1, 1)
        b = self.branching
        halfway = np.add.reduceat(values, np.arange(rows) * b, axis=0, dtype=values.dtype)
        sums: NDArray[Number] = np.add.reduceat(
            halfway, np.arange(columns) * b, axis=1, dtype=values.dtype
        )
        return sums

    def _spread(self, values: Grid, level: int) -> Grid:
        """Each child at `level` gets its parent's value."""
        rows, columns = self.level_shapes[level]
        b = max(rows, columns) if not level else self.branching
        return values.repeat(b, axis=0)[:rows].repeat(b, axis=1)[:, :columns]


def _widths(side: int, branching: int) -> tuple[int, ...]:
    widths = []
    width = 1
    while width < side:
        widths.append(width)
        width *= branching
    return tuple(reversed(widths))


def mean_blocks(sides: Sequence[int], branching: int) -> float:
    """The mean number of blocks that tile a uniformly random box of cells, in any dimension.

    A block is used if it lies within the box and its parent does not. Whether it lies within is
    independent between the axes, so sums over blocks are products of sums over each axis. The whole
    domain takes no block: its count is public.
    """
    total = 0.0
    for width in _widths(max(sides), branching):
        within = math.prod(_inside(side, width, width) for side in sides)
        parents = math.prod(_inside(side, width, width * branching) for side in sides)
        total += within - parents
    return total


def _inside(side: int, width: int, around: int) -> float:
    """Over the blocks of `width` cells of one axis: the sum of the chances that a random range
    holds the block of `around` cells that each is in."""
    first = np.arange(0, side, width) // around * around
    end = np.minimum(first + around, side)
    return float(((first + 1.0) * (side - end + 1.0)).sum() / (side * (side + 1) / 2))


@lru_cache(maxsize=64)
def grid_branching(rows: int, columns: int) -> int:
    """The b of least h²·`mean_blocks`: the variance of a mean rectangle, up to a constant.

    For every height the least b that reaches it is tried, as in one dimension.
    """
    side = max(rows, columns)
    choices = {2, max(2, side)}
    for height in range(2, side.bit_length() + 1):
        b = max(2, math.floor(side ** (1 / height)) - 1)
        while b**height < side:
            b += 1
        choices.add(b)

    def variance(b: int) -> float:
        return len(_widths(side, b)) ** 2 * mean_blocks((rows, columns), b)

    return min(sorted(choices), key=variance)
