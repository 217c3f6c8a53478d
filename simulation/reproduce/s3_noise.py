"""S3's own mechanism: its noise and its sensitivity of average precision, as printed.

This project's, with tighter constants, is `protocols.privacy.smooth_sensitivity`.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.privacy.rounded_noise import Cauchy, Laplace, rounded
from tallyroom.protocols.randomness import Randomness

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class S3Noise:
    """S3's Theorem 2: Cauchy noise of scale 6S/ε with β = ε/6 where δ = 0, otherwise Laplace noise
    of scale 2S/ε with β = ε/(2 ln(2/δ))."""

    epsilon: Fraction
    delta: float = 0.0

    @property
    def beta(self) -> float:
        if self.delta:
            return float(self.epsilon) / (2 * math.log(2 / self.delta))
        return float(self.epsilon) / 6

    def release(
        self, value: Fraction, smooth: float, grid: Fraction, randomness: Randomness
    ) -> Fraction:
        scale = (2 if self.delta else 6) * Fraction(smooth) / self.epsilon
        return grid * rounded(value, scale, grid, Laplace if self.delta else Cauchy, randomness)


def smooth_average_precision(positives: int, negatives: int, beta: float) -> float:
    """S3's Theorem 6 with the local sensitivity of its Eq. 10, which is capped at 1 here: without
    the cap it exceeds the range of average precision for small n."""
    n = np.arange(2, positives + negatives + 1, dtype=np.float64)
    lost, gained = np.log(n + 1) / n, (9 + np.log(n)) / (4 * n)
    removed = (9 + np.log(n - 1)) / (4 * (n - 1))
    bound = np.maximum(lost, removed) + np.maximum(lost, gained)
    local: Vector = np.minimum(1.0, np.concatenate([np.ones(2), bound]))
    distance = np.abs(np.arange(len(local)) - positives)
    return float((local * np.exp(-beta * distance)).max())
