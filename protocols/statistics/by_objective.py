"""Models that a curator fits by objective perturbation, from records that it gathers."""

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.contract import Curated, CuratorMechanism, Integers
from tallyroom.protocols.plans.gathered import GatheredRows, RecordWords
from tallyroom.protocols.privacy.objective import (
    GRID,
    MAX_PENALTY,
    STEPS,
    ObjectivePerturbation,
    minimum,
)
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Column
from tallyroom.protocols.statistics.release import Release

EXACT_GRID = 1 << 40
"""Steps in 1 of the grid of coefficients without noise."""
EXACT_PENALTY = 1e-9
"""The λ for each record when there is no noise. It does not move coefficients that the records
determine, and gives an answer for separable classes and collinear columns."""
CERTAIN = 20.0
"""A coefficient of a term within [−1, 1] beyond this makes a prediction as good as certain: odds of
e^20 to 1."""
FARTHEST = (1 << 20) * GRID
"""The largest coefficient that is published; larger ones are clipped to it."""


class TwoClasses(RecordWords):
    """Records of terms within [−1, 1], each of one class or of all others."""

    @property
    @abstractmethod
    def terms(self) -> int:
        """The number of terms of a record, including the constant."""

    @property
    @abstractmethod
    def largest_square(self) -> int:
        """The largest square of the 2-norm of a record's terms."""

    @abstractmethod
    def records_of(self, rows: Integers) -> tuple[Integers, NDArray[np.bool]]:
        """Reads whatever parties sent as rows of terms within [−1, 1] in `STEPS`, and classes."""


@dataclass(frozen=True)
class ObjectiveFit(CuratorMechanism):
    """Releases coefficients of the terms. λ is at least `penalty` for each record; `described`
    names the mechanism, and may mention the largest {scale} of its noise."""

    record: TwoClasses
    max_records: int
    penalty: float
    described: str

    @property
    def rows(self) -> GatheredRows:
        return GatheredRows(self.record, self.max_records)

    @property
    def released(self) -> int:
        return self.record.terms

    def perturbation(self, epsilon: Fraction, records: int) -> ObjectivePerturbation:
        """The perturbation for so many records."""
        penalty = min(self.penalty * records, MAX_PENALTY)
        square = self.record.largest_square
        return ObjectivePerturbation.spending(epsilon, self.released, penalty, square)

    def publish(
        self, total: Vector, epsilon: Fraction, delta: float, randomness: Randomness
    ) -> Vector:
        records, positive = self.record.records_of(self.rows.rows_of(total))
        found = self.perturbation(epsilon, len(records)).fit(records, positive, randomness)
        return np.clip(found, -FARTHEST, FARTHEST).view(np.uint64)

    def publish_exactly(self, total: Vector) -> Vector:
        records, positive = self.record.records_of(self.rows.rows_of(total))
        penalty = max(self.penalty, EXACT_PENALTY) * len(records)
        found = minimum(records / STEPS, positive, penalty, np.zeros(self.released))
        return np.rint(found * EXACT_GRID).astype(np.int64).view(np.uint64)

    def words(self, epsilon: Fraction, delta: float) -> str:
        return self.described.format(scale=2 / float(self.perturbation(epsilon, 1).noise))

    def numeric_delta(self, delta: float) -> float:
        return 0.0


def objective_plan(record: TwoClasses, max_records: int, penalty: float, words: str) -> Curated:
    mechanism = ObjectiveFit(record, max_records, float(penalty), words)
    return Curated(mechanism.rows, mechanism, gathered=True)


def check_penalty(penalty: float) -> None:
    if not 0 <= penalty <= MAX_PENALTY:
        raise LocalError(f"--penalty is from 0 to {MAX_PENALTY:g}, not {penalty:g}")


def released_coefficients(release: Release) -> tuple[Column, tuple[str, ...]]:
    """The coefficients of terms within [−1, 1], and remarks on them for the user."""
    found: Column = release.integers / (EXACT_GRID if release.exact else GRID)
    if np.abs(found).max() <= CERTAIN:
        return found, ()
    return found, (
        f"coefficients are beyond ±{CERTAIN:g} on columns scaled to [−1, 1]: the classes are "
        "separable, so that the penalty alone holds them back, or bounds are far wider than "
        "the values",
    )
