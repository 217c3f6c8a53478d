"""Mechanisms of curves: what each measures, where its noise goes, what it says of its privacy."""

from itertools import permutations

import numpy as np
import pytest

from tallyroom.protocols.privacy.curves import STRATEGIES
from tallyroom.protocols.privacy.hierarchy import hb_branching
from tallyroom.protocols.statistics import Curve
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.simulation import Federation

each_mechanism = pytest.mark.parametrize("name", STRATEGIES)


def counts_of(cell: int, points: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """The counts at all thresholds of a single record."""
    return (np.arange(points) >= cell).astype(np.uint64)


@each_mechanism
@pytest.mark.parametrize("points", [1, 2, 3, 7, 8, 64, 100])
def test_without_noise_the_curve_is_exact(name: str, points: int) -> None:
    mechanism = STRATEGIES[name](points)
    cells = np.random.default_rng(points).integers(0, points, 50)
    counts = np.cumsum(np.bincount(cells, minlength=points)).astype(np.uint64)
    measured = mechanism.measure(counts)
    assert len(measured) == mechanism.released
    assert mechanism.place(np.zeros(mechanism.noises, dtype=np.uint64)).shape == measured.shape
    assert np.allclose(mechanism.estimate(measured.astype(np.float64), 50), counts / 50)
    assert mechanism.measures == (mechanism.released != points or name != "tree")


@pytest.mark.parametrize("name", ["hierarchy", "hb"])
@pytest.mark.parametrize("points", [2, 3, 7, 9, 16])
def test_one_record_moves_what_is_measured_by_the_sensitivity(name: str, points: int) -> None:
    """Of all neighbours, by enumeration. The tree's is proved by its own tests."""
    mechanism = STRATEGIES[name](points)
    moved = [
        np.abs(
            mechanism.measure(counts_of(one, points)).astype(np.int64)
            - mechanism.measure(counts_of(other, points)).astype(np.int64)
        ).sum()
        for one, other in permutations(range(points), 2)
    ]
    assert max(moved) == mechanism.sensitivity.l1


@each_mechanism
@pytest.mark.parametrize("points", [2, 5, 16])
def test_variances_are_those_of_the_linear_map(name: str, points: int) -> None:
    """The estimate is linear in the noises: its variance is the sum of squared coefficients."""
    mechanism = STRATEGIES[name](points)
    unit = np.eye(mechanism.noises, dtype=np.uint64)
    placed = np.stack([mechanism.place(row) for row in unit]).astype(np.float64)
    coefficients = np.stack([mechanism.estimate(row, 1) for row in placed])
    coefficients -= mechanism.estimate(np.zeros(mechanism.released), 1)
    assert np.allclose((coefficients**2).sum(axis=0) * 3.0, mechanism.count_variances(3.0))


def test_hb_is_chosen_by_name() -> None:
    with Federation(parties=5, data="synthetic:scores?n=200", seed=1) as federation:
        result = federation.run(Ecdf(value="score", thresholds=64, strategy="hb"), 1)
        exact = federation.run(Ecdf(value="score", thresholds=64, strategy="hb"), "inf")
    assert f"{hb_branching(64)}-ary" in result.privacy.mechanism
    assert result.privacy.mechanism.startswith("hb: ")
    assert isinstance(result.estimate, Curve)
    assert exact.estimate == exact.noiseless
    assert result.error is not None
    assert 0 < result.error["rmse"] < 10 * result.deviations.max()
