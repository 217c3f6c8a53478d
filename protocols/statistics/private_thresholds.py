"""ROC curves at thresholds that follow the scores: S2's PriROC and PriROC-fix, by a curator."""

from abc import abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, Self

import numpy as np

from tallyroom.protocols.algebra.ring import Vector, signed
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.names import look_up
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.privacy.class_curves import ClassCurves
from tallyroom.protocols.privacy.priroc import COUNTS, MAX_DEPTH, PrirocRelease, depth_for, priroc
from tallyroom.protocols.privacy.smooth_sensitivity import SmoothNoise
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.statistics.class_counts import shares_of, true_auc
from tallyroom.protocols.statistics.classifier_estimates import Judgement, RocEstimate, cost_of
from tallyroom.protocols.statistics.curated import CuratedCounts, Integers
from tallyroom.protocols.statistics.drawing import Style
from tallyroom.protocols.statistics.estimates import Estimate
from tallyroom.protocols.statistics.option import option

FIXED_POINT = 1 << 20
"""Estimated counts are published in such parts of 1."""


@dataclass(frozen=True)
class CuratedRoc(CuratedCounts):
    """Both methods. A `depth` of 0 is for the coordinator to fill in, by n and ε."""

    counts: str = option("hb", "How counts are released.", choices=COUNTS)
    best: str = option("youden", "Which threshold is best: youden, or cost=R.")
    depth: int = 0

    style: ClassVar[Style] = Style()
    no_interval: ClassVar[str] = "how the curve runs between its thresholds is secret"

    def __post_init__(self) -> None:
        super().__post_init__()
        look_up("counts", self.counts, dict.fromkeys(COUNTS))
        cost_of(self.best)
        if not 0 <= self.depth <= MAX_DEPTH:
            raise LocalError(f"a curve has up to 2^{MAX_DEPTH} bins")

    @property
    @abstractmethod
    def fixed(self) -> bool:
        """Whether thresholds are evenly spaced."""

    def prepared(self, known: Facts) -> Self:
        found = self.depth or depth_for(known.records, known.epsilon, self.counts)
        return replace(self, depth=found)

    @property
    def released(self) -> int:
        """The inner ends of 2^depth bins, and both classes' counts."""
        return 3 * (1 << self.depth) - 1

    def publish(
        self, negatives: Integers, positives: Integers, noise: SmoothNoise, randomness: Randomness
    ) -> Vector:
        found = priroc(
            negatives,
            positives,
            self.depth,
            noise.epsilon,
            randomness,
            fixed=self.fixed,
            counts=self.counts,
        )
        bins = np.rint(found.bins * FIXED_POINT).astype(np.int64)
        return np.concatenate([found.thresholds, bins]).view(np.uint64)

    def published_words(self, epsilon: Fraction, delta: float) -> str:
        where = "evenly spaced thresholds" if self.fixed else "thresholds by recursive medians"
        return f"{self.counts} between {where}: the curator must see every record's score"

    def numeric_delta(self, epsilon: Fraction, delta: float, records_per_unit: int) -> float:
        return 0.0

    def published(
        self, total: Vector, epsilon: Fraction, delta: float, randomness: Randomness
    ) -> Vector:
        """Pure ε: a δ that is granted is not spent."""
        return super().published(total, epsilon, 0.0, randomness)

    def decode(self, released: Vector, records: int, exact: bool = False) -> Estimate:
        values = signed(released)
        if exact:
            [found] = ClassCurves(self.thresholds).exact(values.astype(np.float64))
            return RocEstimate({self.score[0]: Judgement.of(found, self.x, self.best)})
        ends, bins = values[: 2**self.depth - 1], values[2**self.depth - 1 :]
        inner = self.x[np.clip(ends, 0, self.thresholds - 1)]
        estimate = PrirocRelease(ends, bins / FIXED_POINT).distributions
        return RocEstimate(
            {self.score[0]: Judgement.of(estimate, np.append(inner, self.x[-1]), self.best)}
        )

    def reference(self, holdings: Holdings) -> Estimate:
        scores, positive = holdings.column(self.score[0]), self.positives(holdings)
        found = Judgement.of(
            shares_of(scores, positive, self.x), self.x, self.best, true_auc(scores, positive)
        )
        return RocEstimate({self.score[0]: found})


@dataclass(frozen=True)
class PriRoc(CuratedRoc):
    """The ROC curve at private thresholds (S2's PriROC)."""

    name: ClassVar[str] = "roc-priroc"
    way_of: ClassVar[str] = "roc"

    @property
    def fixed(self) -> bool:
        return False


@dataclass(frozen=True)
class PriRocFix(CuratedRoc):
    """The ROC curve at evenly spaced thresholds (S2's PriROC-fix)."""

    name: ClassVar[str] = "roc-priroc-fix"
    way_of: ClassVar[str] = "roc"

    @property
    def fixed(self) -> bool:
        return True
