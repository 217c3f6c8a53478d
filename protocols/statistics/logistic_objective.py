"""Logistic regression by objective perturbation: a curator has the records, and one release."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.privacy.laplace import Integers
from tallyroom.protocols.privacy.objective import GRID, STEPS, minimum
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.statistics.by_objective import EXACT_PENALTY, ByObjective
from tallyroom.protocols.statistics.coefficients import Coefficients
from tallyroom.protocols.statistics.drawing import Style
from tallyroom.protocols.statistics.estimates import Estimate
from tallyroom.protocols.statistics.labels import is_positive, positives_of
from tallyroom.protocols.statistics.logistic_columns import LogisticColumns


@dataclass(frozen=True)
class LogisticObjective(ByObjective, LogisticColumns):
    """Coefficients of a logistic model by objective perturbation."""

    name: ClassVar[str] = "logistic-objective"
    style: ClassVar[Style] = Style("marks", "coefficient", "")
    no_interval: ClassVar[str] = "objective perturbation publishes coefficients and nothing else"

    @property
    def width(self) -> int:
        """The columns, and the label."""
        return len(self.x) + 1

    @property
    def released(self) -> int:
        return len(self.terms)

    def words_of(self, holdings: Holdings) -> Integers:
        scaled = (self.scaled(holdings, name) for name in self.x)
        columns = [np.rint(each * STEPS).astype(np.int64) for each in scaled]
        labels = is_positive(holdings.column(self.label), self.positive)
        return np.stack([*columns, labels.astype(np.int64)], axis=1)

    def records_of(self, total: Vector) -> tuple[Integers, NDArray[np.bool]]:
        """Whatever parties sent: entries within [−1, 1], the constant first, and classes."""
        rows = self.rows_of(total)
        entries = np.clip(rows[:, :-1], -STEPS, STEPS)
        return np.column_stack([np.full(len(rows), STEPS), entries]), rows[:, -1] != 0

    def published_words(self, epsilon: Fraction, delta: float) -> str:
        return (
            "objective perturbation: K-norm noise of scale "
            f"{2 / float(self.mechanism(epsilon, 1).noise):.6g} at most on the gradient; the "
            "curator must see every record"
        )

    def decode(self, released: Vector, records: int, exact: bool = False) -> Estimate:
        scaled = self.coefficients(released, exact)
        middle, half = self.scaling
        slopes = scaled[1:] / half
        told = [float(scaled[0] - slopes @ middle), *slopes.tolist()]
        return Coefficients(self.label, self.terms, told, [math.nan] * len(told))

    @property
    def grid_step(self) -> float:
        """Of coefficients of columns scaled to [−1, 1]."""
        return 1 / GRID

    def reference(self, holdings: Holdings) -> Estimate:
        """By maximum likelihood on the raw columns, each less its mean and over its deviation."""
        labels = positives_of(holdings.column(self.label), self.label, self.positive)
        raw = np.stack([holdings.column(name) for name in self.x], axis=1)
        middle, half = raw.mean(axis=0), np.maximum(raw.std(axis=0), 1e-300)
        design = np.column_stack([np.ones(holdings.rows), (raw - middle) / half])
        penalty = EXACT_PENALTY * holdings.rows
        scaled = minimum(design, labels, penalty, np.zeros(len(self.terms)))
        slopes = scaled[1:] / half
        told = [float(scaled[0] - slopes @ middle), *slopes.tolist()]
        return Coefficients(self.label, self.terms, told, [math.nan] * len(told))
