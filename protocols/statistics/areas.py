"""Areas under a classifier's curves: from the private curves themselves, at no further ε, or by
smooth sensitivity."""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.contract import Curated, Plan
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.privacy.smooth_sensitivity import average_precision
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.registry import look_up
from tallyroom.protocols.statistics.class_counts import true_auc
from tallyroom.protocols.statistics.classifier_curves import ClassifierCurves, parts_of
from tallyroom.protocols.statistics.classifier_estimates import Judgement
from tallyroom.protocols.statistics.contract import asked_as
from tallyroom.protocols.statistics.curated import SECRET_SCALE, SmoothArea
from tallyroom.protocols.statistics.estimates import Estimate
from tallyroom.protocols.statistics.option import CLASSIFIERS, option
from tallyroom.protocols.statistics.redrawn import Redrawn
from tallyroom.protocols.statistics.release import Answer, Release

METHODS = ("curve", "smooth")


@dataclass(frozen=True)
class Area(ClassifierCurves):
    """One number within [0, 1], of one score."""

    method: str = option("curve", "From the curve, or by smooth sensitivity.", choices=METHODS)

    area: ClassVar[str]
    """The name of the area in a curator's mechanism."""

    def __post_init__(self) -> None:
        super().__post_init__()
        look_up("method", self.method, dict.fromkeys(METHODS))
        if len(self.score) != 1:
            raise LocalError(f"{asked_as(self)} takes one --score")

    @abstractmethod
    def of_curve(self, curve: Judgement) -> float: ...

    @abstractmethod
    def at_most(self, curve: Judgement) -> float:
        """The area if records between the same two thresholds were in perfect order."""

    def plan(self, facts: Facts) -> Plan:
        if self.method == "smooth":
            return Curated(self.for_curator, SmoothArea(self.area))
        plan = self.by_curves(facts)
        return replace(plan, encoding=replace(parts_of(plan)[0], ties=True))

    @property
    def open_to_pilot(self) -> bool:
        """Average precision takes a step at its lower end, whose error grows with fewer thresholds.
        A pilot chooses too few, so it is used only if the user asks for it."""
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
        redrawn = Redrawn(self.judgements, release, noise, self.width(release, noise))
        name = self.score[0]
        most = self.at_most(redrawn.found[name])
        return Answer(value, redrawn.area(name, self.of_curve, most), records)


@dataclass(frozen=True)
class AucOfCounts(Area):
    """The AUC without pairs, as the statistic of that name asks for it; scores between two
    thresholds are ties, ½."""

    name: ClassVar[str] = "auc"
    area: ClassVar[str] = "auc"

    def of_curve(self, curve: Judgement) -> float:
        return curve.auc

    def at_most(self, curve: Judgement) -> float:
        return curve.perfect_auc

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
    topic: ClassVar[str] = CLASSIFIERS
    area: ClassVar[str] = "average-precision"

    def of_curve(self, curve: Judgement) -> float:
        return curve.average_precision

    def at_most(self, curve: Judgement) -> float:
        return curve.perfect_average_precision

    def reference(self, holdings: Holdings) -> Estimate:
        scores, positive = holdings.column(self.score[0]), self.positives(holdings)
        return float(average_precision(scores[positive], scores[~positive]))
