"""S2's own PriROC and PriROC-fix (S2 §3.2). This project's is `protocols.privacy.priroc`.

S2 has the largest power of two up to n as its number of bins, recursive medians with Cauchy noise
of scale 8S/ε and β = ε for a fifth of ε, which is 1.007ε at worst, and DAWA on each class for half
of the rest. Its DAWA is published for adding or removing a record. Replacing a record that changes
its class is both, once in each class, so S2's halves have the noise that DAWA for replacing has
with all of the rest. Here it gets the bins of both classes as one row: DAWA takes a row's total for
public, and the size of a class is not.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.privacy.dawa import Dawa
from tallyroom.protocols.privacy.priroc import THRESHOLD_SHARE, PrirocRelease, depth_for
from tallyroom.protocols.privacy.quantiles import quantile, smooth_quantile
from tallyroom.protocols.privacy.rounded_noise import Cauchy, rounded
from tallyroom.protocols.randomness import Randomness

Integers = NDArray[np.int64]
HALF = Fraction(1, 2)


@dataclass
class Medians:
    """S2's Algorithm 1 on integers, and how many medians became midpoints."""

    epsilon: Fraction
    depth: int
    randomness: Randomness
    drawn: int = 0
    outside: int = 0

    def thresholds(self, values: Integers, lower: int, upper: int) -> list[int]:
        return self._below(np.sort(values), self.depth, lower, upper)

    def _below(self, part: Integers, levels: int, low: int, high: int) -> list[int]:
        if not levels:
            return []
        median = self._median(part, low, high)
        below = part[: np.searchsorted(part, median, side="left")]
        above = part[np.searchsorted(part, median, side="right") :]
        return [
            *self._below(below, levels - 1, low, median),
            median,
            *self._below(above, levels - 1, median, high),
        ]

    def _median(self, part: Integers, low: int, high: int) -> int:
        each = self.epsilon / (2 * self.depth)
        smooth = max(smooth_quantile(part, HALF, low, high, float(each)), 2.0**-40)
        exact = quantile(part, HALF, low, high)
        found = rounded(exact, 8 * Fraction(smooth) / each, Fraction(1), Cauchy, self.randomness)
        self.drawn += 1
        if low < found < high:
            return int(found)
        self.outside += 1
        return (low + high) // 2


@dataclass(frozen=True)
class S2Release:
    """`outside` is how many of the `drawn` medians fell outside their part."""

    curve: PrirocRelease
    drawn: int
    outside: int


def s2_priroc(
    negatives: Integers, positives: Integers, epsilon: Fraction, source: Randomness, fixed: bool
) -> S2Release:
    """Releases S2's curve, given how many records of each class are in each cell of the scores."""
    cells = len(negatives)
    depth = depth_for(int(negatives.sum() + positives.sum()), epsilon, "dawa")
    medians = Medians(THRESHOLD_SHARE * epsilon, depth, source)
    if fixed:
        thresholds = np.arange(1, 1 << depth) * cells // (1 << depth)
        left = epsilon
    else:
        values = np.repeat(np.arange(cells), negatives + positives)
        thresholds = np.array(medians.thresholds(values, -1, cells), dtype=np.int64)
        left = epsilon - medians.epsilon
    ends = np.append(thresholds, cells - 1)
    wide = np.diff(ends, prepend=-1) > 0
    below = [np.append(0, np.cumsum(each))[ends[wide] + 1] for each in (negatives, positives)]
    row = np.concatenate([np.diff(each, prepend=0) for each in below])
    bins = np.zeros((2, len(ends)))
    bins[:, wide] = Dawa.spending(left, one_sided=True).release(row, source).cells.reshape(2, -1)
    return S2Release(PrirocRelease(thresholds, bins.ravel()), medians.drawn, medians.outside)
