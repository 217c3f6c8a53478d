"""Means of bounded values: round at random to a few grid points, then respond among them.

With two points this is the one-bit mean. With more points there is less rounding but more lying.
Which has the lower variance depends on ε: `worst_variance` computes it and the caller chooses.
"""

from dataclasses import dataclass

import numpy as np

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.local.contract import Integers, OneValue, Reals, Words
from tallyroom.protocols.local.response import RandomizedResponse

MAX_STEPS = 1 << 32


@dataclass(frozen=True)
class BoundedResponse(OneValue):
    """Inputs are whole numbers from 0 to `steps`; the estimate is their sum."""

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
        """Rounds, then responds. Rounding is unbiased up to 2^-64 of a grid cell and costs no
        privacy, because the response after it is private for any input."""
        cells, steps = np.uint64(self.values - 1), np.uint64(self.steps)
        place = inputs.astype(np.uint64) * cells
        below, rest = place // steps, place % steps
        half = np.uint64(32)
        high, rest = (rest << half) // steps, (rest << half) % steps
        cut = (high << half) | ((rest << half) // steps)
        points = below + (words[:, 0] < cut)
        return self.response.randomize(points.astype(np.int64), words[:, 1:])

    @property
    def gain(self) -> float:
        return self.steps * self.response.gain

    def estimate(self, counts: Integers) -> Reals:
        """(Σy - n(1-λ)/2)/λ in units of the range, with λ = p - q: with probability λ a response is
        its input, and otherwise it is uniform, ½ on average."""
        truthful = self.response.truthful
        reported = float(counts @ np.arange(self.values)) / (self.values - 1)
        total = (reported - int(counts.sum()) * (1 - truthful) / 2) / truthful
        return np.array([total * self.steps])

    def variances(self, estimates: Reals, reports: int) -> Reals:
        """A bound that holds whatever the values are."""
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
        """The variance of the estimate from one record at `x`, where the range is [0, 1]."""
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
