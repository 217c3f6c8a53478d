"""PriROC: ROC curves at thresholds that are private too (S2 §3.2). Needs a trusted curator.

A share of ε buys thresholds that divide the scores about evenly (`quantiles.recursive_medians`);
the rest buys both classes' counts between them. PriROC-fix spaces its thresholds evenly and spends
all of ε on counts. S2 halves the rest among the classes. Here the bins of both classes form one
row, and a record is in one bin of it: replacing a record with its label is a replacement in that
row, so the rest buys both classes at once. That is no less noise than S2's halves have, if its DAWA
is the published one, for adding or removing a record. n is public; the size of a class is the sum
of its bins.

**How many bins.** S2 takes the largest power of two up to n, and leaves it to DAWA to merge them.
But noise decides how many bins K of a class can be told apart. An AUC is a sum over 2K counts with
noise of scale 2/ε each and weights of order 2/n, so noise moves it by about 3√K/nε; straight lines
between K points of a smooth curve miss about 1/K² of area. Together they are least where K^(5/2) is
in proportion to nε. Hence 2^s ≈ (nε)^(2/5), by n·ε alone, and not more than S2 has. The constant 1
was chosen on scores of normal classes and on calibrated, skewed ones (prevalence 0.15 to 0.86, AUC
0.72 to 0.998; n = 1000 and 10,000), by the mean area between the private and the true curve: there
4 bins did best at n·ε = 50, 8 at 200 and 400, 16 at 1000, 16 or 32 at 2000, 32 at 4000 and 10,000.
So few bins are best counted one by one, which is what HB does up to 64 of both classes together:
DAWA, which spends a quarter on whom to merge, erred up to ten times as much on 4 to 32 of them, and
less only on the most skewed scores. With DAWA the bins are S2's; its second stage is told that TP
and FP are ranges from one end.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.privacy import hb
from tallyroom.protocols.privacy.class_curves import ClassDistributions
from tallyroom.protocols.privacy.dawa import Dawa
from tallyroom.protocols.privacy.isotonic import monotone
from tallyroom.protocols.privacy.mechanisms import DiscreteLaplace
from tallyroom.protocols.privacy.quantiles import recursive_medians
from tallyroom.protocols.randomness import Randomness

Integers = NDArray[np.int64]
Vector = NDArray[np.float64]

MAX_DEPTH = 10
THRESHOLD_SHARE = Fraction(1, 5)
"""The share of ε for thresholds, as in S2."""
BINS_EXPONENT = 0.4
"""The number of bins is about n·ε to this power."""
COUNTS = ("hb", "dawa")


def depth_for(records: int, epsilon: Fraction | None, counts: str = "hb") -> int:
    """The s of 2^s bins: nearest to (nε)^0.4, and at most S2's, the largest power of two up to n,
    which DAWA has, and curves without noise; never above 2^10."""
    most = min(max(records.bit_length() - 1, 1), MAX_DEPTH)
    if counts == "dawa" or epsilon is None:
        return most
    return min(most, max(1, round(BINS_EXPONENT * math.log2(max(float(records * epsilon), 1.0)))))


@dataclass(frozen=True)
class PrirocRelease:
    """Private: the last cells of all bins but the last one, and the bins' counts, which sum to n;
    the negatives' bins come first."""

    thresholds: Integers
    bins: Vector

    @property
    def distributions(self) -> ClassDistributions:
        """Monotone distributions. Each class is assumed to hold at least one record."""
        negative, positive = self.bins.reshape(2, -1)
        sizes = [max(float(each.sum()), 1.0) for each in (negative, positive)]
        curves = [
            monotone(np.append(np.cumsum(each)[:-1] / size, 1.0))
            for each, size in zip((negative, positive), sizes, strict=True)
        ]
        return ClassDistributions(sizes[0], sizes[1], curves[0], curves[1])


def priroc(
    negatives: Integers,
    positives: Integers,
    depth: int,
    epsilon: Fraction,
    randomness: Randomness,
    *,
    fixed: bool = False,
    counts: str = "hb",
) -> PrirocRelease:
    """Releases the curve, given how many records of each class are in each cell of the scores; ε-DP
    for replacing one record.

    `fixed` is PriROC-fix. Bins between equal thresholds are empty, as everybody can see, and take
    no noise. Raises ValueError for a depth outside 1..10, or as the mechanisms do.
    """
    if not 1 <= depth <= MAX_DEPTH:
        raise ValueError(f"the depth must be within 1..{MAX_DEPTH}, not {depth}")
    cells = len(negatives)
    if fixed:
        thresholds = np.arange(1, 1 << depth) * cells // (1 << depth)
        left = epsilon
    else:
        values = np.repeat(np.arange(cells), negatives + positives)
        spent = THRESHOLD_SHARE * epsilon
        found = recursive_medians(values, depth, -1, cells, spent, randomness)
        thresholds, left = np.array(found, dtype=np.int64), epsilon - spent
    ends = np.append(thresholds, cells - 1)
    wide = np.diff(ends, prepend=-1) > 0
    below = [np.append(0, np.cumsum(each))[ends[wide] + 1] for each in (negatives, positives)]
    row = np.concatenate([np.diff(each, prepend=0) for each in below])
    bins = np.zeros((2, len(ends)))
    bins[:, wide] = _noisy_counts(row, left, counts, randomness).reshape(2, -1)
    return PrirocRelease(thresholds, bins.ravel())


def _noisy_counts(row: Integers, epsilon: Fraction, counts: str, randomness: Randomness) -> Vector:
    if counts == "dawa":
        return Dawa.spending(epsilon, one_sided=True).release(row, randomness).cells
    shape = hb.line(len(row))
    noise = DiscreteLaplace.spending(epsilon, shape.sensitivity.l1).draw(shape.nodes, randomness)
    noisy = (shape.node_counts(np.cumsum(row)) + noise).astype(np.float64)
    return shape.cell_counts(noisy, float(row.sum()))
