"""Quantiles of sums of noise, against scipy's laws and plain convolution."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from tallyroom.protocols.privacy.noise_sums import laplace_quantile, sum_quantile

LEVELS = (0.5, 0.75, 0.9, 0.975, 0.995, 0.9999)


def one_noise(scale: float, reach: int) -> NDArray[np.float64]:
    law: NDArray[np.float64] = stats.dlaplace.pmf(np.arange(-reach, reach + 1), 1 / scale)
    return law


def shares(scale: float, shape: float, reach: int) -> NDArray[np.float64]:
    """The difference of two negative binomial variables."""
    side = stats.nbinom.pmf(np.arange(reach + 1), shape, -np.expm1(-1 / scale))
    law: NDArray[np.float64] = np.convolve(side, side[::-1])
    return law


def least(law: NDArray[np.float64], level: float) -> int:
    """Of a law on −r, …, r."""
    return int(np.searchsorted(np.cumsum(law), level - 1e-12)) - len(law) // 2


@pytest.mark.parametrize("scale", ["1/7", "1/2", "1", "5/2", "20"])
@pytest.mark.parametrize("noises", [1, 2, 3, 7])
def test_whole_noises(scale: str, noises: int) -> None:
    one = one_noise(float(Fraction(scale)), 1 + int(40 * Fraction(scale)))
    law = one
    for _ in range(noises - 1):
        law = np.convolve(law, one)
    for level in LEVELS:
        found = laplace_quantile(level, Fraction(scale), noises)
        assert found == least(law, level)
        assert sum_quantile(level, {Fraction(scale): Fraction(noises)}) == found


@pytest.mark.parametrize(("scale", "noises"), [("1/2", "3/2"), ("3", "1/5"), ("8", "200/101")])
def test_shares_of_noise(scale: str, noises: str) -> None:
    law = shares(float(Fraction(scale)), float(Fraction(noises)), 1 + int(60 * Fraction(scale)))
    for level in LEVELS:
        assert laplace_quantile(level, Fraction(scale), Fraction(noises)) == least(law, level)


def test_several_scales() -> None:
    parts = {Fraction(2): Fraction(2), Fraction(9): Fraction(1), Fraction(1, 3): Fraction(5, 2)}
    law = shares(1 / 3, 2.5, 40)
    for each in (one_noise(2, 100), one_noise(2, 100), one_noise(9, 400)):
        law = np.convolve(law, each)
    for level in LEVELS:
        assert sum_quantile(level, parts) == least(law, level)


def test_hundred_noises() -> None:
    """More than are found in digits."""
    law = shares(2.0, 100, 600)
    for level in LEVELS:
        assert laplace_quantile(level, Fraction(2), 100) == least(law, level)


@given(st.integers(10**5, 10**15), st.sampled_from(LEVELS[1:]))
@settings(max_examples=25, deadline=None)
def test_large_scales_are_a_laplace_law(scale: int, level: float) -> None:
    expected = stats.laplace.ppf(level, scale=scale)
    assert laplace_quantile(level, Fraction(scale)) == pytest.approx(expected, abs=1, rel=1e-9)
    coarse = sum_quantile(level, {Fraction(scale): Fraction(1)})
    assert coarse == pytest.approx(expected, abs=1, rel=2e-6)


def test_levels_that_are_none() -> None:
    for level in (0.0, 0.49, 1.0, float("nan")):
        with pytest.raises(ValueError, match="level"):
            laplace_quantile(level, Fraction(1))
    with pytest.raises(ValueError, match="positive scales"):
        sum_quantile(0.9, {Fraction(-1): Fraction(1)})
    assert sum_quantile(0.9, {}) == 0
