"""ROC and precision–recall curves of scores whose labels parties hold (S0 §5.1): both classes'
curves from one release, and all that follows from them.

With `labels` private, a record and its label are protected together, and the sizes of the classes
are estimated; with public labels only scores are (`protocols.privacy.class_curves`).
"""

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import ClassVar, Self

import numpy as np

from tallyroom.protocols.algebra.ring import Vector, signed
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.names import look_up
from tallyroom.protocols.offers import Offers
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.privacy.class_curves import (
    SMOOTHINGS,
    ClassCurves,
    Smoothing,
)
from tallyroom.protocols.privacy.curves import MECHANISMS, TreeMechanism
from tallyroom.protocols.privacy.priroc import COUNTS
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.bounded import finite_column
from tallyroom.protocols.statistics.class_counts import (
    MAX_THRESHOLDS,
    ClassCounts,
    shares_of,
    true_auc,
)
from tallyroom.protocols.statistics.classifier_estimates import (
    Judgement,
    Judgements,
    PrecisionRecallEstimate,
    RocEstimate,
    cost_of,
)
from tallyroom.protocols.statistics.contract import Bounds, Statistic
from tallyroom.protocols.statistics.drawing import Style
from tallyroom.protocols.statistics.estimates import Estimate
from tallyroom.protocols.statistics.option import option
from tallyroom.protocols.statistics.score_thresholds import (
    EXACT_POINTS,
    by_rank,
    every,
    followed_points,
    points_for,
)

SOLVERS = ("interior-point", "cvxopt")
ROC_METHODS = ("curve", "binormal", "priroc", "priroc-fix")


