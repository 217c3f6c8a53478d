"""Why S1's Fig. 4 looks different on the data that is available: errors in closed form.

The gain of P = 1 over randomized response follows from n, ε, the number k of values of a record,
the distribution of the ratings, and the noise of a pair. So the figure's set-up can be changed one
thing at a time: k, ratings with the tau that S1 reports, and noise of the scale that its Theorem 5
states for kernels within [0, 1], which Kendall's is not.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from tallyroom.protocols.local import RandomizedResponse

Reals = NDArray[np.float64]

DELTA_F = 2
S1_TAU = 0.58


@dataclass(frozen=True)
class SetUp:
    """Ratings on `levels` levels, with `shares` of the records in each of the cells. A pair's noise
    has the scale `noise_range`/ε: with less than the kernel's range it costs more than ε."""

    name: str
    levels: int
    shares: Reals
    noise_range: float = DELTA_F

    @property
    def kernel(self) -> Reals:
        first, second = np.divmod(np.arange(self.levels**2), self.levels)
        signs = np.sign(first[:, None] - first) * np.sign(second[:, None] - second)
        return np.asarray(signs, dtype=np.float64)

    @property
    def tau(self) -> float:
        return float(self.shares @ self.kernel @ self.shares)

    def response(self, epsilon: Fraction, n: int) -> float:
        """The deviation of Algorithm 1 given the records: Hoeffding's two terms, with Σ the mean
        covariance of a report."""
        response = RandomizedResponse.spending(epsilon, self.levels**2)
        law = response.q + np.eye(len(self.shares)) * response.truthful
        slope = 2 * response.gain * self.kernel @ self.shares
        first = self.shares @ (law @ slope**2 - (law @ slope) ** 2) / n
        covariance = np.diag(self.shares @ law) - (law.T * self.shares) @ law
        both = self.kernel @ covariance
        second = 2 * response.gain**4 * float(np.sum(both * both.T)) / (n * (n - 1))
        return math.sqrt(first + second)

    def one_pair(self, epsilon: Fraction, n: int) -> float:
        """The deviation with P = 1: that of n/2 pairs' values and of their noise."""
        values = float(self.shares @ self.kernel**2 @ self.shares) - self.tau**2
        return math.sqrt((values + 2 * (self.noise_range / float(epsilon)) ** 2) / (n / 2))

    def gain(self, epsilon: Fraction, n: int) -> float:
        """How many times smaller the error of P = 1 is than that of randomized response."""
        return self.response(epsilon, n) / self.one_pair(epsilon, n)


def on_six_levels(shares: Reals, levels: int) -> Reals:
    """Puts the same records among S1's 36 cells; one level stays empty."""
    wide = np.zeros((6, 6))
    wide[:levels, :levels] = shares.reshape(levels, levels)
    return wide.ravel()


def with_tau(marginal: Reals, tau: float) -> Reals:
    """Cuts two ratings from normal variables whose correlation gives this tau-a."""
    cuts = np.concatenate([[-8.0], stats.norm.ppf(np.cumsum(marginal)[:-1]), [8.0]])

    def shares(correlation: float) -> Reals:
        normal = stats.multivariate_normal(cov=[[1, correlation], [correlation, 1]])
        grid = np.array([[normal.cdf([x, y]) for y in cuts] for x in cuts])
        cells = np.diff(np.diff(grid, axis=0), axis=1).ravel()
        return np.asarray(np.maximum(cells, 0) / np.maximum(cells, 0).sum())

    def miss(correlation: float) -> float:
        return SetUp("", len(marginal), shares(correlation)).tau - tau

    return shares(float(optimize.brentq(miss, 0.1, 0.999, xtol=1e-4)))


def set_ups(shares: Reals, levels: int) -> list[SetUp]:
    """As judged; with S1's k; with six levels all in use and S1's tau; and with the noise that
    Theorem 5 has for kernels within [0, 1], half of what signs from -1 to 1 need."""
    even = with_tau(np.full(6, 1 / 6), S1_TAU)
    return [
        SetUp("this data, k = 25", levels, shares),
        SetUp("this data, k = 36", 6, on_six_levels(shares, levels)),
        SetUp("even ratings with S1's tau, k = 36", 6, even),
        SetUp("the same with noise of scale 1/ε", 6, even, 1.0),
    ]
