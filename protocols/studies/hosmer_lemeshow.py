"""The Hosmer–Lemeshow test of a model's calibration (S0 §5.2): quantiles of the scores, then
predicted and observed positives between them.

S0's Algorithm 2 with its slips put right: predicted negatives are sums of 1 − M(x); groups are
half-open, so that no record is in two; a record weighs 2 in the counts and replacing it moves 4.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.plans.thresholds import quantiles
from tallyroom.protocols.privacy.curves import STRATEGIES
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.registry import look_up
from tallyroom.protocols.statistics.calibration import (
    MAX_GROUPS,
    Calibration,
    CalibrationCounts,
    GroupCounts,
    grouped,
    probabilities,
)
from tallyroom.protocols.statistics.calibration_test import LEVEL, WANTED_POWER, NoisyTest
from tallyroom.protocols.statistics.cumulative import strategy_option
from tallyroom.protocols.statistics.drawing import Style
from tallyroom.protocols.statistics.ecdf import Quantile
from tallyroom.protocols.statistics.estimates import Estimate, shape_of
from tallyroom.protocols.statistics.labels import positives_of
from tallyroom.protocols.statistics.option import CLASSIFIERS, option, role
from tallyroom.protocols.studies.contract import Ask, Finding, Steps, Study

LEAST_GROUPS = 3
TRAINED = ("elsewhere", "here")


@dataclass(frozen=True)
class HosmerLemeshow(Study):
    """Whether predicted probabilities are right: the Hosmer–Lemeshow test, and calibration."""

    score: str = role("score", "The column of predicted probabilities, from 0 to 1.")
    label: str = role("label", "The column of labels, 0 or 1.")
    positive: float | None = option(None, "The label of positive records, if it is not 1.")
    groups: int = option(10, "How many groups of about equal size.")
    thresholds: int = option(1024, "How many candidates the quantiles are chosen from.")
    strategy: str = strategy_option("Which counts get noise, for the quantiles.")
    share: float = option(0.3, "The share of ε for the quantiles.")
    trained: str = option(
        "elsewhere",
        "Where the model was trained: on other records than these, or here, on these very ones, "
        "which takes two degrees of freedom.",
        choices=TRAINED,
    )

    name: ClassVar[str] = "hosmer-lemeshow"
    topic: ClassVar[str] = CLASSIFIERS
    style: ClassVar[Style] = Style("marks")

    def __post_init__(self) -> None:
        if not LEAST_GROUPS <= self.groups <= MAX_GROUPS:
            raise LocalError(
                f"--groups is between {LEAST_GROUPS} and {MAX_GROUPS}, not {self.groups}"
            )
        if not 0 < self.share < 1:
            raise LocalError(f"--share is between 0 and 1, not {self.share:g}")
        look_up("strategy", self.strategy, dict.fromkeys(STRATEGIES))
        look_up("trained", self.trained, dict.fromkeys(TRAINED))
        if self.positive is not None and not np.isfinite(self.positive):
            raise LocalError(f"--positive is a finite number, not {self.positive}")
        self._quantiles()  # raises for options that it refuses

    @property
    def _wanted(self) -> tuple[float, ...]:
        return tuple(each / self.groups for each in range(1, self.groups))

    def _quantiles(self) -> Quantile:
        return Quantile(
            value=self.score,
            lower=0.0,
            upper=1.0,
            quantile=self._wanted,
            thresholds=self.thresholds,
            strategy=self.strategy,
        )

    def shares(self) -> tuple[Fraction, ...]:
        first = Fraction(repr(float(self.share)))
        return first, 1 - first

    def _counts(self, at: tuple[float, ...]) -> CalibrationCounts:
        return CalibrationCounts(self.score, self.label, self.positive, at)

    def may_ask(self) -> tuple[Ask, ...]:
        """The questions for scores that are spread evenly, which keeps all groups apart."""
        first, rest = self.shares()
        return Ask(self._quantiles(), first), Ask(self._counts(self._wanted), rest)

    def steps(self) -> Steps:
        first, rest = self.shares()
        found = yield Ask(self._quantiles(), first)
        at = between(shape_of(found.estimate).values().tolist())
        answer = yield Ask(self._counts(at), rest)
        if not isinstance(answer.estimate, GroupCounts):
            raise RunFailed("the counts of groups came back as another shape than a table")
        deviation = float(np.max(answer.deviations))
        cells, noise = np.array(answer.estimate.cells), answer.estimate.noise
        calibration = Calibration([*at, 1.0], cells, deviation, noise, self._fitted)
        groups = int(calibration.held.sum())
        if groups < LEAST_GROUPS:
            raise RunFailed(
                f"the scores are in {groups} groups only, where the test needs {LEAST_GROUPS}: too "
                "many are equal or too close, or noise hides them"
            )
        notes = []
        if groups < self.groups:
            notes.append(f"equal or close scores leave {groups} of {self.groups} groups")
        if deviation:
            notes.append(
                f"noise alone adds about {calibration.noise_part():.3g} to the statistic; the "
                "p-value accounts for it"
            )
        if calibration.test is not None:
            notes.append(power_of(calibration.test))
        if calibration.floored:
            notes.append(
                f"groups whose predicted count is below its noise's deviation, {deviation:.3g}, "
                f"which is taken instead: {calibration.floored}"
            )
        return Finding(calibration, tuple(notes))

    def reference(self, holdings: Holdings) -> Estimate:
        """The test with groups by the quantiles of the raw scores."""
        scores = probabilities(holdings, self.score)
        positive = positives_of(holdings.column(self.label), self.label, self.positive)
        at = between(quantiles(scores, self._wanted))
        return Calibration([*at, 1.0], grouped(scores, positive, at), fitted=self._fitted)

    @property
    def _fitted(self) -> bool:
        return self.trained == "here"


def power_of(test: NoisyTest) -> str:
    """The power of the test, for people."""
    of_tests = f"with a probability of {WANTED_POWER:.0%} at the {LEVEL:.0%} level"
    if test.detectable is None:
        return f"noise hides any miscalibration: none is found {of_tests}; use a larger --epsilon"
    return (
        f"a share of positives {test.detectable:.2g} off the prediction in every group is found "
        f"{of_tests}"
    )


def between(found: list[float]) -> tuple[float, ...]:
    """The rising thresholds, each once and none at an end, so that no group is empty by
    construction."""
    return tuple(sorted({each for each in found if 0 < each < 1}))
