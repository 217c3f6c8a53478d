"""Statistics whose noise fits the data at hand: a trusted curator draws it (S3, S2 §3).

Smooth sensitivity needs the sorted data itself, so these run with the `curator` aggregator alone:
the curator sums parties' exact counts, computes the answer, and publishes that under its noise.
Nobody else sees a count; everybody trusts the curator. What a record is to them, a score rounded up
to one of the thresholds and a label, is settled at the party, before any mechanism.
"""

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import Vector, signed
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.class_curves import ClassDistributions
from tallyroom.protocols.privacy.smooth_sensitivity import (
    GRID,
    SmoothNoise,
    auc,
    average_precision,
    smooth_auc,
    smooth_average_precision,
)
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.by_curator import OfSecretScale
from tallyroom.protocols.statistics.class_counts import ClassCounts, shares_of, true_auc
from tallyroom.protocols.statistics.classifier_estimates import Judgement, RocEstimate
from tallyroom.protocols.statistics.drawing import Style
from tallyroom.protocols.statistics.estimates import Estimate
from tallyroom.protocols.statistics.option import option

Integers = NDArray[np.int64]

CURATED_STEPS = 1024


@dataclass(frozen=True)
class CuratedCounts(OfSecretScale, ClassCounts):
    """A function of one score's counts in both classes, under the curator's noise."""

    thresholds: int = option(CURATED_STEPS, "Steps that scores are rounded up to.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.score) != 1:
            raise LocalError(f"{self.asked_as} of this method takes one --score")

    @abstractmethod
    def publish(
        self, negatives: Integers, positives: Integers, noise: SmoothNoise, randomness: Randomness
    ) -> Vector:
        """What the curator publishes, from how many records are in each cell."""

    def published(
        self, total: Vector, epsilon: Fraction, delta: float, randomness: Randomness
    ) -> Vector:
        return self.publish(*self.cells_of(total), SmoothNoise(epsilon, delta), randomness)

    def published_words(self, epsilon: Fraction, delta: float) -> str:
        kind = f"Laplace, δ = {delta:g}" if delta else "Cauchy, δ = 0"
        return f"{kind}, scaled by smooth sensitivity: the curator must see every record's score"

    def numeric_delta(self, epsilon: Fraction, delta: float, records_per_unit: int) -> float:
        return delta

    def counts_of(self, vectors: Vector) -> Integers:
        return np.diff(signed(vectors), axis=1, prepend=0)

    def cells_of(self, total: Vector) -> tuple[Integers, Integers]:
        """How many negatives and positives are in each cell."""
        counts = np.diff(signed(total), prepend=0)
        return counts[: self.thresholds], counts[self.thresholds :]

    @property
    def released(self) -> int:
        return 1


@dataclass(frozen=True)
class SmoothArea(CuratedCounts):
    """One number within [0, 1]."""

    @abstractmethod
    def exact(self, positive: Column, negative: Column) -> Fraction:
        """Of scores."""

    @abstractmethod
    def smooth_bound(self, positives: int, negatives: int, beta: float) -> float: ...

    def publish(
        self, negatives: Integers, positives: Integers, noise: SmoothNoise, randomness: Randomness
    ) -> Vector:
        smooth = self.smooth_bound(int(positives.sum()), int(negatives.sum()), noise.beta)
        value = noise.release(self._of_cells(negatives, positives), smooth, GRID, randomness)
        clipped = min(max(value, Fraction(0)), Fraction(1))
        return np.array([int(clipped / GRID)], dtype=np.uint64)

    def _of_cells(self, negatives: Integers, positives: Integers) -> Fraction:
        cells = np.arange(self.thresholds, dtype=np.float64)
        return self.exact(np.repeat(cells, positives), np.repeat(cells, negatives))

    def number(self, released: Vector, exact: bool) -> float:
        if exact:
            return float(self._of_cells(*self.cells_of(released)))
        return float(int(signed(released)[0]) * GRID)

    def decode(self, released: Vector, records: int, exact: bool = False) -> Estimate:
        return self.number(released, exact)


@dataclass(frozen=True)
class SmoothAuc(SmoothArea):
    """The AUC by S3's smooth sensitivity; ties count ½.

    S3 counts ties as none. Its Theorem 3 holds for any kernel within [0, 1]: flipping a positive of
    n whose own pairs average a, to a negative whose pairs average b, moves ((n−1)A + a)/n to
    (mA + b)/(m+1), where A is the mean over all other pairs; that is linear in A, a and b, and at
    its corners at most max(1/n, 1/(m+1)).
    """

    name: ClassVar[str] = "auc-smooth"
    way_of: ClassVar[str] = "auc"

    def exact(self, positive: Column, negative: Column) -> Fraction:
        return (auc(positive, negative) + 1 - auc(negative, positive)) / 2

    def smooth_bound(self, positives: int, negatives: int, beta: float) -> float:
        return smooth_auc(positives, negatives, beta)

    def reference(self, holdings: Holdings) -> Estimate:
        return true_auc(holdings.column(self.score[0]), self.positives(holdings))


@dataclass(frozen=True)
class SmoothAveragePrecision(SmoothArea):
    """Average precision by S3's smooth sensitivity (Eq. 2 and Theorem 6)."""

    name: ClassVar[str] = "average-precision-smooth"
    way_of: ClassVar[str] = "average-precision"

    def exact(self, positive: Column, negative: Column) -> Fraction:
        return average_precision(positive, negative)

    def smooth_bound(self, positives: int, negatives: int, beta: float) -> float:
        return smooth_average_precision(positives, negatives, beta)

    def reference(self, holdings: Holdings) -> Estimate:
        scores, positive = holdings.column(self.score[0]), self.positives(holdings)
        return float(average_precision(scores[positive], scores[~positive]))


BINORMAL_POINTS = 256


@dataclass(frozen=True)
class BinormalRoc(SmoothAuc):
    """The symmetric binormal ROC curve whose area is the private AUC (S3 §5).

    It has the area's error, and besides whatever the true curve's shape differs by. It knows of no
    threshold.
    """

    name: ClassVar[str] = "roc-binormal"
    way_of: ClassVar[str] = "roc"
    style: ClassVar[Style] = Style()

    def decode(self, released: Vector, records: int, exact: bool = False) -> Estimate:
        area = self.number(released, exact)
        x = np.linspace(1.0, 0.0, BINORMAL_POINTS + 1)
        sizes = np.nan, np.nan
        found = Judgement(np.full(len(x), np.nan), x, binormal(area, x), *sizes, area=area)
        return RocEstimate({self.score[0]: found})

    def reference(self, holdings: Holdings) -> Estimate:
        scores, positive = holdings.column(self.score[0]), self.positives(holdings)
        shares: ClassDistributions = shares_of(scores, positive, self.x)
        found = Judgement.of(shares, self.x, "youden", true_auc(scores, positive))
        return RocEstimate({self.score[0]: found})


def binormal(area: float, x: Column) -> Column:
    """y = Φ(√2·Φ⁻¹(AUC) + Φ⁻¹(x)), from (0, 0) to (1, 1)."""
    from scipy import special  # a party needs none of it

    with np.errstate(invalid="ignore"):
        y = special.ndtr(np.sqrt(2.0) * special.ndtri(area) + special.ndtri(x))
    return np.where(x <= 0, 0.0, np.where(x >= 1, 1.0, y))
