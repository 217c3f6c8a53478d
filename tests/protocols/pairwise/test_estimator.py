"""Sampled pairs: unbiased, with the variance that is stated; Theorem 5 of S1, put right."""

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.garbling.clear_evaluation import evaluate
from tallyroom.protocols.garbling.laplace_circuit import CircuitLaplace
from tallyroom.protocols.kernels.bundled import Gini, KendallTauB
from tallyroom.protocols.kernels.contract import Grid, Integers
from tallyroom.protocols.kernels.estimator import (
    Design,
    Zetas,
    advanced_composition,
    best_matchings,
    enough_matchings,
    epsilon_each,
    means_of_totals,
    means_of_values,
    unbiased_zetas,
)
from tallyroom.protocols.kernels.matchings import (
    RecordPairs,
    distinct_matchings,
    rounds,
)

SIX_SIGMA = 6.2
"""A normal variable is further out with probability below 1e-9."""

VALUES = np.arange(8)
WEIGHTS = np.array([24, 2, 1, 1, 0, 0, 1, 3]) / 32
KERNEL = Gini([Grid.integers(0, 7)])
MATRIX = np.abs(VALUES[:, None] - VALUES)
MEAN = float(WEIGHTS @ MATRIX @ WEIGHTS)
EXACT = Zetas(
    float(WEIGHTS @ (MATRIX @ WEIGHTS) ** 2) - MEAN**2,
    float(WEIGHTS @ MATRIX**2 @ WEIGHTS) - MEAN**2,
)
SIZES = [(10, 1), (10, 3), (10, 9), (9, 1), (9, 4), (9, 9), (2, 1), (3, 2)]
Error = NDArray[np.float64]


def designs(design: Design, count: int) -> list[RecordPairs]:
    seeds = [seed.to_bytes(16, "little") for seed in range(count)]
    return [distinct_matchings(design.records, design.matchings, seed) for seed in seeds]


def variance_of_pairs(pairs: RecordPairs, records: int, zetas: Zetas) -> float:
    """Variance of the mean over exactly these pairs of records (rows of two, repeats allowed)."""
    pairs = pairs.reshape(-1, 2)
    degrees = np.bincount(pairs.ravel(), minlength=records)
    _, repeats = np.unique(np.sort(pairs, axis=1), axis=0, return_counts=True)
    same = int((repeats.astype(np.int64) ** 2).sum())
    # Σ degree² counts a couple of pairs once for each record that they share.
    sharing = int((degrees**2).sum()) - 2 * same
    return (zetas.two * same + zetas.one * sharing) / len(pairs) ** 2


def errors(design: Design, noise: Callable[[int, int], Error] | None = None) -> Error:
    """Errors of 400 designs on 200 data sets each; `noise` is added to (data sets, pairs)."""
    draw = np.random.default_rng(11)
    found = []
    for pairs in designs(design, 400):
        data = draw.choice(VALUES, (200, design.records), p=WEIGHTS)
        flat = pairs.reshape(-1, 2)
        values = MATRIX[data[:, flat[:, 0]], data[:, flat[:, 1]]].astype(np.float64)
        if noise:
            values += noise(*values.shape)
        found.append(values.mean(axis=1) - MEAN)
    return np.array(found)


def deviations(found: Error, variance: float) -> tuple[float, float]:
    """By how many standard errors the mean is off 0, and the mean square off `variance`.

    Designs are independent of each other, so their own means are what is averaged.
    """
    means, squares = found.mean(axis=1), (found**2).mean(axis=1)
    root = math.sqrt(len(found))
    return (
        float(means.mean() / (means.std(ddof=1) / root)),
        float((squares.mean() - variance) / (squares.std(ddof=1) / root)),
    )


@pytest.mark.parametrize(("records", "matchings"), SIZES)
def test_the_variance_of_sampled_pairs(records: int, matchings: int) -> None:
    design = Design(records, matchings)
    bias, spread = deviations(errors(design), design.sampling_variance(EXACT))
    assert abs(bias) < SIX_SIGMA
    assert abs(spread) < SIX_SIGMA


