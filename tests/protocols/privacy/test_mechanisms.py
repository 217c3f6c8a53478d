"""Mechanisms: the privacy map, the least noise for it, and what is said about it."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.mechanisms import (
    DiscreteLaplace,
    Placement,
    enough_shares,
    noises_in,
)

epsilons = st.fractions(Fraction(1, 1000), 1000, max_denominator=10**12)


@given(epsilons, st.integers(1, 2**40))
def test_the_noise_for_epsilon_costs_at_most_epsilon(epsilon: Fraction, sensitivity: int) -> None:
    mechanism = DiscreteLaplace.spending(epsilon, sensitivity)
    cost = mechanism.privacy_map(sensitivity)
    assert cost <= epsilon
    assert cost >= epsilon * (1 - Fraction(1, 2**40)) or mechanism.scale < 1


@given(epsilons, st.integers(1, 2**20))
def test_the_privacy_map_is_linear(epsilon: Fraction, sensitivity: int) -> None:
    mechanism = DiscreteLaplace.spending(epsilon, sensitivity)
    assert mechanism.privacy_map(0) == 0
    assert mechanism.privacy_map(3 * sensitivity) == 3 * mechanism.privacy_map(sensitivity)


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(1), Fraction(7, 3), Fraction(1000)])
def test_the_variance_is_that_of_the_distribution(scale: Fraction) -> None:
    q = math.exp(-1 / scale)
    p = [(1 - q) / (1 + q) * q**k for k in range(1, 60 * math.ceil(scale))]
    exact = 2 * sum(k * k * each for k, each in enumerate(p, 1))
    assert DiscreteLaplace(scale).variance == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("scale", [Fraction(1, 800), Fraction(1, 10**5), Fraction(1, 10**9)])
def test_the_variance_of_almost_no_noise_is_almost_nothing(scale: Fraction) -> None:
    assert 0 <= DiscreteLaplace(scale).variance < 1e-300


def test_an_epsilon_whose_noise_does_not_fit_is_refused() -> None:
    with pytest.raises(LocalError, match="too small"):
        DiscreteLaplace.spending(Fraction(1, 10**9), 2**31)


@pytest.mark.parametrize(("parties", "enough"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (100, 50)])
def test_half_of_the_parties_rounded_up_are_enough(parties: int, enough: int) -> None:
    assert enough_shares(parties) == enough


def test_how_many_noises_a_placement_makes() -> None:
    assert noises_in(Placement.CURATOR, 10, 3) == 1
    assert noises_in(Placement.EACH_SERVER, 10, 3) == 3
    assert noises_in(Placement.PARTIES, 10, 3) == 2
    assert noises_in(Placement.PARTIES, 5, 3) == Fraction(5, 3)
    for servers, honest, times in ((3, 0, "3/2"), (5, 0, "5/3"), (5, 1, "5"), (5, 2, "5/2")):
        assert noises_in(Placement.SHARED, 10, servers, honest=honest) == Fraction(times)


def test_shares_of_noise_that_did_not_come_are_not_counted() -> None:
    assert noises_in(Placement.PARTIES, 10, 3, contributors=5) == 1
    assert noises_in(Placement.PARTIES, 10, 3, contributors=8) == Fraction(8, 5)
    assert noises_in(Placement.EACH_SERVER, 10, 3, contributors=5) == 3
