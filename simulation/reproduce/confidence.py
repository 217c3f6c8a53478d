"""Means over runs, with confidence intervals."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy import stats

CONFIDENCE = 0.999


@dataclass(frozen=True)
class Mean:
    """The mean over independent runs and half the width of its two-sided Student interval."""

    value: float
    half_width: float

    @classmethod
    def of(cls, samples: Sequence[float], confidence: float = CONFIDENCE) -> Self:
        """Raises ValueError for fewer than two samples, which give no interval."""
        count = len(samples)
        if count < 2:
            raise ValueError("an interval needs at least two runs")
        spread = float(np.std(samples, ddof=1)) / count**0.5
        quantile = float(stats.t.ppf(0.5 + confidence / 2, count - 1))
        return cls(float(np.mean(samples)), quantile * spread)

    @property
    def lower(self) -> float:
        return self.value - self.half_width

    @property
    def upper(self) -> float:
        return self.value + self.half_width

    def surely_below(self, bound: float) -> bool:
        return self.upper < bound

    def surely_above(self, bound: float) -> bool:
        return self.lower > bound

    def covers(self, value: float) -> bool:
        return self.lower <= value <= self.upper
