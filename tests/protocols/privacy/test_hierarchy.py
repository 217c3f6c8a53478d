"""The hierarchy of counts: sensitivity by enumeration, estimates and variances by dense algebra."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tallyroom.protocols.privacy.hierarchy import Hierarchy, best_branching, hb_branching
from tallyroom.protocols.privacy.tree import Tree, laplace_variance

SMALL = range(1, 26)


def hierarchies(cells: int) -> list[Hierarchy]:
    return [Hierarchy(cells, branching) for branching in range(2, max(2, cells) + 1)]


def membership(hierarchy: Hierarchy) -> NDArray[np.float64]:
    """Which cells (columns) each node (row) counts."""
    left, right = hierarchy.node_ends()
    cells = np.arange(hierarchy.cells)
    return ((cells >= left[:, None]) & (cells < right[:, None])).astype(float)


def dense_estimator(hierarchy: Hierarchy) -> NDArray[np.float64]:
    """Least squares with the sum held at n: maps (nodes, n) to the cells."""
    a, n = membership(hierarchy), hierarchy.cells
    kkt = np.block([[a.T @ a, np.ones((n, 1))], [np.ones((1, n)), np.zeros((1, 1))]])
    right = np.block([[a.T, np.zeros((n, 1))], [np.zeros((1, len(a))), np.ones((1, 1))]])
    estimator: NDArray[np.float64] = np.linalg.solve(kkt, right)[:n]
    return estimator


@pytest.mark.parametrize("cells", SMALL)
def test_every_cell_is_in_one_node_a_level_so_a_replacement_moves_2h(cells: int) -> None:
    for hierarchy in hierarchies(cells):
        b, h = hierarchy.branching, hierarchy.height
        assert b**h >= cells
        assert h == 0 or b ** (h - 1) < cells
        nodes = membership(hierarchy)
        assert (nodes.sum(axis=0) == h).all()
        moves = np.abs(nodes[:, :, None] - nodes[:, None, :]).sum(axis=0)
        assert moves.max() == hierarchy.sensitivity.l1 == 2 * h
        assert hierarchy.scale(0.5) == 4 * h


@pytest.mark.parametrize("cells", SMALL)
def test_estimates_and_variances_are_those_of_dense_least_squares(cells: int) -> None:
    for hierarchy in hierarchies(cells):
        noisy = np.random.default_rng(cells).normal(0.0, 9.0, hierarchy.nodes)
        estimator = np.cumsum(dense_estimator(hierarchy), axis=0)
        prefix = hierarchy.prefix_counts(noisy, 17.0)
        np.testing.assert_allclose(prefix, estimator @ np.append(noisy, 17.0), atol=1e-9)
        assert prefix[-1] == 17.0
        np.testing.assert_allclose(
            hierarchy.prefix_variances(3.0), 3.0 * (estimator[:, :-1] ** 2).sum(axis=1), atol=1e-9
        )


@given(st.integers(1, 40), st.integers(2, 9), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_known_empty_cells_are_those_of_least_squares_without_them(
    cells: int, branching: int, seed: int
) -> None:
    hierarchy = Hierarchy(cells, min(branching, max(2, cells)))
    rng = np.random.default_rng(seed)
    noisy = rng.normal(0.0, 9.0, hierarchy.nodes)
    free = rng.random(cells) < 0.5
    free[rng.integers(cells)] = True
    a = membership(hierarchy)[:, free]
    kkt = np.pad(a.T @ a, (0, 1), constant_values=1.0)
    kkt[-1, -1] = 0.0
    expected = np.zeros(cells)
    if hierarchy.height:
        expected[free] = np.linalg.solve(kkt, np.append(a.T @ noisy, 5.0))[:-1]
    else:
        expected[:] = 5.0
    np.testing.assert_allclose(hierarchy.cell_counts(noisy, 5.0, free), expected, atol=1e-9)


@given(st.integers(1, 3000), st.integers(2, 60), st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_node_counts_of_shares_are_shares_and_without_noise_nothing_is_lost(
    cells: int, branching: int, seed: int
) -> None:
    hierarchy = Hierarchy(cells, min(branching, max(2, cells)))
    rng = np.random.default_rng(seed)
    prefix = np.cumsum(rng.poisson(3.0, cells)).astype(np.uint64)
    share = rng.integers(0, 2**64, cells, dtype=np.uint64)
    nodes = hierarchy.node_counts(prefix - share) + hierarchy.node_counts(share)
    assert np.array_equal(nodes, hierarchy.node_counts(prefix))
    sizes = [nodes[level].sum() for level in hierarchy.slices()]
    assert sizes == [prefix[-1]] * hierarchy.height
    estimate = hierarchy.prefix_counts(nodes.astype(float), float(prefix[-1]))
    np.testing.assert_allclose(estimate, prefix.astype(float), rtol=1e-9, atol=1e-6)


@pytest.mark.parametrize(
    ("branching", "mean"), [(2, 1423), (4, 731), (8, 563), (16, 529), (64, 672)]
)
def test_mean_variances_at_4096(branching: int, mean: int) -> None:
    assert round(Hierarchy(4096, branching).mean_variance(1.0)) == mean


def test_at_4096_the_error_is_less_than_a_seventh_of_the_trees() -> None:
    tree = Tree(4096)
    theirs = tree.count_variance(laplace_variance(tree.scale(1.0)))
    assert Hierarchy(4096, best_branching(4096)).mean_variance(1.0) <= theirs / 7


@pytest.mark.parametrize(
    ("cells", "branching"), [(16, 16), (64, 64), (256, 16), (512, 23), (1024, 32), (4096, 16)]
)
def test_hb_chooses_as_published(cells: int, branching: int) -> None:
    assert hb_branching(cells) == branching


@pytest.mark.parametrize("cells", [1, 2, 3, 10, 16, 64, 100, 200, 512, 600])
def test_the_best_branching_is_within_half_a_percent_of_all(cells: int) -> None:
    every = [Hierarchy(cells, b).mean_variance(1.0) for b in range(2, max(2, cells) + 1)]
    chosen = Hierarchy(cells, best_branching(cells)).mean_variance(1.0)
    assert chosen <= 1.005 * min(every)
    assert chosen <= Hierarchy(cells, hb_branching(cells)).mean_variance(1.0)


def test_prefixes_gain_where_hb_is_made_for_ranges() -> None:
    assert (best_branching(64), best_branching(1024)) == (8, 11)
    assert Hierarchy(1024, 11).mean_variance(1.0) < Hierarchy(1024, 32).mean_variance(1.0)
    # Larger domains try fewer branchings: none that is left out would have been chosen.
    wide = min(range(2, 100), key=lambda b: Hierarchy(5000, b).mean_variance(1.0))
    best = Hierarchy(5000, wide).mean_variance(1.0)
    assert Hierarchy(5000, best_branching(5000)).mean_variance(1.0) <= 1.005 * best


def test_one_cell_needs_no_noise() -> None:
    hierarchy = Hierarchy(1, 2)
    assert (hierarchy.height, hierarchy.nodes, hierarchy.sensitivity.l1) == (0, 0, 0)
    assert hierarchy.prefix_counts(np.empty(0), 3.0).tolist() == [3.0]
    assert hierarchy.mean_variance(1.0) == 0.0


def test_wrong_input_is_refused() -> None:
    for cells, branching in ((0, 2), (5, 1), (5, 6)):
        with pytest.raises(ValueError, match=r"cell|within"):
            Hierarchy(cells, branching)
    hierarchy = Hierarchy(5, 2)
    with pytest.raises(ValueError, match="shape"):
        hierarchy.node_counts(np.zeros(4))
    with pytest.raises(ValueError, match="shape"):
        hierarchy.prefix_counts(np.zeros(4), 1.0)
    for value in (np.nan, np.inf):
        noisy = np.zeros(hierarchy.nodes)
        noisy[3] = value
        with pytest.raises(ValueError, match="NaN or infinite"):
            hierarchy.prefix_counts(noisy, 1.0)
    with pytest.raises(ValueError, match="negative"):
        hierarchy.prefix_counts(np.zeros(hierarchy.nodes), -1.0)
    with pytest.raises(ValueError, match="no cell"):
        hierarchy.cell_counts(np.zeros(hierarchy.nodes), 1.0, np.zeros(5, dtype=np.bool_))
