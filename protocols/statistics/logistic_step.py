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

from tallyroom.protocols.algebra.ring import Vector, signed
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.contract import sum_by_party
from tallyroom.protocols.statistics.estimates import Estimate, Table
from tallyroom.protocols.statistics.labels import is_positive, positives_of
from tallyroom.protocols.statistics.logistic_columns import LogisticColumns

STEPS = 1 << 20
"""Of the grid, in 1."""
MAX_COEFFICIENT = 1e6
"""Of scaled columns. Sums of larger ones could overflow to no number, which has no sensitivity."""


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

    @cached_property
    def _pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        rows, columns = np.triu_indices(len(self.terms))
        return rows, columns

    @property
    def length(self) -> int:
        return len(self.terms) + len(self._pairs[0])

    @property
    def sensitivity(self) -> int:
        """Rounding moves each entry by half a step more, on both sides."""
        m = len(self.terms)
        return (8 * m + m * (m - 1) + m) * STEPS // 4 + self.length

    def _parts(self, holdings: Holdings) -> Column:
        """What each record adds."""
        columns = (self.scaled(holdings, name) for name in self.x)
        design = np.stack([np.ones(holdings.rows), *columns], axis=1)
        labels = is_positive(holdings.column(self.label), self.positive)
        probability = 0.5 * (1 + np.tanh(design @ np.array(self.at) / 2))
        rows, places = self._pairs
        curvature = (probability * (1 - probability))[:, None] * design[:, rows] * design[:, places]
        return np.concatenate([(probability - labels)[:, None] * design, curvature], axis=1)

    def encode(self, holdings: Holdings) -> Vector:
        whole = np.rint(self._parts(holdings) * STEPS).astype(np.int64)
        return sum_by_party(whole.view(np.uint64), holdings)

    def decode(self, released: Vector, records: int, exact: bool = False) -> Estimate:
        return self._table(signed(released) / STEPS)

    def _table(self, sums: Column) -> Estimate:
        """A row for each term: its gradient, and its row of the curvature."""
        m = len(self.terms)
        curvature = np.zeros((m, m))
        curvature[self._pairs] = sums[m:]
        curvature = curvature + np.triu(curvature, 1).T
        cells = np.column_stack([sums[:m], curvature])
        return Table(self.terms, ["gradient", *self.terms], cells.tolist())

    def reference(self, holdings: Holdings) -> Estimate:
        positives_of(holdings.column(self.label), self.label, self.positive)
        return self._table(self._parts(holdings).sum(axis=0))

    def deviations(self, noise_variance: float, records: int) -> Column:
        m = len(self.terms)
        return np.full(m * (m + 1), math.sqrt(noise_variance) / STEPS)

    @property
    def grid_step(self) -> float:
        return 1 / STEPS

    def mechanism_words(self, scale: float) -> str:
        return (
            f"discrete Laplace of scale {scale / STEPS:.6g} on {self.length} sums of gradient "
            "and curvature"
        )
