"""What the circuit draws: the discrete Gaussian distribution, as far off as it says."""

import math
from decimal import Decimal
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.garbling.circuit import AND
from tallyroom.protocols.garbling.clear_evaluation import evaluate
from tallyroom.protocols.joint.gaussian_circuit import GaussianTable, JointGaussian, cheapest
from tallyroom.protocols.joint.noise_circuit import JointLaplace, in_circuit
from tallyroom.protocols.joint.noise_table import AliasTable
from tallyroom.protocols.privacy.gaussian import DiscreteGaussian
from tallyroom.protocols.privacy.loss import READ_UP_TO, PrivacyLoss

Law = NDArray[np.float64]
DELTA = 2.0**-40


def of_all_coins(noise: JointGaussian) -> dict[int, float]:
    """How often each noise comes out of the circuit, over all coins."""
    coins = np.array(list(product((0, 1), repeat=noise.coins)), dtype=np.uint8)
    # One side's coins are nothing but the mask of the other's: any will do.
    ours = np.random.default_rng(1).integers(0, 2, coins.shape[1], dtype=np.uint8)
    bits = evaluate(noise.circuit, np.broadcast_to(ours, coins.shape), coins ^ ours)
    weights = [
        factor * (-(1 << place) if signed and place == width - 1 else 1 << place)
        for (width, signed), factor in zip(noise.words, noise.factors, strict=True)
        for place in range(width)
    ]
    values, counts = np.unique(bits.astype(np.int64) @ weights, return_counts=True)
    return dict(zip(values.tolist(), (counts / len(coins)).tolist(), strict=True))


def law_of(noise: JointGaussian) -> Law:
    """P(−half), …, P(half) of what is drawn, by convolution of what each table draws."""
    law = np.ones(1)
    for table in noise.tables:
        one = table.probabilities()
        spread = np.zeros((len(one) - 1) * table.factor + 1)
        spread[:: table.factor] = one
        law = np.convolve(law, spread)
    return law


def exact(squared: Fraction, half: int) -> Law:
    values = np.arange(-half, half + 1)
    far = np.arange(-10 * half - 100, 10 * half + 101)
    whole = np.exp(-(far**2) / (2 * float(squared))).sum()
    law: Law = np.exp(-(values**2) / (2 * float(squared))) / whole
    return law


