"""The elimination against a dense solve; the native loop against its twin, step by step."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallyroom.protocols.privacy.smoothing.network import TreeNetwork, Vector
from tallyroom.protocols.privacy.smoothing.newton import (
    HAVE_NATIVE,
    NativeNewton,
    PureNewton,
    start,
)
from tallyroom.protocols.privacy.smoothing.skeleton import Skeleton, skeleton
from tests.protocols.privacy.smoothing.conftest import Curve

needs_native = pytest.mark.skipif(not HAVE_NATIVE, reason="the native loop is not built")


def laplacian(tree: Skeleton, edges: Vector, gaps: Vector) -> Vector:
    m = tree.points
    ends = [(v, int(tree.above[v]), edges[v]) for v in range(2 * m - 1)]
    ends += [(0, 2 * m - 1, gaps[0]), (m - 1, 2 * m - 1, gaps[m])]
    ends += [(i, i + 1, gaps[i + 1]) for i in range(m - 1)]
    matrix = np.zeros((2 * m, 2 * m))
    for v, w, conductance in ends:
        matrix[[v, w], [v, w]] += conductance
        matrix[[v, w], [w, v]] -= conductance
    return matrix[:-1, :-1]


@given(st.integers(0, 7), st.integers(0, 2**32), st.floats(0.0, 4.0))
@settings(max_examples=150, deadline=None)
def test_potentials_are_those_of_the_dense_network(levels: int, seed: int, spread: float) -> None:
    rng = np.random.default_rng(seed)
    m = int(rng.integers(1, 2**levels + 1))
    tree = skeleton(np.sort(rng.permutation(2**levels)[:m]) + 1, levels)
    edges, gaps = np.exp(rng.normal(0, spread, 2 * m)), np.exp(rng.normal(0, spread, m + 1))
    currents = rng.normal(size=2 * m)
    network = TreeNetwork(tree)
    network.factor(edges, gaps)
    potentials = network.solve(currents)
    assert potentials[-1] == 0.0
    expected = np.linalg.solve(laplacian(tree, edges, gaps), currents[:-1])
    np.testing.assert_allclose(potentials[:-1], expected, atol=1e-6 * np.abs(expected).max())


@needs_native
@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize(
    ("points", "box"),
    [(1, True), *((n, box) for n in (2, 3, 4, 7, 64, 200) for box in (True, False))],
)
def test_the_native_loop_takes_the_twins_steps(
    p: int, box: bool, points: int, noisy_curve: Curve
) -> None:
    rng = np.random.default_rng(points)
    indices = np.sort(rng.permutation(2 * points)[:points]) + 1
    tree = skeleton(indices, (2 * points - 1).bit_length())
    steps = np.diff(noisy_curve(points, 0.3), prepend=0.0, append=1.0)
    states = [start(tree, steps, p, box) for _ in range(2)]
    systems = (NativeNewton(states[0]), PureNewton(states[1]))
    lengths = (0.0, 0.0)
    for _ in range(4):
        for answers in (
            [system.advance(*lengths) for system in systems],
            [system.direction(None) for system in systems],
            [system.direction(1e-3) for system in systems],
        ):
            # Residuals that are rounding only have no digits in common.
            np.testing.assert_allclose(answers[0], answers[1], rtol=1e-9, atol=1e-11)
        native, pure = (state.nodes for state in states)
        np.testing.assert_allclose(native, pure, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(states[0].gaps, states[1].gaps, rtol=1e-9, atol=1e-11)
        lengths = (0.7 / max(1.0, answers[0][0]), 0.6 / max(1.0, answers[0][1]))


@needs_native
def test_native_refuses_arrays_that_do_not_fit() -> None:
    state = start(skeleton(np.array([1, 2, 4]), 2), np.ones(4), 2, True)
    system = NativeNewton(state)
    state.node_rows = state.node_rows[:, :5].copy()
    with pytest.raises(ValueError, match="sizes"):
        system.advance(0.0, 0.0)


@pytest.mark.parametrize("p", [1, 2])
def test_a_full_newton_step_removes_the_linear_residuals(p: int, noisy_curve: Curve) -> None:
    tree = skeleton(np.arange(1, 33), 5)
    state = start(tree, np.diff(noisy_curve(32), prepend=0.0, append=1.0), p, True)
    system = PureNewton(state)
    assert system.advance(0.0, 0.0).primal_residual > 1e-3
    system.direction(None)
    after = system.advance(1.0, 1.0)
    assert after.primal_residual < 1e-12
    assert after.dual_residual < 1e-12
