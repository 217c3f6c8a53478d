"""S4's thresholded noisy histogram over spaces too large to enumerate (S4 §2.1, Proposition 1).

Every cell of a space of m cells gets discrete Laplace noise of scale 2/ε (replacing one record
moves two counts by one), and cells whose noisy count is above a public threshold τ ≥ 0 are
published: ε-DP with δ = 0, n public. The holder of the exact records is a trusted curator.

Only the cells that hold records are visited. Of the m − n' others, each passes with probability
p = P(L > τ) = e^(−(τ+1)/s)/(1 + e^(−1/s)), independently: so their number is Binomial(m − n', p),
they are a uniform subset of that size, and each value is τ + 1 plus a geometric variable. The
output has exactly the distribution of the sampler that enumerates the space: the binomial is drawn
by inversion with as many digits as it takes to be certain, the rest on integers. Cells come out
sorted, so their order tells nothing. O(n·d + output) besides sorting.
"""

import decimal
import math
from bisect import bisect_left
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.laplace import Integers, geometric, uniform
from tallyroom.protocols.privacy.mechanisms import DiscreteLaplace
from tallyroom.protocols.privacy.noise_sums import passing
from tallyroom.protocols.randomness import Randomness

MAX_SPACE = 1 << 60
FALSE_ROWS = Fraction(1, 10)
"""Rows that noise alone is expected to make, for each record. Of ½, 1/10 and 1/50 the middle one
was best or tied by marginals in most settings on UCI's Bank and Diabetes data, ε from 0.1 to 1."""
MAX_OUTPUT = 1_000_000
"""Expected cells that hold no record, but pass. More are refused: a higher threshold is needed."""


@dataclass(frozen=True)
class Space:
    """The product of finite attributes; a cell is a number below `size`, in mixed radix.

    Raises LocalError for an attribute without a value, or a space past 2^60 cells.
    """

    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        if any(size < 1 for size in self.sizes):
            raise LocalError("every attribute needs at least one value")
        if self.size > MAX_SPACE:
            raise LocalError(f"a space of {self.size:.3g} cells is past 2^60: project further")

    @property
    def size(self) -> int:
        return math.prod(self.sizes)

    def encode(self, rows: ArrayLike) -> Integers:
        """Cells of rows of attribute values, each from 0. Raises ValueError for values outside."""
        table = np.asarray(rows)
        if table.ndim != 2 or table.shape[1] != len(self.sizes):
            raise ValueError(f"rows of shape {table.shape} for {len(self.sizes)} attributes")
        if table.dtype.kind not in "iu" and len(table):
            raise ValueError(f"attribute values must be integers, not {table.dtype}")
        if ((table < 0) | (table >= np.array(self.sizes, dtype=np.int64))).any():
            raise ValueError("an attribute value is outside its range")
        cells = np.zeros(len(table), dtype=np.int64)
        for column, size in enumerate(self.sizes):
            cells = cells * size + table[:, column].astype(np.int64)
        return cells

    def decode(self, cells: Integers) -> Integers:
        """The rows of cells."""
        rows = np.empty((len(cells), len(self.sizes)), dtype=np.int64)
        rest = cells
        for column, size in reversed(list(enumerate(self.sizes))):
            rest, rows[:, column] = np.divmod(rest, size)
        return rows


@dataclass(frozen=True)
class SparseCounts:
    """Cells, increasing, and their noisy counts, all above the threshold. All others are 0."""

    cells: Integers
    counts: Integers


# --- the threshold, from public numbers alone: it spends nothing ---


def lei_threshold(records: int, epsilon: Fraction, a: float = 0.5) -> int:
    """τ = A·ln(n)/ε (Lei 2011, S4 §2.1), rounded down: counts are integers."""
    return math.floor(a * math.log(max(1, records)) / float(epsilon))


def threshold_for(space: int, records: int, epsilon: Fraction, noises: int = 1) -> int:
    """The least τ from S4's on at which a cell without a record passes no more often under so many
    noises than it does at S4's under one, and all of them together are expected to make no more
    than `FALSE_ROWS` times as many rows as there are records, but one at least."""
    scale = 2 / epsilon
    least = lei_threshold(records, epsilon)
    often = passing(least, scale)[0]
    most = max(records * Decimal(FALSE_ROWS.numerator) / FALSE_ROWS.denominator, Decimal(1))

    def is_enough(threshold: int) -> bool:
        chance, expected = passing(threshold, scale, noises)
        return chance <= often and space * expected <= most

    step = 1
    while not is_enough(least + step - 1):
        step *= 2
    return least + bisect_left(range(step), True, key=lambda more: is_enough(least + more))


