"""Noise inside a circuit: what it draws, how far that is from Laplace, and what it costs."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.garbling.circuit import Circuit
from tallyroom.protocols.garbling.circuit_builder import Builder, Word
from tallyroom.protocols.garbling.clear_evaluation import Bits, evaluate, from_bits
from tallyroom.protocols.garbling.laplace_circuit import OFFSET, CircuitLaplace
from tests.goodness import ALPHA, fits


def circuit_of(noise: CircuitLaplace) -> Circuit:
    builder = Builder(noise.coins, noise.coins)
    return builder.circuit([noise.word(builder, builder.garbler, builder.evaluator)])


def drawn(noise: CircuitLaplace, ours: Bits, theirs: Bits) -> NDArray[np.int64]:
    return from_bits(evaluate(circuit_of(noise), ours, theirs), signed=True)


def support(noise: CircuitLaplace) -> NDArray[np.int64]:
    return np.arange(noise.low, noise.high + 1)


def ideal(noise: CircuitLaplace) -> NDArray[np.float64]:
    """P(X) of the distribution that is never cut or rounded, on the support of the circuit."""
    q = math.exp(-1 / noise.scale)
    x = support(noise)
    pmf: NDArray[np.float64] = (
        (1 - q) / 2 * np.exp(-np.where(x < 0, -x - 1, x) / float(noise.scale))
    )
    return pmf


SMALL = [
    CircuitLaplace(Fraction(1), 2, 5),
    CircuitLaplace(Fraction(7, 3), 3, 4),
    CircuitLaplace(Fraction(1, 2), 1, 9),
    CircuitLaplace(Fraction(50), 4, 3),
]


@pytest.mark.parametrize("noise", SMALL)
def test_every_coin_enumerated(noise: CircuitLaplace) -> None:
    """All values of the XORed coins: the counts are the stated probabilities, exactly."""
    everything = np.arange(1 << noise.coins)
    coins = (everything[:, None] >> np.arange(noise.coins) & 1).astype(np.uint8)
    masks = np.random.default_rng(1).integers(0, 2, coins.shape, dtype=np.uint8)
    values = drawn(noise, masks, masks ^ coins)
    counts = np.bincount(values - noise.low, minlength=2 << noise.magnitude_bits)
    assert np.array_equal(counts / len(everything), noise.probabilities())


@pytest.mark.parametrize("noise", [*SMALL, CircuitLaplace(Fraction(4), 7, 44)])
def test_the_distance_bounds_what_it_says(noise: CircuitLaplace) -> None:
    q = math.exp(-1 / noise.scale)
    outside = q ** (1 << noise.magnitude_bits)
    exact = (np.abs(noise.probabilities() - ideal(noise)).sum() + outside) / 2
    m, k = noise.magnitude_bits, noise.coin_bits
    assert exact <= noise.distance + 1e-15  # the doubles of this sum
    assert noise.distance <= (m * 2.0 ** -(k + 1) + outside) * (1 + 1e-9)


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(4), Fraction(33, 2)])
def test_what_is_drawn_is_laplace_on_the_half_integers(scale: Fraction) -> None:
    """60,000 draws from coins of both sides, against the exact distribution."""
    noise = CircuitLaplace(scale, 10, 24)
    coins = np.random.default_rng(7)
    shape = (60_000, noise.coins)
    ours, theirs = (coins.integers(0, 2, shape, dtype=np.uint8) for _ in range(2))
    values = drawn(noise, ours, theirs)
    assert fits(values, support(noise), ideal(noise)) > ALPHA
    spread = 6 * math.sqrt(noise.variance / len(values))
    assert abs(values.mean() + float(OFFSET)) < spread


@pytest.mark.parametrize("constant", [0, 1])
def test_one_honest_side_suffices(constant: int) -> None:
    """40,000 draws in which the other side always gives the same coins."""
    noise = CircuitLaplace(Fraction(3), 8, 20)
    honest = np.random.default_rng(8).integers(0, 2, (40_000, noise.coins), dtype=np.uint8)
    stuck = np.full_like(honest, constant)
    assert fits(drawn(noise, honest, stuck), support(noise), ideal(noise)) > ALPHA
    assert fits(drawn(noise, stuck, honest), support(noise), ideal(noise)) > ALPHA


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(4), Fraction(33, 2)])
def test_the_variance_is_that_of_the_distribution(scale: Fraction) -> None:
    noise = CircuitLaplace(scale, 12, 60)
    centred = support(noise) + float(OFFSET)
    assert noise.variance == pytest.approx(float(noise.probabilities() @ centred**2), rel=1e-9)


@pytest.mark.parametrize("shift", [1, 2, 5])
def test_moving_the_output_costs_shift_over_scale(shift: int) -> None:
    noise = CircuitLaplace(Fraction(4), 7, 60)
    p = noise.probabilities()
    ratios = np.log(p[shift:] / p[:-shift])
    assert np.abs(ratios).max() == pytest.approx(shift / 4, rel=1e-9)


budgets = st.tuples(
    st.fractions(Fraction(1, 100), 20, max_denominator=1000),
    st.floats(1e-15, 1e-3),
    st.integers(1, 1 << 32),
    st.integers(1, 20),
    st.integers(1, 3),
)


@given(budgets)
def test_the_noise_for_a_budget_stays_within_it(
    budget: tuple[Fraction, float, int, int, int],
) -> None:
    epsilon, delta, sensitivity, pairs, outputs = budget
    noise = CircuitLaplace.spending(epsilon, delta, sensitivity, pairs, outputs)
    assert pairs * sensitivity / noise.scale == epsilon
    assert noise.delta(epsilon, pairs, outputs) <= delta
    assert noise.delta(epsilon, pairs, outputs) == pytest.approx(
        pairs * outputs * (1 + math.exp(epsilon / pairs)) * noise.distance
    )
    if noise.magnitude_bits > 1:  # and with one bit less it would not
        assert math.exp(-(2 ** (noise.magnitude_bits - 1)) / noise.scale) > noise.distance / 2


def test_the_tail_and_the_rounding_are_both_paid_for() -> None:
    """Over scales at all places between two powers of two."""
    for sensitivity in range(64, 192):
        noise = CircuitLaplace.spending(Fraction(1), 1e-6, sensitivity, 1, 1)
        assert noise.delta(Fraction(1), 1, 1) <= 1e-6


def test_privacy_holds_with_the_delta_that_is_reported() -> None:
    """P(S) ≤ e^ε P'(S) + δ for the worst S, from the exact probabilities of a coarse sampler."""
    epsilon = Fraction(1)
    noise = CircuitLaplace(Fraction(1) / epsilon, 3, 8)
    p = np.concatenate([noise.probabilities(), [0.0]])
    moved = np.roll(p, 1)
    for one, other in [(p, moved), (moved, p)]:
        needed = np.maximum(one - math.exp(epsilon) * other, 0).sum()
        assert 0 < needed <= noise.delta(epsilon, 1, 1)


