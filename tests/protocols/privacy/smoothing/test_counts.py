"""The hierarchy's monotone fit: every active set when small, optimality conditions when large."""

from itertools import product

import numpy as np
import pytest
from cvxopt import matrix, solvers
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tallyroom.protocols.privacy.hierarchy import Hierarchy, best_branching
from tallyroom.protocols.privacy.smoothing.counts import smooth_counts


def membership(hierarchy: Hierarchy) -> NDArray[np.float64]:
    left, right = hierarchy.node_ends()
    cells = np.arange(hierarchy.cells)
    return ((cells >= left[:, None]) & (cells < right[:, None])).astype(float)


def noisy_nodes(
    hierarchy: Hierarchy, rng: np.random.Generator, rate: float, scale: float
) -> tuple[NDArray[np.float64], float]:
    prefix = np.cumsum(rng.poisson(rate, hierarchy.cells)).astype(float)
    return hierarchy.node_counts(prefix) + rng.laplace(0.0, scale, hierarchy.nodes), prefix[-1]


@pytest.mark.parametrize(("cells", "branching"), [(2, 2), (3, 2), (4, 2), (6, 2), (6, 3), (7, 4)])
def test_no_choice_of_empty_cells_does_better(cells: int, branching: int) -> None:
    hierarchy = Hierarchy(cells, branching)
    nodes = membership(hierarchy)
    rng = np.random.default_rng(cells)
    for _ in range(10):
        noisy, n = noisy_nodes(hierarchy, rng, 2.0, 5.0)
        best = np.inf
        for choice in product([False, True], repeat=cells):
            free = np.array(choice)
            if n > 0 and not free.any():
                continue
            fit = hierarchy.cell_counts(noisy, n, free)
            if (fit >= 0).all():
                best = min(best, float(((nodes @ fit - noisy) ** 2).sum()))
        assert smooth_counts(hierarchy, noisy, n).objective == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("scale", [0.1, 5.0, 1000.0])
@pytest.mark.parametrize(("cells", "branching"), [(10, 3), (33, 2), (64, 8), (100, 10), (100, 100)])
def test_the_objective_is_cvxopts(cells: int, branching: int, scale: float) -> None:
    hierarchy = Hierarchy(cells, branching)
    noisy, n = noisy_nodes(hierarchy, np.random.default_rng(cells), 3.0, scale)
    size = np.abs(noisy).max()
    nodes = membership(hierarchy)
    reference = solvers.qp(
        matrix(2.0 * nodes.T @ nodes),
        matrix(-2.0 * nodes.T @ noisy / size),
        matrix(-np.eye(cells)),
        matrix(0.0, (cells, 1)),
        matrix(1.0, (1, cells)),
        matrix(n / size),
        options={"show_progress": False, "abstol": 1e-11, "reltol": 1e-11, "feastol": 1e-11},
    )
    fit = size * np.array(reference["x"]).ravel()
    best = float(((nodes @ fit - noisy) ** 2).sum())
    answer = smooth_counts(hierarchy, noisy, n)
    assert abs(answer.objective - best) <= 1e-6 * max(1.0, best)


@given(
    st.integers(1, 5000),
    st.integers(2, 70),
    st.integers(0, 2**32),
    st.floats(-2, 2),
    st.floats(-2, 4),
    st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_the_fit_meets_the_conditions_of_optimality(
    cells: int, branching: int, seed: int, rate: float, scale: float, rounded: bool
) -> None:
    hierarchy = Hierarchy(cells, min(branching, max(2, cells)))
    noisy, n = noisy_nodes(hierarchy, np.random.default_rng(seed), 10**rate, 10**scale)
    if rounded:  # ties
        noisy = np.rint(noisy)
    curve = smooth_counts(hierarchy, noisy, n).curve
    fit = np.diff(curve, prepend=0.0)
    assert (fit >= 0).all()
    assert curve[-1] == n
    residuals = hierarchy.node_counts(curve) - noisy
    force = np.zeros(cells)
    left, right = hierarchy.node_ends()
    np.add.at(force, left, residuals)
    np.add.at(force, right[right < cells], -residuals[right < cells])
    force = np.cumsum(force)  # of the nodes above each cell
    tolerance = 1e-9 * max(1.0, float(np.abs(noisy).max(initial=0.0)), n) * hierarchy.nodes
    positive = fit > tolerance
    if positive.any():
        level = force[positive].max()
        assert np.ptp(force[positive]) <= tolerance
        assert (force >= level - tolerance).all()


def test_the_fit_is_nearer_to_the_truth_than_the_estimate() -> None:
    hierarchy = Hierarchy(4096, best_branching(4096))
    rng = np.random.default_rng(3)
    errors = np.zeros(2)
    for _ in range(20):
        prefix = np.cumsum(rng.poisson(3.0, 4096)).astype(float)
        noise = rng.laplace(0.0, hierarchy.scale(1.0), hierarchy.nodes)
        noisy, n = hierarchy.node_counts(prefix) + noise, float(prefix[-1])
        for i, curve in enumerate(
            (smooth_counts(hierarchy, noisy, n).curve, hierarchy.prefix_counts(noisy, n))
        ):
            errors[i] += ((curve - prefix) ** 2).mean() / 20
    assert errors[0] < errors[1]


def test_edges() -> None:
    assert smooth_counts(Hierarchy(1, 2), np.empty(0), 4.0).curve.tolist() == [4.0]
    nothing = smooth_counts(Hierarchy(3, 2), np.array([5.0, -2.0, 1.0, 1.0, 4.0]), 0.0)
    assert nothing.curve.tolist() == [0.0, 0.0, 0.0]
    assert nothing.objective == 25.0 + 4.0 + 1.0 + 1.0 + 16.0
    equal = smooth_counts(Hierarchy(8, 2), np.full(14, -3.0), 1.0)
    np.testing.assert_allclose(equal.curve, np.arange(1, 9) / 8)
    clean = Hierarchy(100, 10).node_counts(np.arange(1.0, 101.0))
    np.testing.assert_allclose(
        smooth_counts(Hierarchy(100, 10), clean, 100.0).curve, np.arange(1.0, 101.0)
    )


def test_wrong_input_is_refused() -> None:
    hierarchy = Hierarchy(3, 2)
    with pytest.raises(ValueError, match="shape"):
        smooth_counts(hierarchy, np.zeros(4), 1.0)
    with pytest.raises(ValueError, match="NaN or infinite"):
        smooth_counts(hierarchy, np.array([0.0, np.nan, 0.0, 0.0, 0.0]), 1.0)
    with pytest.raises(ValueError, match="negative"):
        smooth_counts(hierarchy, np.zeros(5), -1.0)
