"""One Newton step of logistic regression: noisy sums of the gradient and of the curvature.

Columns are clipped and scaled to z within [−1, 1], w = (1, z) has m entries, and with the
probability π = 1/(1 + e^(−wβ)) a record adds (π − y)w to the gradient and π(1 − π)wwᵀ to the
curvature. Entries of the first are within ±1, and replacing a record moves each by 2 at most; those
of the second are within ±¼, on the diagonal within 0 and ¼: ½ at most, and ¼. Together that is
2m + m(m − 1)/4 + m/4 in the 1-norm.
"""

from abc import abstractmethod
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
from tallyroom.protocols.plans.scaled import ScaledColumn, columns_of
from tallyroom.protocols.privacy.noise_law import Sensitivity
from tallyroom.protocols.privacy.objective import probability
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.estimates import Estimate, Table
from tallyroom.protocols.statistics.labels import is_positive, positives_of
from tallyroom.protocols.statistics.release import Answer, Release
from tallyroom.protocols.statistics.terms import OfTerms

Matrix = NDArray[np.float64]

STEPS = 1 << 20
"""Steps of the grid in 1."""
MAX_COEFFICIENT = 1e6
"""The largest coefficient of a scaled column. Sums of larger ones could overflow to NaN, which has
no sensitivity."""


@dataclass(frozen=True)
class LogisticColumns(OfTerms):
    """A label and columns clipped and scaled to [−1, 1], which all ways to fit a logistic
    regression read."""

    x: tuple[str, ...] = ("x",)
    label: str = "label"
    positive: float | None = None

    part_of: ClassVar[str] = "logistic-regression"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_terms()

    @property
    def target(self) -> str:
        return self.label

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
        return (*columns_of(self.scaled), self.label)

    @cached_property
    def pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Rows and columns of the entries of the curvature."""
        rows, columns = np.triu_indices(len(self.at))
        return rows, columns

    @property
    def length(self) -> int:
        return len(self.at) + len(self.pairs[0])

    @property
    def sensitivity(self) -> Sensitivity:
        """Entries of the gradient move by 2 at most; of the curvature, by ¼ on the diagonal and by
        ½ beside it. Rounding moves each by half a step more, on both sides."""
        m = len(self.at)
        moves = {2 * STEPS + 1: m, STEPS // 4 + 1: m, STEPS // 2 + 1: m * (m - 1) // 2}
        return Sensitivity(
            sum(many * each for each, many in moves.items()),
            sum(many * each**2 for each, many in moves.items()),
        )

    def design(self, holdings: Holdings) -> Matrix:
        """w of each record."""
        columns = (each.of(holdings) for each in self.scaled)
        return np.stack([np.ones(holdings.rows), *columns], axis=1)

    def weighed(self, design: Matrix) -> tuple[Matrix, Matrix]:
        """w of each record times its weight in the gradient, and in the curvature."""
        return design, design

    def real(self, holdings: Holdings) -> Matrix:
        """The contribution of each record, before it is rounded."""
        design = self.design(holdings)
        in_gradient, in_curvature = self.weighed(design)
        # A sum over each row by itself: a product of matrices rounds by how many rows there are.
        chance = np.asarray(probability((design * np.array(self.at)).sum(axis=1)))
        residual = chance - is_positive(holdings.column(self.label), self.positive)
        rows, places = self.pairs
        bend = chance * (1 - chance)
        curvature = bend[:, None] * in_curvature[:, rows] * design[:, places]
        return np.concatenate([residual[:, None] * in_gradient, curvature], axis=1)

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


class ReadsDerivatives(LogisticColumns):
    """A step, which releases the gradient and the curvature of a loss at public coefficients."""

    summed: ClassVar[str]

    @property
    @abstractmethod
    def derivatives(self) -> LossDerivatives:
        """What each record adds."""

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """The terms that the gradient is about."""

    def plan(self, facts: Facts) -> NoisySum:
        entries = self.derivatives
        return NoisySum(entries, PlainSum.of(entries, unit=1 / STEPS, summed=self.summed))

    def read(self, release: Release) -> Answer:
        return release.table(self._table(release.integers / STEPS), 1 / STEPS)

    def _table(self, sums: Column) -> Table:
        """A row for each term: its gradient, and its row of the curvature."""
        m = len(self.names)
        curvature = np.zeros((m, m))
        curvature[np.triu_indices(m)] = sums[m:]
        curvature = curvature + np.triu(curvature, 1).T
        cells = np.column_stack([sums[:m], curvature])
        return Table(self.names, ["gradient", *self.names], cells.tolist())

    def reference(self, holdings: Holdings) -> Estimate:
        positives_of(holdings.column(self.label), self.label, self.positive)
        return self._table(self.derivatives.real(holdings).sum(axis=0))


@dataclass(frozen=True)
class LogisticStep(ReadsDerivatives):
    """Gradient and curvature of the logistic loss at public coefficients of scaled columns."""

    at: tuple[float, ...] = (0.0, 0.0)

    name: ClassVar[str] = "logistic-step"
    summed: ClassVar[str] = "gradient and curvature"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(abs(at) <= MAX_COEFFICIENT for at in self.at):
            raise LocalError(f"coefficients are from {-MAX_COEFFICIENT:g} to {MAX_COEFFICIENT:g}")

    @property
    def derivatives(self) -> LossDerivatives:
        at = tuple(float(each) for each in self.at)
        if len(at) != len(self.terms):
            raise LocalError(f"{len(self.terms)} terms have as many coefficients, not {len(at)}")
        return LossDerivatives(self.scaled, self.label, self.positive_label, at)

    @property
    def names(self) -> list[str]:
        return self.terms
