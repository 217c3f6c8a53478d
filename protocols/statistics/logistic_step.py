"""One Newton step of logistic regression: noisy sums of the gradient and of the curvature.

Columns are clipped and scaled to z within [−1, 1], w = (1, z) has m entries, and with the
probability π = 1/(1 + e^(−wβ)) a record adds (π − y)w to the gradient and π(1 − π)wwᵀ to the
curvature. Entries of the first are within ±1, and replacing a record moves each by 2 at most; those
of the second are within ±¼, on the diagonal within 0 and ¼: ½ at most, and ¼. Together that is
2m + m(m − 1)/4 + m/4 in the 1-norm.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.contract import Encoding, NoisySum, PlainSum
from tallyroom.protocols.plans.encodings import sum_by_party
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.interval import Interval
from tallyroom.protocols.plans.scaled import ScaledColumn
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.estimates import Estimate, Table
from tallyroom.protocols.statistics.labels import is_positive, positives_of
from tallyroom.protocols.statistics.ranged import MAX_COLUMNS, Ranged
from tallyroom.protocols.statistics.release import Answer, Release

STEPS = 1 << 20
"""Of the grid, in 1."""
MAX_COEFFICIENT = 1e6
"""Of scaled columns. Sums of larger ones could overflow to no number, which has no sensitivity."""


@dataclass(frozen=True)
class LogisticColumns(Ranged):
    """A label by columns that are clipped and scaled to [−1, 1]: what all ways to fit a logistic
    regression read."""

    x: tuple[str, ...] = ("x",)
    label: str = "label"
    positive: float | None = None

    way_of: ClassVar[str] = "logistic-regression"

    def __post_init__(self) -> None:
        if not self.x or len(set(self.columns)) != len(self.columns):
            raise LocalError("--x names one column or more, each once, and none is the label")
        if len(self.columns) > MAX_COLUMNS:
            raise LocalError(f"a regression is of at most {MAX_COLUMNS} columns, not more")
        super().__post_init__()

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.x, self.label)

    @property
    def bounded(self) -> tuple[str, ...]:
        return self.x

    @property
    def terms(self) -> list[str]:
        return ["intercept", *self.x]

    @property
    def positive_label(self) -> float:
        return 1.0 if self.positive is None else float(self.positive)


@dataclass(frozen=True)
class LossDerivatives(Encoding):
    """Gradient and curvature of a record's logistic loss, at coefficients of scaled columns."""

    scaled: tuple[ScaledColumn, ...]
    label: str
    positive: float
    at: tuple[float, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return (*(each.name for each in self.scaled), self.label)

    @cached_property
    def pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Rows and columns of the entries of the curvature."""
        rows, columns = np.triu_indices(len(self.at))
        return rows, columns

    @property
    def length(self) -> int:
        return len(self.at) + len(self.pairs[0])

    @property
    def sensitivity(self) -> int:
        """Rounding moves each entry by half a step more, on both sides."""
        m = len(self.at)
        return (8 * m + m * (m - 1) + m) * STEPS // 4 + self.length

    def real(self, holdings: Holdings) -> Column:
        """What each record adds, before it is rounded."""
        columns = (each.of(holdings) for each in self.scaled)
        design = np.stack([np.ones(holdings.rows), *columns], axis=1)
        labels = is_positive(holdings.column(self.label), self.positive)
        probability = 0.5 * (1 + np.tanh(design @ np.array(self.at) / 2))
        rows, places = self.pairs
        curvature = (probability * (1 - probability))[:, None] * design[:, rows] * design[:, places]
        return np.concatenate([(probability - labels)[:, None] * design, curvature], axis=1)

    def encode(self, holdings: Holdings) -> Vector:
        whole = np.rint(self.real(holdings) * STEPS).astype(np.int64)
        return sum_by_party(whole.view(np.uint64), holdings)

    @property
    def measurement(self) -> None:
        return None

    @property
    def grid_step(self) -> float:
        return 1 / STEPS

    @property
    def grid_words(self) -> str:
        return f"values are rounded to multiples of {self.grid_step:.3g}"


@dataclass(frozen=True)
class LogisticStep(LogisticColumns):
    """Gradient and curvature of the logistic loss at public coefficients of scaled columns."""

    at: tuple[float, ...] = (0.0, 0.0)

    name: ClassVar[str] = "logistic-step"

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.at) != len(self.x) + 1 or not all(abs(at) <= MAX_COEFFICIENT for at in self.at):
            raise LocalError(
                f"{len(self.x)} columns have {len(self.x) + 1} coefficients, each from "
                f"{-MAX_COEFFICIENT:g} to {MAX_COEFFICIENT:g}"
            )

    @property
    def _derivatives(self) -> LossDerivatives:
        at = tuple(float(each) for each in self.at)
        return LossDerivatives(self.scaled, self.label, self.positive_label, at)

    def plan(self, facts: Facts) -> NoisySum:
        entries = self._derivatives
        strategy = PlainSum(
            entries.length, entries.sensitivity, 1 / STEPS, "gradient and curvature"
        )
        return NoisySum(entries, strategy)

    def read(self, release: Release) -> Answer:
        table = self._table(release.integers / STEPS)
        if (noise := release.noise) is None:
            return Answer(table, None, release.records, foretold=True)
        values = table.values()
        errors = np.full(len(values), math.sqrt(noise.variance) / STEPS)
        interval = Interval.around(values, errors, noise.width(), (-math.inf, math.inf))
        return Answer(table, interval, release.records, foretold=noise.law_is_public)

    def _table(self, sums: Column) -> Table:
        """A row for each term: its gradient, and its row of the curvature."""
        m = len(self.terms)
        curvature = np.zeros((m, m))
        curvature[np.triu_indices(m)] = sums[m:]
        curvature = curvature + np.triu(curvature, 1).T
        cells = np.column_stack([sums[:m], curvature])
        return Table(self.terms, ["gradient", *self.terms], cells.tolist())

    def reference(self, holdings: Holdings) -> Estimate:
        positives_of(holdings.column(self.label), self.label, self.positive)
        return self._table(self._derivatives.real(holdings).sum(axis=0))
