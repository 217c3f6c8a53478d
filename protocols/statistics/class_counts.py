"""How many records of each class have a score at most each threshold: what ROC curves, areas and
calibration are computed from, by anybody or by a curator."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.cells import numbers
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.measurement import Measurement, Step
from tallyroom.protocols.plans.thresholds import threshold_values
from tallyroom.protocols.privacy.class_curves import ClassDistributions
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.bounded import Bounded
from tallyroom.protocols.statistics.labels import is_positive, positives_of
from tallyroom.protocols.statistics.legacy import Legacy
from tallyroom.protocols.statistics.option import option, role

MAX_THRESHOLDS = 1 << 16
MAX_SCORES = 16


@dataclass(frozen=True)
class ClassCounts(Legacy, Bounded):
    """How many records of each class have a score at most each threshold."""

    score: tuple[str, ...] = role(("score",), "The column of scores; repeat it for more.")
    label: str = role("label", "The column of labels, 0 or 1.")
    positive: float | None = option(None, "The label of positive records, if it is not 1.")
    thresholds: int = option(256, "How many thresholds scores are compared with.")

    fewest: ClassVar[int] = 1
    """The least that `thresholds` can be; 0 leaves it open."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.fewest <= self.thresholds <= MAX_THRESHOLDS:
            raise LocalError(
                f"--thresholds must be between {self.fewest} and {MAX_THRESHOLDS}, not "
                f"{self.thresholds}"
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

    @property
    def points(self) -> int:
        """N."""
        return self.thresholds

    @cached_property
    def x(self) -> Column:
        """τ_1 < … < τ_N, the last of them the upper bound."""
        return threshold_values(*self.bounds, self.points, "linear")

    # --- records ---

    @property
    def measurement(self) -> Measurement | None:
        """In one row of cells: those of the negatives, then those of the positives. Several scores
        are in several rows, which keys and proofs do not know."""
        return Step(2 * self.points) if len(self.score) == 1 else None

    def measured(self, holdings: Holdings) -> NDArray[np.int64]:
        found: NDArray[np.int64] = self._cells(holdings)[0]
        return found

    def _cells(self, holdings: Holdings) -> NDArray[np.int64]:
        """Each record's cell in the row of each score."""
        x, positive = self.x, is_positive(holdings.column(self.label), self.positive)
        found = [np.searchsorted(x, self._scores(holdings, name)) for name in self.score]
        return (np.stack(found) + self.points * positive).astype(np.int64)

    def positives(self, holdings: Holdings) -> NDArray[np.bool]:
        """For the truth. Raises `LocalError` for labels that are none."""
        return positives_of(holdings.column(self.label), self.label, self.positive)

    def _scores(self, holdings: Holdings, name: str) -> Column:
        """What is no number counts as the lower bound."""
        return np.clip(numbers(holdings.column(name), self.bounds[0]), *self.bounds)

    @property
    def length(self) -> int:
        return 2 * self.points * len(self.score)

    def encode(self, holdings: Holdings) -> Vector:
        width = 2 * self.points
        rows = [holdings.count_by_party(cells, width) for cells in self._cells(holdings)]
        return np.concatenate([np.cumsum(row, axis=1) for row in rows], axis=1)

    @property
    def grid_step(self) -> float:
        lower, upper = self.bounds
        return (upper - lower) / self.points

    @property
    def grid_words(self) -> str:
        return f"scores are compared with thresholds that are {self.grid_step:.3g} apart"


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
