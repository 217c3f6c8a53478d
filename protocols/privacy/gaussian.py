"""The discrete Gaussian law, and what its shares cost.

One noise of σ² costs ρ = Δ²/(2σ²) of zero-concentrated privacy, Δ the sensitivity in the L2 norm
(Canonne, Kamath and Steinke 2020, Theorem 4).

A sum of discrete Gaussian shares is not discrete Gaussian, but near to it (Kairouz, Liu and Steinke
2021, "The Distributed Discrete Gaussian Mechanism"). For X of σ² and Y of τ², with
1/s² = 1/σ² + 1/τ² and c = σ²/(σ² + τ²), the chance of X + Y = z is exp(−z²/(2(σ² + τ²))) times
f(cz), where f(θ) = Σ exp(−(x − θ)²/(2s²)) over all integers x. By Poisson's summation formula, f is
a constant times 1 + 2·Σ_k exp(−2π²s²k²)·cos(2πkθ), so it lies between 1 − 2r and 1 + 2r, with r the
sum of these exponentials. Hence chances differ from those of the discrete Gaussian of σ² + τ² by a
factor within exp(±κ), κ = ln((1 + 2r)/(1 − 2r)). Shares are added one by one, and so are their κ.

So noise of n shares is κ-indistinguishable from a discrete Gaussian, in each of d places that are
moved, before the move and after it. √(2ρ) adds up along such a chain (Bun and Steinke 2016, Lemma
5.2), and as κ-indistinguishability is κ²/2 of ρ,

    √(2ρ) ≤ Δ/σ + 2κ√d.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from statistics import NormalDist
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.discrete_gaussian import (
    MAX_SQUARED,
    discrete_gaussian,
    gaussian_each,
)
from tallyroom.protocols.privacy.laplace import Integers
from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.protocols.privacy.noise_law import Ids, NoiseLaw, Sensitivity
from tallyroom.protocols.randomness import Randomness

Chances = NDArray[np.float64]

UP = 1 + 2.0**-40
"""Covers rounding errors of doubles, many times over."""
NOTHING_KNOWN = Fraction(10**30)
"""A ρ past all that may be granted: that of shares of which nothing is proved."""
SMOOTH = 1000.0
"""A sum of this standard deviation is told by a normal law, with the correction for integers: off
by less than 10^-8 of a level."""
_REACH = 12
"""Standard deviations beyond which a sum has probabilities of no account."""


@dataclass(frozen=True)
class DiscreteGaussian(NoiseLaw):
    """The sum of `shares` independent discrete Gaussian noises, of parameter `squared` = σ²
    together; with one, P(x) ∝ e^(−x²/(2σ²))."""

    squared: Fraction
    shares: int = 1

    name: ClassVar[str] = "gaussian"
    of_l2: ClassVar[bool] = True
    has_shares: ClassVar[bool] = True
    in_circuits: ClassVar[bool] = True

    @classmethod
    def calibrated(
        cls, loss: PrivacyLoss, sensitivity: Sensitivity, shares: int = 1
    ) -> "DiscreteGaussian":
        rho = loss.rho
        if loss.epsilon and loss.delta:
            rho = most_rho(loss.epsilon, loss.delta)
        if not rho:
            raise LocalError(
                f"gaussian noise does not cost {loss}: it needs a delta above 0 (--delta), or a "
                "loss in rho (--rho in place of --epsilon)"
            )
        least = Fraction(sensitivity.squared_l2) / (2 * rho)
        found = cls(least) if shares == 1 else cls._of_shares(least, rho, sensitivity, shares)
        if found.squared >= MAX_SQUARED:
            raise LocalError(f"{loss} is too small: noise of this scale does not fit the ring")
        return found

    @classmethod
    def _of_shares(
        cls, least: Fraction, rho: Fraction, sensitivity: Sensitivity, shares: int
    ) -> "DiscreteGaussian":
        """The least noise of so many shares, to 10^-9 of it, by bisection: more noise costs less,
        and where one noise would need `least`, shares need more."""

        def enough(squared: float) -> bool:
            law = cls(Fraction(squared), shares)
            return law._rho(sensitivity) <= rho

        low, high = float(least), max(float(least), float(shares)) * (1 + 1e-9)
        while not enough(high):
            low, high = high, 2 * high
        while high - low > 1e-9 * high:
            middle = (low + high) / 2
            low, high = (low, middle) if enough(middle) else (middle, high)
        return cls(Fraction(high), shares)

    def loss(self, sensitivity: Sensitivity) -> PrivacyLoss:
        return PrivacyLoss(rho=self._rho(sensitivity))

    def _rho(self, sensitivity: Sensitivity) -> Fraction:
        exact = Fraction(sensitivity.squared_l2) / (2 * self.squared)
        if self.shares == 1:
            return exact
        apart = 2 * self.divergence * math.sqrt(sensitivity.l1)  # as many places move at most
        root = (math.sqrt(2 * exact) + apart) * UP
        if not math.isfinite(root):
            return max(exact, NOTHING_KNOWN)
        return max(exact, Fraction(root**2 / 2 * UP))

    @cached_property
    def divergence(self) -> float:
        """κ: by which factor e^(±κ) its chances differ from the discrete Gaussian's. Infinite where
        shares are so small that nothing is known."""
        with_all_before = np.arange(1, self.shares)
        narrow = float(self.squared / self.shares) * with_all_before / (with_all_before + 1)
        exponent = 2 * math.pi**2 * narrow
        r = np.exp(-exponent) / -np.expm1(-exponent)  # Σ of e^(−xk²) is below Σ of e^(−xk)
        if (2 * r >= 1).any():
            return math.inf
        return float(np.sum(np.log1p(2 * r) - np.log1p(-2 * r))) * UP

    def words(self, step: float = 1.0) -> str:
        sigma = math.sqrt(self.squared) * step
        parts = f" in {self.shares} shares" if self.shares > 1 else ""
        return f"discrete Gaussian of σ {sigma:.6g}{parts}"

    @property
    def variance(self) -> float:
        return self.shares * _variance(float(self.squared / self.shares))

    def log_chance(self, value: int) -> float:
        """Of shares, that of the discrete Gaussian, which is off by κ at most."""
        return -(value**2) / (2 * float(self.squared))

    def quantile(self, level: float, noises: Fraction | int = 1) -> int:
        if not 0.5 <= level < 1:
            raise ValueError(f"a quantile of noise is of a level from 1/2 to below 1, not {level}")
        parts = float(self.shares * noises)
        return _quantile(level, float(self.squared / self.shares), parts) if parts else 0

    def width(self, level: float, noises: float) -> float:
        return NormalDist().inv_cdf(level)

    def draw(self, count: int, randomness: Randomness) -> Integers:
        if self.shares > 1:
            raise ValueError("noise in shares is drawn by several")
        return discrete_gaussian(count, self.squared, randomness)

    def draw_shares(self, ids: Ids, enough: int, count: int, randomness: Randomness) -> Integers:
        if enough != self.shares:
            raise ValueError(f"noise for {self.shares} shares is not drawn in {enough}")
        streams = randomness.streams("gaussian share", ids, count)
        each = self.squared / self.shares
        return gaussian_each(len(streams), each, streams.words).reshape(len(ids), count)


@lru_cache(maxsize=256)
def most_rho(epsilon: Fraction, delta: Fraction) -> Fraction:
    """The largest ρ found that is (ε, δ), to 10^-13 of it."""
    granted = PrivacyLoss(epsilon, delta)
    low, high = 0.0, float(epsilon)
    while PrivacyLoss(rho=Fraction(high)) <= granted:
        low, high = high, 2 * high
    while high - low > 2.0**-44 * high:
        middle = (low + high) / 2
        fits = PrivacyLoss(rho=Fraction(middle)) <= granted
        low, high = (middle, high) if fits else (low, middle)
    return Fraction(low)


def _variance(squared: float) -> float:
    """Of one discrete Gaussian. From σ² = 4 on, it differs from σ² by 10^-32 of it."""
    if squared >= 4:
        return squared
    values = np.arange(-40, 41)
    chances = np.exp(-(values**2) / (2 * squared))
    return float(values**2 @ chances / chances.sum())


@lru_cache(maxsize=256)
def _quantile(level: float, squared: float, parts: float) -> int:
    """Of a sum of so many discrete Gaussians."""
    deviation = math.sqrt(parts * _variance(squared))
    if deviation >= SMOOTH:
        return max(0, math.ceil(NormalDist().inv_cdf(level) * deviation - 0.5))
    upto = np.cumsum(_sum_of(squared, parts, deviation))
    return int(np.searchsorted(upto, level - 1e-13)) - len(upto) // 2


def _sum_of(squared: float, parts: float, deviation: float) -> Chances:
    """The chances of −half, …, half − 1, from the characteristic function of one of `parts`, which
    is above 0 everywhere."""
    reach = max(deviation, math.sqrt(squared))
    half = 1 << math.ceil(math.log2(_REACH * reach + 8))
    around = np.arange(-half, half)
    one = np.exp(-(around**2) / (2 * squared))
    spectrum = np.maximum(np.fft.rfft(np.fft.ifftshift(one / one.sum())).real, 0.0)
    law: Chances = np.fft.fftshift(np.fft.irfft(spectrum**parts, 2 * half))
    return np.maximum(law, 0.0)
