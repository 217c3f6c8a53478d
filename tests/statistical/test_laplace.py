"""The discrete Laplace sampler is exact: goodness of fit, unbiased parts, rounding for privacy."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from tallyroom.protocols.privacy.laplace import (
    Integers,
    bernoulli_exp_each,
    discrete_laplace,
    geometric,
    representable,
    uniform,
)
from tallyroom.protocols.randomness import Randomness
from tests.goodness import ALPHA, chi_square_p, discrete_laplace_pmf, fits

N = 200_000
"""Samples a test; a cell of probability 0.01 that is 12 % off is found at alpha = 1e-9."""

SCALES = [
    Fraction(1, 3),
    Fraction(4, 5),
    Fraction(1),
    Fraction(7, 3),
    Fraction(10),
    Fraction(1000, 7),
]


def randomness(label: object) -> Randomness:
    return Randomness.from_seed(20, f"laplace {label}")


@pytest.mark.parametrize("scale", SCALES, ids=str)
def test_samples_have_the_exact_distribution(scale: Fraction) -> None:
    reach = math.ceil(8 * scale) + 2
    support = np.arange(-reach, reach + 1)
    samples = discrete_laplace(N, scale, randomness(scale))
    assert fits(samples, support, discrete_laplace_pmf(support, float(scale))) > ALPHA


@pytest.mark.parametrize("wrong", [Fraction(9, 10), Fraction(11, 10)])
def test_the_fit_finds_a_scale_that_is_a_tenth_off(wrong: Fraction) -> None:
    support = np.arange(-30, 31)
    samples = discrete_laplace(N, Fraction(7, 3) * wrong, randomness(wrong))
    assert fits(samples, support, discrete_laplace_pmf(support, 7 / 3)) < ALPHA


@pytest.mark.parametrize("scale", [Fraction(2**31, 3), Fraction(2**53 + 1, 2**20)], ids=str)
def test_large_scales_fit_in_equiprobable_cells(scale: Fraction) -> None:
    """The continuous limit is exact to 1/scale; 100 cells of |x| and the sign apart."""
    samples = discrete_laplace(N, scale, randomness(scale))
    cells = np.floor(100 * -np.expm1(-np.abs(samples) / float(scale))).astype(np.int64)
    counts = np.bincount(np.minimum(cells, 99), minlength=100)
    assert chi_square_p(counts, np.full(100, N / 100)) > ALPHA
    positive = int(np.count_nonzero(samples > 0))
    assert stats.binomtest(positive, N).pvalue > ALPHA
    low_bits = np.bincount(samples & 15, minlength=16)
    assert chi_square_p(low_bits, np.full(16, N / 16)) > ALPHA


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(7, 3)], ids=str)
def test_geometric_samples_have_the_exact_distribution(scale: Fraction) -> None:
    support = np.arange(0, math.ceil(20 * scale) + 2)
    q = math.exp(-1 / scale)
    samples = geometric(N, scale, randomness(f"geometric {scale}"))
    assert fits(samples, support, ((1 - q) * q**support).astype(np.float64)) > ALPHA


def tossed(numerators: Integers, denominator: int, label: str) -> NDArray[np.bool]:
    stream = randomness(label)
    which = np.arange(len(numerators))
    return bernoulli_exp_each(
        which, numerators, denominator, lambda asked: stream.words(len(asked))
    )


@pytest.mark.parametrize(("numerator", "denominator"), [(0, 1), (1, 1), (1, 2), (3, 7), (99, 100)])
def test_the_coin_is_exactly_exp_of_minus_gamma(numerator: int, denominator: int) -> None:
    """n = 200,000, alpha = 1e-9, two-sided binomial: a bias of 0.7 % is found."""
    coins = tossed(np.full(N, numerator), denominator, f"{numerator}/{denominator}")
    heads = int(np.count_nonzero(coins))
    expected = math.exp(-numerator / denominator)
    if numerator == 0:
        assert heads == N
    else:
        assert stats.binomtest(heads, N, expected).pvalue > ALPHA


def test_coins_of_different_bias_are_tossed_together() -> None:
    numerators = np.tile(np.arange(5), N // 5)
    coins = tossed(numerators, 4, "together")
    for numerator in range(1, 5):
        mine = coins[numerators == numerator]
        p = math.exp(-numerator / 4)
        assert stats.binomtest(int(mine.sum()), len(mine), p).pvalue > ALPHA


@pytest.mark.parametrize("below", [1, 2, 3, 5, 7, 64, 100, 255, 257])
def test_uniform_integers_are_unbiased(below: int) -> None:
    counts = np.bincount(uniform(N, below, randomness(below)), minlength=below)
    assert len(counts) == below
    assert below == 1 or chi_square_p(counts, np.full(below, N / below)) > ALPHA


@pytest.mark.parametrize("below", [2**40 + 1, 3 * 2**60, 2**63])
def test_large_uniform_integers_are_unbiased(below: int) -> None:
    drawn = uniform(N, below, randomness(below))
    cells = np.array([int(x) * 64 // below for x in drawn])
    assert int(drawn.min()) >= 0
    assert chi_square_p(np.bincount(cells, minlength=64), np.full(64, N / 64)) > ALPHA


scales = st.fractions(min_value=Fraction(1, 10**30), max_value=2**53)


@given(scales)
def test_a_scale_is_rounded_up_or_not_at_all(scale: Fraction) -> None:
    """A larger scale is more noise: rounding never costs privacy, and hardly any accuracy."""
    rounded = representable(scale)
    assert rounded >= scale
    assert rounded - scale <= max(scale, Fraction(1)) / 2**52
    assert representable(rounded) == rounded


@given(st.integers(1, 2**54), st.integers(1, 2**54))
def test_what_fits_is_left_alone(numerator: int, denominator: int) -> None:
    scale = Fraction(numerator, denominator)
    assert representable(scale) == scale


@pytest.mark.parametrize("scale", [Fraction(2**54 + 1), Fraction(2**70), Fraction(10**400)])
def test_noise_that_does_not_fit_the_ring_is_refused(scale: Fraction) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        representable(scale)


@pytest.mark.parametrize("scale", [Fraction(0), Fraction(-1), Fraction(2**54 + 1, 2**55)])
def test_a_scale_that_cannot_be_sampled_is_refused(scale: Fraction) -> None:
    with pytest.raises(ValueError, match="scale"):
        discrete_laplace(1, scale, randomness("bad"))


def test_blocks_of_samples_are_all_filled() -> None:
    """More than one internal block, and no value left as it was allocated."""
    samples = discrete_laplace((1 << 16) + 5, Fraction(1), randomness("blocks"))
    assert np.abs(samples).max() < 60
    assert len(np.unique(samples[-5:])) > 1 or samples[-5:].any()
    assert len(discrete_laplace(0, Fraction(1), randomness("none"))) == 0
