"""PriRP: residuals against fitted values as private counts in a grid (S2 §4.2).

First how far each axis reaches: the first of the bounds μ, 2μ, 4μ, … within which 95 % of the
values lie, by the sparse vector technique (S2's Algorithm 2, with a cap on its loop). The counts
below growing bounds all move the same way when a record is replaced, so noise of scale 2/ε on a
query suffices where S2 has 4/ε. Then counts of the m × m cells between the bounds, by DAWA along
Hilbert's curve. Records outside are counted in one more cell, the last: so the cells hold all n
records, which are public, and replacing a record moves two of them.

Fitted values come from coefficients that are public: those of a least-squares fit to the same
records are not, and a plot of their residuals would not be private whatever noise it has.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from protocols.privacy.dawa import Dawa
from protocols.privacy.hilbert import hilbert_order
from protocols.privacy.laplace import Integers
from protocols.privacy.selection import Above, AboveThreshold
from protocols.randomness import Randomness

Column = NDArray[np.float64]

WITHIN = 0.95
"""θ/n: the part of records that bounds are to hold on each axis."""
PER_CELL = 10
"""m = √(N₀ε/10), with N₀ = θ²/n records within both bounds."""
SIDES = (2, 512)
NO_NOISE_SIDE = 32
SIMILARITY_SIDE = 10
MARGIN = 0.1


def bound_of(values: Column, unit: float, doublings: int) -> Integers:
    """For each value the first i with |value| ≤ μ·2^i; `doublings` where there is none."""
    bounds = np.ldexp(unit, np.arange(doublings))
    return np.searchsorted(bounds, np.abs(values), side="left").astype(np.int64)


def wanted(records: int) -> int:
    """θ: how many records bounds are to hold."""
    return math.ceil(Fraction(repr(WITHIN)) * records)


def first_bound(counts: NDArray[np.generic], records: int) -> int:
    """The first bound that holds θ records, from counts by `bound_of`; the last if none does."""
    held = np.flatnonzero(np.cumsum(counts[:-1]) >= wanted(records))
    return int(held[0]) if len(held) else len(counts) - 2


def private_bound(counts: Integers, epsilon: Fraction, randomness: Randomness) -> int:
    """The same, ε-DP: S2's Algorithm 2, from the exact counts."""
    search = AboveThreshold.spending(epsilon, 1, monotone=True)
    within = np.cumsum(counts[:-1]).tolist()
    theta = wanted(int(counts.sum()))
    found = search.first_above(within, theta, len(within), randomness)
    return found.index if isinstance(found, Above) else len(within) - 1


def side_for(records: int, epsilon: Fraction | float | None) -> int:
    """m, by S2 §4.2.2; without noise there is no best one."""
    if epsilon is None:
        return NO_NOISE_SIDE
    side = math.floor(math.sqrt(WITHIN**2 * records * float(epsilon) / PER_CELL))
    return min(max(side, SIDES[0]), SIDES[1])


