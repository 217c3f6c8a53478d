"""S0's tree: its indices, and the exact sensitivity behind its noise by linear programming."""

import math
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog

from tallyroom.protocols.privacy.curves import TreeStrategy
from tallyroom.protocols.privacy.tree import Tree, laplace_variance
from tallyroom.protocols.statistics.planned import planned
from tallyroom.protocols.statistics.running_sum import RunningSum

SIZES = [*range(1, 34), 100]


def membership(tree: Tree) -> NDArray[np.float64]:
    """Which nodes (columns) add their noise to which published counts (rows)."""
    paths = tree.paths(np.arange(1, tree.points + 1))
    matrix = np.zeros((tree.points, 2 ** (tree.levels + 1) - 1))
    for row, path in enumerate(paths):
        matrix[row, path.astype(np.int64) - 1] = 1.0
    return matrix


def least_shift(matrix: NDArray[np.float64], change: NDArray[np.float64]) -> float:
    """The least 1-norm of a shift of the node noises that explains `change` of all counts."""
    answer = linprog(
        np.ones(2 * matrix.shape[1]), A_eq=np.hstack([matrix, -matrix]), b_eq=change, method="highs"
    )
    assert answer.fun is not None
    return float(answer.fun)


@cache
def interval_sensitivity(points: int) -> float:
    """Over every pair of places t1 < t2 a replaced record can move between."""
    matrix = membership(Tree(points))
    thresholds = np.arange(1, points + 1)
    return max(
        least_shift(matrix, ((thresholds > t1) & (thresholds <= t2)).astype(float))
        for t1 in range(points)
        for t2 in range(t1 + 1, points + 1)
    )


@pytest.mark.parametrize("points", SIZES)
def test_paths_are_the_nodes_of_equation_2(points: int) -> None:
    tree = Tree(points)
    assert tree.levels == math.ceil(math.log2(points))
    paths = tree.paths(np.arange(1, points + 1))
    assert paths.dtype == np.uint64
    assert paths.shape == (points, tree.levels + 1)
    for i, path in enumerate(paths, start=1):
        expected = [
            2 ** (tree.levels - level) + math.ceil(i / 2**level) - 1
            for level in range(tree.levels + 1)
        ]
        assert path.tolist() == expected


@pytest.mark.parametrize("levels", [1, 2, 3, 4, 5])
def test_the_exact_sensitivity_is_the_number_of_levels(levels: int) -> None:
    assert interval_sensitivity(2**levels) == pytest.approx(levels)


@pytest.mark.parametrize("points", [1, 2, 3, 5, 6, 7, 8, 11, 16])
def test_the_scale_covers_the_exact_sensitivity_and_half_of_it_would_not(points: int) -> None:
    exact = interval_sensitivity(points)
    assert exact <= Tree(points).scale(1.0) + 1e-9
    assert exact > Tree(points).scale(1.0) / 2 - 1e-9
    assert exact <= TreeStrategy(points).sensitivity.l1 + 1e-9


@pytest.mark.parametrize("points", [1, 2, 3, 4, 6, 8, 13, 16, 32, 64])
def test_running_sums_need_theorem_3s_scale_and_no_more(points: int) -> None:
    tree = Tree(points)
    matrix = membership(tree)
    steps = np.arange(1, points + 1)
    exact = max(least_shift(matrix, (steps >= t).astype(float)) for t in steps)
    for upper in (1.0, 3.0):
        statistic = RunningSum(lower=0.0, upper=upper, steps=points, strategy="tree")
        assert planned(statistic).plan.sensitivity.l1 == pytest.approx(
            exact * statistic.encoding.grid.steps
        )


def test_the_error_is_theorem_1s_with_its_factor_put_right() -> None:
    tree = Tree(4096)
    variance = tree.count_variance(laplace_variance(tree.scale(0.5)))
    assert variance == pytest.approx(2 * 13**3 / 0.5**2)


@pytest.mark.parametrize("points", [1, 2, 5, 8, 100])
def test_noise_of_points_on_demand_is_that_of_the_whole_tree(points: int) -> None:
    tree = Tree(points)
    rng = np.random.default_rng(points)
    whole = rng.integers(0, 2**64, 2 ** (tree.levels + 1) - 1, dtype=np.uint64)
    curve = tree.whole_noise(whole)
    expected = (membership(tree).astype(np.uint64) * whole).sum(axis=1, dtype=np.uint64)
    assert np.array_equal(curve, expected)
    asked = rng.permutation(points)[: max(1, points // 3)] + 1
    nodes = tree.touched(asked)
    assert np.array_equal(tree.noise_at(asked, nodes, whole[nodes - 1]), curve[asked - 1])


def test_a_domain_of_32_bits_is_asked_point_by_point() -> None:
    tree = Tree(2**32)
    paths = tree.paths(np.array([1, 2**32, 2**31, 2**31 + 1]))
    assert paths.shape == (4, 33)
    assert paths[:, 0].tolist() == [2**32, 2**33 - 1, 2**32 + 2**31 - 1, 2**32 + 2**31]
    assert (paths[:, -1] == 1).all()
    assert paths[2, -2:].tolist() == [2, 1]
    assert paths[3, -2:].tolist() == [3, 1]
    nodes = tree.touched(np.array([7, 2**32 - 1]))
    assert len(nodes) == 2 * 33 - 1
    assert tree.noise_at(np.array([7]), nodes, np.ones(len(nodes))).tolist() == [33.0]


def test_wrong_questions_are_refused() -> None:
    with pytest.raises(ValueError, match="thresholds"):
        Tree(0)
    tree = Tree(6)
    for bad in ([0], [7], [-1, 3]):
        with pytest.raises(ValueError, match=r"within 1\.\.6"):
            tree.paths(np.array(bad))
    with pytest.raises(ValueError, match="integers"):
        tree.paths(np.array([1.5]))
    nodes = tree.touched(np.array([1]))
    with pytest.raises(ValueError, match="missing"):
        tree.noise_at(np.array([6]), nodes, np.ones(len(nodes)))
    with pytest.raises(ValueError, match="noises"):
        tree.noise_at(np.array([1]), nodes, np.ones(1))
    with pytest.raises(ValueError, match="noises"):
        tree.whole_noise(np.ones(6))
    for epsilon in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="ε"):
            tree.scale(epsilon)
