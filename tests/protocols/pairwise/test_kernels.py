"""Kernels: circuit against reference, sensitivity by enumeration, statistics against scipy's."""

import itertools
import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import roc_auc_score

from tallyroom.protocols import registry
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.garbling.circuit import Circuit
from tallyroom.protocols.garbling.clear_evaluation import Bits, evaluate
from tallyroom.protocols.garbling.laplace_circuit import CircuitLaplace
from tallyroom.protocols.kernels.bundled import (
    Auc,
    CollisionEntropy,
    Gini,
    KendallTau,
    KendallTauB,
    PublicClassesAuc,
    Variance,
    inversions,
)
from tallyroom.protocols.kernels.contract import (
    MAX_OUTPUT_BITS,
    Grid,
    Integers,
    Kernel,
    kernel_named,
)
from tests.protocols.pairwise.kernel_samples import KINDS, LABEL, on


def every_record(kernel: Kernel) -> Integers:
    columns = [range(grid.low, grid.high + 1) for grid in kernel.grids]
    return np.array(list(itertools.product(*columns)), dtype=np.int64)


def every_pair(kernel: Kernel) -> tuple[Integers, Integers]:
    records = every_record(kernel)
    return np.repeat(records, len(records), axis=0), np.tile(records, (len(records), 1))


def some_records(kernel: Kernel, count: int, seed: int = 0) -> Integers:
    draw = np.random.default_rng(seed)
    columns = [draw.integers(g.low, g.high, count, endpoint=True) for g in kernel.grids]
    return np.stack(columns, axis=1)


@cache
def circuit_of(kind: type[Kernel], grids: tuple[Grid, ...], swapped: bool) -> Circuit:
    return kind(grids).circuit(swapped=swapped)


def computed(kernel: Kernel, x: Integers, y: Integers, swapped: bool = False) -> Integers:
    circuit = circuit_of(type(kernel), kernel.grids, swapped)
    return kernel.values(evaluate(circuit, kernel.input_bits(x), kernel.input_bits(y)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bounds", [(0, 15), (-8, 7), (-1, 5), (3, 12), (0, 1), (-9, -8)])
def test_every_pair_of_records_of_4_bits(kind: type[Kernel], bounds: tuple[int, int]) -> None:
    kernel = on(kind, Grid.integers(*bounds))
    x, y = every_pair(kernel)
    told = kernel.reference(x, y)
    assert np.array_equal(computed(kernel, x, y), told)
    assert np.array_equal(computed(kernel, x, y, swapped=True), told)
    assert np.array_equal(kernel.reference(y, x), told)
    assert kernel.symmetric
    for column, output in zip(told.T, kernel.outputs, strict=True):
        assert (column.min(), column.max()) == (output.low, output.high)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bounds", [(0, 6), (-3, 2)])
def test_the_sensitivity_is_the_most_that_a_replaced_record_moves(
    kind: type[Kernel], bounds: tuple[int, int]
) -> None:
    kernel = on(kind, Grid.integers(*bounds))
    x, y = every_pair(kernel)
    many = len(every_record(kernel))
    told = kernel.reference(x, y).reshape(many, many, -1)
    moved = np.abs(told[:, None] - told[None, :]).sum(axis=3)
    assert moved.max() == kernel.sensitivity


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-3e-9, 1e-9)])
@settings(max_examples=20)
@given(data=st.data())
def test_records_of_32_bits(
    kind: type[Kernel], bounds: tuple[float, float], data: st.DataObject
) -> None:
    kernel = on(kind, Grid.reals(*bounds))
    one = st.tuples(*(st.integers(grid.low, grid.high) for grid in kernel.grids))
    near = data.draw(one)
    records = st.lists(st.one_of(one, st.just(near)), min_size=8, max_size=8)
    x, y = np.array(data.draw(records)), np.array(data.draw(records))
    assert np.array_equal(computed(kernel, x, y), kernel.reference(x, y))


@pytest.mark.parametrize("kind", KINDS)
def test_many_random_records_of_32_bits(kind: type[Kernel]) -> None:
    kernel = on(kind, Grid.reals(-1.0, 1.0))
    x, y = some_records(kernel, 2000, 1), some_records(kernel, 2000, 2)
    y[::3] = x[::3]
    y[::5, 0] = x[::5, 0]
    assert np.array_equal(computed(kernel, x, y), kernel.reference(x, y))


