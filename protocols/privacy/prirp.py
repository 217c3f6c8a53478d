"""PriRP: residuals against fitted values as private counts in a grid (S2 §4.2).

The sparse vector technique (S2's Algorithm 2, with a cap on its loop) first finds how far each axis
reaches. Then the records are counted in the m × m cells between the bounds, and in one more cell
for all that lie outside: so the cells hold all n records, whose number is public, and replacing a
record moves two counts. Four things differ from S2.

- **The threshold.** S2 asks for 95 % of the records, and 95.4 % of a normal law lie within two
  deviations: noise as small as 0.4 % of n makes the search run past the right bound, to twice or
  four times it. So the bar is lowered by what the noise exceeds with probability `PASSED_OVER`, but
  no further than midway to the 68 % that half the bound holds. Both are public, and spend nothing.
- **Its noise** is one-sided (`selection.AboveThreshold`), half the variance for the same ε.
- **Fitted values** are often of one sign, or nearly, and half of S2's cells stay empty then. The
  search asks of [0, b], [−b, 0), [−b/4, b] and [−b, b/4] before [−b, b]. Replacing a record may
  raise one of these counts and lower another, so that search costs 3/s where one on growing bounds,
  whose counts all move the same way, costs 2/s, s being the scale of all noise: ε = 5/s for both.
- **Cells** have the Laplace mechanism's noise, one by one, for all of their ε. What DAWA buys with
  a part of it, a partition of Hilbert's curve into stretches of like counts, is then read off the
  noisy counts, for nothing (`merged`); so is where fitted values end (`PlotGrid.mended`). Counts
  become whole and not negative by the projection onto counts that add up to n, where S2 rounds
  each. `dawa_counts` has S2's own cells.

The whole is ε-DP for replacing a record, δ = 0, by composition of both searches and the cells: all
else reads what these released. Whoever runs it holds exact counts and is trusted.

Fitted values come from coefficients that are public: those of a least-squares fit to the same
records are not, and a plot of their residuals would not be private whatever noise it has.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tallyroom.protocols.privacy.dawa import Dawa, partition_of_noisy
from tallyroom.protocols.privacy.hilbert import hilbert_order
from tallyroom.protocols.privacy.laplace import Integers
from tallyroom.protocols.privacy.mechanisms import DiscreteLaplace
from tallyroom.protocols.privacy.selection import Above, AboveThreshold
from tallyroom.protocols.privacy.tree import Number
from tallyroom.protocols.randomness import Randomness

Column = NDArray[np.float64]
Axis = tuple[float, float]
"""The lower and the upper end of an axis."""

WITHIN = 0.95
"""θ/n: the part of the records that the bounds of each axis must hold."""
HALFWAY = 0.82
"""Between that and the 68 % of a normal law within half the bound that holds 95 %."""
PASSED_OVER = 0.025
"""The probability that noise leads past a bound that holds θ records."""
REACH_SHARE = Fraction(3, 10)
"""The share of ε that finds both axes."""
SHAPES = ((0.0, 1.0), (1.0, 0.0), (0.25, 1.0), (1.0, 0.25), (1.0, 1.0))
"""How far an axis reaches below 0 and above it, in parts of a bound b, in the order of widths."""
REACH_UNITS = (3, 2)
"""ε·s of the searches: for fitted values, whose counts move either way, and for residuals."""
PER_CELL = 10
"""m = √(N₀ε/10), with N₀ = θ²/n records within both bounds."""
SIDES = (2, 512)
NO_NOISE_SIDE = 32
SIMILARITY_SIDE = 10
MARGIN = 0.1
NOISE_ALONE = 2.0
"""A total of columns below so many deviations may be nothing but noise."""


# --- how far the axes reach ---


def size_of(values: Column, unit: float, doublings: int) -> Integers:
    """The first i with |value| ≤ μ·2^i for each value; `doublings` if no i is large enough."""
    bounds = np.ldexp(unit, np.arange(doublings))
    return np.searchsorted(bounds, np.abs(values), side="left").astype(np.int64)


def signed_size_of(values: Column, unit: float, doublings: int) -> Integers:
    """Like `size_of`, plus `doublings` for negative values; 2·`doublings` if no i is large
    enough."""
    sizes = size_of(values, unit, doublings)
    signed = sizes + doublings * (values < 0)
    return np.where(sizes == doublings, 2 * doublings, signed)


def within(counts: NDArray[Number], doublings: int) -> NDArray[Number]:
    """How many records lie on each axis, for b = μ, then 2μ, 4μ, …: from counts by signed size, on
    those of `SHAPES`; from counts by size, within [−b, b]. Linear in the counts, so shares of them
    go in as well."""
    sizes: NDArray[Number] = np.cumsum(
        counts[:-1].reshape(-1, doublings), axis=1, dtype=counts.dtype
    )
    held = list(sizes)
    if len(sizes) == 2:
        above, below = sizes
        few_above, few_below = np.pad(sizes, ((0, 0), (2, 0)))[:, :doublings]  # within b/4
        held = [above, below, above + few_below, few_above + below, above + below]
    scores: NDArray[Number] = np.stack(held, axis=1).ravel()
    return scores


def axis_at(index: int, unit: float) -> Axis:
    """The axis that an entry of `within` counts, from counts by signed size."""
    doubled, shape = divmod(index, len(SHAPES))
    below, above = SHAPES[shape]
    reach = math.ldexp(unit, doubled)
    return 0.0 - below * reach, above * reach  # no −0: it would be another question


def reach_at(index: int, unit: float) -> float:
    """How far from 0 the axis of an entry of `within` reaches, from counts by size."""
    return math.ldexp(unit, index)


def wanted(records: int) -> int:
    """θ: the number of records that bounds must hold."""
    return math.ceil(Fraction(repr(WITHIN)) * records)


def lowered(records: int, scale: float) -> int:
    """The bar for counts under noises of that scale: P(ρ − ν > t) ≤ e^(−t/s)/2 for geometric ρ and
    ν. A share of n where the margin is larger, 1 at least."""
    margin = math.ceil(min(-math.log(2 * PASSED_OVER) * scale, records))
    return max(wanted(records) - margin, math.ceil(HALFWAY * records), 1)


def first_within(scores: Integers, threshold: int) -> int:
    """The first entry of `within` that reaches the threshold; the last if none does."""
    held = np.flatnonzero(scores >= threshold)
    return int(held[0]) if len(held) else len(scores) - 1


def private_reaches(
    scores: Sequence[Integers], threshold: int, epsilon: Fraction, randomness: Randomness
) -> tuple[int, int]:
    """Finds both axes, ε-DP, from exact counts within bounds: fitted values by signed size,
    residuals by size. The counts must hold no other score: noise would find it too."""
    found = []
    for each, units in zip(scores, REACH_UNITS, strict=True):
        part = Fraction(units, sum(REACH_UNITS)) * epsilon
        search = AboveThreshold.spending(part, 1, monotone=units == 2)
        answer = search.first_above(each.tolist(), threshold, len(each), randomness)
        found.append(answer.index if isinstance(answer, Above) else len(each) - 1)
    across, up = found
    return across, up


# --- cells ---


def side_for(records: int, epsilon: Fraction | float | None) -> int:
    """The number m of cells per side, by S2 §4.2.2; without noise no m is best."""
    if epsilon is None:
        return NO_NOISE_SIDE
    side = math.floor(math.sqrt(WITHIN**2 * records * float(epsilon) / PER_CELL))
    return min(max(side, SIDES[0]), SIDES[1])


def merged(cells: Column, scale: float) -> Column:
    """Noisy counts along Hilbert's curve, averaged over stretches whose differences Laplace noise
    of that scale explains; the last cell, what lies outside, stays as it is.

    It reads released counts alone, and spends nothing. Raises ValueError as `partition_of_noisy`.
    """
    inside = cells[:-1]
    # A stretch costs what its own noise would: its count's ε is 2/scale.
    stretches = partition_of_noisy(np.rint(inside).astype(np.int64), scale, Fraction(2 / scale))
    means = stretches.totals(inside) / stretches.lengths
    return np.append(np.repeat(means, stretches.lengths), cells[-1])


def projected(cells: Column, records: int) -> Column:
    """The nearest counts, by the sum of squares, that are not negative and add up to `records`; a
    cell of −∞ stays empty, and one at least is of more."""
    falling = np.sort(cells[cells > -np.inf])[::-1]
    over = (np.cumsum(falling) - records) / np.arange(1, len(falling) + 1)
    nearest: Column = np.maximum(cells - over[np.flatnonzero(falling >= over)[-1]], 0.0)
    return nearest


def beyond_data(columns: Column, deviation: float) -> int:
    """The number of first columns that noise alone explains: the totals of the first 1, 2, … of
    them are all at most `NOISE_ALONE` deviations of their noise."""
    totals, sizes = np.cumsum(columns), np.arange(1, len(columns) + 1)
    above = np.flatnonzero(totals > NOISE_ALONE * deviation * np.sqrt(sizes))
    return int(above[0]) if len(above) else len(columns)


def whole(cells: Column) -> Integers:
    """Whole counts within 1 of the given ones; the total of any stretch along the curve is within 1
    too."""
    upto: Integers = np.rint(np.cumsum(cells)).astype(np.int64)
    counts: Integers = upto - np.append(0, upto[:-1])
    return counts


@dataclass(frozen=True)
class PlotGrid:
    """m × m cells over fitted values on an axis and residuals within [−b, b], in Hilbert's order,
    and one for what lies outside.

    Cells are half-open but for the last of a row or column, as numpy's bins are. Preconditions: a
    finite axis, a positive finite reach, m ≥ 1.
    """

    fitted: Axis
    residual_reach: float
    side: int

    @property
    def cells(self) -> int:
        return self.side**2 + 1

    @property
    def edges(self) -> tuple[Column, Column]:
        """The edges of cells, on the axis of fitted values and on that of residuals."""
        reach = self.residual_reach
        across, up = (np.linspace(*axis, self.side + 1) for axis in (self.fitted, (-reach, reach)))
        return across, up

    @cached_property
    def _order(self) -> Integers:
        return hilbert_order(self.side, self.side)

    def cell_of(self, fitted: Column, residuals: Column) -> Integers:
        """The cell of every record."""
        inside = (self.fitted[0] <= fitted) & (fitted <= self.fitted[1])
        inside &= np.abs(residuals) <= self.residual_reach
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

    def mended(self, noisy: Column, scale: float) -> Column:
        """Cells that were released with Laplace noise of that scale: merged, and −∞ in the outer
        columns of fitted values that hold noise alone. An axis often reaches twice as far as they
        do, and what noise leaves so far out would pull at any trend. It spends nothing; raises as
        `merged`."""
        rows = np.empty(self.side**2)
        rows[self._order] = noisy[:-1]
        columns = rows.reshape(self.side, self.side).sum(axis=0)
        deviation = scale * math.sqrt(2 * self.side)
        left, right = (beyond_data(each, deviation) for each in (columns, columns[::-1]))
        found = merged(noisy, scale)
        at = self._order % self.side
        if left + right < self.side:
            found[:-1][(at < left) | (at >= self.side - right)] = -np.inf
        return found

    def grid(self, cells: Column, records: int) -> Integers:
        """Counts by residual (rows) and fitted value, not negative and whole: S2's last step. With
        what lies outside they add up to `records`."""
        return self.placed(whole(projected(cells, records)))

    def placed(self, cells: Integers) -> Integers:
        """Counts by residual (rows) and fitted value, from counts in Hilbert's order."""
        counts = np.empty(self.side**2, dtype=np.int64)
        counts[self._order] = cells[:-1]
        return counts.reshape(self.side, self.side)

    def sampled(self, grid: Integers, generator: np.random.Generator) -> tuple[Column, Column]:
        """Random points: as many in each cell as the cell counts, anywhere within it."""
        rows, columns = np.repeat(np.indices(grid.shape).reshape(2, -1), grid.ravel(), axis=1)
        across, up = self.edges
        fitted, residuals = (
            edges[0] + (edges[1] - edges[0]) * (at + generator.random(len(at)))
            for edges, at in ((across, columns), (up, rows))
        )
        return fitted, residuals


