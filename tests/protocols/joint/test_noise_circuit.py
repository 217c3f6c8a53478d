"""What the circuit draws: the discrete Laplace distribution, as far off as it says."""

from decimal import Context, Decimal, localcontext
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.garbling.clear_evaluation import evaluate
from tallyroom.protocols.joint.noise_circuit import JointGeometric, JointLaplace
from tests.goodness import discrete_laplace_pmf


def test_every_coin_counts_as_it_should() -> None:
    """All coins of a small sampler, enumerated: each outcome as often as `probabilities` says."""
    noise = JointLaplace(Fraction(1), magnitude_bits=2, coin_bits=3)
    coins = np.array(list(product((0, 1), repeat=noise.coins)), dtype=np.uint8)
    # One side's coins are nothing but the mask of the other's: any will do.
    ours = np.random.default_rng(1).integers(0, 2, coins.shape[1], dtype=np.uint8)
    given_bits = np.broadcast_to(ours, coins.shape)
    bits = evaluate(noise.circuit, given_bits, coins ^ ours)
    weights = np.array([1, 2, -4, 1])
    values = bits.astype(np.int64) @ weights
    counts = np.bincount(values + 4, minlength=9) / len(coins)
    assert counts == pytest.approx(noise.probabilities(), abs=1e-12)


@given(
    scale=st.fractions(Fraction(1, 4), 8, max_denominator=7),
    magnitude=st.integers(2, 7),
    coins=st.integers(4, 24),
)
@settings(max_examples=60, deadline=None)
def test_the_stated_distance_is_an_upper_bound(scale: Fraction, magnitude: int, coins: int) -> None:
    noise = JointLaplace(scale, magnitude, coins)
    size = 1 << magnitude
    support = np.arange(-size, size + 1)
    exact = discrete_laplace_pmf(support, float(scale))
    drawn = noise.probabilities()
    assert drawn.sum() == pytest.approx(1)
    # What lies outside of the support is all missing.
    distance = (np.abs(drawn - exact).sum() + max(0.0, 1 - exact.sum())) / 2
    assert distance <= noise.distance + 1e-12


@pytest.mark.parametrize(
    ("scale", "epsilon"),
    [
        (Fraction(1), 1),
        (Fraction(2), 1),
        (Fraction(1000), Fraction(1, 10)),
        (Fraction(1), 8),
        (Fraction(2, 50), 50),
        (Fraction(2, 300), 300),
        (Fraction(2, 600), 600),
    ],
)
@pytest.mark.parametrize("noises", [1, 1024])
def test_it_costs_no_more_than_was_granted(scale: Fraction, epsilon: Fraction, noises: int) -> None:
    granted = 2.0**-40
    noise = JointLaplace.spending(scale, Fraction(epsilon), granted, noises)
    assert 0 < noise.delta(Fraction(epsilon), noises) <= granted


@pytest.mark.parametrize("kind", [JointLaplace, JointGeometric])
def test_each_of_many_noises_may_be_off(kind: type[JointLaplace] | type[JointGeometric]) -> None:
    """The laws of k noises are apart by k times as much as that of one, and (1 + e^ε) of that is
    lost."""
    noise = kind.spending(Fraction(2), Fraction(1), 1e-9, 64)
    lost = 64 * (1 + np.e) * noise.distance
    assert noise.delta(Fraction(1), 64) == pytest.approx(lost, rel=1e-12)


def test_at_a_large_epsilon_the_chance_of_any_noise_is_right_to_its_last_bit() -> None:
    """P(X ≠ 0) = 2q/(1 + q) is some 2^-143 at scale 1/100, far below what doubles tell from 0 in
    1 − p: against 400 digits."""
    noise = JointLaplace.spending(Fraction(1, 100), Fraction(100), 2.0**-40, 4)
    with localcontext(Context(prec=400)):
        q = Decimal(-100).exp()
        exact = 2 * q / (1 + q)
        drawn = 1 - Decimal(noise.zero_threshold) / 2**noise.coin_bits
        assert drawn > 0
        assert abs(drawn / exact - 1) < Decimal(2) ** -40


def test_what_cannot_be_is_one_line() -> None:
    with pytest.raises(LocalError, match="at epsilon 650 the coins of noise inside a circuit"):
        JointLaplace.spending(Fraction(1, 300), Fraction(650), 1e-12, 1024)
    with pytest.raises(LocalError, match="too large for noise inside a circuit"):
        JointLaplace.spending(Fraction(1), Fraction(10**6), 1e-9, 1)
    with pytest.raises(LocalError, match="between 0 and 1"):
        JointLaplace.spending(Fraction(1), Fraction(1), 0.0, 1)
