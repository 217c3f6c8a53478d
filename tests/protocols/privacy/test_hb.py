"""HB in two dimensions: sensitivity and estimates by dense algebra, its choices by enumeration."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from tallyroom.protocols.privacy import hb
from tallyroom.protocols.privacy.hb import GridHierarchy, grid_branching, mean_blocks
from tallyroom.protocols.privacy.mechanisms import DiscreteLaplace
from tallyroom.protocols.randomness import Randomness

Matrix = NDArray[np.float64]
SHAPES = [(1, 1), (1, 7), (2, 2), (3, 5), (4, 4), (6, 2), (5, 9)]


def grids(rows: int, columns: int) -> list[GridHierarchy]:
    sides = range(2, max(2, rows, columns) + 1)
    return [GridHierarchy(rows, columns, branching) for branching in sides]


def membership(grid: GridHierarchy) -> Matrix:
    """Which cells (columns) each node (row) counts, from the definition of the blocks."""
    rows = []
    for width in grid.widths:
        for top, left in itertools.product(
            range(0, grid.rows, width), range(0, grid.columns, width)
        ):
            cells = np.zeros((grid.rows, grid.columns))
            cells[top : top + width, left : left + width] = 1.0
            rows.append(cells.ravel())
    return np.array(rows).reshape(-1, grid.rows * grid.columns)


def dense_estimator(grid: GridHierarchy) -> Matrix:
    """Least squares with the sum held at n: maps (nodes, n) to the cells."""
    a, n = membership(grid), grid.rows * grid.columns
    kkt = np.block([[a.T @ a, np.ones((n, 1))], [np.ones((1, n)), np.zeros((1, 1))]])
    right = np.block([[a.T, np.zeros((n, 1))], [np.zeros((1, len(a))), np.ones((1, 1))]])
    estimator: Matrix = np.linalg.solve(kkt, right)[:n]
    return estimator


@pytest.mark.parametrize("shape", SHAPES)
def test_a_replacement_moves_2h_and_measuring_is_the_membership(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(3)
    for grid in grids(*shape):
        nodes = membership(grid)
        assert len(nodes) == grid.nodes
        assert (nodes.sum(axis=0) == grid.height).all()
        moves = np.abs(nodes[:, :, None] - nodes[:, None, :]).sum(axis=0)
        assert moves.max(initial=0.0) <= grid.sensitivity.l1 == 2 * grid.height
        if grid.height:  # two corners share no block
            assert moves[0, -1] == grid.sensitivity.l1
        counts = rng.integers(0, 9, shape)
        measured = grid.node_counts(counts)
        np.testing.assert_array_equal(measured, nodes @ counts.ravel())
        share = rng.integers(0, 2**64, shape, dtype=np.uint64)
        opened = grid.node_counts(share) + grid.node_counts(counts.astype(np.uint64) - share)
        np.testing.assert_array_equal(opened, measured.astype(np.uint64))


@pytest.mark.parametrize("shape", SHAPES)
def test_estimates_and_variances_are_those_of_dense_least_squares(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(4)
    for grid in grids(*shape):
        noisy = rng.normal(0.0, 9.0, grid.nodes)
        cells = grid.cell_counts(noisy, 17.0)
        if not grid.height:
            assert cells.tolist() == [[17.0]]
            continue
        estimator = dense_estimator(grid)
        np.testing.assert_allclose(cells.ravel(), estimator @ np.append(noisy, 17.0), atol=1e-9)
        for _ in range(4):
            top, bottom = np.sort(rng.integers(0, shape[0] + 1, 2))
            left, right = np.sort(rng.integers(0, shape[1] + 1, 2))
            weight = np.zeros(shape)
            weight[top:bottom, left:right] = 1.0
            reference = 3.0 * ((weight.ravel() @ estimator[:, :-1]) ** 2).sum()
            variance = grid.rectangle_variance(slice(top, bottom), slice(left, right), 3.0)
            assert variance == pytest.approx(reference, abs=1e-9)


def test_noise_free_counts_come_back() -> None:
    counts = np.random.default_rng(5).integers(0, 50, (37, 21))
    grid = hb.grid(37, 21)
    cells = grid.cell_counts(grid.node_counts(counts).astype(float), counts.sum())
    np.testing.assert_allclose(cells, counts, atol=1e-9)


def test_measured_variance_is_the_formulas() -> None:
    """400 releases of 12 × 12 cells; the variance estimate's standard error is 8 % (kurtosis 3–6).

    Bounds at 6 of them: a right program fails less than once in a million.
    """
    grid = GridHierarchy(12, 12, 4)
    mechanism = DiscreteLaplace.spending(Fraction(1), grid.sensitivity.l1)
    source = Randomness.from_seed(6, "noise")
    runs = 400
    noise = mechanism.draw(runs * grid.nodes, source).reshape(runs, grid.nodes)
    rows, columns = slice(1, 9), slice(3, 12)
    answers = [grid.cell_counts(row.astype(float), 0.0)[rows, columns].sum() for row in noise]
    expected = grid.rectangle_variance(rows, columns, mechanism.variance)
    assert 0.5 < np.mean(np.square(answers)) / expected < 1.5


def brute_mean_blocks(sides: tuple[int, ...], branching: int) -> float:
    """By tiling every box greedily, block by block."""
    widths: list[int] = []
    while branching ** len(widths) < max(sides):
        widths.append(branching ** len(widths))
    boxes = list(itertools.product(*(itertools.combinations(range(s + 1), 2) for s in sides)))
    used = 0
    for box in boxes:
        for width in widths:
            for corner in itertools.product(*(range(0, side, width) for side in sides)):

                def inside(size: int, corner: tuple[int, ...] = corner) -> bool:
                    return all(
                        low <= at // size * size and min(at // size * size + size, side) <= high
                        for at, side, (low, high) in zip(corner, sides, box, strict=True)  # noqa: B023
                    )

                used += inside(width) and not inside(width * branching)
    return used / len(boxes)


@pytest.mark.parametrize("sides", [(7,), (9,), (16,), (4, 4), (3, 5), (2, 6)])
def test_the_mean_number_of_blocks_is_that_of_all_boxes(sides: tuple[int, ...]) -> None:
    for branching in (2, 3, 4):
        brute = brute_mean_blocks(sides, branching)
        assert mean_blocks(sides, branching) == pytest.approx(brute, abs=1e-9)


def test_the_papers_mean_is_the_limit_of_ours() -> None:
    """Qardaji et al.'s (b−1)h − 2(b+1)/3 blocks, up to a constant that no choice depends on."""
    for branching, height in ((2, 16), (4, 8), (16, 4), (32, 3)):
        theirs = (branching - 1) * height - 2 * (branching + 1) / 3
        ours = mean_blocks((branching**height,), branching)
        assert abs(ours - theirs) < 2


