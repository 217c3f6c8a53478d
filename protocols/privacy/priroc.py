"""PriROC: ROC curves at thresholds that are private too (S2 §3.2). Needs a trusted curator.

A share of ε buys thresholds that part the scores about evenly (`quantiles.recursive_medians`), the
rest both classes' counts between them; PriROC-fix spaces its thresholds evenly and spends all on
counts. S2 halves the rest among the classes. Here the classes' bins stand in one row, of which a
record is in one: replacing it, its label included, is replacing it in that row, and the rest buys
both at once. That is no less noise than S2's halves have, if its DAWA is the published one, for
adding or removing a record. n is public, the sizes of the classes are what their bins add up to.
TP and FP are ranges that begin at one end, and DAWA's second stage is told so.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from protocols.privacy import hb
from protocols.privacy.class_curves import ClassDistributions
from protocols.privacy.dawa import Dawa
from protocols.privacy.isotonic import monotone
from protocols.privacy.mechanisms import DiscreteLaplace
from protocols.privacy.quantiles import recursive_medians
from protocols.randomness import Randomness

Integers = NDArray[np.int64]
Vector = NDArray[np.float64]

MAX_DEPTH = 10
THRESHOLD_SHARE = Fraction(1, 5)
"""Of ε, for thresholds, as S2 has it."""
COUNTS = ("dawa", "hb")


def depth_for(records: int) -> int:
    """S2: as many bins as the largest power of two up to n; here 2^10 at most."""
    return min(max(records.bit_length() - 1, 1), MAX_DEPTH)


@dataclass(frozen=True)
class PrirocRelease:
    """Private: the last cells of all bins but the last one, and the bins' counts, which sum to n;
    the negatives' bins come first."""

    thresholds: Integers
    bins: Vector

    @property
    def distributions(self) -> ClassDistributions:
        """Monotone. Either class is taken to hold at least one record."""
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
    counts: str = "dawa",
) -> PrirocRelease:
    """From how many records of each class are in each cell of the scores; ε-DP for replacing one.

    `fixed` is PriROC-fix. Raises ValueError for a depth outside 1..10, or as the mechanisms do.
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
    place = np.searchsorted(thresholds, np.arange(cells), side="left")
    row = np.concatenate(
        [np.bincount(place, each, 1 << depth).astype(np.int64) for each in (negatives, positives)]
    )
    if counts == "dawa":
        mechanism = Dawa.spending(left, one_sided=True)
        return PrirocRelease(thresholds, mechanism.release(row, randomness).cells)
    shape = hb.line(len(row))
    noise = DiscreteLaplace.spending(left, shape.sensitivity).draw(shape.nodes, randomness)
    noisy = (shape.node_counts(np.cumsum(row)) + noise).astype(np.float64)
    return PrirocRelease(thresholds, shape.cell_counts(noisy, float(row.sum())))
