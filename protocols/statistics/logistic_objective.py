"""Logistic regression by objective perturbation: a curator has the records, and one release."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.plans.contract import Curated, Integers
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.interval import Interval
from tallyroom.protocols.plans.scaled import ScaledColumn, columns_of
from tallyroom.protocols.privacy.objective import GRID, STEPS, minimum
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.by_objective import (
    EXACT_PENALTY,
    TwoClasses,
    check_penalty,
    objective_plan,
    released_coefficients,
)
from tallyroom.protocols.statistics.coefficients import Coefficients
from tallyroom.protocols.statistics.drawing import Style
from tallyroom.protocols.statistics.estimates import Estimate
from tallyroom.protocols.statistics.labels import is_positive, positives_of
from tallyroom.protocols.statistics.logistic_step import LogisticColumns
from tallyroom.protocols.statistics.release import Answer, Release

MECHANISM = (
    "objective perturbation: K-norm noise of scale {scale:.6g} at most on the gradient; the "
    "curator must see every record"
)
NO_INTERVAL = "objective perturbation publishes coefficients and nothing else"


@dataclass(frozen=True)
class LabelledColumns(TwoClasses):
    """The scaled columns of a record, and whether its label is the positive one."""

    scaled: tuple[ScaledColumn, ...]
    label: str
    positive: float

    @property
    def columns(self) -> tuple[str, ...]:
        return (*columns_of(self.scaled), self.label)

    @property
    def width(self) -> int:
        return len(self.scaled) + 1

    @property
    def grid_step(self) -> float:
        """The step of the grid of coefficients, for columns scaled to [−1, 1]."""
        return 1 / GRID

    @property
    def terms(self) -> int:
        return len(self.scaled) + 1

    @property
    def largest_square(self) -> int:
        return self.terms

    def words_of(self, holdings: Holdings) -> Integers:
        columns = [np.rint(each.of(holdings) * STEPS).astype(np.int64) for each in self.scaled]
        labels = is_positive(holdings.column(self.label), self.positive)
        return np.stack([*columns, labels.astype(np.int64)], axis=1)

    def records_of(self, rows: Integers) -> tuple[Integers, NDArray[np.bool]]:
        """The constant comes first."""
        entries = np.clip(rows[:, :-1], -STEPS, STEPS)
        return np.column_stack([np.full(len(rows), STEPS), entries]), rows[:, -1] != 0


@dataclass(frozen=True)
class LogisticObjective(LogisticColumns):
    """Coefficients of a logistic model by objective perturbation."""

    penalty: float = 0.0

    name: ClassVar[str] = "logistic-objective"
    style: ClassVar[Style] = Style("marks", "coefficient", "")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_penalty(self.penalty)

    def plan(self, facts: Facts) -> Curated:
        record = LabelledColumns(self.scaled, self.label, self.positive_label)
        return objective_plan(record, facts.max_records_per_party, self.penalty, MECHANISM)

    def read(self, release: Release) -> Answer:
        scaled, remarks = released_coefficients(release)
        estimate = self._unscaled(scaled, *self.scaling)
        interval = None if release.exact else Interval.none(len(scaled), NO_INTERVAL)
        return Answer(estimate, interval, release.records, remarks, foretold=release.exact)

    def _unscaled(self, scaled: Column, middle: Column, half: Column) -> Coefficients:
        slopes = scaled[1:] / half
        told = [float(scaled[0] - slopes @ middle), *slopes.tolist()]
        return Coefficients(self.label, self.terms, told, [math.nan] * len(told))

    def reference(self, holdings: Holdings) -> Estimate:
        """The coefficients by maximum likelihood on the raw columns, each standardised."""
        labels = positives_of(holdings.column(self.label), self.label, self.positive)
        raw = np.stack(list(self.raw(holdings).values()), axis=1)
        middle, half = raw.mean(axis=0), np.maximum(raw.std(axis=0), 1e-300)
        design = np.column_stack([np.ones(holdings.rows), (raw - middle) / half])
        penalty = EXACT_PENALTY * holdings.rows
        scaled = minimum(design, labels, penalty, np.zeros(len(self.terms)))
        return self._unscaled(scaled, middle, half)
