"""ROC and precision–recall curves of scores whose labels parties hold (S0 §5.1): both classes'
curves from one release, and all that follows from them.

With `labels` private, a record and its label are protected together, and the sizes of the classes
are estimated; with public labels only scores are (`protocols.privacy.class_curves`).
"""

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from protocols.algebra.ring import Vector, signed
from protocols.errors import LocalError
from protocols.names import look_up
from protocols.offers import Offers
from protocols.privacy.class_curves import (
    SMOOTHINGS,
    ClassCurves,
    ClassDistributions,
    Smoothing,
)
from protocols.privacy.curves import MECHANISMS
from protocols.records import Column, Holdings
from protocols.statistics.bounded import Bounded
from protocols.statistics.classifier_estimates import (
    Judgement,
    Judgements,
    PrecisionRecallEstimate,
    RocEstimate,
    cost_of,
)
from protocols.statistics.contract import Statistic
from protocols.statistics.drawing import Style
from protocols.statistics.estimates import Estimate
from protocols.statistics.labels import is_positive, positives_of
from protocols.statistics.measurement import Measurement, Step
from protocols.statistics.option import option, role
from protocols.statistics.thresholds import threshold_values

MAX_THRESHOLDS = 1 << 16
MAX_SCORES = 16
SOLVERS = ("interior-point", "cvxopt")
ROC_METHODS = ("curve", "binormal", "priroc", "priroc-fix")


@dataclass(frozen=True)
class ClassCounts(Bounded):
    """How many records of each class have a score at most each threshold."""

    score: tuple[str, ...] = role(("score",), "The column of scores; repeat it for more.")
    label: str = role("label", "The column of labels, 0 or 1.")
    positive: float | None = option(None, "The label of positive records, if it is not 1.")
    thresholds: int = option(256, "How many points a curve has; a curator uses at least 1024.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.thresholds <= MAX_THRESHOLDS:
            raise LocalError(
                f"--thresholds must be between 1 and {MAX_THRESHOLDS}, not {self.thresholds}"
            )
        if not 1 <= len(set(self.score)) == len(self.score) <= MAX_SCORES:
            raise LocalError(f"--score names 1 to {MAX_SCORES} columns, each once")
        if self.label in self.score:
            raise LocalError(f"column {self.label!r} cannot be both score and label")
        if self.positive is not None and not math.isfinite(self.positive):
            raise LocalError(f"--positive is a finite number, not {self.positive}")

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.score, self.label)

    @property
    def valued(self) -> tuple[str, ...]:
        return self.score

    @cached_property
    def x(self) -> Column:
        """τ_1 < … < τ_N, the last of them the upper bound."""
        return threshold_values(*self.bounds, self.thresholds, "linear")

    # --- records ---

    @property
    def measurement(self) -> Measurement | None:
        """In one row of cells: those of the negatives, then those of the positives. Several scores
        are in several rows, which keys and proofs do not know."""
        return Step(2 * self.thresholds) if len(self.score) == 1 else None

    def measured(self, holdings: Holdings) -> NDArray[np.int64]:
        found: NDArray[np.int64] = self._cells(holdings)[0]
        return found

    def _cells(self, holdings: Holdings) -> NDArray[np.int64]:
        """Each record's cell in the row of each score."""
        x, positive = self.x, is_positive(holdings.column(self.label), self.positive)
        found = [np.searchsorted(x, self._scores(holdings, name)) for name in self.score]
        return (np.stack(found) + self.thresholds * positive).astype(np.int64)

    def positives(self, holdings: Holdings) -> NDArray[np.bool]:
        """For the truth. Raises `LocalError` for labels that are none."""
        return positives_of(holdings.column(self.label), self.label, self.positive)

    def _scores(self, holdings: Holdings, name: str) -> Column:
        values = holdings.column(name)
        if not np.isfinite(values).all():
            raise LocalError(f"column {name!r} has scores that are not finite numbers")
        return np.clip(values, *self.bounds)

    @property
    def length(self) -> int:
        return 2 * self.thresholds * len(self.score)

    def encode(self, holdings: Holdings) -> Vector:
        width = 2 * self.thresholds
        rows = [holdings.count_by_party(cells, width) for cells in self._cells(holdings)]
        return np.concatenate([np.cumsum(row, axis=1) for row in rows], axis=1)

    @property
    def grid_step(self) -> float:
        lower, upper = self.bounds
        return (upper - lower) / self.thresholds

    @property
    def grid_words(self) -> str:
        return f"scores are compared with thresholds that are {self.grid_step:.3g} apart"


@dataclass(frozen=True)
class ClassifierCurves(ClassCounts):
    """Both curves of every score within one ε. How they are smoothed, and which threshold is best,
    is decided after the release and spends nothing."""

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

    @cached_property
    def class_curves(self) -> ClassCurves:
        public = self.labels == "public"
        return ClassCurves(self.thresholds, self.mechanism, public, len(self.score))

    @property
    def protected(self) -> str:
        return "the score of one record" if self.labels == "public" else super().protected

    @property
    def taken_as_public(self) -> tuple[str, ...]:
        return (self.label,) if self.labels == "public" else ()

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
        return repr(("classes", *scores, self.thresholds, self.labels, self.mechanism))

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
        """Rates at the thresholds on the raw scores, and their AUC as scikit-learn has it."""
        positive = self.positives(holdings)
        return {
            name: Judgement.of(
                shares_of(holdings.column(name), positive, self.x),
                self.x,
                self.best,
                true_auc(holdings.column(name), positive),
            )
            for name in self.score
        }

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

    def deviations(self, noise_variance: float, records: int) -> Column:
        """Not known before the classes' sizes are."""
        return np.full(2 * (self.thresholds + 1) * len(self.score), np.nan)


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

    name: ClassVar[str] = "roc"

    def __post_init__(self) -> None:
        super().__post_init__()
        look_up("method", self.method, dict.fromkeys(ROC_METHODS))

    def asked_of(self, offers: Offers) -> Statistic:
        if self.method == "curve":
            return self
        from protocols.statistics.areas import way
        from protocols.statistics.curated import BinormalRoc
        from protocols.statistics.private_thresholds import PriRoc, PriRocFix

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


def shares_of(scores: Column, positive: NDArray[np.bool], x: Column) -> ClassDistributions:
    """On raw records: those above the range are at most no threshold."""
    classes = [np.sort(scores[~positive]), np.sort(scores[positive])]
    shares = [
        np.searchsorted(each, x, side="right") / len(each) if len(each) else np.full(len(x), np.nan)
        for each in classes
    ]
    return ClassDistributions(float(len(classes[0])), float(len(classes[1])), *shares)


def true_auc(scores: Column, positive: NDArray[np.bool]) -> float:
    """As scikit-learn computes it; NaN if a class is empty."""
    if positive.all() or not positive.any():
        return math.nan
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(positive, scores))