@pytest.mark.parametrize("w", [1, 8, 32])
def test_ands(w: int) -> None:
    grid = Grid.integers(0, (1 << w) - 1)
    ands = {kind.name: on(kind, grid).circuit().ands for kind in KINDS}
    assert ands.pop("variance") <= w * w + 2 * w - 1
    assert ands == {
        "gini": 2 * w - 1,
        "collision-entropy": w - 1,
        "kendall-tau": 4 * w - 2,
        "kendall-tau-b": 4 * w - 2,
        "auc": 2 * w,
        "auc-public-classes": 2 * w,
    }


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_are_narrow_enough_to_be_added_up(kind: type[Kernel]) -> None:
    kernel = on(kind, Grid.reals(-1.0, 1.0))
    assert max(output.bits for output in kernel.outputs) <= MAX_OUTPUT_BITS


def coins(kernel: Kernel, noise: CircuitLaplace, count: int, seed: int) -> Bits:
    shape = (count, len(kernel.outputs) * noise.coins)
    return np.random.default_rng(seed).integers(0, 2, shape, dtype=np.uint8)


@pytest.mark.parametrize("kind", KINDS)
def test_noise_is_added_to_each_output(kind: type[Kernel]) -> None:
    """Coins of one record's noise decide all: the noisy output less the noise is the kernel's."""
    kernel = on(kind, Grid.integers(-4, 3))
    noise = CircuitLaplace(Fraction(5), 4, 6)
    x, y = every_pair(kernel)
    ours, theirs = coins(kernel, noise, len(x), 1), coins(kernel, noise, len(x), 2)
    circuit = kernel.circuit(noise)
    assert circuit.garbler_inputs == circuit.evaluator_inputs == kernel.inputs(noise)
    bits = evaluate(
        circuit,
        np.concatenate([kernel.input_bits(x), ours], axis=1),
        np.concatenate([kernel.input_bits(y), theirs], axis=1),
    )
    tossed = (ours ^ theirs).astype(np.int64).reshape(len(x), len(kernel.outputs), noise.coins)
    magnitude, start = np.zeros(tossed.shape[:2], dtype=np.int64), 0
    for place, (count, threshold) in enumerate(noise.comparisons):
        word = tossed[:, :, start : start + count] @ (1 << np.arange(count))
        magnitude += (word < threshold).astype(np.int64) << place
        start += count
    drawn = np.where(tossed[:, :, -1] == 1, ~magnitude, magnitude)
    noisy = kernel.values(bits, noise)
    assert np.array_equal(noisy - drawn, kernel.reference(x, y))
    assert len(np.unique(noisy)) > 8


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bounds", [(0, 5), (-40, 2000)])
def test_the_fast_mean_over_all_pairs_is_the_slow_one(
    kind: type[Kernel], bounds: tuple[int, int]
) -> None:
    kernel = on(kind, Grid.integers(*bounds))
    records = some_records(kernel, 301)
    slow = Kernel.full_means(kernel, records)
    np.testing.assert_allclose(kernel.full_means(records), slow, rtol=1e-12)


def test_fast_means_of_wide_values() -> None:
    for kind in (Gini, Variance):
        kernel = on(kind, Grid.reals(-1.0, 1.0))
        records = some_records(kernel, 300)
        slow = Kernel.full_means(kernel, records)
        # Bits that were dropped: less than one unit of the output.
        assert abs(kernel.full_means(records)[0] - slow[0]) < 1
        np.testing.assert_allclose(kernel.full_means(records), slow, rtol=1e-9)


@given(st.lists(st.integers(0, 40), max_size=60))
def test_inversions(ranks: list[int]) -> None:
    slow = sum(a > b for a, b in itertools.combinations(ranks, 2))
    assert inversions(np.array(ranks, dtype=np.intp)) == slow


def statistic(kernel: Kernel, records: Integers) -> float:
    return kernel.decode(kernel.full_means(records), exact=True)


def test_statistics_are_those_of_their_names() -> None:
    draw = np.random.default_rng(5)
    values = draw.normal(10, 3, 500)
    grid = Grid.reals(-5.0, 25.0)
    encoded = grid.encode(values)[:, None]
    gini = np.abs(values[:, None] - values).sum() / (500 * 499)
    assert statistic(Gini([grid]), encoded) == pytest.approx(gini, rel=1e-6)
    variance = statistic(Variance([grid]), encoded)
    assert variance == pytest.approx(values.var(ddof=1), rel=1e-6)
    ratings = draw.integers(-1, 6, (500, 2))
    ratings[:, 1] = np.where(draw.random(500) < 0.5, ratings[:, 0], ratings[:, 1])
    scale = Grid.integers(-1, 5)
    tau_b = statistic(KendallTauB([scale, scale]), ratings)
    assert tau_b == pytest.approx(stats.kendalltau(ratings[:, 0], ratings[:, 1]).statistic)
    distinct = np.stack([draw.permutation(500), draw.permutation(500)], axis=1)
    wide = Grid.integers(0, 499)
    tau = stats.kendalltau(distinct[:, 0], distinct[:, 1]).statistic
    assert statistic(KendallTau([wide, wide]), distinct) == pytest.approx(tau)
    assert statistic(KendallTauB([wide, wide]), distinct) == pytest.approx(tau)
    scores = np.stack([draw.integers(0, 60, 500), draw.integers(0, 2, 500)], axis=1)
    scores[:, 0] += 20 * scores[:, 1]
    auc = roc_auc_score(scores[:, 1], scores[:, 0])
    assert statistic(Auc([wide, LABEL]), scores) == pytest.approx(auc)
    positives = int(scores[:, 1].sum())
    public = PublicClassesAuc([wide, LABEL], PublicClassesAuc.mixed(positives, 500 - positives))
    assert statistic(public, scores) == pytest.approx(auc)
    _, counts = np.unique(ratings[:, 0], return_counts=True)
    collision = (counts * (counts - 1)).sum() / (500 * 499)
    entropy = statistic(CollisionEntropy([scale]), ratings[:, :1])
    assert entropy == pytest.approx(-math.log(collision))


