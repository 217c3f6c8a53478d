"""Areas under a classifier's curves, from the private curves themselves: no further ε."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.names import look_up
from tallyroom.protocols.offers import Offers
from tallyroom.protocols.privacy.smooth_sensitivity import average_precision
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.class_counts import ClassCounts
from tallyroom.protocols.statistics.classifier_curves import ClassifierCurves
from tallyroom.protocols.statistics.contract import Statistic
from tallyroom.protocols.statistics.curated import (
    CURATED_STEPS,
    CuratedCounts,
    SmoothAveragePrecision,
)
from tallyroom.protocols.statistics.estimates import Estimate, shape_of
from tallyroom.protocols.statistics.option import option

REDRAWN = 100


@dataclass(frozen=True)
class Area(ClassifierCurves):
    """One number, of one score."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.score) != 1:
            raise LocalError(f"{self.way_of} takes one --score")

    def deviations(self, noise_variance: float, records: int) -> Column:
        """Not known before the data: it depends on the curve."""
        return np.full(1, np.nan)

    def deviations_given(self, released: Vector, noise_variance: float, records: int) -> Column:
        """By redrawing: how far the area spreads if as much noise is added to the estimated curves,
        which are monotone as the true ones are; those with noise are not, and would spread less
        once they are made so. Drawn by a seed of the release: one answer has one interval, and the
        relative error of 7 % that 100 draws have differs between answers."""
        curves = self.measure(self._estimated(released, records))
        generator = np.random.default_rng(released)
        deviation = math.sqrt(noise_variance)
        areas = []
        for _ in range(REDRAWN):
            noise = np.rint(generator.normal(scale=deviation, size=self.noises)).astype(np.int64)
            again = curves + self.place(noise.view(np.uint64))
            areas.append(float(shape_of(self.decode(again, records)).values()[0]))
        return np.array([np.std(areas, ddof=1)])

    def _estimated(self, released: Vector, records: int) -> Vector:
        """The sum of all parties' vectors if the estimated curves were the true ones."""
        found = self.judgements(released, records, exact=False)[self.score[0]]
        below = found.negatives * (1 - found.false_positive[1:])
        above = found.negatives + found.positives * (1 - found.true_positive[1:])
        total: Vector = np.rint(np.concatenate([below, above])).astype(np.int64).view(np.uint64)
        return total

    span: ClassVar[tuple[float, float]] = (0.0, 1.0)

    @property
    def grid_words(self) -> str:
        ties = "scores between two of them count as ties, which the interval does not cover"
        return f"{super().grid_words}; {ties}"


@dataclass(frozen=True)
class AucByCurve(Area):
    """The area under the private ROC curve; scores between two thresholds are ties, ½."""

    name: ClassVar[str] = "auc-by-curve"
    way_of: ClassVar[str] = "auc"

    def decode(self, released: Vector, records: int, exact: bool = False) -> Estimate:
        return self.judgements(released, records, exact)[self.score[0]].auc

    def reference(self, holdings: Holdings) -> Estimate:
        return self.true_judgements(holdings)[self.score[0]].auc


@dataclass(frozen=True)
class AveragePrecisionByCurve(Area):
    """Average precision of the private precision–recall curve, as scikit-learn defines it."""

    name: ClassVar[str] = "average-precision-by-curve"
    way_of: ClassVar[str] = "average-precision"

    @property
    def open_to_pilot(self) -> bool:
        """A step is taken at its lower end, which errs the more the fewer thresholds there are: a
        pilot's are too few, unless it is asked for."""
        return False

    def decode(self, released: Vector, records: int, exact: bool = False) -> Estimate:
        return self.judgements(released, records, exact)[self.score[0]].average_precision

    def reference(self, holdings: Holdings) -> Estimate:
        scores, positive = holdings.column(self.score[0]), self.positives(holdings)
        return float(average_precision(scores[positive], scores[~positive]))


METHODS = ("curve", "smooth")


@dataclass(frozen=True)
class AveragePrecision(AveragePrecisionByCurve):
    """The mean precision at the positives' scores: from the curve, or by smooth sensitivity.

    S3's Eq. 2 takes the precision at each positive, negatives of the same score before it;
    scikit-learn takes one precision per distinct score, after all records of that score. The two
    agree where no positive ties with another record; under ties S3's is the lower or equal one.
    """

    method: str = option("curve", "From the curve, or by smooth sensitivity.", choices=METHODS)

    name: ClassVar[str] = "average-precision"
    way_of: ClassVar[str] = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        look_up("method", self.method, dict.fromkeys(METHODS))

    @property
    def by_curve(self) -> bool:
        return self.method == "curve"

    def asked_of(self, offers: Offers) -> Statistic:
        kind = AveragePrecisionByCurve if self.by_curve else SmoothAveragePrecision
        return way(self, kind)


def way(asked: Statistic, kind: type[ClassCounts], **changes: object) -> Statistic:
    """The statistic of another kind with the same parameters, so far as it has them. A curator
    rounds scores to 1024 steps or more."""
    known = kind.__dataclass_fields__
    same = {name: value for name, value in asked.parameters().items() if name in known}
    if issubclass(kind, CuratedCounts):  # there is no curve whose points could be too many
        for name, flag in (("at", "--at"), ("pilot_scores", "--pilot")):
            if asked.parameters().get(name):
                raise LocalError(f"{flag} is for curves without a curator, who needs no thresholds")
        same["thresholds"] = max(int(str(same["thresholds"])), CURATED_STEPS)
    return kind(**same | changes)  # type: ignore[arg-type]  # checked as they are built
