"""The law of a sum of discrete Laplace noises: its tail and its quantiles.

The sum of r noises of scale s is the difference of two negative binomial variables of shape r, with
q = exp(−1/s). For a whole r its tail is a finite sum (`passing`), which is computed in as many
digits as it takes, whatever the scale. Shares of noise make any r, and noises of several scales may
be in one sum: these laws are found from their characteristic function,

    φ(t) = Π (1 + 4q·sin²(t/2)/(1 − q)²)^(−r)  over all scales,

on a circle so wide that what wraps around is below 10^-16.
"""

import decimal
import math
from bisect import bisect_left
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist

import numpy as np

MOST_IN_DIGITS = 64
"""Whole noises of a sum whose tail is found in digits; that of more is found from φ."""
FINE = 1000
"""Scales above this are brought down to it, and what is found is brought up again. That is off by
some 10^-7 of a quantile."""


def laplace_quantile(level: float, scale: Fraction, noises: Fraction | int = 1) -> int:
    """The least integer x such that a sum of so many discrete Laplace noises of `scale` is x or
    less with probability `level`, from ½ to below 1.

    The sum is symmetric: |sum| ≤ x with probability 2·level − 1, or more.
    """
    _check(level)
    whole = Fraction(noises)
    if whole.denominator > 1 or not 0 < whole <= MOST_IN_DIGITS:
        return sum_quantile(level, {scale: whole})
    return _whole_quantile(level, scale, whole.numerator)


SMOOTH = 10**6
"""At this scale, a sum of discrete Laplace noises is as good as one of continuous noises."""


@lru_cache(maxsize=256)
def laplace_width(level: float, noises: float) -> float:
    """The same quantile of a sum of so many continuous Laplace noises, in standard deviations of
    the sum. For one noise and 0.975 it is ln(20)/√2 = 2.12; it falls to 1.96 as they become many.
    """
    if noises > MANY:
        return NormalDist().inv_cdf(level)
    deviation = math.sqrt(2 * noises) * SMOOTH
    return laplace_quantile(level, Fraction(SMOOTH), Fraction(noises)) / deviation


MANY = 1000
"""A sum of so many noises is as good as normal: its excess kurtosis is 0.003 or less."""


@lru_cache(maxsize=256)
def _whole_quantile(level: float, scale: Fraction, noises: int) -> int:
    # Of the number that was written: 1 − 0.975 is a fortieth.
    room = 1 - Decimal(repr(float(level)))

    def holds(x: int) -> bool:
        return passing(x, scale, noises)[0] <= room

    most = 1
    while not holds(most):
        most *= 2
    return bisect_left(range(most), True, key=holds)


@lru_cache(maxsize=256)
def _on_circle(level: float, parts: tuple[tuple[Fraction, Fraction], ...]) -> int:
    coarser = max(1.0, float(max(scale for scale, _ in parts)) / FINE)
    rates = [(coarser / float(scale), float(noises)) for scale, noises in parts]
    widest = 1 / min(rate for rate, _ in rates)
    every = sum(noises for _, noises in rates)
    half = int((40 + 10 * math.sqrt(every)) * max(1.0, widest)) + 4
    size = 1 << (2 * half - 1).bit_length()
    sines = np.sin(np.pi * np.arange(size // 2 + 1) / size) ** 2
    logs = np.zeros(len(sines))
    for rate, noises in rates:
        logs -= noises * np.log1p(4 * math.exp(-rate) / math.expm1(-rate) ** 2 * sines)
    law = np.fft.irfft(np.exp(logs), size)
    upto = 0.5 + np.cumsum(np.append(law[0] / 2, law[1:half]))  # P(sum ≤ 0), P(sum ≤ 1), …
    least = int(np.searchsorted(upto, level - 1e-13))
    if coarser == 1.0:
        return least
    # The coarse law stands for a continuous one, of which x is from x − ½ to x + ½.
    below = float(upto[least - 1] if least else 1 - upto[0])
    inside = (level - below) / (float(upto[least]) - below)
    return max(0, math.ceil((least - 0.5 + inside) * coarser - 0.5))


def sum_quantile(level: float, noises: Mapping[Fraction, Fraction]) -> int:
    """As `laplace_quantile`, of noises of several scales: how many of each are in the sum."""
    _check(level)
    parts = tuple(sorted((scale, many) for scale, many in noises.items() if many))
    if any(scale <= 0 or many < 0 for scale, many in parts):
        raise ValueError("noises have positive scales, and there are none or more of each")
    return _on_circle(float(level), parts) if parts else 0


def _check(level: float) -> None:
    if not 0.5 <= level < 1:
        raise ValueError(f"a quantile of noise is of a level from 1/2 to below 1, not {level}")


def passing(threshold: int, scale: Fraction, noises: int = 1) -> tuple[Decimal, Decimal]:
    """P(L > τ) and E[L; L > τ] for the sum L of r independent discrete Laplace noises, τ ≥ 0.

    L is a difference of two negative binomial variables of shape r. With q = e^(−1/s), w = qz and
    u = 1 − w its generating function is (1 − q)^(2r)·u^(−r)·(1 − q²/w)^(−r). Only its pole at u = 0
    tells of L ≥ 0: with g_j the coefficients of ((1 − u)/(1 − q² − u))^r,

        P(L = d) = (1 − q)^(2r) q^d Σ_{m=1..r} g_{r−m} C(d + m − 1, m − 1).
    """
    r = noises
    with decimal.localcontext(_precise(r)):
        q = _base(scale)
        chance = expected = Decimal(0)
        for m, weight in enumerate(_weights(scale, r), start=1):
            chance += weight * _series_from(threshold + 1, m, q)
            # d·C(d + m − 1, m − 1) = m·C(d − 1 + m, m)
            expected += weight * m * q * _series_from(threshold, m + 1, q)
        whole = (1 - q) ** (2 * r)
        return whole * chance, whole * expected


@lru_cache(maxsize=8)
def _weights(scale: Fraction, r: int) -> tuple[Decimal, ...]:
    """g_{r−1}, …, g_0, in the precision of `passing`."""
    with decimal.localcontext(_precise(r)):
        a = 1 - _base(scale) ** 2
        return tuple(
            sum(
                (-1) ** i * math.comb(r, i) * math.comb(r + j - i - 1, j - i) / a ** (r + j - i)
                for i in range(j + 1)
            )
            for j in reversed(range(r))
        )


def _series_from(start: int, m: int, q: Decimal) -> Decimal:
    """Σ C(d + m − 1, m − 1) q^d over d ≥ `start`: fewer than m successes in start + m − 1 trials,
    over (1 − q)^m."""
    trials = start + m - 1
    total, term, odds = Decimal(0), q**trials, (1 - q) / q
    for i in range(m):
        total += term
        term *= odds * (trials - i) / (i + 1)
    return total / (1 - q) ** m


def _base(scale: Fraction) -> Decimal:
    """q."""
    return (-Decimal(scale.denominator) / Decimal(scale.numerator)).exp()


def _precise(noises: int) -> decimal.Context:
    """With digits to spare for what cancels in the sums of `passing`."""
    return decimal.Context(prec=60 + 2 * noises, Emin=-(10**17), Emax=10**17)
