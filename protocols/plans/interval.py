"""What an answer is off by: standard errors and 95 % intervals of the noise, which cost no ε.

They are made of what was released and of the public law of the noise. They tell what the noise did,
and nothing of what clipping, the grid or sampling of pairs did.
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

import numpy as np

from tallyroom.protocols.privacy.noise_sums import laplace_quantile
from tallyroom.protocols.records import Column

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


MANY = 1000
"""Noises whose sum is as good as normal: its excess kurtosis is 0.003 or less."""
SMOOTH = 10**6
"""Of such a scale, a sum of discrete Laplace noises is as good as one of continuous noises."""


@lru_cache(maxsize=256)
def noise_width(noises: float, variance: float) -> float:
    """Standard deviations to either side that hold 95 % of a sum of so many discrete Laplace noises
    of this variance together, which is above 0; shares of noise make parts of one.

    Such a sum is an integer. With little noise a few integers hold nearly all of it, and what holds
    95 % of a continuous law may hold 82 %: so it is the least integer that holds at least 95 %.
    """
    each = variance / noises
    scale = 1 / (2 * math.asinh(math.sqrt(1 / (2 * each))))
    if noises > MANY and variance > MANY:
        return NORMAL
    upto = (1 + LEVEL) / 2
    return laplace_quantile(upto, Fraction(scale), Fraction(noises)) / math.sqrt(variance)


@lru_cache(maxsize=256)
def laplace_width(noises: float) -> float:
    """Standard deviations to either side that hold 95 % of a sum of so many Laplace noises.

    Of one it is ln(20)/√2 = 2.12, and it falls to 1.96 as noises become many.
    """
    return noise_width(noises, 2 * noises * SMOOTH**2)
