"""Questions of every kind to every aggregator, with what numpy says of the same records."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tallyroom.parties.data import Dataset
from tallyroom.protocols.statistics import Curve, Estimate, Statistic
from tallyroom.protocols.statistics.choices import Mode
from tallyroom.protocols.statistics.ecdf import Ecdf, Quantile
from tallyroom.protocols.statistics.first_above import FirstAboveThreshold
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.moments import Mean, Sum
from tallyroom.protocols.statistics.of_pairs import Auc, Gini, Variance
from tallyroom.protocols.statistics.on_demand import EcdfPoints, QuantileSearch
from tallyroom.protocols.studies import Study
from tallyroom.protocols.studies.gini_coefficient import GiniCoefficient

PARTIES = 6
RECORDS = 12
DELTA = 1e-6
STEP = 1024

_dice = np.random.default_rng(12)
SCORES = _dice.permutation(STEP)[:RECORDS] / STEP
LABELS = (np.arange(RECORDS) % 3 == 0).astype(float)
DATA = Dataset("soak", {"score": SCORES, "label": LABELS}, {"score": (0.0, 1.0)})

Truth = Callable[[], NDArray[np.float64] | float]


def _ecdf(points: int) -> NDArray[np.float64]:
    edges = np.arange(1, points + 1) / points
    return np.searchsorted(np.sort(SCORES), edges, side="right") / RECORDS


def _first_point_at(quantile: float, points: int) -> float:
    """The first of the thresholds at which so many of the records are counted."""
    return float((np.argmax(_ecdf(points) >= quantile) + 1) / points)


def _auc() -> float:
    positive, negative = SCORES[LABELS == 1], SCORES[LABELS == 0]
    return float((positive[:, None] > negative[None, :]).mean())


def _mean_difference() -> float:
    return float(np.abs(SCORES[:, None] - SCORES[None, :]).sum() / (RECORDS * (RECORDS - 1)))


_HISTOGRAM = np.histogram(SCORES, bins=8, range=(0.0, 1.0))[0].astype(float)
_SUMS: list[tuple[Statistic, Truth]] = [
    (Sum(value="score"), lambda: float(SCORES.sum())),
    (Mean(value="score"), lambda: float(SCORES.mean())),
    (Histogram(value="score", bins=8), lambda: _HISTOGRAM),
]
_CURVES: list[tuple[Statistic, Truth]] = [
    (Ecdf(value="score", thresholds=16), lambda: _ecdf(16)),
    (
        Quantile(value="score", thresholds=16, quantile=(0.5,), strategy="hierarchy"),
        lambda: _first_point_at(0.5, 16),
    ),
]
_ON_DEMAND: list[tuple[Statistic, Truth]] = [
    (
        EcdfPoints(value="score", at=(0.25, 0.75)),
        lambda: np.array([(SCORES <= 0.25).mean(), (SCORES <= 0.75).mean()]),
    ),
    (
        QuantileSearch(value="score", quantile=(0.5,)),
        lambda: _first_point_at(0.5, STEP),
    ),
]
_PAIRS: list[tuple[Statistic, Truth]] = [
    (Variance(value="score", pairs_per_party="all"), lambda: float(np.var(SCORES, ddof=1))),
    (Gini(value="score", pairs_per_party="all"), _mean_difference),
    (Auc(pairs_per_party="all"), _auc),
]
_TOGETHER: list[tuple[Statistic | Study, Truth]] = [
    (Mode(value="score", bins=8), lambda: float((np.argmax(_HISTOGRAM) + 0.5) / 8)),
    (
        FirstAboveThreshold(value="score", bins=8, threshold=3),
        lambda: float((np.argmax(_HISTOGRAM >= 3) + 0.5) / 8),
    ),
]
_STUDIES: list[tuple[Statistic | Study, Truth]] = [
    (
        GiniCoefficient(value="score", lower=0.0, upper=1.0, pairs_per_party="all"),
        lambda: _mean_difference() / (2 * float(SCORES.mean())),
    )
]


@dataclass(frozen=True)
class Kind:
    """A question, or those of a study, and what it comes to exactly. `servers` is the size of a
    room that can answer."""

    aggregator: str
    servers: int
    statistic: Statistic | Study
    truth: Truth = field(repr=False)

    @property
    def name(self) -> str:
        return f"{self.statistic.name} with {self.aggregator}"

    def is_right(self, estimate: Estimate) -> bool:
        """Of an exact answer: right to the grid that values are rounded to."""
        found = np.asarray(estimate.y if isinstance(estimate, Curve) else estimate, dtype=float)
        truth = np.asarray(self.truth(), dtype=float)
        return found.size == truth.size and bool(
            np.allclose(found.ravel(), truth.ravel(), atol=1e-3)
        )


KINDS = [
    Kind(aggregator, servers, statistic, truth)
    for aggregator, servers, asked in (
        ("additive", 2, [*_SUMS, *_CURVES, *_PAIRS, *_TOGETHER, *_STUDIES]),
        ("fss", 2, [*_CURVES, *_ON_DEMAND]),
        ("fss?verified=no", 2, _CURVES[:1]),
        ("prio3", 2, [*_SUMS, _CURVES[0]]),
        ("shamir", 2, _SUMS),
        ("curator", 1, [*_SUMS, *_CURVES, _PAIRS[0]]),
        ("masking", 1, [*_SUMS, _CURVES[0]]),
        ("shuffle", 1, _SUMS[1:]),
        ("local", 1, [_SUMS[2], _CURVES[0]]),
    )
    for statistic, truth in asked
]
