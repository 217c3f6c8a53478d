"""Smoothing against CVXOPT, both implementations, and what must hold exactly."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog

from tallyroom.protocols.privacy.smoothing import Smoothed, smooth
from tallyroom.protocols.privacy.smoothing.newton import native
from tallyroom.protocols.privacy.smoothing.reference import TIGHT, smooth_by_cvxopt
from tests.protocols.privacy.smoothing.conftest import Curve


def assert_smooth(answer: Smoothed, box: bool, upper: float = 1.0) -> None:
    assert (np.diff(answer.curve) >= 0).all()
    assert not box or (answer.curve[0] >= 0 and answer.curve[-1] <= upper)


def assert_as_cvxopt(answer: Smoothed, reference: Smoothed) -> None:
    assert abs(answer.objective - reference.objective) <= 1e-6 * max(1, abs(reference.objective))


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("box", [True, False])
@pytest.mark.parametrize("points", [1, 2, 3, 5, 8, 33, 100, 256])
def test_the_objective_is_cvxopts(points: int, box: bool, p: int, noisy_curve: Curve) -> None:
    for epsilon in (0.01, 0.3, 5.0):
        curve = noisy_curve(points, epsilon)
        answer = smooth(curve, p=p, box=box)
        assert_smooth(answer, box)
        assert_as_cvxopt(answer, smooth_by_cvxopt(curve, p=p, box=box, tolerances=TIGHT))


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("box", [True, False])
@pytest.mark.parametrize(
    ("points", "epsilon"), [(4096, 0.01), (4096, 0.1), (4096, 1.0), (3000, 10.0)]
)
def test_the_objective_is_cvxopts_at_the_papers_size(
    points: int, epsilon: float, box: bool, p: int, noisy_curve: Curve
) -> None:
    curve = noisy_curve(points, epsilon)
    answer = smooth(curve, p=p, box=box)
    assert_smooth(answer, box)
    assert answer.iterations <= 30
    assert_as_cvxopt(answer, smooth_by_cvxopt(curve, p=p, box=box))


@given(
    st.sets(st.integers(1, 2**32), min_size=1, max_size=50),
    st.integers(0, 2**32),
    st.sampled_from([1, 2]),
    st.booleans(),
    st.floats(-3, 1),
)
@settings(max_examples=80, deadline=None)
def test_points_asked_of_a_large_domain(
    points: set[int], seed: int, p: int, box: bool, size: float
) -> None:
    indices = np.array(sorted(points))
    rng = np.random.default_rng(seed)
    curve = np.sort(rng.random(len(indices))) + rng.laplace(0.0, 10**size, len(indices))
    answer = smooth(curve, p=p, box=box, indices=indices, levels=32)
    assert_smooth(answer, box)
    reference = smooth_by_cvxopt(curve, p=p, box=box, indices=indices, levels=32, tolerances=TIGHT)
    assert_as_cvxopt(answer, reference)
    if p == 2:  # strictly convex: the curve is unique as well
        np.testing.assert_allclose(answer.curve, reference.curve, atol=1e-3 * np.abs(curve).max())


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("box", [True, False])
@pytest.mark.parametrize("points", [100, 670])
def test_heavy_tails_agree_with_a_simplex(points: int, box: bool) -> None:
    """CVXOPT stops outside the constraints here, by 1e-9 a step and 1e-6 of the objective."""
    curve = np.random.default_rng(points).standard_cauchy(points)
    curve /= np.abs(curve).max()
    levels = (points - 1).bit_length()
    nodes = 2 ** (levels + 1)
    paths = np.zeros((points, nodes))
    for i in range(points):
        paths[i, [(2**levels + i) >> level for level in range(levels + 1)]] = 1.0
    falls, room = paths[:-1] - paths[1:], np.diff(curve)
    if box:
        falls = np.vstack([falls, -paths[0], paths[-1]])
        room = np.append(room, [curve[0], 1.0 - curve[-1]])
    exact = linprog(np.ones(2 * nodes), A_ub=np.hstack([falls, -falls]), b_ub=room)
    assert smooth(curve, p=1, box=box).objective == pytest.approx(exact.fun, rel=2e-7)


@pytest.mark.skipif(not native(), reason="the native loop is not built")
@pytest.mark.parametrize("box", [True, False])
@pytest.mark.parametrize("points", [7, 300, 1024])
def test_the_twin_agrees_with_the_native_loop(
    points: int, box: bool, noisy_curve: Curve, monkeypatch: pytest.MonkeyPatch
) -> None:
    for epsilon in (0.01, 1.0):
        curve = noisy_curve(points, epsilon)
        monkeypatch.delenv("TALLYROOM_NATIVE", raising=False)
        compiled = [smooth(curve, p=p, box=box) for p in (1, 2)]
        monkeypatch.setenv("TALLYROOM_NATIVE", "0")
        assert not native()
        twin = [smooth(curve, p=p, box=box) for p in (1, 2)]
        assert twin[1].iterations == compiled[1].iterations
        np.testing.assert_allclose(
            twin[1].curve, compiled[1].curve, atol=1e-10 * np.abs(curve).max()
        )
        # p = 1 has a whole face of optimal curves, on which rounding moves the answer.
        for ours, theirs in zip(compiled, twin, strict=True):
            assert ours.objective == pytest.approx(theirs.objective, rel=2e-7, abs=1e-10)


def exact_p2(curve: NDArray[np.float64], corrections: NDArray[np.float64]) -> float:
    """Eq. 3's objective for one curve, p = 2, by dense least squares over the nodes."""
    points = len(curve)
    levels = (points - 1).bit_length()
    matrix = np.zeros((points, 2 ** (levels + 1)))
    for i in range(points):
        matrix[i, [(2**levels + i) >> level for level in range(levels + 1)]] = 1.0
    nodes = np.linalg.lstsq(matrix, corrections, rcond=None)[0]
    return float(nodes @ nodes)


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("points", [1, 2, 5, 16, 50])
def test_the_objective_belongs_to_the_curve(points: int, noisy_curve: Curve) -> None:
    curve = noisy_curve(points, 0.5)
    answer = smooth(curve, p=2)
    assert answer.objective == pytest.approx(exact_p2(curve, answer.curve - curve), rel=1e-6)


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("points", [1, 2, 3, 64, 1000])
def test_a_curve_that_is_smooth_already_stays(points: int, p: int) -> None:
    curve = np.cumsum(np.random.default_rng(points).random(points))
    curve /= 2 * curve[-1]
    answer = smooth(curve, p=p)
    assert_smooth(answer, True)
    np.testing.assert_allclose(answer.curve, curve, atol=1e-5)
    assert answer.objective < 1e-6


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("p", [1, 2])
def test_all_equal_values(p: int) -> None:
    for value in (0.0, 0.4, 1.0):
        flat = smooth(np.full(37, value), p=p)
        assert_smooth(flat, True)
        np.testing.assert_allclose(flat.curve, value, atol=1e-4)
    # Outside the box one correction at the root serves every point (p = 1).
    above = smooth(np.full(64, 3.0), p=p)
    assert above.objective == pytest.approx(
        2.0 if p == 1 else smooth_by_cvxopt(np.full(64, 3.0), p=2, tolerances=TIGHT).objective,
        rel=1e-6,
    )
    assert smooth(np.full(64, 3.0), p=p, box=False).objective < 1e-6


