"""What models that a curator fits by objective perturbation have in common."""

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import Vector, signed
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.laplace import Integers
from tallyroom.protocols.privacy.objective import (
    GRID,
    MAX_PENALTY,
    STEPS,
    ObjectivePerturbation,
    minimum,
)
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Column
from tallyroom.protocols.statistics.gathered import Gathered

EXACT_GRID = 1 << 40
"""Of coefficients without noise."""
EXACT_PENALTY = 1e-9
"""λ for each record where there is no noise: it moves no coefficient that is determined, and gives
separable classes and collinear columns an answer."""
CERTAIN = 20.0
"""Of coefficients of terms within [−1, 1]: e^20 to 1 is as good as certain."""
FARTHEST = (1 << 20) * GRID
"""Of coefficients that are published: what lies beyond stands there."""


@dataclass(frozen=True)
class ByObjective(Gathered):
    """`released` is how many terms it has; `penalty` is λ for each record, at least."""

    penalty: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.penalty <= MAX_PENALTY:
            raise LocalError(f"--penalty is from 0 to {MAX_PENALTY:g}, not {self.penalty:g}")

    @abstractmethod
    def records_of(self, total: Vector) -> tuple[Integers, NDArray[np.bool]]:
        """Whatever parties sent, as rows of terms within [−1, 1] in `STEPS`, and classes."""

    @property
    def largest_square(self) -> int:
        """Of the 2-norm of a record's terms."""
        return self.released

    def mechanism(self, epsilon: Fraction, records: int) -> ObjectivePerturbation:
        penalty = min(self.penalty * records, MAX_PENALTY)
        return ObjectivePerturbation.spending(epsilon, self.released, penalty, self.largest_square)

    def published(
        self, total: Vector, epsilon: Fraction, delta: float, randomness: Randomness
    ) -> Vector:
        records, positive = self.records_of(total)
        found = self.mechanism(epsilon, len(records)).fit(records, positive, randomness)
        return np.clip(found, -FARTHEST, FARTHEST).view(np.uint64)

    def published_exactly(self, total: Vector) -> Vector:
        records, positive = self.records_of(total)
        penalty = max(self.penalty, EXACT_PENALTY) * len(records)
        found = minimum(records / STEPS, positive, penalty, np.zeros(self.released))
        return np.rint(found * EXACT_GRID).astype(np.int64).view(np.uint64)

    def remarks(self, released: Vector, exact: bool) -> tuple[str, ...]:
        if np.abs(self.coefficients(released, exact)).max() <= CERTAIN:
            return ()
        return (
            f"coefficients are beyond ±{CERTAIN:g} on columns scaled to [−1, 1]: the classes are "
            "separable, so that the penalty alone holds them back, or bounds are far wider than "
            "the values",
        )

    def coefficients(self, released: Vector, exact: bool) -> Column:
        found: Column = signed(released) / (EXACT_GRID if exact else GRID)
        return found
