"""Counts of the records of each class whose score is at most each threshold. ROC curves, areas and
calibration are computed from them, by anybody or by a curator."""

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import Vector, signed
from tallyroom.protocols.plans.contract import Encoding, Integers
from tallyroom.protocols.plans.encodings import clipped, possible_counts
from tallyroom.protocols.plans.measurement import Measurement, Step
from tallyroom.protocols.plans.thresholds import threshold_values
from tallyroom.protocols.privacy.class_curves import ClassDistributions
from tallyroom.protocols.privacy.noise_law import Sensitivity
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.labels import is_positive


@dataclass(frozen=True)
class ClassCounts(Encoding):
    """A record is in one of 2N cells for each score: those of the negatives, then those of the
    positives. A vector counts the records in cells 1..i of each score's row.

    The N thresholds are evenly spaced, or those that `at` lists; the last one is the upper bound.
    """

    scores: tuple[str, ...]
    label: str
    positive: float
    lower: float
    upper: float
    points: int
    at: tuple[float, ...] = ()
    ties: bool = field(default=False, repr=False, compare=False)
    """Whether an area is read off the counts, which treats scores between the same two thresholds
    as ties. Only the description depends on it."""

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.scores, self.label)

    @cached_property
    def x(self) -> Column:
        """τ_1 < … < τ_N, the last of them the upper bound."""
        if self.at:
            return np.array([*self.at, self.upper])
        return threshold_values(self.lower, self.upper, self.points, "linear")

    @property
    def length(self) -> int:
        return 2 * self.points * len(self.scores)

    @property
    def sensitivity(self) -> Sensitivity:
        """From the first cell to the last, all counts of a row but its last one change."""
        return Sensitivity.of_counts(len(self.scores) * (2 * self.points - 1))

    @property
    def measurement(self) -> Measurement | None:
        """Keys and proofs handle one row, so several scores have no measurement."""
        return Step(2 * self.points) if len(self.scores) == 1 else None

    def measured(self, holdings: Holdings) -> Integers:
        return self._cells(holdings, self.scores[0])

    def _cells(self, holdings: Holdings, score: str) -> Integers:
        values = clipped(holdings.column(score), self.lower, self.upper)
        positive = is_positive(holdings.column(self.label), self.positive)
        return np.searchsorted(self.x, values).astype(np.int64) + self.points * positive

    def encode(self, holdings: Holdings) -> Vector:
        width = 2 * self.points
        cells = (self._cells(holdings, score) for score in self.scores)
        rows = [np.cumsum(holdings.count_by_party(each, width), axis=1) for each in cells]
        return np.concatenate(rows, axis=1)

    def possible(self, vectors: Vector, most: int) -> NDArray[np.bool]:
        counts = np.diff(signed(vectors), axis=1, prepend=0)
        return possible_counts(counts, (self.length,), most)

    @property
    def grid_step(self) -> float:
        return float(np.diff(self.x, prepend=self.lower).max())

    @property
    def grid_words(self) -> str:
        apart = f"thresholds that are {self.grid_step:.3g} apart"
        words = f"scores are compared with {f'{self.points} thresholds' if self.at else apart}"
        if not self.ties:
            return words
        return (
            f"{words}; scores between two of them count as evenly mixed, and the interval covers "
            "an order of them as good as that of all scores"
        )


def cells_of(total: Vector) -> tuple[Integers, Integers]:
    """The negatives and the positives in each cell, from the counts of one score."""
    counts = np.diff(signed(total), prepend=0)
    return counts[: len(counts) // 2], counts[len(counts) // 2 :]


def shares_of(scores: Column, positive: NDArray[np.bool], x: Column) -> ClassDistributions:
    """The shares among raw records; scores above the range are at most none of the thresholds."""
    classes = [np.sort(scores[~positive]), np.sort(scores[positive])]
    shares = [
        np.searchsorted(each, x, side="right") / len(each) if len(each) else np.full(len(x), np.nan)
        for each in classes
    ]
    return ClassDistributions(float(len(classes[0])), float(len(classes[1])), *shares)


def true_auc(scores: Column, positive: NDArray[np.bool]) -> float:
    """The AUC as scikit-learn computes it; NaN if a class is empty."""
    if positive.all() or not positive.any():
        return math.nan
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(positive, scores))
