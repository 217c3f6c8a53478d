"""Overlapping blocks: exact sensitivity by enumeration, sums in the ring, and least squares."""

import math

import numpy as np
import pytest

from tallyroom.protocols.privacy.curves import (
    HierarchyStrategy,
    SplineStrategy,
    SquareRootStrategy,
    curve_strategy,
)
from tallyroom.protocols.privacy.hierarchy import Hierarchy, best_branching
from tallyroom.protocols.privacy.splines import WEIGHT, Splines
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.simulation import Federation

SIZES = [1, 2, 3, 4, 5, 7, 16, 40, 64, 101]
Matrix = np.ndarray[tuple[int, int], np.dtype[np.int64]]


def columns(cells: int) -> Matrix:
    """What one record in each cell adds to the values."""
    prefixes = np.triu(np.ones((cells, cells), dtype=np.uint64))
    return np.stack([Splines(cells).measure(row) for row in prefixes]).astype(np.int64).T


@pytest.mark.parametrize("cells", SIZES)
def test_its_sensitivities_are_exact(cells: int) -> None:
    """By enumeration of all pairs of cells."""
    of_cell = columns(cells).T
    moves = np.abs(of_cell[:, None] - of_cell)
    assert Splines(cells).sensitivity.l1 == moves.sum(axis=2).max()
    assert Splines(cells).sensitivity.squared_l2 == (moves**2).sum(axis=2).max()


@pytest.mark.parametrize("cells", [800, 2000])
def test_so_they_are_on_two_levels(cells: int) -> None:
    """Of the first cell to all others, and of 200 random pairs."""
    of_cell = columns(cells).T
    assert len(Splines(cells).levels) == 2
    pairs = np.random.default_rng(1).integers(0, cells, (200, 2))
    moves = np.abs(np.vstack([of_cell - of_cell[0], of_cell[pairs[:, 0]] - of_cell[pairs[:, 1]]]))
    assert Splines(cells).sensitivity.l1 == moves.sum(axis=1).max() == 6 * WEIGHT
    assert Splines(cells).sensitivity.squared_l2 == (moves**2).sum(axis=1).max() == 6 * WEIGHT**2


@pytest.mark.parametrize("cells", [5, 64, 1000])
def test_a_record_counts_the_same_on_each_level(cells: int) -> None:
    """In one block or in two that are neighbours, and in every block somebody does."""
    found, first = columns(cells), cells
    assert (found[:cells] == WEIGHT * np.eye(cells)).all()
    for level in Splines(cells).levels:
        blocks = found[first : first + level.count]
        assert (blocks.sum(axis=0) == WEIGHT).all()
        assert (blocks >= 0).all()
        assert blocks.any(axis=1).all()
        touched = [np.flatnonzero(column) for column in blocks.T]
        assert all(len(each) == 1 or (len(each) == 2 and np.ptp(each) == 1) for each in touched)
        first += level.count


@pytest.mark.parametrize("cells", SIZES)
def test_counts_are_least_squares_given_the_number_of_records(cells: int) -> None:
    shape, n = Splines(cells), 50
    noisy = np.random.default_rng(1).normal(size=shape.released) * 1000
    upto = np.tril(np.ones((cells, cells)))
    # The last cell is what is left of n.
    others = np.eye(cells)[:, :-1] - np.eye(cells)[:, -1:]
    weights = upto @ others @ np.linalg.pinv(columns(cells) @ others)
    counts = weights @ (noisy - n * columns(cells)[:, -1]) + n * (np.arange(cells) == cells - 1)
    assert shape.prefix_counts(noisy, n) == pytest.approx(counts, abs=1e-7)
    assert shape.variances == pytest.approx((weights**2).sum(axis=1), abs=1e-12)
    for last in range(cells):
        assert shape.weights(last) == pytest.approx(weights[last], abs=1e-9)


@pytest.mark.parametrize("cells", [1000, 2500])
def test_variances_of_many_cells_are_those_of_the_weights(cells: int) -> None:
    """Weights are solved for one by one; variances follow from runs of cells."""
    shape = Splines(cells)
    for last in {0, 1, 17, cells // 3, cells // 2, cells - 2}:
        weights = shape.weights(last)
        assert shape.variances[last] == pytest.approx(float(weights @ weights), rel=1e-9)
        assert shape.prefix_counts(weights * 1e6, 0.0)[last] == pytest.approx(
            float(weights @ weights) * 1e6, rel=1e-9
        )


def test_shares_are_measured_in_the_ring() -> None:
    generator = np.random.default_rng(1)
    shares = generator.integers(0, 2**64, (2, 300), dtype=np.uint64)
    shape = Splines(300)
    both = shape.measure(shares[0]) + shape.measure(shares[1])
    assert (both == shape.measure(shares[0] + shares[1])).all()
    for wrong in (np.zeros(299, dtype=np.uint64), np.zeros((2, 300), dtype=np.uint64)):
        with pytest.raises(ValueError, match="for 300 cells"):
            shape.measure(wrong)
    for bad in (np.zeros(300), np.full(shape.released, math.nan)):
        with pytest.raises(ValueError, match="finite values"):
            shape.prefix_counts(bad, 1.0)


@pytest.mark.parametrize(
    ("cells", "at_most"), [(64, 0.90), (256, 0.86), (1024, 0.82), (4096, 0.83), (20_000, 0.82)]
)
def test_it_has_11_to_19_percent_less_variance_than_the_best_hierarchy(
    cells: int, at_most: float
) -> None:
    """Under Laplace noise, whose variance goes with the square of the sensitivity."""
    shape = Splines(cells)
    mean = 2 * shape.sensitivity.l1**2 * float(shape.variances.mean())
    assert mean <= at_most * Hierarchy(cells, best_branching(cells)).mean_variance(1.0)


def test_auto_takes_what_has_the_least_variance() -> None:
    for points in (1, 2, 47):
        assert type(curve_strategy("auto", points, "laplace")) is HierarchyStrategy
    for points in (48, 1000, 1 << 16):
        assert type(curve_strategy("auto", points, "laplace")) is SplineStrategy
    assert type(curve_strategy("auto", 1 << 17, "laplace")) is HierarchyStrategy
    assert type(curve_strategy("auto", 256, "laplace", "2")) is HierarchyStrategy


@pytest.mark.parametrize("points", [3, 16, 64, 300, 2000])
def test_auto_takes_the_least_variance_under_gaussian_noise_too(points: int) -> None:
    strategies = (HierarchyStrategy(points), SplineStrategy(points), SquareRootStrategy(points))
    best = min(
        strategies, key=lambda each: each.sensitivity.squared_l2 * each.count_variances(1.0).mean()
    )
    assert curve_strategy("auto", points, "gaussian") == best


def test_a_federation_reads_a_curve_off_it() -> None:
    """400 records; the error is a few of its deviations, and nothing without noise."""
    with Federation(parties=4, data="synthetic:scores?n=400", seed=1) as federation:
        found = federation.run(Ecdf(value="score", thresholds=100), 1)
        exact = federation.run(Ecdf(value="score", thresholds=100), "inf")
    assert found.privacy.mechanism.startswith(
        "splines: discrete Laplace of scale 4 on 100 counts of cells and 10 of blocks that overlap"
    )
    assert exact.estimate == exact.noiseless
    assert found.noise_error is not None
    assert 0 < found.noise_error["rmse"] < 4 * found.deviations.max()
