"""ROC and precision–recall curves of scores whose labels parties hold (S0 §5.1): both classes'
curves from one release, and all that follows from them.

With `labels` private, a record and its label are protected together, and the sizes of the classes
are estimated; with public labels only scores are (`protocols.privacy.class_curves`).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.contract import Curated, NoisySum, Plan
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.interval import Interval
from tallyroom.protocols.privacy.class_curves import SMOOTHINGS, ClassCurves, Smoothing
from tallyroom.protocols.privacy.curves import STRATEGIES, TreeStrategy
from tallyroom.protocols.privacy.priroc import COUNTS, depth_for
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.registry import look_up
from tallyroom.protocols.statistics.bounded import Bounded, finite_column
from tallyroom.protocols.statistics.class_counts import ClassCounts, shares_of, true_auc
from tallyroom.protocols.statistics.classifier_estimates import (
    YOUDEN,
    Judgement,
    Judgements,
    PrecisionRecallEstimate,
    RocEstimate,
    cost_of,
)
from tallyroom.protocols.statistics.contract import Bounds, Piloted, asked_as
from tallyroom.protocols.statistics.cumulative import strategy_option
from tallyroom.protocols.statistics.curated import (
    CURATED_STEPS,
    SECRET_COURSE,
    SECRET_SCALE,
    CountsInBins,
    SmoothArea,
    binormal_curve,
)
from tallyroom.protocols.statistics.estimates import Estimate
from tallyroom.protocols.statistics.labels import positives_of
from tallyroom.protocols.statistics.option import CLASSIFIERS, option, role
from tallyroom.protocols.statistics.redrawn import Redrawn
from tallyroom.protocols.statistics.release import Answer, Noise, Release
from tallyroom.protocols.statistics.score_thresholds import (
    EXACT_POINTS,
    by_rank,
    every,
    followed_points,
    points_for,
)

MAX_THRESHOLDS = 1 << 16
MAX_SCORES = 16
SOLVERS = ("interior-point", "cvxopt")
ROC_METHODS = ("curve", "binormal", "priroc", "priroc-fix")


@dataclass(frozen=True)
class ClassifierCurves(Piloted, Bounded):
    """Both curves of every score within one ε. How they are smoothed, and which threshold is best,
    is decided after the release and spends nothing.

    `at` are all thresholds but the last, which is the upper bound; without them thresholds are
    evenly spaced, or follow public data (`planned_by`), of whose scores `pilot_scores` are those
    that thresholds are chosen from.
    """

    score: tuple[str, ...] = role(("score",), "The column of scores; repeat it for more.")
    label: str = role("label", "The column of labels, 0 or 1.")
    positive: float | None = option(None, "The label of positive records, if it is not 1.")
    thresholds: int = option(
        0,
        "How many points a curve has; 0 chooses by the number of records and ε. A curator uses at "
        "least 1024.",
    )
    at: tuple[float, ...] = option(
        (), "A public threshold; repeat it for more. Evenly spaced, if left out."
    )
    labels: str = option(
        "private", "Whether labels are protected too.", choices=("private", "public")
    )
    strategy: str = strategy_option("Which counts get noise.")
    smooth: str = option(
        "isotonic",
        "How the curves are made monotone again: by projection, or in a norm.",
        choices=SMOOTHINGS,
    )
    box: bool = option(True, "Keep curves smoothed in a norm within [0, 1].")
    solver: str = option("interior-point", "Which solver computes that smoothing.", choices=SOLVERS)
    best: str = option(
        "youden",
        "Which threshold is best: youden, or cost=R: a false positive costs R false negatives.",
    )
    pilot_scores: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= len(set(self.score)) == len(self.score) <= MAX_SCORES:
            raise LocalError(f"--score names 1 to {MAX_SCORES} columns, each once")
        if self.label in self.score:
            raise LocalError(f"column {self.label!r} cannot be both score and label")
        if self.positive is not None and not math.isfinite(self.positive):
            raise LocalError(f"--positive is a finite number, not {self.positive}")
        for kind, known in (
            ("labels", ("private", "public")),
            ("strategy", STRATEGIES),
            ("smooth", SMOOTHINGS),
            ("solver", SOLVERS),
        ):
            look_up(kind, getattr(self, kind), dict.fromkeys(known))
        norms = STRATEGIES[self.strategy].smoothings
        if self.smooth not in ("isotonic", "none", *norms):
            raise LocalError(
                f"the {self.strategy} is smoothed in the {norms[0]}-norm: --smooth {norms[0]}, "
                "or --strategy tree"
            )
        cost_of(self.best)
        self._check_thresholds()

    def _check_thresholds(self) -> None:
        if not 0 <= self.thresholds <= MAX_THRESHOLDS:
            raise LocalError(
                f"--thresholds must be between 0 and {MAX_THRESHOLDS}, not {self.thresholds}"
            )
        for values in (self.at, self.pilot_scores):
            self._check_rising(values)
        if self.at and self.thresholds not in (0, len(self.at) + 1):
            raise LocalError(
                f"--thresholds {self.thresholds} does not match {len(self.at)} of --at and the "
                "upper bound: leave it out"
            )

    def _check_rising(self, values: tuple[float, ...]) -> None:
        if len(values) >= MAX_THRESHOLDS:
            raise LocalError(f"{len(values)} thresholds are too many: {MAX_THRESHOLDS - 1} at most")
        if not all(map(math.isfinite, values)) or any(a >= b for a, b in pairwise(values)):
            raise LocalError("thresholds must rise, and be finite numbers")
        if not values or self.lower is None or self.upper is None:
            return
        if not self.lower <= values[0] <= values[-1] < self.upper:
            raise LocalError(
                f"thresholds must lie within [{self.lower:g}, {self.upper:g}] and below the upper "
                "bound, which is always a threshold"
            )

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.score, self.label)

    @property
    def valued(self) -> tuple[str, ...]:
        return self.score

    # --- what is computed ---

    def plan(self, facts: Facts) -> Plan:
        """Plans curves. Subclasses plan the ways that need a curator."""
        return self.by_curves(facts)

    def by_curves(self, facts: Facts) -> NoisySum:
        points, at = self.thresholds or points_for(facts.records, facts.record_epsilon), self.at
        if self.pilot_scores:
            at = every(self.pilot_scores, self.thresholds or followed_points(points))
        counts = self.class_counts(len(at) + 1 if at else points, at)
        public = self.labels == "public"
        return NoisySum(
            counts,
            ClassCurves(counts.points, self.strategy, public, len(self.score)),
            public=(self.label,) if public else (),
            public_facts="the number of positive records" if public else "",
            reusable=True,
        )

    def class_counts(self, points: int, at: tuple[float, ...] = ()) -> ClassCounts:
        lower, upper = self.bounds
        positive = 1.0 if self.positive is None else float(self.positive)
        between = tuple(map(float, at))
        return ClassCounts(
            self.score, self.label, positive, float(lower), float(upper), points, between
        )

    @property
    def for_curator(self) -> ClassCounts:
        """Counts of one score for a curator, rounded to 1024 steps or more: noise does not grow
        with their number. Raises `LocalError` for options that apply to curves alone."""
        for given, flag in ((self.at, "--at"), (self.pilot_scores, "--pilot")):
            if given:
                raise LocalError(f"{flag} is for curves without a curator, who needs no thresholds")
        if len(self.score) != 1:
            raise LocalError(f"{asked_as(self)} of this method takes one --score")
        return self.class_counts(max(self.thresholds, CURATED_STEPS))

    def planned_by(self, pilot: Holdings, bounds: Mapping[str, Bounds]) -> Self:
        """Places thresholds where the scores of public data lie, those of all columns together."""
        if self.at:
            raise LocalError("--pilot chooses the thresholds: leave --at out")
        if self.strategy == TreeStrategy.name:
            raise LocalError("--pilot goes with another --strategy: a tree is evenly spaced")
        lower, upper = self.with_bounds(bounds).bounds
        scores = np.concatenate([finite_column(pilot, name) for name in self.score])
        found = by_rank(np.clip(scores, lower, upper), lower, upper)
        if not found:
            raise LocalError(
                "the scores of --pilot are all at one end: no threshold can follow them"
            )
        return replace(self, pilot_scores=found)

    @property
    def open_to_pilot(self) -> bool:
        return not (self.at or self.thresholds or self.strategy == TreeStrategy.name)

    # --- the answer ---

    def judgements(self, release: Release, smooth: str = "") -> dict[str, Judgement]:
        """The judgement of each score, from released curves, smoothed as asked unless `smooth` says
        otherwise."""
        counts, curves = parts_of(release.plan)
        values = release.integers.astype(np.float64)
        if release.exact:
            found = curves.exact(values)
        else:
            smoothing = Smoothing(smooth or self.smooth, self.box, self.solver)
            found = curves.estimates(values, release.records, smoothing)
        return {
            name: Judgement.of(each, counts.x, self.best)
            for name, each in zip(self.score, found, strict=True)
        }

    def true_judgements(self, holdings: Holdings) -> dict[str, Judgement]:
        """Rates at the thresholds and at every score, on the raw scores, and their AUC as
        scikit-learn has it. Thresholds that are left open are those of curves without noise."""
        points = len(self.at) + 1 if self.at else self.thresholds or EXACT_POINTS
        x, positive = self.class_counts(points, self.at).x, self.positives(holdings)
        found = {}
        for name in self.score:
            scores = holdings.column(name)
            auc, every_score = true_auc(scores, positive), np.unique(scores)
            whole = Judgement.of(shares_of(scores, positive, every_score), every_score, self.best)
            whole = replace(whole, every_score=True)
            found[name] = Judgement.of(shares_of(scores, positive, x), x, self.best, auc, whole)
        return found

    def width(self, release: Release, noise: Noise) -> float:
        """Standard deviations that hold 95 % of the noises in a class's count; those in its size
        are not counted."""
        return noise.width(parts_of(release.plan)[1].curve.noises_in_count)

    def positives(self, holdings: Holdings) -> NDArray[np.bool]:
        """Marks positive records, for the truth. Raises `LocalError` for invalid labels."""
        return positives_of(holdings.column(self.label), self.label, self.positive)


def parts_of(plan: Plan) -> tuple[ClassCounts, ClassCurves]:
    """The counts and the curves that a plan of curves consists of."""
    assert isinstance(plan, NoisySum)
    assert isinstance(plan.encoding, ClassCounts)
    assert isinstance(plan.strategy, ClassCurves)
    return plan.encoding, plan.strategy


Deviations = Callable[[ClassCurves, Judgement, float], tuple[Column, Column]]
"""Gives the deviations of both axes at −∞ and each threshold, from the variance of one noise."""


def read_curves(
    asked: ClassifierCurves, release: Release, shape: type[Judgements], deviations: Deviations
) -> Answer:
    """Reads the curves of every score. Their errors depend on the classes' sizes, which are
    estimated."""
    named, records = asked.judgements(release), release.records
    estimate = shape(named)
    if (noise := release.noise) is None:
        return Answer(estimate, None, records, foretold=True)
    spread = Redrawn(asked.judgements, release, noise, asked.width(release, noise))
    estimate = replace(estimate, spread=spread)
    _, curves = parts_of(release.plan)
    of_axes = (deviations(curves, each, noise.variance) for each in named.values())
    errors = np.concatenate([axis for both in of_axes for axis in both])
    interval = Interval.around(estimate.values(), errors, asked.width(release, noise), (0.0, 1.0))
    smoothed = asked.smooth != "none"
    unsmoothed = shape(asked.judgements(release, "none")) if smoothed else None
    return Answer(estimate, interval, records, unsmoothed=unsmoothed)


def _variances(curves: ClassCurves, noise_variance: float) -> tuple[Column, Column, float]:
    """The variance of a class's count at −∞ and each threshold, given the size of the class and
    before curves are made monotone; how much of the size's error each count contains; and the
    variance of the size."""
    counts = np.append(0.0, curves.count_variances(noise_variance))
    return counts, np.append(0.0, curves.size_shares), curves.size_variance(noise_variance)


def rate_deviations(
    curves: ClassCurves, each: Judgement, noise_variance: float
) -> tuple[Column, Column]:
    """The deviations of the false and of the true positive rate, to first order."""
    counts, shares, size = _variances(curves, noise_variance)
    rates = ((each.false_positive, each.negatives), (each.true_positive, each.positives))
    false, true = (
        np.sqrt(counts + (shares - (1 - rate)) ** 2 * size) / records for rate, records in rates
    )
    return false, true


def precision_deviations(
    curves: ClassCurves, each: Judgement, noise_variance: float
) -> tuple[Column, Column]:
    """The deviations of recall and of precision, to first order. An error of the sizes adds to one
    class what it takes from the other."""
    counts, shares, size = _variances(curves, noise_variance)
    _, recall = rate_deviations(curves, each, noise_variance)
    right = np.maximum(each.true_positive, 0) * each.positives
    wrong = np.maximum(each.false_positive, 0) * each.negatives
    taken = right + wrong
    spread = np.sqrt((right**2 + wrong**2) * counts + ((1 - shares) * taken) ** 2 * size)
    precision = np.divide(spread, taken**2, np.ones_like(taken), where=taken > 1)
    return np.minimum(recall, 1.0), np.minimum(precision, 1.0)


@dataclass(frozen=True)
class Roc(ClassifierCurves):
    """True against false positive rate at every threshold, with AUC and the best threshold."""

    method: str = option(
        "curve",
        "How the curve is made; all ways but `curve` need a curator, who sees every score.",
        choices=ROC_METHODS,
    )
    counts: str = option("hb", "How priroc and priroc-fix count records.", choices=COUNTS)

    name: ClassVar[str] = "roc"
    topic: ClassVar[str] = CLASSIFIERS

    def __post_init__(self) -> None:
        super().__post_init__()
        look_up("method", self.method, dict.fromkeys(ROC_METHODS))
        look_up("counts", self.counts, dict.fromkeys(COUNTS))
        if self.counts != COUNTS[0] and not self.method.startswith("priroc"):
            raise LocalError("--counts goes with --method priroc or priroc-fix")

    @property
    def open_to_pilot(self) -> bool:
        return self.method == "curve" and super().open_to_pilot

    def plan(self, facts: Facts) -> Plan:
        if self.method == "curve":
            return super().plan(facts)
        if self.method == "binormal":
            return Curated(self.for_curator, SmoothArea("auc"))
        depth = depth_for(facts.records, facts.epsilon, self.counts)
        fixed = self.method == "priroc-fix"
        return Curated(self.for_curator, CountsInBins(depth, self.counts, fixed))

    def read(self, release: Release) -> Answer:
        if not isinstance(release.plan, Curated):
            return read_curves(self, release, RocEstimate, rate_deviations)
        mechanism, why = release.plan.mechanism, SECRET_SCALE
        if isinstance(mechanism, CountsInBins):
            found, why = mechanism.read(release, self.for_curator, self.best), SECRET_COURSE
        else:
            assert isinstance(mechanism, SmoothArea)
            found = binormal_curve(mechanism.read(release))
        return release.without_errors(RocEstimate({self.score[0]: found}), why)

    def reference(self, holdings: Holdings) -> Estimate:
        if self.method == "curve":
            return RocEstimate(self.true_judgements(holdings))
        counts, positive = self.for_curator, self.positives(holdings)
        [score], best = counts.scores, YOUDEN if self.method == "binormal" else self.best
        scores = holdings.column(score)
        shares = shares_of(scores, positive, counts.x)
        found = Judgement.of(shares, counts.x, best, true_auc(scores, positive))
        return RocEstimate({score: found})


@dataclass(frozen=True)
class PrCurve(ClassifierCurves):
    """Precision against recall at every threshold, with average precision."""

    name: ClassVar[str] = "pr-curve"
    topic: ClassVar[str] = CLASSIFIERS

    def read(self, release: Release) -> Answer:
        return read_curves(self, release, PrecisionRecallEstimate, precision_deviations)

    def reference(self, holdings: Holdings) -> Estimate:
        return PrecisionRecallEstimate(self.true_judgements(holdings))