@dataclass(frozen=True)
class ThresholdedHistogram:
    """The mechanism and its privacy map. Raises LocalError for a negative threshold."""

    noise: DiscreteLaplace
    threshold: int

    def __post_init__(self) -> None:
        if not 0 <= self.threshold <= MAX_SPACE:
            raise LocalError(f"the threshold must be within 0..2^60, not {self.threshold}")

    @classmethod
    def spending(cls, epsilon: Fraction, threshold: int) -> "ThresholdedHistogram":
        return cls(DiscreteLaplace.spending(epsilon, 2), threshold)

    def privacy_map(self) -> Fraction:
        """ε when one record is replaced. δ is 0."""
        return self.noise.privacy_map(2)

    def sample(self, cells: Integers, space: int, randomness: Randomness) -> SparseCounts:
        """Samples the histogram from the cell of every record. Raises LocalError if too many empty
        cells are expected to pass, ValueError for a cell outside the space."""
        if not 1 <= space <= MAX_SPACE:
            raise LocalError(f"a space has 1 to 2^60 cells, not {space}")
        if len(cells) and not (cells.min() >= 0 and cells.max() < space):
            raise ValueError("a cell is outside the space")
        chance = passing_chance(self.threshold, self.noise.scale)
        if space * chance > MAX_OUTPUT:  # by the public space: how many are held is a secret
            raise LocalError(
                f"about {float(space * chance):.3g} empty cells would pass: raise the threshold, "
                "or project onto fewer attributes"
            )
        held, exact = np.unique(cells, return_counts=True)
        noisy = exact + self.noise.draw(len(held), randomness)
        passing = noisy > self.threshold
        empty = space - len(held)
        count = binomial(empty, self.threshold, self.noise.scale, randomness)
        others = distinct_outside(count, held, space, randomness)
        values = self.threshold + 1 + geometric(count, self.noise.scale, randomness)
        found = np.concatenate([held[passing], others])
        order = np.argsort(found)
        return SparseCounts(found[order], np.concatenate([noisy[passing], values])[order])


def passing_chance(threshold: int, scale: Fraction, digits: int = 28) -> Decimal:
    """P(L > τ) for discrete Laplace noise of `scale`, to so many digits."""
    with decimal.localcontext(prec=digits, Emin=-(10**17), Emax=10**17):
        rate = Decimal(scale.denominator) / Decimal(scale.numerator)
        return (-rate * (threshold + 1)).exp() / (1 + (-rate).exp())


def binomial(trials: int, threshold: int, scale: Fraction, randomness: Randomness) -> int:
    """How many of `trials` noises are above the threshold: exact, by inversion.

    The uniform variable is a stream of bits and the probabilities are decimals; when the digits at
    hand leave it open which side of a boundary the variable is on, both get more. O(result).
    """
    digits, bits, drawn = 40, 0, 0
    while True:
        more = 4 * digits - bits
        drawn = drawn << more | int.from_bytes(randomness.bytes(-(-more // 8))) >> -more % 8
        bits += more
        result = _inverted(trials, threshold, scale, drawn, bits, digits)
        if result is not None:
            return result
        digits *= 2


def _inverted(
    trials: int, threshold: int, scale: Fraction, drawn: int, bits: int, digits: int
) -> int | None:
    """The k with P(≤ k−1) < drawn/2^bits ≤ P(≤ k), or None if `digits` do not tell.

    Each step rounds a few times, by 10^−digits relatively; 10^(12 − digits) covers all the steps
    there can be (below 10^9), the errors of the start (a power of up to 2^60) included where the
    working precision is 25 digits more.
    """
    with decimal.localcontext(prec=digits + 25, Emin=-(10**17), Emax=10**17):
        p = passing_chance(threshold, scale, digits + 50)
        odds = p / (1 - p)
        term = (trials * (1 - p).ln()).exp()
        low, high = (Decimal(drawn + up) / Decimal(1 << bits) for up in (0, 1))
        slack = Decimal(10) ** (12 - digits)
        below = Decimal(0)
        for k in range(trials + 1):
            upto = below + term
            if high < upto - slack or k == trials:
                return k if low > below + slack or k == 0 else None
            if low <= upto + slack:
                return None
            below = upto
            term = term * (trials - k) / (k + 1) * odds
    return None


def distinct_outside(count: int, held: Integers, space: int, randomness: Randomness) -> Integers:
    """A uniform set of `count` cells outside `held`, which are distinct; sorted.

    A space of less than twice the cells that are taken or asked for is listed, which costs no more;
    in a larger one every second draw or more is new. Precondition: count ≤ space − len(held).
    """
    if 2 * (count + len(held)) <= space:
        return _distinct(count, space, held, randomness)
    outside = np.setdiff1d(np.arange(space), held, assume_unique=True)
    none = np.empty(0, dtype=np.int64)
    if 2 * count <= len(outside):
        return outside[_distinct(count, len(outside), none, randomness)]
    return np.delete(outside, _distinct(len(outside) - count, len(outside), none, randomness))


def _distinct(count: int, below: int, held: Integers, randomness: Randomness) -> Integers:
    """A uniform set of `count` numbers below `below` that are not `held`; sorted.

    No more are drawn at a time than are missing, so none is ever dropped but for being there.
    """
    chosen = np.empty(0, dtype=np.int64)
    while len(chosen) < count:
        fresh = uniform(count - len(chosen), below, randomness)
        chosen = np.union1d(chosen, fresh[~np.isin(fresh, held)])
    return chosen


def rows_of(histogram: SparseCounts, space: Space) -> Integers:
    """Synthetic rows: each published cell as often as its count. Post-processing."""
    return np.repeat(space.decode(histogram.cells), histogram.counts, axis=0)
