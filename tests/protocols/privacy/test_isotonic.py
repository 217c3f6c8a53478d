"""The monotone projection: against scikit-learn, and against what a projection promises."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tallyroom.protocols.privacy.isotonic import monotone

Vector = NDArray[np.float64]

sizes = st.integers(1, 60)
seeds = st.integers(0, 2**32 - 1)
spreads = st.sampled_from([1e-3, 0.1, 1.0, 30.0])


def noisy_curve(size: int, seed: int, spread: float) -> tuple[Vector, Vector, Vector]:
    """A true curve within [0, 1] (some with steps and flats), noise on it, and weights."""
    rng = np.random.default_rng(seed)
    truth = np.sort(rng.random(size)) if seed % 2 else np.sort(rng.integers(0, 2, size) * 1.0)
    curve = truth + spread * rng.standard_cauchy(size).clip(-50, 50)
    return truth, curve, rng.uniform(0.01, 10.0, size)


@given(sizes, seeds, spreads)
def test_no_run_is_worse_for_it(size: int, seed: int, spread: float) -> None:
    """The obtuse angle at a projection: what it moves by comes off the error."""
    truth, curve, weights = noisy_curve(size, seed, spread)
    for w in (np.ones(size), weights):
        fitted = monotone(curve, w)
        assert (np.diff(fitted) >= 0).all()
        assert fitted.min() >= 0
        assert fitted.max() <= 1
        before, after = (w * (curve - truth) ** 2).sum(), (w * (fitted - truth) ** 2).sum()
        moved = (w * (curve - fitted) ** 2).sum()
        assert after <= before - moved + 1e-9 * before


@given(sizes, seeds, spreads)
def test_it_is_scikit_learns_isotonic_regression(size: int, seed: int, spread: float) -> None:
    from sklearn.isotonic import IsotonicRegression

    _, curve, weights = noisy_curve(size, seed, spread)
    for lower, upper in ((0.0, 1.0), (0.25, 0.5), (-np.inf, np.inf)):
        reference = IsotonicRegression(y_min=lower, y_max=upper)
        theirs = reference.fit_transform(np.arange(size), curve, sample_weight=weights)
        ours = monotone(curve, weights, lower, upper)
        np.testing.assert_allclose(ours, theirs, atol=1e-9 * (1 + np.abs(curve).max()))


def test_no_curve_on_a_grid_is_nearer() -> None:
    """All curves of 4 points against all monotone ones on a grid of eighths."""
    grid = np.linspace(0.0, 1.0, 9)
    candidates = np.array(list(itertools.combinations_with_replacement(grid, 4)))
    for curve in itertools.product([-0.5, 0.125, 0.75, 1.5], repeat=4):
        y = np.array(curve)
        nearest = ((candidates - y) ** 2).sum(axis=1).min()
        assert ((monotone(y) - y) ** 2).sum() <= nearest + 1e-12


def test_it_leaves_monotone_curves_alone_and_is_idempotent() -> None:
    curve = np.array([0.0, 0.0, 0.3, 0.3, 1.0])
    np.testing.assert_array_equal(monotone(curve), curve)
    once = monotone([0.9, -4.0, 0.2, 7.0, 0.1])
    np.testing.assert_array_equal(monotone(once), once)
    assert monotone([]).shape == (0,)


@pytest.mark.parametrize(
    ("curve", "weights", "bounds", "message"),
    [
        ([0.1, np.nan], None, (0.0, 1.0), "NaN"),
        ([0.1, np.inf], None, (0.0, 1.0), "beyond"),
        ([0.1, 1e200], None, (0.0, 1.0), "beyond"),
        ([[0.1]], None, (0.0, 1.0), "vector"),
        ([0.1, 0.2], [1.0], (0.0, 1.0), "shape"),
        ([0.1, 0.2], [1.0, 0.0], (0.0, 1.0), "weights must be"),
        ([0.1, 0.2], [1.0, np.nan], (0.0, 1.0), "weights must be"),
        ([0.1], None, (1.0, 0.0), "bounds"),
        ([0.1], None, (np.nan, 0.0), "bounds"),
    ],
)
def test_bad_input_is_refused(
    curve: list[float],
    weights: list[float] | None,
    bounds: tuple[float, float],
    message: str,
) -> None:
    with pytest.raises(ValueError, match=message):
        monotone(curve, weights, *bounds)
