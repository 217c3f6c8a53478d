"""A noise law of another package: the sum of two discrete Laplace noises, whose scale is in
quarters."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tallyroom.extend import (
    DiscreteLaplace,
    Ids,
    NoiseLaw,
    PrivacyLoss,
    Randomness,
    Sensitivity,
)

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Twofold(NoiseLaw):
    """The sum of two discrete Laplace noises.

    With q = e^(−1/s), P(x) ∝ q^|x|·(|x| + (1 + q²)/(1 − q²)). It costs what one of the two does:
    the other is post-processing. As s is rounded up to quarters, that may be less than is granted.
    """

    one: DiscreteLaplace

    name: ClassVar[str] = "twofold"
    has_shares: ClassVar[bool] = True

    @classmethod
    def calibrated(cls, loss: PrivacyLoss, sensitivity: Sensitivity, shares: int = 1) -> "Twofold":
        exact = DiscreteLaplace.calibrated(loss, sensitivity).scale
        return cls(DiscreteLaplace(Fraction(math.ceil(4 * exact), 4)))

    def loss(self, sensitivity: Sensitivity) -> PrivacyLoss:
        return self.one.loss(sensitivity)

    def concentrated(self, sensitivity: Sensitivity) -> PrivacyLoss:
        return self.one.concentrated(sensitivity)

    def words(self, step: float = 1.0) -> str:
        return f"two of {self.one.words(step)}"

    @property
    def variance(self) -> float:
        return 2 * self.one.variance

    def log_chance(self, value: int) -> float:
        square = math.exp(-2 / self.one.scale)
        return self.one.log_chance(value) + math.log(abs(value) + (1 + square) / (1 - square))

    def quantile(self, level: float, noises: Fraction | int = 1) -> int:
        return self.one.quantile(level, 2 * noises)

    def width(self, level: float, noises: float) -> float:
        return self.one.width(level, 2 * noises)

    def draw(self, count: int, randomness: Randomness) -> Integers:
        first, second = (self.one.draw(count, randomness) for _ in range(2))
        return first + second

    def draw_shares(self, ids: Ids, enough: int, count: int, randomness: Randomness) -> Integers:
        shares = self.one.draw_shares(ids, enough, 2 * count, randomness)
        return shares[:, :count] + shares[:, count:]
