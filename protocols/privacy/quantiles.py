"""Quantiles by smooth sensitivity, and S2's thresholds by recursive medians.

Values are integers within public bounds [lower, upper]: reals in fixed point. The quantile at q of
n values is the one of rank r = ⌈qn⌉ (at least 1); of none it is the bounds' midpoint. With sorted
values P_1 ≤ … ≤ P_n, P_i = lower below and upper above, the smooth sensitivity is the maximum of
(P_b − P_a)·e^(−β(b−a−1)) over a ≤ r ≤ b, a < b (Nissim, Raskhodnikova, Smith 2007; S2 Eq. 3).

It is exact for replacing a record. S2's recursion needs more and does not say so: a record that
changes sides adds one value to one part and removes one from another, so the bound must also be
smooth, and bound the change, when a value is *added or removed*. It does: an insertion widens a
pair (a, b) by one place at most and r moves by 0 or 1, so e^−β covers it (tests, by brute force).

Needs the sorted data, hence a trusted curator. Noise: `SmoothNoise`, on the grid of integers.
"""

from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tallyroom.protocols.privacy.smooth_sensitivity import SmoothNoise
from tallyroom.protocols.randomness import Randomness

Integers = NDArray[np.int64]

MAX_RANGE = 1 << 50
MAX_DEPTH = 20


def rank(q: Fraction, count: int) -> int:
    """⌈qn⌉, at least 1. Adding a value moves it by 0 or 1 for 0 ≤ q ≤ 1."""
    return max(1, -(-q.numerator * count // q.denominator))


def quantile(values: Integers, q: Fraction, lower: int, upper: int) -> Fraction:
    """The exact quantile of sorted values."""
    if not len(values):
        return Fraction(lower + upper, 2)
    return Fraction(int(values[rank(q, len(values)) - 1]))


def smooth_quantile(values: Integers, q: Fraction, lower: int, upper: int, beta: float) -> float:
    """The smooth sensitivity of `quantile`, of sorted values; O(n log n).

    For growing a the best b does not fall (a larger P_a takes more from the nearer b, whose factor
    is larger), so halving the range of a halves the range of b.
    """
    if not len(values):
        return float(upper - lower)
    r = rank(q, len(values))
    padded = np.concatenate([[0], values - lower, [upper - lower]]).astype(np.float64)
    # Past one end nothing grows any more, and the factor falls: no b above n + 1, no a below 0.
    decay = np.exp(-beta * np.arange(len(padded)))
    best = 0.0
    todo = [(0, r, r, len(padded) - 1)]
    while todo:
        first, last, nearest, farthest = todo.pop()
        if first > last:
            continue
        a = (first + last) // 2
        start = max(nearest, a + 1)
        gaps = (padded[start : farthest + 1] - padded[a]) * decay[start - a - 1 : farthest - a]
        chosen = start + int(np.argmax(gaps))
        best = max(best, float(gaps[chosen - start]))
        todo += [(first, a - 1, nearest, chosen), (a + 1, last, chosen, farthest)]
    return best


def recursive_medians(
    values: ArrayLike, depth: int, lower: int, upper: int, epsilon: Fraction, randomness: Randomness
) -> list[int]:
    """S2's Algorithm 1: 2^s − 1 thresholds, non-decreasing, that part the values about evenly.

    ε-DP. Replacing a record changes the one part of the first level, and at most two of every
    further one, so each median may spend ε/(2s − 1); S2 has ε/2s. (Its listing ends at k = 0 where
    s = 0 is meant, and its text counts 2^s thresholds.) A noisy median outside its part's open
    interval gives way to the midpoint; so does one with no integer inside, and thresholds repeat.
    Raises ValueError as `checked_values`, or for a depth outside 1..20.
    """
    if not 1 <= depth <= MAX_DEPTH:
        raise ValueError(f"the depth must be within 1..{MAX_DEPTH}, not {depth}")
    ordered = checked_values(values, lower, upper)
    noise = SmoothNoise(epsilon / (2 * depth - 1))

    def medians(part: Integers, levels: int, low: int, high: int) -> list[int]:
        if not levels:
            return []
        median = _noisy(part, Fraction(1, 2), low, high, noise, randomness)
        if not low < median < high:
            median = (low + high) // 2
        below = part[: np.searchsorted(part, median, side="left")]
        above = part[np.searchsorted(part, median, side="right") :]
        return [
            *medians(below, levels - 1, low, median),
            median,
            *medians(above, levels - 1, median, high),
        ]

    return medians(ordered, depth, lower, upper)


def _noisy(
    ordered: Integers,
    q: Fraction,
    lower: int,
    upper: int,
    noise: SmoothNoise,
    randomness: Randomness,
) -> int:
    # Where all values and bounds agree there is nothing to hide, but a scale must be positive.
    smooth = max(smooth_quantile(ordered, q, lower, upper, noise.beta), 2.0**-40)
    exact = quantile(ordered, q, lower, upper)
    return int(noise.release(exact, smooth, Fraction(1), randomness))


def checked_values(values: ArrayLike, lower: int, upper: int) -> Integers:
    """Sorted. Raises ValueError for bounds that cross or lie 2^50 apart or beyond ±2^60, or values
    that are no integers or outside the bounds."""
    if not (lower <= upper <= lower + MAX_RANGE and max(abs(lower), abs(upper)) <= 1 << 60):
        raise ValueError(f"[{lower}, {upper}] is not a range of at most 2^50")
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"values must be a vector, not of shape {array.shape}")
    if not len(array):
        return np.empty(0, dtype=np.int64)
    if array.dtype.kind not in "iu":
        raise ValueError(f"values must be integers, not {array.dtype}")
    if array.min() < lower or array.max() > upper:
        raise ValueError(f"a value is outside [{lower}, {upper}]")
    return np.sort(array.astype(np.int64))