@dataclass(frozen=True)
class ClassifierCurves(ClassCounts):
    """Both curves of every score within one ε. How they are smoothed, and which threshold is best,
    is decided after the release and spends nothing.

    `at` are all thresholds but the last, which is the upper bound; without them thresholds are
    evenly spaced, or follow public data (`planned_by`), of whose scores `pilot_scores` are those
    that thresholds are chosen from.
    """

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
    mechanism: str = option(
        "hierarchy", "Which mechanism adds the noise.", choices=tuple(MECHANISMS)
    )
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
        for kind, known in (
            ("labels", ("private", "public")),
            ("mechanism", MECHANISMS),
            ("smooth", SMOOTHINGS),
            ("solver", SOLVERS),
        ):
            look_up(kind, getattr(self, kind), dict.fromkeys(known))
        norms = MECHANISMS[self.mechanism].smoothings
        if self.smooth not in ("isotonic", "none", *norms):
            raise LocalError(
                f"the {self.mechanism} is smoothed in the {norms[0]}-norm: --smooth {norms[0]}, "
                "or --mechanism tree"
            )
        cost_of(self.best)
        for values in (self.at, self.pilot_scores):
            self._check_thresholds(values)
        if self.at and self.thresholds not in (0, len(self.at) + 1):
            raise LocalError(
                f"--thresholds is {self.thresholds}, with {len(self.at)} given by --at"
            )

    def _check_thresholds(self, values: tuple[float, ...]) -> None:
        if len(values) >= MAX_THRESHOLDS:
            raise LocalError(f"{len(values)} thresholds are too many: {MAX_THRESHOLDS - 1} at most")
        if not all(map(math.isfinite, values)) or any(a >= b for a, b in pairwise(values)):
            raise LocalError("thresholds must rise, and be finite numbers")
        if not values or self.lower is None or self.upper is None:
            return
        if not self.lower <= values[0] <= values[-1] < self.upper:
            raise LocalError(
                f"thresholds lie within [{self.lower:g}, {self.upper:g}], and below the upper "
                "bound, which is one in any case"
            )

    # --- where thresholds lie ---

    fewest: ClassVar[int] = 0
    takes_pilot: ClassVar[bool] = True

    @property
    def points(self) -> int:
        """Where it is still to be chosen, that of curves without noise."""
        return len(self.at) + 1 if self.at else self.thresholds or EXACT_POINTS

    @cached_property
    def x(self) -> Column:
        return np.array([*self.at, self.bounds[1]]) if self.at else super().x

    @property
    def by_curve(self) -> bool:
        """Whether it is asked as a curve, rather than of a curator who needs no thresholds."""
        return True

    @property
    def grid_step(self) -> float:
        return float(np.diff(self.x, prepend=self.bounds[0]).max())

    @property
    def grid_words(self) -> str:
        if self.at:
            return f"scores are compared with {self.points} thresholds"
        return super().grid_words

    def planned_by(self, pilot: Holdings, bounds: Mapping[str, Bounds]) -> Self:
        """With thresholds where scores of public data lie, those of all columns together."""
        if self.at:
            raise LocalError("--pilot chooses the thresholds: leave --at out")
        if self.mechanism == TreeMechanism.name:
            raise LocalError("--pilot goes with another --mechanism: a tree is evenly spaced")
        lower, upper = self.with_bounds(bounds).bounds
        scores = np.concatenate([finite_column(pilot, name) for name in self.score])
        found = by_rank(np.clip(scores, lower, upper), lower, upper)
        if not found:
            raise LocalError(
                "the scores of --pilot are all at one end: no threshold can follow them"
            )
        return replace(self, pilot_scores=found)

    def prepared(self, known: Facts) -> Self:
        if self.at:
            return replace(self, thresholds=len(self.at) + 1)
        wanted = self.thresholds or points_for(known.records, known.record_epsilon)
        if not self.pilot_scores:
            return replace(self, thresholds=wanted)
        if not self.thresholds:
            wanted = followed_points(wanted)
        chosen = every(self.pilot_scores, wanted)
        return replace(self, at=chosen, thresholds=len(chosen) + 1, pilot_scores=())

    @cached_property
    def class_curves(self) -> ClassCurves:
        public = self.labels == "public"
        return ClassCurves(self.points, self.mechanism, public, len(self.score))

    @property
    def taken_as_public(self) -> tuple[str, ...]:
        return (self.label,) if self.labels == "public" else ()

    @property
    def released_exactly(self) -> str:
        return "the number of positive records" if self.labels == "public" else ""

    @property
    def open_to_pilot(self) -> bool:
        settled = self.at or self.thresholds or self.mechanism == TreeMechanism.name
        return self.by_curve and not settled

    @property
    def measures(self) -> bool:
        return True

    @property
    def sensitivity(self) -> int:
        return self.class_curves.sensitivity

    @property
    def noises(self) -> int:
        return self.class_curves.noises

    @property
    def released(self) -> int:
        return self.class_curves.released

    def measure(self, total: Vector) -> Vector:
        return self.class_curves.measure(total)

    def place(self, noise: Vector) -> Vector:
        return self.class_curves.place(noise)

    def release_key(self) -> str:
        """The same for all curves and areas of the same scores."""
        scores = (self.score, self.label, self.positive, *self.bounds)
        return repr(("classes", *scores, self.points, self.at, self.labels, self.mechanism))

    @property
    def reuse_key(self) -> str | None:
        return self.release_key()

    def mechanism_words(self, scale: float) -> str:
        return (
            f"{self.mechanism}: discrete Laplace of scale {scale:.6g} on {self.class_curves.words}"
        )

    # --- the answer ---

    def judgements(self, released: Vector, records: int, exact: bool) -> dict[str, Judgement]:
        """By score, from what was released."""
        values = signed(released).astype(np.float64)
        if exact:
            found = self.class_curves.exact(values)
        else:
            smoothing = Smoothing(self.smooth, self.box, self.solver)
            found = self.class_curves.estimates(values, records, smoothing)
        return {
            name: Judgement.of(each, self.x, self.best)
            for name, each in zip(self.score, found, strict=True)
        }

    def true_judgements(self, holdings: Holdings) -> dict[str, Judgement]:
        """Rates at the thresholds and at every score, on the raw scores, and their AUC as
        scikit-learn has it."""
        positive = self.positives(holdings)
        found = {}
        for name in self.score:
            scores = holdings.column(name)
            auc, every_score = true_auc(scores, positive), np.unique(scores)
            whole = Judgement.of(shares_of(scores, positive, every_score), every_score, self.best)
            rates = shares_of(scores, positive, self.x)
            found[name] = Judgement.of(rates, self.x, self.best, auc, whole)
        return found

    def variances(self, noise_variance: float) -> tuple[Column, Column, float]:
        """At −∞ and each threshold: of a class's count, its size being known, before curves are
        made monotone; the part of the size's error in it; and the variance of the size."""
        curves = self.class_curves
        counts = np.append(0.0, curves.count_variances(noise_variance))
        return counts, np.append(0.0, curves.size_shares), curves.size_variance(noise_variance)

    def rate_deviations(self, each: Judgement, noise_variance: float) -> tuple[Column, Column]:
        """Of the false and of the true positive rate at −∞ and each threshold, to first order."""
        counts, shares, size = self.variances(noise_variance)
        rates = ((each.false_positive, each.negatives), (each.true_positive, each.positives))
        false, true = (
            np.sqrt(counts + (shares - (1 - rate)) ** 2 * size) / records for rate, records in rates
        )
        return false, true

    def noises_in_value(self, records: int) -> float:
        """Those in a class's count; those of its size come to them."""
        return self.class_curves.curve.noises_in_count

    def deviations(self, noise_variance: float, records: int) -> Column:
        """Not known before the classes' sizes are."""
        return np.full(2 * (self.points + 1) * len(self.score), np.nan)


