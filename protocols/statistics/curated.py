"""A curator's mechanisms on both classes' counts, whose noise fits the data at hand (S3, S2 §3).

Smooth sensitivity needs the sorted data itself, so these run with the `curator` aggregator alone:
the curator sums parties' exact counts, computes the answer, and publishes it under noise. Nobody
else sees a count; everybody trusts the curator. The mechanisms see a record as a label and a score
rounded up to one of the thresholds; the party rounds it before any mechanism runs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.plans.contract import CuratorMechanism
from tallyroom.protocols.privacy.class_curves import ClassCurves
from tallyroom.protocols.privacy.priroc import PrirocRelease, priroc
from tallyroom.protocols.privacy.smooth_sensitivity import (
    GRID,
    SmoothNoise,
    auc,
    average_precision,
    smooth_auc,
    smooth_average_precision,
)
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Column
from tallyroom.protocols.statistics.class_counts import ClassCounts, cells_of
from tallyroom.protocols.statistics.classifier_estimates import Judgement
from tallyroom.protocols.statistics.release import Release

CURATED_STEPS = 1024
SECRET_SCALE = "the scale of the noise follows the data, so it is secret"
SECRET_COURSE = "how the curve runs between its thresholds is secret"


# --- areas ---


def tied_auc(positive: Column, negative: Column) -> Fraction:
    """Ties count ½.

    S3 counts ties as none. Its Theorem 3 holds for any kernel within [0, 1]: flipping a positive of
    n whose own pairs average a, to a negative whose pairs average b, moves ((n−1)A + a)/n to
    (mA + b)/(m+1), where A is the mean over all other pairs; that is linear in A, a and b, and at
    its corners at most max(1/n, 1/(m+1)).
    """
    return (auc(positive, negative) + 1 - auc(negative, positive)) / 2


_AREAS: dict[str, Callable[[Column, Column], Fraction]] = {
    "auc": tied_auc,
    "average-precision": average_precision,  # S3's Eq. 2
}
_SMOOTH_BOUNDS: dict[str, Callable[[int, int, float], float]] = {
    "auc": smooth_auc,
    "average-precision": smooth_average_precision,  # S3's Theorem 6
}


@dataclass(frozen=True)
class SmoothArea(CuratorMechanism):
    """The AUC or the average precision, by S3's smooth sensitivity: one number within [0, 1]."""

    area: str

    @property
    def released(self) -> int:
        return 1

    def publish(
        self, total: Vector, epsilon: Fraction, delta: float, randomness: Randomness
    ) -> Vector:
        noise = SmoothNoise(epsilon, delta)
        negatives, positives = (int(each.sum()) for each in cells_of(total))
        smooth = _SMOOTH_BOUNDS[self.area](positives, negatives, noise.beta)
        value = noise.release(self.exact(total), smooth, GRID, randomness)
        clipped = min(max(value, Fraction(0)), Fraction(1))
        return np.array([int(clipped / GRID)], dtype=np.uint64)

    def exact(self, total: Vector) -> Fraction:
        """The area of exact counts."""
        negatives, positives = cells_of(total)
        cells = np.arange(len(negatives), dtype=np.float64)
        return _AREAS[self.area](np.repeat(cells, positives), np.repeat(cells, negatives))

    def read(self, release: Release) -> float:
        """The published area, or the area of exact counts."""
        return float(
            self.exact(release.values) if release.exact else int(release.integers[0]) * GRID
        )

    def words(self, epsilon: Fraction, delta: float) -> str:
        kind = f"Laplace, δ = {delta:g}" if delta else "Cauchy, δ = 0"
        return f"{kind}, scaled by smooth sensitivity: the curator must see every record's score"

    def numeric_delta(self, delta: float) -> float:
        return delta


# --- curves ---

BINORMAL_POINTS = 256


def binormal_curve(area: float) -> Judgement:
    """The symmetric binormal ROC curve of an area (S3 §5).

    It has the area's error, and in addition that of the true curve's shape. It has no thresholds.
    """
    x = np.linspace(1.0, 0.0, BINORMAL_POINTS + 1)
    return Judgement(np.full(len(x), np.nan), x, binormal(area, x), np.nan, np.nan, area=area)


def binormal(area: float, x: Column) -> Column:
    """y = Φ(√2·Φ⁻¹(AUC) + Φ⁻¹(x)), from (0, 0) to (1, 1)."""
    from scipy import special  # parties do not need it

    with np.errstate(invalid="ignore"):
        y = special.ndtr(np.sqrt(2.0) * special.ndtri(area) + special.ndtri(x))
    return np.where(x <= 0, 0.0, np.where(x >= 1, 1.0, y))


FIXED_POINT = 1 << 20
"""Estimated counts are published in multiples of 1/`FIXED_POINT`."""


@dataclass(frozen=True)
class CountsInBins(CuratorMechanism):
    """Both classes' counts in 2^depth bins: S2's PriROC, whose bins follow the scores, or its
    PriROC-fix, whose bins are `fixed` and evenly spaced. Pure ε: a δ that is granted is not
    spent."""

    depth: int
    counts: str
    fixed: bool

    @property
    def released(self) -> int:
        """The inner ends of the bins, and both classes' counts."""
        return 3 * (1 << self.depth) - 1

    def publish(
        self, total: Vector, epsilon: Fraction, delta: float, randomness: Randomness
    ) -> Vector:
        found = priroc(
            *cells_of(total),
            self.depth,
            epsilon,
            randomness,
            fixed=self.fixed,
            counts=self.counts,
        )
        bins = np.rint(found.bins * FIXED_POINT).astype(np.int64)
        return np.concatenate([found.thresholds, bins]).view(np.uint64)

    def read(self, release: Release, scores: ClassCounts, best: str) -> Judgement:
        """The curve at the ends of the bins, or at all thresholds if counts are exact."""
        values, x = release.integers, scores.x
        if release.exact:
            [found] = ClassCurves(scores.points).exact(values.astype(np.float64))
            return Judgement.of(found, x, best)
        ends, bins = np.split(values, [2**self.depth - 1])
        inner = x[np.clip(ends, 0, scores.points - 1)]
        estimate = PrirocRelease(ends, bins / FIXED_POINT).distributions
        return Judgement.of(estimate, np.append(inner, x[-1]), best)

    def words(self, epsilon: Fraction, delta: float) -> str:
        where = "evenly spaced thresholds" if self.fixed else "thresholds by recursive medians"
        return f"{self.counts} between {where}: the curator must see every record's score"

    def numeric_delta(self, delta: float) -> float:
        return 0.0