@pytest.mark.parametrize("matchings", [1, 4])
def test_theorem_5_with_its_privacy_term_put_right(matchings: int) -> None:
    """Laplace noise of scale PΔ/ε on every pair. The paper's own term is refused."""
    n, delta, epsilon = 10, KERNEL.sensitivity, 2.0
    design = Design(n, matchings)
    draw = np.random.default_rng(5)
    noisy = errors(design, lambda *shape: draw.laplace(0, matchings * delta / epsilon, shape))
    stated = design.per_pair_variance(delta, epsilon)
    assert stated == pytest.approx(4 * matchings * delta**2 / (n * epsilon**2))
    sampling = design.sampling_variance(EXACT)
    bias, spread = deviations(noisy, sampling + stated)
    assert abs(bias) < SIX_SIGMA
    assert abs(spread) < SIX_SIGMA
    _, printed = deviations(noisy, sampling + stated / 2)
    assert printed > 10


@pytest.mark.parametrize("matchings", [1, 4])
def test_noise_on_the_total(matchings: int) -> None:
    n, delta, epsilon = 10, KERNEL.sensitivity, 0.7
    design = Design(n, matchings)
    stated = design.total_variance(delta, epsilon)
    assert stated == pytest.approx(8 * delta**2 / (n * epsilon) ** 2)
    assert design.total_variance(delta, epsilon, noises=3) == pytest.approx(3 * stated)
    draw = np.random.default_rng(6)
    scale = matchings * delta / epsilon
    noisy = errors(design, lambda sets, _: draw.laplace(0, scale, (sets, 1)) / design.pairs)
    bias, spread = deviations(noisy, design.sampling_variance(EXACT) + stated)
    assert abs(bias) < SIX_SIGMA
    assert abs(spread) < SIX_SIGMA


@given(st.integers(2, 20), st.floats(0, 1), st.floats(0, 10), st.data())
def test_matchings_without_a_common_pair_are_never_worse_than_the_independent_of_theorem_5(
    half: int, share: float, two: float, data: st.DataObject
) -> None:
    n, one = 2 * half, share * two / 2
    zetas = Zetas(one, two)
    p = data.draw(st.integers(1, rounds(n)))
    couples = 2 * (p - 1) * (1 - 1 / (n - 1)) * one + (1 + (p - 1) / (n - 1)) * two
    assert Design(n, p).sampling_variance(zetas) <= 2 / (p * n) * couples + 1e-12


@given(st.integers(3, 40), st.floats(0, 1), st.floats(0, 10))
def test_all_matchings_are_the_full_statistic(n: int, share: float, two: float) -> None:
    zetas = Zetas(share * two / 2, two)
    full = 2 / (n * (n - 1)) * (2 * (n - 2) * zetas.one + zetas.two)  # S1, Eq. 3
    assert Design(n, rounds(n)).sampling_variance(zetas) == pytest.approx(full)


@given(st.integers(3, 30), st.data())
def test_the_variance_of_a_given_set_of_pairs(n: int, data: st.DataObject) -> None:
    matchings = data.draw(st.integers(1, rounds(n)))
    seed = data.draw(st.binary(min_size=16, max_size=16))
    exact = variance_of_pairs(distinct_matchings(n, matchings, seed), n, EXACT)
    assert exact == pytest.approx(Design(n, matchings).sampling_variance(EXACT))


def test_pairs_that_come_twice_or_drop_out_are_counted_as_they_are() -> None:
    pairs = np.array([[0, 1], [1, 0], [1, 2], [3, 4]], dtype=np.uint32)
    # Ordered couples: the same 2² + 1 + 1; sharing record 1 only, 2 · 2.
    stated = (6 * EXACT.two + 4 * EXACT.one) / 16
    assert variance_of_pairs(pairs, 6, EXACT) == pytest.approx(stated)
    data = np.random.default_rng(3).choice(VALUES, (400, 500, 6), p=WEIGHTS)
    found = MATRIX[data[:, :, pairs[:, 0]], data[:, :, pairs[:, 1]]].mean(axis=2) - MEAN
    bias, spread = deviations(found, stated)
    assert abs(bias) < SIX_SIGMA
    assert abs(spread) < SIX_SIGMA