def test_noise_never_takes_a_statistic_out_of_its_range() -> None:
    ten, wide = Grid.integers(0, 10), Grid.integers(0, 15)
    assert Gini([ten]).decode(np.array([-3.0])) == 0
    assert Gini([ten]).decode(np.array([99.0])) == 10
    assert Variance([ten]).decode(np.array([-3.0])) == 0
    assert Variance([ten]).decode(np.array([999.0])) == 50
    assert CollisionEntropy([wide]).decode(np.array([-0.5])) == pytest.approx(math.log(16))
    assert CollisionEntropy([wide]).decode(np.array([7.0])) == 0
    assert CollisionEntropy([wide]).decode(np.array([0.0]), exact=True) == math.inf
    assert KendallTau([ten, ten]).decode(np.array([-7.0])) == -1
    assert KendallTauB([ten, ten]).decode(np.array([7.0, 0.5, 0.5])) == 1
    assert KendallTauB([ten, ten]).decode(np.array([7.0, -0.5, 0.5])) == 0
    assert Auc([ten, LABEL]).decode(np.array([-7.0, 0.5])) == 0
    assert Auc([ten, LABEL]).decode(np.array([0.2, -0.5])) == 0.5


def test_grids_of_reals_are_as_fine_as_their_bits_allow() -> None:
    ranges = [(0.0, 1.0), (-1.0, 1.0), (20.0, 80.0), (-1e-9, 3e12), (-5.0, -4.0), (0.1, 0.2)]
    for lower, upper in [*ranges, (1.7e9, 1.7e9 + 1), (-1e15, 1 - 1e15)]:
        for bits in (8, 32):
            grid = Grid.reals(lower, upper, bits)
            assert grid.bits == bits
            assert grid.step <= (upper - lower) * 2.0 ** (2 - bits), "however far from zero"
            ends = grid.encode(np.array([lower, upper, lower - 1, upper + 1]))
            assert ends.tolist() == [grid.low, grid.high, grid.low, grid.high]
            assert np.abs(grid.values(ends[:2]) - [lower, upper]).max() <= grid.step / 2


def test_small_integers_take_few_bits() -> None:
    assert Grid.integers(0, 1).bits == 1
    assert Grid.integers(0, 5).bits == 3
    assert Grid.integers(-1, 5).bits == 4


def test_columns_that_cannot_be_are_refused() -> None:
    with pytest.raises(LocalError, match="more than one value"):
        Grid.integers(3, 3)
    with pytest.raises(LocalError, match="at most 32 bits"):
        Grid.integers(0, 1 << 32)
    with pytest.raises(LocalError, match="1 to 32 bits"):
        Grid.reals(0.0, 1.0, 33)
    for bounds in [(1.0, 0.0), (0.0, math.inf), (math.nan, 1.0)]:
        with pytest.raises(LocalError, match="finite and ascending"):
            Grid.reals(*bounds)
    with pytest.raises(LocalError, match="out of the range"):
        Grid.reals(0.0, 1e300)
    with pytest.raises(LocalError, match="columns x, y"):
        KendallTau([LABEL])
    with pytest.raises(LocalError, match="labels that are 0 or 1"):
        Auc([LABEL, Grid.integers(-1, 1)])
    with pytest.raises(LocalError, match="sizes of both classes"):
        PublicClassesAuc([LABEL, LABEL]).decode(np.array([0.5]))


def test_kernels_are_found_by_name() -> None:
    for kind in KINDS:
        found: object = kernel_named(kind.name)
        assert found is kind
        assert kind.name in registry.registered(registry.KERNELS)
    with pytest.raises(LocalError, match="no kernel 'ginny'; did you mean gini"):
        kernel_named("ginny")
