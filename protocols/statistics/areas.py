"""Areas under a classifier's curves: from the private curves themselves, at no further ε, or by
smooth sensitivity."""

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.names import look_up
from tallyroom.protocols.plans.contract import Curated, Plan
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.interval import Interval
from tallyroom.protocols.privacy.smooth_sensitivity import average_precision
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.statistics.class_counts import true_auc
from tallyroom.protocols.statistics.classifier_curves import ClassifierCurves, parts_of
from tallyroom.protocols.statistics.classifier_estimates import Judgement
from tallyroom.protocols.statistics.curated import SECRET_SCALE, SmoothArea
from tallyroom.protocols.statistics.estimates import Estimate
from tallyroom.protocols.statistics.option import option
from tallyroom.protocols.statistics.release import Answer, Release

METHODS = ("curve", "smooth")
REDRAWN = 100


@dataclass(frozen=True)
class Area(ClassifierCurves):
    """One number within [0, 1], of one score."""

    method: str = option("curve", "From the curve, or by smooth sensitivity.", choices=METHODS)

    area: ClassVar[str]
    """As a curator's mechanism names it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        look_up("method", self.method, dict.fromkeys(METHODS))
        if len(self.score) != 1:
            raise LocalError(f"{self.asked_as} takes one --score")

    @abstractmethod
    def of_curve(self, curve: Judgement) -> float: ...

    def plan(self, facts: Facts) -> Plan:
        if self.method == "smooth":
            return Curated(self.for_curator, SmoothArea(self.area))
        plan = self.by_curves(facts)
        return replace(plan, encoding=replace(parts_of(plan)[0], ties=True))

    @property
    def open_to_pilot(self) -> bool:
        """Average precision takes a step at its lower end, which errs the more the fewer
        thresholds there are: a pilot's are too few, unless it is asked for."""
        return False

    def estimate(self, release: Release) -> float:
        """The area alone."""
        return self.of_curve(self.judgements(release)[self.score[0]])

    def read(self, release: Release) -> Answer:
        if isinstance(release.plan, Curated):
            assert isinstance(release.plan.mechanism, SmoothArea)
            return release.without_errors(release.plan.mechanism.read(release), SECRET_SCALE)
        value, records = self.estimate(release), release.records
        if (noise := release.noise) is None:
            return Answer(value, None, records, foretold=True)
        errors = np.array([self._spread(release, noise.variance)])
        width = noise.width(parts_of(release.plan)[1].curve.noises_in_count)
        interval = Interval.around(np.array([value]), errors, width, (0.0, 1.0))
        return Answer(value, interval, records)

    def _spread(self, release: Release, variance: float) -> float:
        """By redrawing: how far the area spreads if as much noise is added to the estimated curves,
        which are monotone as the true ones are; those with noise are not, and would spread less
        once they are made so. Drawn by a seed of the release: one answer has one interval, and the
        relative error of 7 % that 100 draws have differs between answers."""
        plan = release.plan
        curves = plan.measure(self._estimated_sum(release))
        generator = np.random.default_rng(release.values)
        areas = []
        for _ in range(REDRAWN):
            drawn = generator.normal(scale=math.sqrt(variance), size=plan.noises)
            noise = np.rint(drawn).astype(np.int64).view(np.uint64)
            areas.append(self.estimate(replace(release, values=curves + plan.place(noise))))
        return float(np.std(areas, ddof=1))

    def _estimated_sum(self, release: Release) -> Vector:
        """The sum of all parties' vectors if the estimated curves were the true ones."""
        found = self.judgements(release)[self.score[0]]
        below = found.negatives * (1 - found.false_positive[1:])
        above = found.negatives + found.positives * (1 - found.true_positive[1:])
        total: Vector = np.rint(np.concatenate([below, above])).astype(np.int64).view(np.uint64)
        return total


@dataclass(frozen=True)
class AucOfCounts(Area):
    """The AUC without pairs, as the statistic of that name asks for it; scores between two
    thresholds are ties, ½."""

    name: ClassVar[str] = "auc"
    area: ClassVar[str] = "auc"

    def of_curve(self, curve: Judgement) -> float:
        return curve.auc

    def reference(self, holdings: Holdings) -> Estimate:
        return true_auc(holdings.column(self.score[0]), self.positives(holdings))


@dataclass(frozen=True)
class AveragePrecision(Area):
    """The mean precision at the positives' scores: from the curve, or by smooth sensitivity.

    S3's Eq. 2 takes the precision at each positive, negatives of the same score before it;
    scikit-learn takes one precision per distinct score, after all records of that score. The two
    agree where no positive ties with another record; under ties S3's is the lower or equal one.
    """

    name: ClassVar[str] = "average-precision"
    area: ClassVar[str] = "average-precision"

    def of_curve(self, curve: Judgement) -> float:
        return curve.average_precision

    def reference(self, holdings: Holdings) -> Estimate:
        scores, positive = holdings.column(self.score[0]), self.positives(holdings)
        return float(average_precision(scores[positive], scores[~positive]))