def test_sampling_a_fixed_data_set_is_unbiased_for_all_pairs() -> None:
    """2,000 designs of 9 records in 2 distinct matchings, with all 8 pairs and with 4 of them."""
    records = np.array([0, 7, 7, 1, 0, 3, 7, 2, 5])[:, None]
    full = KERNEL.full_means(records)[0]
    for kept in (8, 4):
        means = []
        for pairs in designs(Design(9, 2), 2_000):
            x, y = records[pairs.reshape(-1, 2)[:kept].T]
            means.append(means_of_values(KERNEL.reference(x, y), noisy=False)[0])
        error = np.mean(means) - full
        assert abs(error) < SIX_SIGMA * np.std(means, ddof=1) / math.sqrt(len(means))


def test_an_estimate_through_noisy_circuits_is_unbiased() -> None:
    """20,000 pairs of Kendall's τ_b outputs, each with noise drawn in its circuit."""
    grid = Grid.integers(0, 3)
    kernel = KendallTauB([grid, grid])
    epsilon = Fraction(8)
    noise = CircuitLaplace.spending(epsilon, 1e-3, kernel.sensitivity, 1, len(kernel.outputs))
    draw = np.random.default_rng(9)
    records: Integers = draw.integers(0, 4, (40_000, 2))
    records[:20_000, 1] = records[:20_000, 0]
    x, y = records[distinct_matchings(40_000, 1, bytes(16))[0].T]
    coins = len(kernel.outputs) * noise.coins
    sides = [
        np.concatenate([kernel.input_bits(side), draw.integers(0, 2, (len(x), coins), np.uint8)], 1)
        for side in (x, y)
    ]
    noisy = kernel.values(evaluate(kernel.circuit(noise), *sides), noise)
    exact = kernel.reference(x, y)
    off = means_of_values(noisy, noisy=True) - means_of_values(exact, noisy=False)
    assert np.abs(off).max() < SIX_SIGMA * math.sqrt(noise.variance / len(x))
    assert kernel.decode(means_of_values(noisy, noisy=True)) == pytest.approx(
        kernel.decode(kernel.full_means(records)), abs=0.05
    )


def test_totals_give_the_same_means() -> None:
    values = np.array([[3, -1], [5, 0], [1, 1]])
    totals = means_of_totals(values.sum(axis=0), 3)
    assert np.array_equal(totals, means_of_values(values, noisy=False))
    with pytest.raises(LocalError, match="no pair was completed"):
        means_of_totals(np.array([0]), 0)
    with pytest.raises(LocalError, match="no pair was completed"):
        means_of_values(np.zeros((0, 1), dtype=np.int64), noisy=False)


@pytest.mark.parametrize("n", [5, 6])
def test_estimates_of_both_zetas_are_unbiased(n: int) -> None:
    """Every data set of n records with three values, weighted by how likely it is."""
    weights = np.array([0.5, 0.2, 0.3])
    matrix = np.array([[0.0, 1.0, 5.0], [1.0, 2.0, 0.0], [5.0, 0.0, 3.0]])
    mean = weights @ matrix @ weights
    one, two = weights @ (matrix @ weights) ** 2 - mean**2, weights @ matrix**2 @ weights - mean**2
    expected = np.zeros(2)
    for data in itertools.product(range(3), repeat=n):
        likely = weights[list(data)].prod()
        expected += likely * np.array(unbiased_zetas(matrix[np.ix_(data, data)]))
    assert expected == pytest.approx([one, two])


def test_a_pilot_tells_both_zetas() -> None:
    pilot = np.random.default_rng(2).choice(VALUES, (1000, 1), p=WEIGHTS)
    zetas = Zetas.of_pilot(KERNEL, pilot)
    assert zetas.one == pytest.approx(EXACT.one, rel=0.3)
    assert zetas.two == pytest.approx(EXACT.two, rel=0.3)
    alike = np.array([[0], [7]] * 3)
    assert Zetas.of_pilot(KERNEL, alike).one == 0  # an unbiased estimate is negative here
    assert Zetas.of_pilot(KERNEL, np.zeros((5, 1), dtype=np.int64)) == Zetas(0.0, 0.0)
    with pytest.raises(LocalError, match="five records"):
        Zetas.of_pilot(KERNEL, VALUES[:4, None])