@dataclass(frozen=True)
class Drawn(ClassifierCurves):
    """A curve of every score."""

    style: ClassVar[Style] = Style()
    span: ClassVar[tuple[float, float]] = (0.0, 1.0)

    @abstractmethod
    def shape(self, named: dict[str, Judgement]) -> Judgements: ...

    def decode(self, released: Vector, records: int, exact: bool = False) -> Estimate:
        return self.shape(self.judgements(released, records, exact))

    def reference(self, holdings: Holdings) -> Estimate:
        return self.shape(self.true_judgements(holdings))

    def before_smoothing(self) -> Self | None:
        return None if self.smooth == "none" else replace(self, smooth="none")


@dataclass(frozen=True)
class Rates(Drawn):
    """True against false positive rate."""

    def shape(self, named: dict[str, Judgement]) -> Judgements:
        return RocEstimate(named)

    def deviations_given(self, released: Vector, noise_variance: float, records: int) -> Column:
        told = self.judgements(released, records, exact=False).values()
        found = [rates for each in told for rates in self.rate_deviations(each, noise_variance)]
        return np.concatenate(found)


@dataclass(frozen=True)
class Roc(Rates):
    """True against false positive rate at every threshold, with AUC and the best threshold."""

    method: str = option(
        "curve",
        "How the curve is made; all ways but `curve` need a curator, who sees every score.",
        choices=ROC_METHODS,
    )
    counts: str = option("hb", "How priroc and priroc-fix count records.", choices=COUNTS)

    name: ClassVar[str] = "roc"

    def __post_init__(self) -> None:
        super().__post_init__()
        look_up("method", self.method, dict.fromkeys(ROC_METHODS))
        look_up("counts", self.counts, dict.fromkeys(COUNTS))
        if self.counts != COUNTS[0] and not self.method.startswith("priroc"):
            raise LocalError("--counts goes with --method priroc or priroc-fix")

    @property
    def by_curve(self) -> bool:
        return self.method == "curve"

    def asked_of(self, offers: Offers) -> Statistic:
        if self.by_curve:
            return self
        from tallyroom.protocols.statistics.areas import way
        from tallyroom.protocols.statistics.curated import BinormalRoc
        from tallyroom.protocols.statistics.private_thresholds import PriRoc, PriRocFix

        kinds: dict[str, type[ClassCounts]] = {
            "binormal": BinormalRoc,
            "priroc": PriRoc,
            "priroc-fix": PriRocFix,
        }
        return way(self, kinds[self.method])


@dataclass(frozen=True)
class PrCurve(Drawn):
    """Precision against recall at every threshold, with average precision."""

    name: ClassVar[str] = "pr-curve"
    style: ClassVar[Style] = Style()

    def shape(self, named: dict[str, Judgement]) -> Judgements:
        return PrecisionRecallEstimate(named)

    def deviations_given(self, released: Vector, noise_variance: float, records: int) -> Column:
        """Of precision to first order. What one class gains by an error of the sizes, the other
        loses."""
        counts, shares, size = self.variances(noise_variance)
        found = []
        for each in self.judgements(released, records, exact=False).values():
            _, recall = self.rate_deviations(each, noise_variance)
            right = np.maximum(each.true_positive, 0) * each.positives
            wrong = np.maximum(each.false_positive, 0) * each.negatives
            taken = right + wrong
            spread = np.sqrt((right**2 + wrong**2) * counts + ((1 - shares) * taken) ** 2 * size)
            found += [recall, np.divide(spread, taken**2, np.ones_like(taken), where=taken > 1)]
        bounded: Column = np.minimum(np.concatenate(found), 1.0)
        return bounded
