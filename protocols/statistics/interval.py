"""What an answer is off by: standard errors and 95 % intervals of the noise, which cost no ε.

They are made of what was released and of the public law of the noise. They tell what the noise did,
and nothing of what clipping, the grid or sampling of pairs did.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from protocols.records import Column

LEVEL = 0.95
NORMAL = 1.959963984540054
"""Standard deviations to either side that hold 95 % of a normal law."""


@dataclass(frozen=True)
class Interval:
    """For each value of an estimate its standard error, and the ends of its 95 % interval."""

    errors: Column
    low: Column
    high: Column
    unknown: str = ""
    """Why there is none, if there is none: then all numbers are NaN."""
    without: str = ""
    """What else varies the answer, if something does."""

    @classmethod
    def none(cls, size: int, why: str) -> "Interval":
        nothing = np.full(size, np.nan)
        return cls(nothing, nothing, nothing, why)

    @classmethod
    def around(
        cls, values: Column, errors: Column, width: float, span: tuple[float, float]
    ) -> "Interval":
        """So many standard errors to either side, within what is possible."""
        errors = np.broadcast_to(errors, values.shape)
        half = width * errors
        return cls(errors, np.clip(values - half, *span), np.clip(values + half, *span))

    def holding(self, values: Column) -> "Interval":
        """Widened where it must be to hold these values."""
        low, high = np.minimum(self.low, values), np.maximum(self.high, values)
        return replace(self, low=low, high=high)


@lru_cache(maxsize=64)
def laplace_width(noises: int) -> float:
    """Standard deviations to either side that hold 95 % of a sum of so many Laplace noises.

    |sum| is a mixture of Gamma(k + 1), k < m, with weights C(2m − 2 − k, m − 1)·2^k / 4^(m−1).
    """
    weights = [
        math.comb(2 * noises - 2 - k, noises - 1) * 2**k / 4 ** (noises - 1) for k in range(noises)
    ]

    def beyond(x: float) -> float:
        term, erlang, tail = math.exp(-x), 0.0, 0.0
        for k, weight in enumerate(weights):
            erlang += term
            tail += weight * erlang
            term *= x / (k + 1)
        return tail

    low, high = 0.0, 40.0 * math.sqrt(noises)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if beyond(middle) > 1 - LEVEL else (low, middle)
    return high / math.sqrt(2 * noises)
