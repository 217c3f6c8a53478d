"""Shares of noise: those of half the parties together are discrete Laplace of the full scale."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from protocols.privacy.mechanisms import DiscreteLaplace, Placement, noise_variance
from protocols.privacy.polya import polya_difference
from protocols.randomness import Randomness
from tests.goodness import ALPHA, chi_square_p, discrete_laplace_pmf, fits

N = 100_000


def shares(
    scale: Fraction, parties: int, count: int, seed: int = 5
) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    drawn = DiscreteLaplace(scale).draw_shares(
        np.arange(parties, dtype=np.uint32),
        parties,
        count,
        Randomness.from_seed(seed, f"polya {scale} {parties}"),
    )
    assert drawn.shape == (parties, count)
    return drawn


@pytest.mark.parametrize("parties", [1, 2, 5, 8])
@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(2), Fraction(7, 3)], ids=str)
def test_the_honest_half_alone_draws_the_full_noise(scale: Fraction, parties: int) -> None:
    """n = 100,000 sums over any ceil(parties/2) of them, against the exact distribution."""
    half = math.ceil(parties / 2)
    support = np.arange(-math.ceil(9 * scale) - 2, math.ceil(9 * scale) + 3)
    pmf = discrete_laplace_pmf(support, float(scale))
    drawn = shares(scale, parties, N)
    assert fits(drawn[:half].sum(axis=0), support, pmf) > ALPHA
    assert fits(drawn[parties - half :].sum(axis=0), support, pmf) > ALPHA


def test_fewer_than_half_do_not() -> None:
    support = np.arange(-25, 26)
    drawn = shares(Fraction(2), 8, N)
    assert fits(drawn[:3].sum(axis=0), support, discrete_laplace_pmf(support, 2.0)) < ALPHA


def test_a_grid_of_a_thousand_million_steps_fits_too() -> None:
    """Continuous limit at a scale of 2^30: |sum|/scale is exponential, in 50 equal cells."""
    scale = Fraction(2**30)
    total = shares(scale, 4, 20_000)[:2].sum(axis=0)
    cells = np.floor(50 * -np.expm1(-np.abs(total) / float(scale))).astype(np.int64)
    counts = np.bincount(np.minimum(cells, 49), minlength=50)
    assert chi_square_p(counts, np.full(50, 20_000 / 50)) > ALPHA
    assert stats.binomtest(int((total > 0).sum()), 20_000).pvalue > ALPHA


@pytest.mark.parametrize("parties", [1, 3, 6])
def test_the_variance_of_all_shares_is_what_is_reported(parties: int) -> None:
    """n = 100,000. The sample variance has relative deviation below sqrt(kurtosis/n) < 0.9 %;
    6.5 of them are allowed."""
    mechanism = DiscreteLaplace(Fraction(5))
    total = shares(Fraction(5), parties, N).sum(axis=0)
    reported = noise_variance(mechanism, Placement.PARTIES, parties, 2)
    assert abs(total.var() / reported - 1) < 0.06


@pytest.mark.parametrize("scale", [Fraction(1, 30), Fraction(1, 100), Fraction(1, 10**9)])
def test_almost_no_noise_is_no_noise(scale: Fraction) -> None:
    """exp(-30) is the most that a share differs from zero with: 1000 draws never do."""
    assert not shares(scale, 4, 250).any()


def test_the_extremes_of_the_uniforms_give_finite_noise() -> None:
    words = np.array([[0, 2**64 - 1], [2**64 - 1, 0], [2**63, 2**63]], dtype=np.uint64)
    for scale in (Fraction(1, 10), Fraction(2), Fraction(2**31)):
        drawn = polya_difference(words, scale, 0.1)
        assert drawn[2] == 0
        assert 0 < drawn[0] == -drawn[1] < 2**62


def test_shares_do_not_depend_on_the_block() -> None:
    mechanism = DiscreteLaplace(Fraction(3))
    source = Randomness.from_seed(1, "parties")
    together = mechanism.draw_shares(np.arange(6, dtype=np.uint32), 6, 7, source)
    for party in range(6):
        alone = mechanism.draw_shares(np.array([party], dtype=np.uint32), 6, 7, source)
        assert alone.tolist() == [together[party].tolist()]
