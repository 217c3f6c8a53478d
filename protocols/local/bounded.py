"""Means of bounded values: round at random to a few grid points, then respond among them.

With two points this is the one-bit mean. More points round less, and lie more: which has the lower
variance depends on ε, so `worst_variance` says it and the caller chooses.
"""

from dataclasses import dataclass

import numpy as np

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.local.contract import Integers, OneValue, Reals, Words
from tallyroom.protocols.local.response import RandomizedResponse

MAX_STEPS = 1 << 32


@dataclass(frozen=True)
class BoundedResponse(OneValue):
    """Inputs are whole numbers from 0 to `steps`; the estimate is of their sum."""

    response: RandomizedResponse
    steps: int

    def __post_init__(self) -> None:
        if not 1 <= self.steps <= MAX_STEPS or self.values > 1 << 20:
            raise LocalError(f"{self.steps} steps cannot be rounded to {self.values} points")

    @property
    def values(self) -> int:
        return self.response.values

    @property
    def alphabet(self) -> int:
        return self.values

    @property
    def name(self) -> str:
        kind = "one bit" if self.values == 2 else f"{self.values} grid points"
        return f"random rounding to {kind}, of all grids the least variance; {self.response.name}"

    @property
    def words(self) -> int:
        return 2

    def randomize(self, inputs: Integers, words: Words) -> Integers:
        """Rounding is unbiased but for 2^-64 of a grid cell, and costs no privacy: it is done
        before the response, which is private for any input."""
        cells, steps = np.uint64(self.values - 1), np.uint64(self.steps)
        place = inputs.astype(np.uint64) * cells
        below, rest = place // steps, place % steps
        half = np.uint64(32)
        high, rest = (rest << half) // steps, (rest << half) % steps
        threshold = (high << half) | ((rest << half) // steps)
        points = below + (words[:, 0] < threshold)
        return self.response.randomize(points.astype(np.int64), words[:, 1:])

    @property
    def gain(self) -> float:
        return self.steps * self.response.gain

    def estimate(self, counts: Integers) -> Reals:
        """(Σy - n(1-λ)/2)/λ in units of the range, with λ = p - q: a response says its input with
        probability λ, and anything at all, ½ on average, with probability 1 - λ."""
        truthful = self.response.truthful
        reported = float(counts @ np.arange(self.values)) / (self.values - 1)
        total = (reported - int(counts.sum()) * (1 - truthful) / 2) / truthful
        return np.array([total * self.steps])

    def variances(self, estimates: Reals, reports: int) -> Reals:
        """At most this, whatever the values are."""
        return np.array([reports * self.worst_variance * float(self.steps) ** 2])

    @property
    def worst_variance(self) -> float:
        """The largest variance of one record's estimate, for a range of 1.

        Between two grid points the second moment of a report is linear in x and its mean as well,
        so the variance is concave there and its peak is where the derivative is 0, or an end.
        """
        truthful = self.response.truthful
        left = np.arange(self.values - 1) / (self.values - 1)
        right = left + 1 / (self.values - 1)
        # E[G²] = (l + r)x - lr on [l, r]; E[y] = λx + (1-λ)/2
        peak = ((left + right) / truthful - (1 - truthful) / truthful) / 2
        x = np.clip(peak, left, right)
        return float(self._variance((left + right) * x - left * right, x).max())

    def variance(self, x: float) -> float:
        """Of the estimate of one record at `x` of the range."""
        place = x * (self.values - 1)
        fraction = place - np.floor(place)
        second = x**2 + fraction * (1 - fraction) / (self.values - 1) ** 2
        return float(self._variance(np.array([second]), np.array([x]))[0])

    def _variance(self, second_moment: Reals, x: Reals) -> Reals:
        k, truthful = self.values, self.response.truthful
        uniform = (2 * k - 1) / (6 * (k - 1))
        moment = truthful * second_moment + (1 - truthful) * uniform
        mean = truthful * x + (1 - truthful) / 2
        return np.asarray((moment - mean**2) / truthful**2, dtype=np.float64)
