"""A Newton step of logistic regression on whitened columns, where far records weigh less.

A record is v = (1, A(z − c)) for a public centre c and a public matrix A, of m entries. It weighs
k = min(1, (R₁/‖v‖₁)², (R₂/‖v‖₂)²) for public R₁ and R₂, whatever its label: a Mallows weight, under
which coefficients are those of the logistic model still (Künsch, Stefanski and Carroll 1989). With
π = 1/(1 + e^(−vθ)) it adds k(π − y)v to the gradient and ωkπ(1 − π)vvᵀ, the upper triangle, to the
curvature.

**Sensitivity.** Let r = |π − y|, so that π(1 − π) = r(1 − r). The gradient's part has a 1-norm of
rR₁ at most, and the curvature's of ωr(1 − r)(R₁² + R₂²)/2. With ω ≤ 2R₁/(R₁² + R₂²) that is
R₁(r + r(1 − r)) ≤ R₁ together: where the gradient is long the curvature vanishes, so that the
curvature costs nothing. In squares of the 2-norm it is R₂²r²(1 + (1 − r)²) ≤ R₂² for ω ≤ 1/R₂.
Replacing a record moves the sums by twice that.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.noise_law import Sensitivity
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.logistic_step import (
    MAX_COEFFICIENT,
    STEPS,
    LossDerivatives,
    Matrix,
    ReadsDerivatives,
)

MEAN_SIZE = 0.8
"""The mean of |u| for a standard normal u, nearly: R₁ is the 1-norm of a typical record."""
FAR = 1.5
"""R₂ is so many times √m, the 2-norm of a typical record."""


@dataclass(frozen=True)
class Reach:
    """How far a record of m whitened entries reaches before it weighs less."""

    terms: int

    @property
    def one_norm(self) -> float:
        return 1 + MEAN_SIZE * (self.terms - 1)

    @property
    def two_norm(self) -> float:
        return FAR * math.sqrt(self.terms)

    @property
    def curvature_weight(self) -> float:
        """ω."""
        squares = self.one_norm**2 + self.two_norm**2
        return min(2 * self.one_norm / squares, 1 / self.two_norm)

    def weights(self, design: Matrix) -> Column:
        ones, twos = np.abs(design).sum(axis=1), np.sqrt((design**2).sum(axis=1))
        nearest = np.minimum(self.one_norm / ones, self.two_norm / twos)
        found: Column = np.minimum(1.0, nearest) ** 2
        return found


@dataclass(frozen=True)
class WhitenedDerivatives(LossDerivatives):
    """Gradient and curvature of a record's weighted logistic loss; `whitening` is A by rows. The
    curvature is told in units of ω, so that all values have the same noise."""

    centre: tuple[float, ...]
    whitening: tuple[float, ...]

    @property
    def sensitivity(self) -> Sensitivity:
        """Rounding moves each entry by half a step, in both records; one step more is for doubles,
        which err by far less."""
        reach = Reach(len(self.at))
        far = 2 * STEPS * reach.two_norm + math.sqrt(self.length)
        one_norm = math.ceil(2 * STEPS * reach.one_norm) + self.length + 1
        return Sensitivity(one_norm, min(math.ceil(far + 1) ** 2, one_norm**2))

    def design(self, holdings: Holdings) -> Matrix:
        """v of each record."""
        z = np.stack([each.of(holdings) for each in self.scaled], axis=1)
        matrix = np.reshape(self.whitening, (len(self.scaled),) * 2)
        turned = [((z - np.array(self.centre)) * row).sum(axis=1) for row in matrix]
        return np.stack([np.ones(holdings.rows), *turned], axis=1)

    def weighed(self, design: Matrix) -> tuple[Matrix, Matrix]:
        reach = Reach(len(self.at))
        weights = reach.weights(design)[:, None]
        return weights * design, reach.curvature_weight * weights * design


@dataclass(frozen=True)
class WhitenedStep(ReadsDerivatives):
    """Gradient and curvature of the weighted logistic loss at public coefficients θ of whitened
    columns."""

    centre: tuple[float, ...] = (0.0,)
    whitening: tuple[float, ...] = (1.0,)
    at: tuple[float, ...] = (0.0, 0.0)

    name: ClassVar[str] = "whitened-step"
    summed: ClassVar[str] = "weighted gradient and curvature"

    def __post_init__(self) -> None:
        super().__post_init__()
        public = (*self.centre, *self.whitening, *self.at)
        if not all(abs(each) <= MAX_COEFFICIENT for each in public):
            raise LocalError(
                "centre, whitening and coefficients are from "
                f"{-MAX_COEFFICIENT:g} to {MAX_COEFFICIENT:g}"
            )

    @property
    def derivatives(self) -> WhitenedDerivatives:
        at, centre, whitening = (
            tuple(float(each) for each in numbers)
            for numbers in (self.at, self.centre, self.whitening)
        )
        d = len(self.design)
        if (len(centre), len(whitening), len(at)) != (d, d * d, d + 1):
            raise LocalError(
                f"{d} columns have a centre of {d} numbers, {d * d} numbers that whiten them and "
                f"{d + 1} coefficients"
            )
        return WhitenedDerivatives(
            self.scaled, self.label, self.positive_label, at, centre, whitening
        )

    @property
    def names(self) -> list[str]:
        return ["intercept", *(f"direction {at}" for at in range(1, len(self.at)))]
