"""PriROC without a curator: private thresholds from a private curve of the scores, then both
classes' counts between them.

S2's recursive medians need the sorted scores. Here a share of ε buys a curve of all scores over any
aggregator, whose inverse at k/2^s gives thresholds that part the scores about evenly; the rest buys
the classes' curves at them. Quantiles of a private curve spend nothing beyond the curve.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.curves import STRATEGIES
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.registry import look_up
from tallyroom.protocols.statistics.class_counts import shares_of, true_auc
from tallyroom.protocols.statistics.classifier_curves import Roc
from tallyroom.protocols.statistics.classifier_estimates import Judgement, RocEstimate, cost_of
from tallyroom.protocols.statistics.cumulative import strategy_option
from tallyroom.protocols.statistics.drawing import Style
from tallyroom.protocols.statistics.ecdf import Quantile
from tallyroom.protocols.statistics.estimates import Estimate, shape_of
from tallyroom.protocols.statistics.labels import positives_of
from tallyroom.protocols.statistics.option import CLASSIFIERS, option, role
from tallyroom.protocols.studies.contract import Ask, Finding, Steps, Study

MAX_BINS = 1 << 10


@dataclass(frozen=True)
class RocMedians(Study):
    """A ROC curve at private thresholds that split the scores into groups of equal size."""

    score: str = role("score", "The column of scores.")
    label: str = role("label", "The column of labels, 0 or 1.")
    positive: float | None = option(None, "The label of positive records, if it is not 1.")
    lower: float = option(0.0, "Public lower bound of the scores.")
    upper: float = option(1.0, "Public upper bound of the scores.")
    bins: int = option(64, "How many groups the thresholds split the scores into.")
    thresholds: int = option(1024, "How many candidates the thresholds are chosen from.")
    strategy: str = strategy_option("Which counts get noise.", ("hierarchy", "hb"))
    best: str = option("youden", "Which threshold is best: youden, or cost=R.")
    share: float = option(0.2, "The share of ε for the thresholds.")

    name: ClassVar[str] = "roc-medians"
    topic: ClassVar[str] = CLASSIFIERS
    style: ClassVar[Style] = Style()
    span: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def __post_init__(self) -> None:
        if not 2 <= self.bins <= MAX_BINS:
            raise LocalError(f"--bins is between 2 and {MAX_BINS}, not {self.bins}")
        if not 0 < self.share < 1:
            raise LocalError(f"--share is between 0 and 1, not {self.share:g}")
        look_up("strategy", self.strategy, dict.fromkeys(set(STRATEGIES) - {"tree"}))
        cost_of(self.best)
        self._quantiles()  # raises for options that it refuses
        self._curve((self._middle,))

    @property
    def _middle(self) -> float:
        return (self.lower + self.upper) / 2

    @property
    def _evenly(self) -> tuple[float, ...]:
        """The largest possible number of thresholds, evenly spaced."""
        candidates = np.linspace(self.lower, self.upper, self.bins + 1)[1:-1]
        inner = {each for each in candidates.tolist() if self.lower < each < self.upper}
        return tuple(sorted(inner)) or (self._middle,)

    def _quantiles(self) -> Quantile:
        return Quantile(
            value=self.score,
            lower=self.lower,
            upper=self.upper,
            quantile=tuple(each / self.bins for each in range(1, self.bins)),
            thresholds=self.thresholds,
            strategy=self.strategy,
        )

    def _curve(self, at: tuple[float, ...]) -> Roc:
        return Roc(
            score=(self.score,),
            label=self.label,
            positive=self.positive,
            lower=self.lower,
            upper=self.upper,
            strategy=self.strategy,
            best=self.best,
            at=at,
        )

    def shares(self) -> tuple[Fraction, ...]:
        first = Fraction(repr(float(self.share)))
        return first, 1 - first

    def may_ask(self) -> tuple[Ask, ...]:
        first, rest = self.shares()
        return Ask(self._quantiles(), first), Ask(self._curve(self._evenly), rest)

    def steps(self) -> Steps:
        first, rest = self.shares()
        found = yield Ask(self._quantiles(), first)
        values = shape_of(found.estimate).values().tolist()
        inner = tuple(sorted({each for each in values if self.lower < each < self.upper}))
        answer = yield Ask(self._curve(inner or (self._middle,)), rest)
        notes = []
        if len(inner) < self.bins - 1:
            notes.append(f"equal or close scores leave {len(inner) + 1} of {self.bins} bins")
        return Finding(answer.estimate, tuple(notes), answer.deviations)

    def reference(self, holdings: Holdings) -> Estimate:
        """The curve with a threshold at every raw score."""
        scores = holdings.column(self.score)
        positive = positives_of(holdings.column(self.label), self.label, self.positive)
        x = np.unique(scores)
        found = Judgement.of(
            shares_of(scores, positive, x), x, self.best, true_auc(scores, positive)
        )
        return RocEstimate({self.score: found})
