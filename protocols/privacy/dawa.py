"""DAWA: counts whose buckets follow the data (Li, Hay, Miklau, Wang, VLDB 2014).

Stage 1 spends ε₁ on a partition of the N cells into buckets of nearly equal counts. Stage 2 spends
ε₂ on the buckets' totals, by a hierarchy, and spreads each total evenly over its cells. The paper's
GreedyH fits the hierarchy to a workload; here its branching is HB's, which suits all ranges, or the
one of least variance for ranges that begin at the first cell (`one_sided`). The whole is
(ε₁ + ε₂)-DP with δ = 0, for replacing one record; the number of records n is public.

**Stage 1.** A bucket B costs dev(x, B) = Σ_{j ∈ B} |x_j − mean|, and a public penalty besides. All
intervals whose length is a power of two get independent noise on their cost, and the partition of
least noisy total is published, never a cost. Adding one record to cell j changes dev(x, B) by at
most Δ = 2(1 − 1/M) if B holds j (M the longest length) and not at all otherwise. Fix all noise but
that of the published bucket B that holds j: the partition wins while that noise is at most some
threshold, which moves by at most Δ for B's own cost and Δ for the rivals' (each holds j in one
bucket; rivals that share B keep their distance). So noise of scale 2Δ/ε₁ is ε₁-DP for adding or
removing, as published. *Replacing* a record is both, in up to two buckets: the shifts add up to 4Δ,
and the scale here is 4Δ/ε₁ = 8(1 − 1/M)/ε₁, twice the published one. The tests enumerate the exact
shift that small N need: 2, 3, 4 and 4 at N = 2 to 5, below 4Δ, and above 2Δ from N = 3 on. Noise
is discrete Laplace on M·dev, an integer, and ties go by an order that reads no data, so the
argument is exact. Noisy costs must not be clamped at 0: the shift would be lost in the clamp.

**What needs a curator.** dev is not linear in the counts, so stage 1 needs somebody who sees exact
counts. Stage 2 is linear: given `Buckets`, `measure` applies to shares of counts and any aggregator
runs it. `partition_of_noisy` takes counts that were released under noise (their ε is spent
already), and spends nothing further: anybody can merge cells that noise cannot tell apart.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy import hb
from tallyroom.protocols.privacy.dawa_loops import cheapest, deviations, levels_of
from tallyroom.protocols.privacy.hierarchy import Hierarchy, best_branching
from tallyroom.protocols.privacy.hilbert import hilbert_order
from tallyroom.protocols.privacy.laplace import Integers
from tallyroom.protocols.privacy.mechanisms import DiscreteLaplace
from tallyroom.protocols.privacy.noise_law import Sensitivity
from tallyroom.protocols.privacy.tree import Number
from tallyroom.protocols.randomness import Randomness

Vector = NDArray[np.float64]

MAX_CELLS = 1 << 20
MAX_RECORDS = 1 << 40
PARTITION_SHARE = Fraction(1, 4)
"""The share of ε for stage 1, as in the paper."""
NOISE_PENALTY = Fraction(2)
"""The penalty for each bucket, in scales of stage 1's noise; the paper has no penalty. The
partition of least noisy cost favours many buckets, since each is one more chance of a low noise:
without the penalty it follows the noise, and is no better than HB. Chosen on synthetic histograms
of 1024 cells (flat, steps, spikes, skewed, rough); privacy does not depend on it."""


@dataclass(frozen=True)
class Buckets:
    """A partition of the cells into intervals of `lengths`, and stage 2 on it, for all ranges or
    those that begin at the first cell."""

    lengths: Integers
    one_sided: bool = False

    @property
    def hierarchy(self) -> Hierarchy:
        cells = len(self.lengths)
        return Hierarchy(cells, best_branching(cells)) if self.one_sided else hb.line(cells)

    @property
    def sensitivity(self) -> Sensitivity:
        """How far replacing one record moves what `measure` gives."""
        return self.hierarchy.sensitivity

    def totals(self, cells: NDArray[Number]) -> NDArray[Number]:
        """The total of each bucket. It is linear, so it applies to shares too. Raises ValueError
        for another N."""
        if cells.shape != (int(self.lengths.sum()),):
            raise ValueError(f"cells of shape {cells.shape} for {self.lengths.sum()} in buckets")
        starts = np.cumsum(self.lengths) - self.lengths
        sums: NDArray[Number] = np.add.reduceat(cells, starts, dtype=cells.dtype)
        return sums

    def measure(self, cells: NDArray[Number]) -> NDArray[Number]:
        """The node counts of the hierarchy over the buckets; linear as well."""
        totals = self.totals(cells)
        return self.hierarchy.node_counts(np.cumsum(totals, dtype=totals.dtype))

    def estimate(self, noisy: Vector, n: float) -> Vector:
        """Each cell's count from noisy nodes: its bucket's least-squares total, spread evenly."""
        return np.repeat(self.hierarchy.cell_counts(noisy, n) / self.lengths, self.lengths)


@dataclass(frozen=True)
class DawaRelease:
    """Private: the partition and the estimated counts of all cells, which sum to n."""

    buckets: Buckets
    cells: Vector


@dataclass(frozen=True)
class Dawa:
    """Both stages, with the ε that each spends."""

    partition_epsilon: Fraction
    count_epsilon: Fraction
    one_sided: bool = False

    @classmethod
    def spending(
        cls, epsilon: Fraction, share: Fraction = PARTITION_SHARE, one_sided: bool = False
    ) -> "Dawa":
        """`share` of ε buys the partition. Raises ValueError unless both parts are positive."""
        if not (epsilon > 0 and 0 < share < 1):
            raise ValueError("epsilon must be positive, and the partition's share within (0, 1)")
        return cls(share * epsilon, (1 - share) * epsilon, one_sided)

    def privacy_map(self) -> Fraction:
        """ε of a whole release when one record is replaced. δ is 0."""
        return self.partition_epsilon + self.count_epsilon

    def partition(self, counts: ArrayLike, randomness: Randomness) -> Buckets:
        """Stage 1, from exact counts. Raises ValueError as `checked_counts`, LocalError if ε₁ is
        too small for the number of cells."""
        cells = checked_counts(counts)
        noise = DiscreteLaplace.spending(self.partition_epsilon, partition_sensitivity(len(cells)))
        longest = 1 << (levels_of(len(cells)) - 1)
        penalty = longest * 2 / self.count_epsilon + NOISE_PENALTY * noise.scale
        costs = deviations(cells)
        # No noise is above 100 scales but with probability e^-100; a partition adds up N at most.
        if len(cells) * (100 * noise.scale + penalty) + 2 * longest * int(cells.sum()) >= 1 << 62:
            raise LocalError(
                f"epsilon {float(self.partition_epsilon):g} is too small for {len(cells)} cells"
            )
        costs += noise.draw(costs.size, randomness).reshape(costs.shape)
        costs += math.ceil(penalty)
        return Buckets(cheapest(costs), self.one_sided)

    def release(self, counts: ArrayLike, randomness: Randomness) -> DawaRelease:
        """Runs both stages on exact counts; raises what `partition` raises."""
        cells = checked_counts(counts)
        buckets = self.partition(cells, randomness)
        exact = buckets.measure(cells)
        noisy = exact.astype(np.float64)
        if len(noisy):
            mechanism = DiscreteLaplace.spending(self.count_epsilon, buckets.sensitivity.l1)
            noisy = (exact + mechanism.draw(len(exact), randomness)).astype(np.float64)
        return DawaRelease(buckets, buckets.estimate(noisy, float(cells.sum())))

    def release_grid(self, counts: ArrayLike, randomness: Randomness) -> Vector:
        """Counts of a grid, taken in Hilbert's order; raises as `partition`, or ValueError for an
        array of another dimension."""
        grid = np.asarray(counts)
        if grid.ndim != 2:
            raise ValueError(f"a grid has two dimensions, not {grid.ndim}")
        order = hilbert_order(*grid.shape)
        estimate = np.empty(grid.size)
        estimate[order] = self.release(grid.ravel()[order], randomness).cells
        return estimate.reshape(grid.shape)


def partition_sensitivity(cells: int) -> int:
    """4Δ·M = 8(M − 1) for costs in units of 1/M; at least 1, where nothing depends on the data."""
    return max(1, 8 * ((1 << (levels_of(cells) - 1)) - 1))


def partition_of_noisy(noisy: ArrayLike, noise_scale: float, count_epsilon: Fraction) -> Buckets:
    """A partition from counts that were released with Laplace noise of `noise_scale` each.

    Post-processing: it spends nothing. In a bucket of L equal counts the noise alone makes a
    deviation of about (L − 1)·`noise_scale`, which is taken off. Raises ValueError for counts that
    are no integers or too many or too large, or a scale or ε₂ that is not positive.
    """
    cells = checked_integers(noisy)
    if not (0 < noise_scale < 1 << 20 and count_epsilon > 1 / MAX_RECORDS):
        raise ValueError("the noise's scale and epsilon must be positive and within reason")
    levels = levels_of(len(cells))
    longest = 1 << (levels - 1)
    penalty = min(longest * 2 / float(count_epsilon), 2.0**40)
    costs = deviations(cells)
    for level in range(levels):
        costs[level] += round(penalty - longest * ((1 << level) - 1) * noise_scale)
    return Buckets(cheapest(costs))


def checked_integers(counts: ArrayLike) -> Integers:
    """Raises ValueError unless it is a vector of 1 to 2^20 integers with Σ|x| up to 2^40."""
    cells = np.asarray(counts)
    if cells.ndim != 1 or not 1 <= len(cells) <= MAX_CELLS:
        raise ValueError(f"counts of 1 to {MAX_CELLS} cells are needed, not shape {cells.shape}")
    if cells.dtype.kind not in "iu":
        raise ValueError(f"counts must be integers, not {cells.dtype}")
    if np.abs(cells.astype(np.float64)).sum() > MAX_RECORDS:
        raise ValueError(f"counts must not add up to more than {MAX_RECORDS}")
    return cells.astype(np.int64)


def checked_counts(counts: ArrayLike) -> Integers:
    """Like `checked_integers`; negative counts are refused too."""
    cells = checked_integers(counts)
    if cells.min() < 0:
        raise ValueError("a count is negative")
    return cells
