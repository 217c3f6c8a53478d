"""Noise that fits the data at hand: smooth sensitivity, and S3's for AUC and average precision.

The local sensitivity of f at D is how far replacing one record of D can move f. Noise in proportion
to it would leak; a β-smooth bound S may be used (Nissim, Raskhodnikova, Smith, STOC 2007): at every
D it is at least the local sensitivity, and S(D) ≤ e^β·S(D') for adjacent D, D'. Adjacency: one
record is replaced, its label included; the number of records N is public, the classes' sizes are
not. Whoever computes this sees the sorted data: a trusted curator.

**Noise** in proportion to S:
- δ = 0, Cauchy, β = ε/2, of the least scale that is enough. Cauchy densities are Poisson kernels of
  the upper half-plane: between centres m, m' and scales s, s' the largest ratio of densities is
  e^ρ, both ways, where ρ is the hyperbolic distance of (m, s) and (m', s') (Harnack), so that
  sinh²(ρ/2) = ((m − m')² + (s − s')²)/4ss'. Let s = cS, S' = e^λ·S with 0 ≤ λ ≤ β: |m − m'| ≤ S,
  and sinh²(ρ/2) ≤ e^−λ/4c² + sinh²(λ/2). That is convex in λ, hence largest at λ = 0 or β, and ρ is
  at most ε for all λ if c ≥ 1/(2 sinh(ε/2)) and c² ≥ e^−β/(4 sinh((ε+β)/2)·sinh((ε−β)/2)). So c is
  1.155/ε for small ε, 0.96 at ε = 1. There are medians and AUC with |m − m'| = S = S': they have
  ρ = ε from ε = 0.57 on and at least 0.866ε below, and half of the noise is caught on them. Adding
  up what shift and dilation cost takes 2/ε. S3's Theorem 2 asks for 6S/ε and β = ε/6; S2 for 8S/ε
  with β = ε, which loses up to 1.007ε.
- δ > 0, Laplace of scale 2S/ε, β = ln(1 + ε/(2 ln(1/δ))). The shift costs ε/2, and a dilation
  |z|(e^λ − 1) − λ for λ > 0 (at most |λ| for λ < 0): at most ε/2 unless |z| > ln(1/δ), which has
  probability δ. Dilating before shifting, no factor multiplies that δ. S3's β = ε/(2 ln(2/δ)) is
  smaller for small ε; for ε above 7 or so this argument no longer covers it.

**Numbers.** The output is the ideal real-valued mechanism's, rounded exactly to a public grid
(`rounded_noise`): its low bits tell nothing. f and S are computed in floating point or fixed point.
`SMOOTHNESS_SLACK` is taken off β and `INFLATION` put on S, far above what rounding can do to either
(relative errors below 2^-42), so the guarantee holds for the numbers computed. It does not cover
how long the computation takes.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.rounded_noise import Cauchy, Laplace, rounded
from tallyroom.protocols.randomness import Randomness

Vector = NDArray[np.float64]

SMOOTHNESS_SLACK = 2.0**-40
INFLATION = 1 + 2.0**-30
GRID = Fraction(1, 1 << 40)
FIXED_POINT = 60
LARGEST_EPSILON = 64
"""A larger ε gets the Cauchy noise for this one: a scale of 1e-14 S."""


@dataclass(frozen=True)
class SmoothNoise:
    """Noise for any f with a β-smooth bound: ε-DP if `delta` is 0, otherwise (ε, δ)-DP.

    Raises LocalError for an ε that leaves no β, or a δ outside [0, 1/e].
    """

    epsilon: Fraction
    delta: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.delta <= math.exp(-1):
            raise LocalError(f"delta must be within 0 and 1/e, not {self.delta:g}")
        if not (self.epsilon > 0 and self.beta > 0):
            raise LocalError(f"epsilon {float(self.epsilon):g} is too small for this noise")

    @property
    def beta(self) -> float:
        """The β for which bounds passed to `release` must be smooth; slack is already
        subtracted."""
        if self.delta:
            exact = math.log1p(float(self.epsilon) / (-2 * math.log(self.delta)))
        else:
            exact = min(float(self.epsilon), LARGEST_EPSILON) / 2
        return exact - SMOOTHNESS_SLACK

    def scale(self, smooth: float) -> Fraction:
        """The scale of the noise for a smooth bound. Raises ValueError unless the bound is positive
        and finite."""
        if not (math.isfinite(smooth) and smooth > 0):
            raise ValueError(f"a smooth bound must be positive and finite, not {smooth}")
        if self.delta:
            return 2 * Fraction(smooth * INFLATION) / self.epsilon
        return Fraction(smooth * INFLATION * cauchy_factor(float(self.epsilon)))

    def release(
        self, value: Fraction, smooth: float, grid: Fraction, randomness: Randomness
    ) -> Fraction:
        """The value with noise, on the multiples of a public grid; not clipped."""
        noise = Laplace if self.delta else Cauchy
        return grid * rounded(value, self.scale(smooth), grid, noise, randomness)


def cauchy_factor(epsilon: float) -> float:
    """The least scale of Cauchy noise in units of a bound that is smooth for β = ε/2."""
    half = min(epsilon, LARGEST_EPSILON) / 2
    shifted = 1 / math.sinh(half)
    dilated = math.exp(-half / 2) / math.sqrt(math.sinh(1.5 * half) * math.sinh(half / 2))
    return max(shifted, dilated) / 2


# --- the statistics ---


def auc(positive: Vector, negative: Vector) -> Fraction:
    """S3 Eq. 1, exactly: the share of pairs whose positive score is the larger; a tie counts as
    none. ½ if a class is empty."""
    pairs = len(positive) * len(negative)
    if not pairs:
        return Fraction(1, 2)
    return Fraction(int(np.searchsorted(np.sort(negative), positive).sum()), pairs)


def average_precision(positive: Vector, negative: Vector) -> Fraction:
    """S3 Eq. 2, rounded down by less than 2^-60: the mean, over the positives, of the precision at
    each one's score. Negatives of the same score come before it. 0 without positives.

    scikit-learn's takes one precision per distinct score, after all positives of that score: equal
    without ties.
    """
    if not len(positive):
        return Fraction(0)
    descending = np.sort(positive)[::-1]
    above = len(negative) - np.searchsorted(np.sort(negative), descending)
    total = sum(
        (hits << FIXED_POINT) // (hits + false)
        for hits, false in enumerate(above.tolist(), start=1)
    )
    return Fraction(total, len(positive) << FIXED_POINT)


# --- their sensitivities ---


def local_auc(records: int) -> Vector:
    """LS of AUC for 0, 1, …, N positives: 1/min(n, m), and 1 if a class is empty (Theorem 3)."""
    positives = np.arange(records + 1)
    local: Vector = 1.0 / np.maximum(1, np.minimum(positives, records - positives))
    return local


def local_average_precision(records: int) -> Vector:
    """A bound on LS of average precision for 0, 1, …, N positives: Eq. 33, put right and tightened.

    In Eq. 23 the first and third terms are positive and the second is negative, so the two bounds
    of 1/(n−1) do not add up: 8 + H becomes 4 + H. The bound is capped at 1, the range, which
    Theorem 5 forgets for small n. Replacing is adding, then removing (or the other way): Eq. 33
    holds if a positive is added before one is removed.
    """
    n = np.arange(2, records + 1, dtype=np.float64)
    harmonic = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, records + 2))])  # H_0 … H_N+1
    at_n, before, after = harmonic[2:-1], harmonic[1:-2], harmonic[3:]
    negative = (after - 1.0) / n
    removed, added = (4.0 + before) / (4.0 * (n - 1.0)), (4.0 + at_n) / (4.0 * n)
    bound = np.maximum(negative, removed) + np.maximum(negative, added)
    capped: Vector = np.minimum(1.0, np.concatenate([np.ones(min(2, records + 1)), bound]))
    return capped


def smooth_auc(positives: int, negatives: int, beta: float) -> float:
    """Theorem 4. Depends on the classes' sizes alone, which differ by at most 1 between adjacent
    data sets; O(N)."""
    return _smooth(local_auc(positives + negatives), positives, beta)


def smooth_average_precision(positives: int, negatives: int, beta: float) -> float:
    """Theorem 6, and an allowance for the rounding of `average_precision`; O(N)."""
    table = local_average_precision(positives + negatives)
    return _smooth(table, positives, beta) + 2.0 ** (1 - FIXED_POINT)


def _smooth(local: Vector, positives: int, beta: float) -> float:
    distance = np.abs(np.arange(len(local)) - positives)
    return float((local * np.exp(-beta * distance)).max())