@pytest.mark.parametrize(
    "tables",
    [
        (GaussianTable(Fraction(1), 2, 4),),
        (GaussianTable(Fraction(1, 3), 1, 7),),
        (GaussianTable(Fraction(2), 2, 2), GaussianTable(Fraction(3), 2, 3, factor=3)),
    ],
)
def test_every_coin_counts_as_it_should(tables: tuple[GaussianTable, ...]) -> None:
    """All coins of small samplers, enumerated: each outcome as often as the tables say."""
    noise = JointGaussian(tables)
    law = law_of(noise)
    drawn = of_all_coins(noise)
    for value, chance in zip(range(-(len(law) // 2), len(law) // 2 + 1), law, strict=True):
        assert drawn.pop(value, 0.0) == pytest.approx(chance, abs=1e-12)
    assert not drawn


@given(
    bits=st.integers(1, 5),
    coin_bits=st.integers(6, 40),
    weights=st.lists(st.integers(0, 10**6), min_size=32, max_size=32),
)
@settings(max_examples=60, deadline=None)
def test_a_table_has_every_chance_to_half_a_coin(
    bits: int, coin_bits: int, weights: list[int]
) -> None:
    """The likeliest value makes up for what the others are rounded by."""
    values = [*weights[: (1 << bits) - 1], 10**7]
    chances = [Decimal(each) / sum(values) for each in values]
    table = AliasTable.of(chances, coin_bits)
    whole = 1 << (bits + coin_bits)
    assert sum(table.masses) == whole
    assert all(0 <= each < 1 << coin_bits for each in table.thresholds)
    for chance, mass in zip(chances[:-1], table.masses[:-1], strict=True):
        assert abs(chance * whole - mass) <= Decimal("0.5")


@given(
    squared=st.fractions(Fraction(1, 9), 3000, max_denominator=9),
    bits=st.integers(20, 45),
)
@settings(max_examples=25, deadline=None)
def test_the_stated_distance_is_an_upper_bound(squared: Fraction, bits: int) -> None:
    """Of samplers that are coarse enough for doubles to see how far off they are."""
    noise = cheapest(squared, 2.0**-bits)
    law = law_of(noise)
    assert law.sum() == pytest.approx(1)
    ideal = exact(squared, len(law) // 2)
    # What lies outside of the support is all missing.
    distance = (np.abs(law - ideal).sum() + max(0.0, 1 - ideal.sum())) / 2
    assert distance <= noise.distance + 1e-13
    assert noise.distance <= 2.0**-bits


def test_what_tables_are_put_together_costs_is_seen() -> None:
    """Two tables that are too narrow for their factor: off by a few per cent, and said to be."""
    tables = GaussianTable(Fraction(2), 6, 60), GaussianTable(Fraction(2), 6, 60, factor=4)
    noise = JointGaussian(tables)
    law = law_of(noise)
    distance = np.abs(law - exact(Fraction(34), len(law) // 2)).sum() / 2
    assert 0.02 < distance <= noise.distance < 1


@pytest.mark.parametrize("sigma", [Fraction(1, 4), 1, 11, 100, 1000, 10**6, 10**12])
@pytest.mark.parametrize("noises", [1, 1024])
def test_it_costs_no_more_than_was_granted_and_has_the_variance(
    sigma: Fraction, noises: int
) -> None:
    squared = Fraction(sigma) ** 2
    noise = JointGaussian.spending(squared, Fraction(1), DELTA, noises)
    assert 0 < noise.delta(Fraction(1), noises) <= DELTA
    lost = noises * (1 + math.exp(READ_UP_TO)) * noise.distance
    assert noise.delta(Fraction(1), noises) == pytest.approx(lost, rel=1e-12)
    assert sum(each.squared * each.factor**2 for each in noise.tables) == squared


@pytest.mark.parametrize("sigma", [1, 11, 50, 600, 5000])
def test_it_takes_no_more_than_twice_the_circuit_of_laplace_noise(sigma: int) -> None:
    """In what is sent: 32 bytes for an AND and some 32 for a coin."""
    gaussian = JointGaussian.spending(Fraction(sigma**2), Fraction(1), DELTA, 1024)
    laplace = JointLaplace.spending(Fraction(sigma), Fraction(1), DELTA, 1024)
    ours, theirs = (
        int(np.count_nonzero(noise.circuit.gates[:, 0] == AND)) for noise in (gaussian, laplace)
    )
    assert gaussian.coins <= ours <= gaussian.size
    assert theirs <= laplace.size
    assert ours + gaussian.coins <= 1.5 * (theirs + laplace.coins)


def test_rho_with_a_delta_is_read_at_no_epsilon_that_its_delta_does_not_cover() -> None:
    below, above = (PrivacyLoss.concentrated(rho, DELTA).at(1e-6) for rho in (6, 12))
    assert below.epsilon is not None
    assert 20 < below.epsilon <= READ_UP_TO
    assert not above.bounded
    assert PrivacyLoss.concentrated(12).at(1e-6).bounded


def test_what_cannot_be_is_one_line() -> None:
    one = Fraction(1)
    with pytest.raises(LocalError, match="epsilon 33 is too large for gaussian noise inside a"):
        JointGaussian.spending(one, Fraction(33), DELTA, 1)
    with pytest.raises(LocalError, match="would need over 1024 bits"):
        JointGaussian.spending(one, one, 1e-290, 1024)
    with pytest.raises(LocalError, match="between 0 and 1"):
        JointGaussian.spending(one, one, 0.0, 1)
    with pytest.raises(LocalError, match="laplace or gaussian, not gaussian"):
        in_circuit(DiscreteGaussian(one, shares=2), one, DELTA, 1)