def dawa_counts(counts: Integers, epsilon: Fraction, randomness: Randomness) -> Column:
    """All cells by DAWA, as in S2, from exact counts in Hilbert's order."""
    return Dawa.spending(epsilon).release(counts, randomness).cells


def laplace_counts(counts: Integers, epsilon: Fraction, randomness: Randomness) -> Column:
    """All cells with noise on each: replacing a record moves two of them by one."""
    mechanism = DiscreteLaplace.spending(epsilon, 2)
    return (counts + mechanism.draw(len(counts), randomness)).astype(np.float64)


def prirp(
    fitted: Column,
    residuals: Column,
    unit: float,
    epsilon: Fraction,
    randomness: Randomness,
    reach_share: Fraction = REACH_SHARE,
    doublings: int = 32,
) -> tuple[PlotGrid, Integers]:
    """A whole plot by a curator: ε-DP, `reach_share` of it for the two axes."""
    n, spent = len(fitted), reach_share * epsilon
    signed = np.bincount(signed_size_of(fitted, unit, doublings), minlength=2 * doublings + 1)
    sizes = np.bincount(size_of(residuals, unit, doublings), minlength=doublings + 1)
    scores = [within(each, doublings) for each in (signed, sizes)]
    threshold = lowered(n, sum(REACH_UNITS) / float(spent))
    across, up = private_reaches(scores, threshold, spent, randomness)
    plot = PlotGrid(axis_at(across, unit), reach_at(up, unit), side_for(n, epsilon))
    noisy = laplace_counts(plot.counts(fitted, residuals), epsilon - spent, randomness)
    return plot, plot.grid(plot.mended(noisy, 2 / float(epsilon - spent)), n)


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
        """The share of these points that lies in each cell; all 0 if there are no points."""
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