@pytest.mark.parametrize(("one", "two"), [(-1.0, 1.0), (0.6, 1.0), (math.nan, 1.0)])
def test_impossible_zetas_are_refused(one: float, two: float) -> None:
    with pytest.raises(LocalError, match="2ζ1 ≤ ζ2"):
        Zetas(one, two)


@given(
    st.integers(2, 60), st.floats(0, 1), st.floats(0, 1), st.floats(0.01, 100), st.floats(0.5, 3)
)
def test_the_best_number_of_matchings(
    n: int, share: float, part: float, epsilon: float, delta: float
) -> None:
    two = part * delta**2 / 4
    zetas = Zetas(share * two / 2, two)

    def error(matchings: int) -> float:
        design = Design(n, matchings)
        return design.sampling_variance(zetas) + design.per_pair_variance(delta, epsilon)

    best = best_matchings(n, zetas, delta, epsilon)
    assert error(best) == pytest.approx(min(map(error, range(1, rounds(n) + 1))))


def test_without_a_pilot_small_budgets_take_one_pair_a_record() -> None:
    """P = 1 is best at small ε (S1, Figure 4), and more pairs pay at large ε."""
    for epsilon, best in [(0.1, 1), (1.0, 1), (4.0, 1), (5.0, 2), (10.0, 4), (100.0, 35)]:
        assert best_matchings(10_000, Zetas.worst(2.0), 2.0, epsilon) == best


@given(st.integers(2, 60), st.floats(0, 1), st.floats(0.01, 100), st.floats(0, 1))
def test_enough_matchings_are_enough_and_no_more(
    n: int, share: float, epsilon: float, excess: float
) -> None:
    zetas = Zetas(share / 8, 0.25)

    def error(matchings: int) -> float:
        design = Design(n, matchings)
        return design.sampling_variance(zetas) + design.total_variance(1.0, epsilon, 2)

    enough = enough_matchings(n, zetas, 1.0, epsilon, 2, excess)
    goal = (1 + excess) * error(rounds(n))
    assert error(enough) <= goal
    assert enough == 1 or error(enough - 1) > goal


def test_designs_that_cannot_be_are_refused() -> None:
    for records, matchings in [(1, 1), (4, 0)]:
        with pytest.raises(LocalError, match="two records and one matching"):
            Design(records, matchings)
    with pytest.raises(LocalError, match="without a common pair"):
        Design(4, 4)


def test_advanced_composition() -> None:
    # √(2 · 100 · ln 1e5) · 0.01 + 100 · 0.01 · (e^0.01 − 1)
    assert advanced_composition(0.01, 100, 1e-5) == pytest.approx(0.4798525 + 0.0100502, abs=1e-6)


@given(st.floats(0.01, 20), st.integers(1, 10**6), st.floats(1e-12, 0.1))
def test_the_budget_of_each_is_the_most_that_composes(
    epsilon: float, count: int, delta: float
) -> None:
    each = epsilon_each(epsilon, count, delta)
    basic = each == epsilon / count
    assert basic or advanced_composition(each, count, delta) <= epsilon
    assert each >= epsilon / count
    assert advanced_composition(each * 1.000001, count, delta) > epsilon
    assert epsilon_each(epsilon, count, 0.0) == epsilon / count


def test_all_pairs_lose_to_few_pairs_at_small_budgets() -> None:
    """The all-pairs baseline of S1, Figure 4: δ = 1e-8, ε ≤ 2, as many records as there."""
    n, delta, zetas = 246_000, 2.0, Zetas.worst(2.0)
    for epsilon in (0.1, 0.5, 1.0, 2.0):
        each = epsilon_each(epsilon, n - 1, 1e-8)
        everything = Design(n, rounds(n))
        noise = 2 * (delta / each) ** 2 / everything.pairs
        few = Design(n, 1)
        best = few.sampling_variance(zetas) + few.per_pair_variance(delta, epsilon)
        assert everything.sampling_variance(zetas) + noise > 5 * best
