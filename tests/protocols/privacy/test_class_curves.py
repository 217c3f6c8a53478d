"""Both class curves within one ε: how far a record moves them, by enumeration and programming."""

import numpy as np
import pytest
from scipy.optimize import linprog

from tallyroom.protocols.algebra.ring import signed
from tallyroom.protocols.privacy.class_curves import ClassCurves, Smoothing
from tallyroom.protocols.privacy.curves import STRATEGIES
from tallyroom.protocols.privacy.hierarchy import Hierarchy


def row_of(curves: ClassCurves, cell: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return (np.arange(2 * curves.points) >= cell).astype(np.uint64)


def moved(curves: ClassCurves, one: int, two: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """What is measured, where a record goes from one cell of the row to another."""
    return signed(curves.measure(row_of(curves, one)) - curves.measure(row_of(curves, two)))


@pytest.mark.parametrize("strategy", ["hierarchy", "hb"])
@pytest.mark.parametrize("points", [1, 2, 5, 8, 9, 30])
def test_a_hierarchy_moves_by_its_sensitivity_and_no_more(strategy: str, points: int) -> None:
    curves = ClassCurves(points, strategy)
    cells = range(2 * points)
    most = max(int(np.abs(moved(curves, one, two)).sum()) for one in cells for two in cells)
    height = STRATEGIES[strategy](points).shape.height  # type: ignore[attr-defined]
    assert most == curves.sensitivity.l1 == (2 * height if height else 1)


def least_noises(curves: ClassCurves, change: np.ndarray[tuple[int], np.dtype[np.int64]]) -> float:
    """The least 1-norm of noises, in place, that explain a change of what is released."""
    units = np.eye(curves.noises, dtype=np.int64)
    placed = np.stack([signed(curves.place(each.view(np.uint64))) for each in units], axis=1)
    found = linprog(np.ones(2 * curves.noises), A_eq=np.hstack([placed, -placed]), b_eq=change)
    assert found.status == 0
    assert found.fun is not None
    return float(found.fun)


@pytest.mark.parametrize(("points", "noises"), [(1, 2), (2, 2), (4, 4), (5, 4), (8, 4)])
def test_a_tree_explains_every_replacement_by_its_sensitivity(points: int, noises: int) -> None:
    """Labels that flip included: so many noises, and no fewer, as linear programming has it."""
    curves = ClassCurves(points, "tree")
    cells = range(2 * points)
    needed = max(least_noises(curves, moved(curves, one, two)) for one in cells for two in cells)
    assert needed == pytest.approx(curves.sensitivity.l1)
    assert curves.sensitivity.l1 == noises


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_with_public_labels_one_curve_moves(strategy: str) -> None:
    curves = ClassCurves(8, strategy, public=True)
    for first in (0, 8):
        for one in range(first, first + 8):
            for two in range(first, first + 8):
                change = moved(curves, one, two)
                assert change[0] == 0
                assert least_noises(curves, change) <= curves.sensitivity.l1 + 1e-9
    assert curves.sensitivity.l1 == STRATEGIES[strategy](8).sensitivity.l1


def test_two_scores_add_up() -> None:
    curves = ClassCurves(9, "hierarchy", scores=2)
    rows = [row_of(ClassCurves(9), cell) for cell in range(18)]
    generator = np.random.default_rng(1)
    most = 0
    for _ in range(400):
        a, b, c, d = generator.integers(0, 9, 4)
        label, other = generator.integers(0, 2, 2) * 9
        before = np.concatenate([rows[a + label], rows[b + label]])
        after = np.concatenate([rows[c + other], rows[d + other]])
        change = signed(curves.measure(before) - curves.measure(after))
        most = max(most, int(np.abs(change).sum()))
    assert most == curves.sensitivity.l1 == 2 * ClassCurves(9).curve.sensitivity.l1


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("public", [False, True])
@pytest.mark.parametrize("smooth", ["none", "isotonic", "2"])
def test_without_noise_the_release_tells_the_counts(
    strategy: str, public: bool, smooth: str
) -> None:
    curves = ClassCurves(13, strategy, public, scores=2)
    generator = np.random.default_rng(5)
    label = generator.integers(0, 2, 60)
    cells = generator.integers(0, 13, (2, 60)) + 13 * label
    total = np.concatenate([np.cumsum(np.bincount(each, minlength=26)) for each in cells])
    exact = curves.exact(total.astype(np.float64))
    released = curves.measure(total.astype(np.uint64)).astype(np.float64)
    for found, true in zip(curves.estimates(released, 60, Smoothing(smooth)), exact, strict=True):
        assert (found.negatives, found.positives) == (60 - label.sum(), label.sum())
        np.testing.assert_allclose(found.negative, true.negative, atol=1e-5)
        np.testing.assert_allclose(found.positive, true.positive, atol=1e-5)


def test_the_number_of_positives_is_the_best_linear_estimate() -> None:
    """Against generalised least squares with every node as a row, the negatives' total being what
    is left of n."""
    curves = ClassCurves(6, "hierarchy")
    shape = curves.curve.shape  # type: ignore[attr-defined]
    assert isinstance(shape, Hierarchy)
    generator = np.random.default_rng(3)
    released = generator.normal(50, 20, curves.released)
    unknown = np.eye(12)
    design = np.stack(
        [curves.measure(np.cumsum(each).astype(np.uint64)).astype(float) for each in unknown], 1
    )
    # Σ of all cells is n: put the last cell as n less the others.
    records = 300
    free = design[:, :-1] - design[:, -1:]
    solved, *_ = np.linalg.lstsq(free, released - records * design[:, -1], rcond=None)
    cells = np.append(solved, records - solved.sum())
    told = curves._positives(released[0], released.reshape(1, 2, -1), records)
    assert told == pytest.approx(cells[6:].sum(), rel=1e-9)