def test_the_cost_of_the_example() -> None:
    """P/ε = 4 with 44 bits a coin and a bit to add it to."""
    noise = CircuitLaplace(Fraction(4), 7, 44)
    assert noise.coins == 305  # 7 · 44 + 1, less the four trailing zeros of the thresholds
    builder = Builder(noise.coins + 1, noise.coins)
    word = noise.word(builder, builder.garbler[1:], builder.evaluator)
    circuit = builder.circuit([builder.add(word, Word(builder.garbler[:1]))])
    assert circuit_of(noise).ands == noise.coins - 7 - 1
    assert circuit.ands == 305


def test_no_coin_is_asked_for_in_vain() -> None:
    """Also where a probability is nearly ½ or nearly 0, so that its threshold ends in zeros."""
    for noise in (CircuitLaplace(Fraction(1 << 30), 33, 20), CircuitLaplace(Fraction(1), 6, 20)):
        circuit = circuit_of(noise)
        read = np.unique(circuit.gates[:, 1:])
        assert np.array_equal(read[read < 2 * noise.coins], np.arange(2 * noise.coins))
        assert noise.coins < noise.magnitude_bits * noise.coin_bits


def test_what_no_circuit_can_draw_is_refused() -> None:
    half = Fraction(1, 2)
    for delta in (0.0, 1.0, -1.0, math.nan):
        with pytest.raises(LocalError, match="delta between 0 and 1"):
            CircuitLaplace.spending(half, delta, 1, 1, 1)
    with pytest.raises(LocalError, match="over 1024 bits to stay within delta 1e-300"):
        CircuitLaplace.spending(half, 1e-300, 1, 1, 1)
    with pytest.raises(LocalError, match="larger epsilon"):
        CircuitLaplace.spending(Fraction(1, 10**9), 1e-9, 1 << 40, 1, 1)
    with pytest.raises(LocalError, match="too large"):
        CircuitLaplace.spending(Fraction(10**6), 1e-9, 1, 1, 1)
    with pytest.raises(ValueError, match="positive"):
        CircuitLaplace(Fraction(0), 1, 1)
    with pytest.raises(ValueError, match="coins"):
        CircuitLaplace(Fraction(1), 1, 0)
    with pytest.raises(ValueError, match=r"takes \d+ coins"):
        SMALL[0].word(Builder(1, 1), (0,), (1,))