def test_choices_of_branching() -> None:
    published = {16: 16, 64: 64, 256: 16, 512: 23, 1024: 32, 4096: 16}
    assert {cells: hb.line(cells).branching for cells in published} == published
    for rows, columns in ((1, 1), (3, 4), (8, 8), (30, 17)):
        cost = {
            grid.branching: grid.height**2 * mean_blocks((rows, columns), grid.branching)
            for grid in grids(rows, columns)
        }
        chosen = grid_branching(rows, columns)
        assert cost[chosen] <= 1.01 * min(cost.values())
    assert grid_branching(8, 8) == 8, "small grids need no hierarchy"
    assert grid_branching(1024, 1024) < 64


def test_bad_input_is_refused() -> None:
    for shape in ((0, 3), (3, 0), (-1, 2)):
        with pytest.raises(ValueError, match="cells"):
            GridHierarchy(*shape, 2)
    for branching in (1, 4):
        with pytest.raises(ValueError, match="b must be"):
            GridHierarchy(3, 2, branching)
    grid = GridHierarchy(3, 2, 2)
    with pytest.raises(ValueError, match="shape"):
        grid.node_counts(np.zeros((2, 3), dtype=np.int64))
    with pytest.raises(ValueError, match="shape"):
        grid.cell_counts(np.zeros(grid.nodes + 1), 0.0)
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match="NaN"):
            grid.cell_counts(np.full(grid.nodes, bad), 0.0)
        with pytest.raises(ValueError, match="NaN"):
            grid.cell_counts(np.zeros(grid.nodes), bad)
