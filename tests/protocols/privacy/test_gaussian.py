"""Discrete Gaussian noise: its draws, its shares and what both cost, by enumeration."""

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from scipy.special import logsumexp

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy import discrete_gaussian as sampler
from tallyroom.protocols.privacy.discrete_gaussian import LazyReal, discrete_gaussian
from tallyroom.protocols.privacy.gaussian import DiscreteGaussian, most_rho
from tallyroom.protocols.privacy.loss import NO_LOSS, UNBOUNDED, PrivacyLoss
from tallyroom.protocols.privacy.noise_law import Sensitivity
from tallyroom.protocols.randomness import Randomness

ALPHA = 1e-9
ORDERS = (1.001, 1.5, 2.0, 8.0, 64.0)


Chances = NDArray[np.float64]


def law_of(squared: float, far: int) -> Chances:
    values = np.arange(-far, far + 1)
    chances: Chances = np.exp(-(values**2) / (2 * squared))
    chances /= chances.sum()
    return chances


def of_sums(squared: float, shares: int, far: int) -> Chances:
    one = law_of(squared / shares, far)
    found = one
    for _ in range(shares - 1):
        found = np.convolve(found, one)
    middle = len(found) // 2
    return found[middle - far : middle + far + 1]


# --- draws ---


@pytest.mark.parametrize(
    "squared", [Fraction(1, 50), Fraction(1), Fraction(2000, 7), Fraction(10**5)]
)
def test_draws_have_its_probabilities(squared: Fraction) -> None:
    """n = 60,000; a right program fails with probability 10^-9 each."""
    drawn = discrete_gaussian(60_000, squared, Randomness.from_seed(3, str(squared)))
    far = 12 * math.isqrt(math.ceil(squared)) + 2
    expected = law_of(float(squared), far) * len(drawn)
    counts = np.bincount(drawn + far, minlength=2 * far + 1)
    rare = expected < 10
    observed = np.append(counts[~rare], counts[rare].sum())
    hoped = np.append(expected[~rare], expected[rare].sum())
    kept = hoped > 0
    assert observed[~kept].sum() == 0
    assert stats.chisquare(observed[kept], hoped[kept]).pvalue > ALPHA


@pytest.mark.parametrize("squared", [Fraction(2**40), Fraction(10**19, 3), Fraction(2**90) + 1])
def test_draws_of_large_noise_are_normal_in_their_high_bits_and_uniform_in_their_low(
    squared: Fraction,
) -> None:
    drawn = discrete_gaussian(40_000, squared, Randomness.from_seed(4, str(squared)))
    sigma = math.sqrt(squared)
    assert stats.kstest(drawn / sigma, stats.norm.cdf).pvalue > ALPHA
    assert stats.chisquare(np.bincount(drawn & 63, minlength=64)).pvalue > ALPHA


@pytest.mark.parametrize(
    "squared", [Fraction(1, 3), Fraction(50), Fraction(2**50) + Fraction(1, 3)]
)
def test_doubles_decide_as_digits_do(squared: Fraction, monkeypatch: pytest.MonkeyPatch) -> None:
    """With so much doubt, every comparison is made in digits, with the same coins."""
    by_doubles = discrete_gaussian(300, squared, Randomness.from_seed(5, "coins"))
    monkeypatch.setattr(sampler, "DOUBT", 1.0)
    asked: list[Fraction] = []
    below = LazyReal.below

    def counted(self: LazyReal, exponent: Fraction) -> bool:
        asked.append(exponent)
        return below(self, exponent)

    monkeypatch.setattr(LazyReal, "below", counted)
    by_digits = discrete_gaussian(300, squared, Randomness.from_seed(5, "coins"))
    assert (by_doubles == by_digits).all()
    assert len(asked) > 600


def no_more() -> int:
    raise AssertionError("63 bits decide this")


def test_a_real_is_compared_with_as_many_bits_as_it_takes() -> None:
    gamma = Fraction(1, 3)
    first = math.floor(Fraction(math.exp(-gamma)) * 2**63)
    assert LazyReal(first - 2**20, no_more).below(gamma)
    assert not LazyReal(first + 2**20, no_more).below(gamma)
    # e^(−1/3)·2^63 to 50 digits, by another way: the series.
    exact = sum(Fraction((-1) ** k, math.factorial(k) * 3**k) for k in range(60))
    first, rest = divmod(math.floor(exact * 2**127), 2**64)

    def one_word(word: int) -> Iterator[int]:
        yield word

    for word, below in ((rest - 1, True), (rest + 1, False)):
        words = one_word(word)
        assert LazyReal(first, lambda: next(words)).below(gamma) is below  # noqa: B023


