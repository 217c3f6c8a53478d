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

    @classmethod
    def of_counts(
        cls, counts: Column, errors: Column, width: float, span: tuple[float, float]
    ) -> "Interval":
        """As `around`, where all that is possible is whole numbers: so are its ends."""
        half = np.floor(width * errors + 1e-6)  # the least integer may come out a hair less
        return cls(errors, np.clip(counts - half, *span), np.clip(counts + half, *span))

    def holding(self, values: Column) -> "Interval":
        """Widened where it must be to hold these values."""
        low, high = np.minimum(self.low, values), np.maximum(self.high, values)
        return replace(self, low=low, high=high)


FINE = 100.0
"""Above this scale a discrete Laplace noise is as good as a continuous one."""


@lru_cache(maxsize=64)
def noise_width(noises: int, variance: float) -> float:
    """Standard deviations to either side that hold 95 % of a sum of so many discrete Laplace noises
    of this variance together, which is above 0.

    Such a sum is an integer. With little noise a few integers hold nearly all of it, and what holds
    95 % of a continuous law may hold 82 %: so it is the least integer that holds at least 95 %.
    """
    each = variance / noises
    scale = 1 / (2 * math.asinh(math.sqrt(1 / (2 * each))))
    if scale > FINE:
        return laplace_width(noises)
    ratio = math.exp(-1 / scale)
    reach = int((40 + 10 * math.sqrt(noises)) * scale) + 4
    away = np.arange(reach)
    one = (1 - ratio) / (1 + ratio) * ratio ** np.minimum(away, reach - away)  # around a circle
    law = np.fft.irfft(np.fft.rfft(one) ** noises, reach)
    inside = law[0] + 2 * np.cumsum(np.append(0.0, law[1 : reach // 2]))
    return int(np.searchsorted(inside, LEVEL)) / math.sqrt(variance)


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
