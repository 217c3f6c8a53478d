"""What the drawing of pairs adds: bounds by kernel hold for all records, and are reached."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallyroom.protocols.kernels import bundled as kernels
from tallyroom.protocols.kernels.contract import Grid, Integers, Kernel
from tallyroom.protocols.kernels.estimator import Design, Zetas, drawing_variance
from tallyroom.protocols.kernels.expression import Expression
from tallyroom.protocols.kernels.matchings import rounds
from tallyroom.protocols.records import Column

FEW, LABEL = Grid.integers(0, 4), Grid.integers(0, 1)
KINDS: list[Kernel] = [
    kernels.Gini([FEW]),
    kernels.Variance([FEW]),
    kernels.CollisionEntropy([FEW]),
    kernels.KendallTau([FEW, FEW]),
    kernels.KendallTauB([FEW, FEW]),
    kernels.Auc([FEW, LABEL]),
    kernels.PublicClassesAuc([FEW, LABEL]),
    Expression("mine", "max(a.x, b.x)")([FEW]),
]
PROBABILITIES = st.lists(st.floats(0, 1), min_size=25, max_size=25).filter(lambda p: sum(p) > 0.1)


def cells(kernel: Kernel) -> Integers:
    """All records that there are."""
    axes = [np.arange(grid.low, grid.high + 1) for grid in kernel.grids]
    return np.array(list(itertools.product(*axes)), dtype=np.int64)


def exactly(kernel: Kernel, p: Column, weights: Column) -> tuple[Column, float]:
    """The outputs' means, and ζ2 − 2ζ1 of their weighted sum, for records of this distribution, by
    adding up all pairs."""
    rows = cells(kernel)
    k = len(rows)
    values = kernel.reference(np.repeat(rows, k, axis=0), np.tile(rows, (k, 1)))
    means = np.einsum("i,ijo,j->o", p, values.reshape(k, k, -1).astype(float), p)
    f = (values @ weights).reshape(k, k)
    h, mean = f @ p, float(weights @ means)
    return means, float(p @ f**2 @ p - mean**2 - 2 * (p @ h**2 - mean**2))


@pytest.mark.parametrize("kernel", KINDS, ids=lambda each: each.name)
@settings(max_examples=60)
@given(chances=PROBABILITIES, slopes=st.lists(st.floats(-2, 2), min_size=3, max_size=3))
def test_the_bound_holds_for_any_records(
    kernel: Kernel, chances: list[float], slopes: list[float]
) -> None:
    chosen = np.array(chances[: len(cells(kernel))])
    if chosen.sum() < 1e-3:
        chosen = chosen + 1.0
    weights = np.array(slopes[: len(kernel.outputs)])
    means, residual = exactly(kernel, chosen / chosen.sum(), weights)
    assert residual <= kernel.pair_variance(means, weights) + 1e-9


def test_of_the_variance_it_is_exact() -> None:
    generator = np.random.default_rng(1)
    for _ in range(50):
        p = generator.dirichlet(np.full(5, 0.3))
        means, residual = exactly(KINDS[1], p, np.ones(1))
        assert KINDS[1].pair_variance(means, np.ones(1)) == pytest.approx(residual, abs=1e-12)


@pytest.mark.parametrize("share", [0.01, 0.3, 0.5, 0.99])
def test_records_with_two_values_reach_the_bounds(share: float) -> None:
    for kernel in (KINDS[0], KINDS[2]):
        p = np.array([share, 0, 0, 0, 1 - share])
        means, residual = exactly(kernel, p, np.ones(1))
        assert kernel.pair_variance(means, np.ones(1)) == pytest.approx(residual, abs=1e-12)


def test_without_ties_the_share_of_concordant_pairs_is_all_there_is_to_know() -> None:
    """ζ2 = 1 − τ² and, for a ratio D/M, M(1 − θ²)."""
    one = np.ones(1)
    assert KINDS[3].pair_variance(np.array([0.5]), one) == pytest.approx(0.75)
    theta, mixed = 0.6, 0.4
    ratio = np.array([1.0, -theta])
    found = KINDS[5].pair_variance(np.array([theta * mixed, mixed]), ratio)
    assert found == pytest.approx(mixed * (1 - theta**2))


@pytest.mark.parametrize("kernel", KINDS, ids=lambda each: each.name)
def test_no_means_give_a_negative_variance(kernel: Kernel) -> None:
    """Noise leads means out of their range."""
    generator = np.random.default_rng(2)
    for _ in range(200):
        means, weights = generator.normal(scale=9.0, size=(2, len(kernel.outputs)))
        assert 0 <= kernel.pair_variance(means, weights) < np.inf
    ones = np.ones(len(kernel.outputs))
    for mean in (0.0, np.nextafter(0.0, 1.0), np.nextafter(1.0, 0.0), 1.0):
        assert 0 <= kernel.pair_variance(mean * ones, ones) < np.inf


@pytest.mark.parametrize("records", [2, 3, 4, 7, 10, 51, 500])
def test_drawing_adds_what_the_sample_varies_more_than_all_pairs(records: int) -> None:
    """Whether records are odd in number is not told, which costs 2/n of it at most; with all pairs
    nothing is drawn."""
    zetas = Zetas(0.1, 0.9)
    everything = Design(records, rounds(records))
    assert drawing_variance(1.0, everything.pairs, everything.matchings) == 0
    for matchings in range(1, rounds(records), max(1, records // 10)):
        design = Design(records, matchings)
        exact = design.sampling_variance(zetas) - everything.sampling_variance(zetas)
        told = drawing_variance(zetas.two - design.sharing * zetas.one, design.pairs, matchings)
        if told or matchings < records - 2:
            assert exact * (1 - 1e-9) <= told
        assert told <= exact + 4 * zetas.two / records**2