@given(st.integers(0, 2**63 - 1), st.fractions(0, 60, max_denominator=10**6))
def test_a_real_below_one_exponential_is_below_all_larger(begun: int, gamma: Fraction) -> None:
    real = LazyReal(begun, lambda: 12345)
    assert LazyReal(begun, lambda: 12345).below(Fraction(0))
    if real.below(gamma):
        assert real.below(gamma / 2)
    else:
        assert not real.below(2 * gamma + 1)


def test_the_same_seed_draws_the_same_noise_in_blocks_of_any_size() -> None:
    law = DiscreteGaussian(Fraction(30), 4)
    ids = np.arange(6, dtype=np.uint32)
    whole = law.draw_shares(ids, 4, 50, Randomness.from_seed(6, "x"))
    for some in (ids[:1], ids[2:5]):
        again = law.draw_shares(some, 4, 50, Randomness.from_seed(6, "x"))
        assert (again == whole[some]).all()


@pytest.mark.parametrize("squared", [Fraction(0), Fraction(-1), Fraction(2**100)])
def test_noise_that_cannot_be_is_refused(squared: Fraction) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        discrete_gaussian(1, squared, Randomness.from_seed(1, "x"))


# --- its cost ---


@pytest.mark.parametrize(
    ("squared", "moves"),
    [(0.3, (1,)), (4.0, (1, 1)), (4.0, (2, -1)), (9.0, (3,)), (1.7, (1, 1, -1))],
)
def test_the_cost_of_a_vector_is_that_of_all_its_outcomes(
    squared: float, moves: tuple[int, ...]
) -> None:
    """Rényi divergences over all vectors of noise, in as many places as move."""
    law = DiscreteGaussian(Fraction(squared))
    sensitivity = Sensitivity(sum(map(abs, moves)), sum(m * m for m in moves))
    rho = law.loss(sensitivity).rho
    assert rho is not None
    far = int(10 * math.sqrt(squared)) + 8
    one = np.log(law_of(squared, far + 3))
    whole, moved = np.zeros(1), np.zeros(1)
    for move in moves:
        whole = np.add.outer(whole, one[3:-3])
        moved = np.add.outer(moved, one[3 - move : len(one) - 3 - move])
    for order in ORDERS:
        divergence = float(logsumexp(order * whole + (1 - order) * moved)) / (order - 1)
        assert divergence <= order * float(rho) * (1 + 1e-9) + 1e-11
    # And it is no looser than it has to be: the divergence of order 1 is nearly ρ.
    if squared >= 1:
        assert float((np.exp(whole) * (whole - moved)).sum()) == pytest.approx(float(rho), rel=1e-6)


@pytest.mark.parametrize(("epsilon", "delta"), [("1", 1e-6), ("1/10", 1e-9), ("4", 1e-5)])
def test_noise_for_epsilon_and_delta_holds_them(epsilon: str, delta: float) -> None:
    """The exact δ of a sum of moves of one (Canonne, Kamath and Steinke 2020, Theorem 7)."""
    granted = PrivacyLoss.of(Fraction(epsilon), delta)
    law = DiscreteGaussian.calibrated(granted, Sensitivity(1, 1))
    assert law.loss(Sensitivity(1, 1)) <= granted
    far = int(14 * math.sqrt(law.squared)) + 3
    chances = law_of(float(law.squared), far)
    beyond = np.maximum(chances[1:] - math.exp(Fraction(epsilon)) * chances[:-1], 0.0).sum()
    assert delta / 8 < beyond <= delta


def test_rho_is_met_exactly() -> None:
    loss = PrivacyLoss.concentrated(Fraction(1, 7))
    law = DiscreteGaussian.calibrated(loss, Sensitivity(6, 6))
    assert law == DiscreteGaussian(Fraction(21))
    assert law.loss(Sensitivity(6, 6)) == law.concentrated(Sensitivity(6, 6)) == loss


@given(st.fractions(Fraction(1, 1000), 50), st.floats(1e-300, 0.4))
def test_the_largest_rho_of_epsilon_and_delta(epsilon: Fraction, delta: float) -> None:
    granted = PrivacyLoss.of(epsilon, delta)
    rho = most_rho(granted.epsilon or Fraction(0), granted.delta)
    assert PrivacyLoss.concentrated(rho) <= granted
    assert not PrivacyLoss.concentrated(rho * (1 + Fraction(1, 10**9))) <= granted


@pytest.mark.parametrize(
    "loss", [PrivacyLoss.of(1), NO_LOSS, UNBOUNDED, PrivacyLoss.of(0, 1e-6)], ids=str
)
def test_pure_epsilon_has_no_gaussian_noise(loss: PrivacyLoss) -> None:
    with pytest.raises(LocalError, match=r"needs a delta above 0 \(--delta\), or a loss in rho"):
        DiscreteGaussian.calibrated(loss, Sensitivity(1, 1))