@pytest.mark.usefixtures("implementation")
@pytest.mark.parametrize("p", [1, 2])
def test_counts_scale_like_fractions(p: int, noisy_curve: Curve) -> None:
    curve = noisy_curve(200, 0.2)
    fractions, counts = smooth(curve, p=p), smooth(1e5 * curve, p=p, upper=1e5)
    assert_smooth(counts, True, 1e5)
    assert counts.objective == pytest.approx(1e5**p * fractions.objective, rel=1e-6)


def test_one_record_and_one_point() -> None:
    assert smooth(np.array([7.0]), p=2).curve.tolist() == pytest.approx([1.0])
    assert smooth(np.array([-7.0]), p=1).curve.tolist() == pytest.approx([0.0], abs=1e-6)
    untouched = smooth(np.array([-7.0]), p=1, box=False)
    assert (untouched.curve.tolist(), untouched.objective, untouched.iterations) == ([-7.0], 0.0, 0)
    # n = 1: a step of height one under noise of scale L+1.
    step = (np.arange(16) >= 5) + np.random.default_rng(1).laplace(0.0, 5.0, 16)
    for p in (1, 2):
        answer = smooth(step, p=p)
        assert_smooth(answer, True)
        assert_as_cvxopt(answer, smooth_by_cvxopt(step, p=p, tolerances=TIGHT))


@pytest.mark.parametrize("p", [1, 2])
def test_a_large_curve_is_smoothed(p: int, noisy_curve: Curve) -> None:
    curve = noisy_curve(2**16, 1.0)
    answer = smooth(curve, p=p)
    assert_smooth(answer, True)
    assert answer.iterations <= 30
    truth = np.arange(1, 2**16 + 1) / 2**16  # but for the Poisson deviations
    assert ((answer.curve - truth) ** 2).mean() < ((curve - truth) ** 2).mean()


def test_input_that_is_no_curve_is_refused() -> None:
    curve = np.linspace(0.0, 1.0, 8)
    for value in (np.nan, np.inf, -np.inf):
        bad = curve.copy()
        bad[3] = value
        for solver in (smooth, smooth_by_cvxopt):
            with pytest.raises(ValueError, match="NaN or infinite"):
                solver(bad, p=2)
    with pytest.raises(ValueError, match="at least one point"):
        smooth(np.empty(0), p=2)
    with pytest.raises(ValueError, match="at least one point"):
        smooth(np.empty(0), p=2, indices=np.empty(0, dtype=np.int64))
    with pytest.raises(ValueError, match="p must be"):
        smooth(curve, p=3)
    with pytest.raises(ValueError, match="indices of shape"):
        smooth(curve, p=2, indices=np.arange(1, 8))
    for indices in ([0, 1], [2, 1], [1, 1], [1, 9]):
        with pytest.raises(ValueError, match=r"increase within 1\.\.2\^3"):
            smooth(curve[:2], p=2, indices=np.array(indices), levels=3)
    with pytest.raises(ValueError, match="must be integers"):
        smooth(curve[:2], p=2, indices=np.array([1.0, 2.5]))
    with pytest.raises(ValueError, match="levels"):
        smooth(curve, p=2, levels=63)
    for upper in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="upper end"):
            smooth(curve, p=2, upper=upper)