@dataclass(frozen=True)
class PlotGrid:
    """m × m cells over [−a, a] × [−b, b], in Hilbert's order, and one for what lies outside.

    Cells are half-open but for the last of a row or column, as numpy's bins are. Preconditions:
    positive finite reaches, m ≥ 1.
    """

    fitted_reach: float
    residual_reach: float
    side: int

    @property
    def cells(self) -> int:
        return self.side**2 + 1

    @property
    def edges(self) -> tuple[Column, Column]:
        """Of fitted values and of residuals."""
        reaches = (self.fitted_reach, self.residual_reach)
        across, up = (np.linspace(-each, each, self.side + 1) for each in reaches)
        return across, up

    @cached_property
    def _order(self) -> Integers:
        return hilbert_order(self.side, self.side)

    def cell_of(self, fitted: Column, residuals: Column) -> Integers:
        """The cell of every record."""
        inside = (np.abs(fitted) <= self.fitted_reach) & (np.abs(residuals) <= self.residual_reach)
        column, row = (
            np.clip(np.searchsorted(edges, values, side="right") - 1, 0, self.side - 1)
            for edges, values in zip(self.edges, (fitted, residuals), strict=True)
        )
        place = np.empty(self.side**2, dtype=np.int64)
        place[self._order] = np.arange(self.side**2)
        return np.where(inside, place[row * self.side + column], self.side**2)

    def counts(self, fitted: Column, residuals: Column) -> Integers:
        """How many records are in each cell."""
        return np.bincount(self.cell_of(fitted, residuals), minlength=self.cells)

    def grid(self, cells: NDArray[np.generic]) -> Integers:
        """Counts by residual (rows) and fitted value, not negative and whole: S2's last step."""
        whole = np.empty(self.side**2, dtype=np.int64)
        whole[self._order] = np.maximum(np.rint(cells[:-1].astype(np.float64)), 0)
        return whole.reshape(self.side, self.side)

    def sampled(self, grid: Integers, generator: np.random.Generator) -> tuple[Column, Column]:
        """As many points in each cell as it counts, anywhere within it."""
        rows, columns = np.repeat(np.indices(grid.shape).reshape(2, -1), grid.ravel(), axis=1)
        across, up = self.edges
        fitted, residuals = (
            edges[0] + (edges[1] - edges[0]) * (at + generator.random(len(at)))
            for edges, at in ((across, columns), (up, rows))
        )
        return fitted, residuals


def dawa_counts(counts: Integers, epsilon: Fraction, randomness: Randomness) -> Column:
    """All cells, from exact counts in Hilbert's order."""
    return Dawa.spending(epsilon).release(counts, randomness).cells


def prirp(
    fitted: Column,
    residuals: Column,
    unit: float,
    epsilon: Fraction,
    randomness: Randomness,
    bounds_share: Fraction = Fraction(1, 5),
    doublings: int = 32,
) -> tuple[PlotGrid, Integers]:
    """A whole plot by a curator: ε-DP, `bounds_share` of it for the two bounds."""
    across, up = (
        math.ldexp(unit, private_bound(counts, bounds_share * epsilon / 2, randomness))
        for counts in (
            np.bincount(bound_of(values, unit, doublings), minlength=doublings + 1)
            for values in (fitted, residuals)
        )
    )
    plot = PlotGrid(across, up, side_for(len(fitted), epsilon))
    counts = plot.counts(fitted, residuals)
    return plot, plot.grid(dawa_counts(counts, (1 - bounds_share) * epsilon, randomness))


@dataclass(frozen=True)
class TruePlot:
    """A plot of raw records, and S2 §4.3's 10 × 10 cells over it, a margin of 0.1 around."""

    fitted: Column
    residuals: Column

    @cached_property
    def edges(self) -> tuple[Column, Column]:
        across, up = (
            np.linspace(each.min() - MARGIN, each.max() + MARGIN, SIMILARITY_SIDE + 1)
            for each in (self.fitted, self.residuals)
        )
        return across, up

    def shares(self, fitted: Column, residuals: Column) -> Column:
        """The part of those points in each cell; all 0 where there is no point."""
        counts, _, _ = np.histogram2d(fitted, residuals, bins=self.edges)
        return counts / max(len(fitted), 1)

    @cached_property
    def own_shares(self) -> Column:
        return self.shares(self.fitted, self.residuals)

    def similarity(self, fitted: Column, residuals: Column) -> float:
        """Sim of §4.3: a total variation distance, 0 for equal plots."""
        theirs = self.shares(fitted, residuals)
        apart = np.abs(self.own_shares - theirs).sum() + (1 - theirs.sum())
        return float(apart / 2)


def separation(one: ArrayLike, two: ArrayLike) -> float:
    """How well a threshold tells two samples of distances apart: the largest difference of their
    distribution functions, a lower bound of their total variation distance (S2 §4.3.1)."""
    first, second = np.sort(np.asarray(one)), np.sort(np.asarray(two))
    at = np.concatenate([first, second])
    shares = (np.searchsorted(each, at, side="right") / len(each) for each in (first, second))
    left, right = shares
    return float(np.abs(left - right).max())