def test_noise_past_the_ring_is_refused() -> None:
    little = PrivacyLoss.concentrated(Fraction(1, 10**15))
    with pytest.raises(LocalError, match="does not fit the ring"):
        DiscreteGaussian.calibrated(little, Sensitivity.of_number(2**50))


# --- shares ---


@pytest.mark.parametrize(("squared", "shares"), [(1.0, 2), (2.0, 2), (2.0, 5), (6.0, 7), (0.9, 3)])
def test_shares_are_as_near_to_one_noise_as_is_said(squared: float, shares: int) -> None:
    law = DiscreteGaussian(Fraction(squared), shares)
    far = int(8 * math.sqrt(squared)) + 2
    apart = np.log(of_sums(squared, shares, far)) - np.log(law_of(squared, far))
    assert np.abs(apart).max() <= law.divergence + 1e-12
    if shares == 2:
        assert np.abs(apart).max() > law.divergence / 2  # more of them are nearer than is said


@pytest.mark.parametrize("shares", [2, 3, 8])
@pytest.mark.parametrize("moved", [1, 2])
def test_what_shares_cost_is_charged(shares: int, moved: int) -> None:
    """Rényi divergences of the sum of so many, which is not discrete Gaussian."""
    sensitivity = Sensitivity(moved, moved**2)
    loss = PrivacyLoss.concentrated(Fraction(1, 4))
    law = DiscreteGaussian.calibrated(loss, sensitivity, shares)
    rho = law.loss(sensitivity).rho
    assert rho is not None
    assert Fraction(6, 25) < rho <= Fraction(1, 4)
    chances = of_sums(float(law.squared), shares, 20)
    here, there = chances[moved:], chances[:-moved]
    for order in ORDERS:
        sums = float((here * np.exp((order - 1) * (np.log(here) - np.log(there)))).sum())
        assert math.log(sums) / (order - 1) <= order * float(rho) + 1e-9


def test_shares_that_are_too_small_take_more_noise() -> None:
    """Half of 2000 parties: with σ² = 2 each share would be 0 nearly always."""
    loss = PrivacyLoss.concentrated(Fraction(1, 4))
    alone = DiscreteGaussian.calibrated(loss, Sensitivity(1, 1))
    many = DiscreteGaussian.calibrated(loss, Sensitivity(1, 1), 1000)
    assert alone.squared == 2
    assert many.squared / 1000 > Fraction(2, 5)
    assert many.loss(Sensitivity(1, 1)) <= loss
    assert DiscreteGaussian(Fraction(2), 1000).divergence == math.inf


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("rho", [10**9, 10**12, 10**15])
def test_shares_of_which_nothing_is_known_cost_more_than_anybody_grants(rho: int) -> None:
    one = Sensitivity.of_number(1)
    assert DiscreteGaussian(Fraction(1, 10**20), 1000).loss(one).rho > 10**15  # type: ignore[operator]
    law = DiscreteGaussian.calibrated(PrivacyLoss.concentrated(rho), one, 1000)
    assert math.isfinite(law.divergence)


def test_variance_and_quantiles_are_those_of_the_sum_of_shares() -> None:
    law = DiscreteGaussian(Fraction(2), 5)
    chances = of_sums(2.0, 5, 40)
    values = np.arange(-40, 41)
    assert law.variance == pytest.approx(float(values**2 @ chances), rel=1e-9)
    upto = np.cumsum(chances)
    for level in (0.5, 0.9, 0.975, 0.9999):
        assert law.quantile(level) == int(np.argmax(upto >= level - 1e-12)) - 40
    three = np.cumsum(of_sums(1.2, 3, 40))  # the shares of three alone
    assert law.quantile(0.975, Fraction(3, 5)) == int(np.argmax(three >= 0.975)) - 40


def test_quantiles_of_much_noise_are_those_of_a_normal_law() -> None:
    for squared in (Fraction(999**2), Fraction(1001**2), Fraction(10**20)):
        sigma = math.sqrt(squared)
        for level in (0.5, 0.975, 1 - 1e-9):
            found = DiscreteGaussian(squared).quantile(level)
            assert abs(found - stats.norm.ppf(level) * sigma) <= 0.5 + 1e-6 * sigma


def test_noise_in_shares_is_not_drawn_by_one_nor_in_other_shares() -> None:
    law, randomness = DiscreteGaussian(Fraction(2), 5), Randomness.from_seed(1, "x")
    with pytest.raises(ValueError, match="drawn by several"):
        law.draw(1, randomness)
    with pytest.raises(ValueError, match="not drawn in 4"):
        law.draw_shares(np.zeros(1, dtype=np.uint32), 4, 1, randomness)
