"""Errors of private curves: what is measured is what theory and the results say.

Errors are squared and averaged over independent releases. `agrees` takes a mean for its expectation
if it is within `WIDTH` of its own standard deviations: squared Laplace noise is skewed, which with
a thousand releases and more costs one of the six, so a right program fails less than once in a
million.
"""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from tallyroom.protocols.privacy.curves import HierarchyStrategy
from tallyroom.protocols.privacy.hierarchy import Hierarchy
from tallyroom.protocols.privacy.mechanisms import DiscreteLaplace
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.statistics import Curve
from tallyroom.protocols.statistics.bounded import Bounded
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.statistics.on_demand import EcdfPoints
from tallyroom.protocols.statistics.planned import planned
from tallyroom.protocols.statistics.running_sum import RunningSum
from tallyroom.simulation import Federation
from tallyroom.simulation.result import Result
from tests.statistical.bulk_noise import in_bulk

WIDTH = 6.0
RECORDS = 5000
RELEASES = 4000
Errors = NDArray[np.float64]
"""One row a release, one column a value of the estimate."""


def agrees(squared: Errors, expected: float) -> bool:
    spread = float(squared.std(ddof=1)) / math.sqrt(len(squared))
    return abs(float(squared.mean()) - expected) <= WIDTH * spread


def ecdf(strategy: str, thresholds: int, smooth: str = "none") -> Ecdf:
    return Ecdf(lower=0.0, upper=1.0, thresholds=thresholds, strategy=strategy, smooth=smooth)


def shape_of(statistic: Ecdf) -> Hierarchy:
    assert isinstance(statistic.curve_strategy, HierarchyStrategy)
    return statistic.curve_strategy.shape


def mechanism_of(statistic: Bounded) -> DiscreteLaplace:
    """At ε = 1."""
    return DiscreteLaplace.spending(Fraction(1), planned(statistic).plan.sensitivity.l1)


def errors(statistic: Ecdf, releases: int, servers: int = 1, spread: float = 5.0) -> Errors:
    """Of curves that `servers` servers publish at ε = 1, each with the full noise.

    With `spread` 1 the data are on all of the range, with 5 they thin out.
    """
    values = np.random.default_rng(3).beta(1.0, spread, RECORDS)
    cells = np.searchsorted(statistic.x, values)
    counts = np.cumsum(np.bincount(cells, minlength=statistic.thresholds))
    drawn = mechanism_of(statistic).draw(
        releases * servers * statistic.curve_strategy.noises, Randomness.from_seed(5, "noise")
    )
    found = []
    for noises in drawn.view(np.uint64).reshape(releases, servers, statistic.curve_strategy.noises):
        released = statistic.curve_strategy.measure(counts.astype(np.uint64))
        for noise in noises:
            released = released + statistic.curve_strategy.place(noise)
        curve = planned(statistic).decode(released, RECORDS)
        assert isinstance(curve, Curve)
        found.append(np.array(curve.y) - counts / RECORDS)
    return np.stack(found)


def squared(found: Errors) -> Errors:
    """The mean squared error of each release."""
    means: Errors = (found**2).mean(axis=1)
    return means


@pytest.mark.parametrize("servers", [1, 2, 3])
def test_the_trees_error_is_theorem_1s(servers: int) -> None:
    """m·2(L+1)³/(n²ε²), with the variance of the discrete noise for that of the continuous one."""
    statistic = ecdf("tree", 64)
    expected = servers * 7 * mechanism_of(statistic).variance / RECORDS**2
    assert expected == pytest.approx(servers * 2 * 7**3 / RECORDS**2, rel=2e-3)
    assert agrees(squared(errors(statistic, RELEASES, servers)), expected)


@pytest.mark.parametrize("servers", [1, 2, 3])
def test_the_hierarchys_error_is_that_of_the_best_linear_estimate(servers: int) -> None:
    """At every threshold, not only in the mean."""
    statistic = ecdf("hierarchy", 64)
    node = servers * mechanism_of(statistic).variance
    variances = shape_of(statistic).prefix_variances(node) / RECORDS**2
    found = errors(statistic, RELEASES, servers)
    assert agrees(squared(found), float(variances.mean()))
    assert all(agrees(found[:, i] ** 2, variances[i]) for i in range(63))
    assert not found[:, 63].any(), "n is public"


def test_at_4096_the_hierarchy_has_less_than_a_seventh_of_the_trees_error() -> None:
    """Same ε, same data. 8.3 by formula; 400 releases of each leave 0.2 of uncertainty."""
    tree, hierarchy = ecdf("tree", 4096), ecdf("hierarchy", 4096)
    theirs = 13 * mechanism_of(tree).variance
    ours = shape_of(hierarchy).prefix_variances(mechanism_of(hierarchy).variance).mean()
    assert theirs / ours == pytest.approx(8.3, abs=0.05)
    measured = [squared(errors(statistic, 400)).mean() for statistic in (tree, hierarchy)]
    assert measured[0] / measured[1] > 7


def test_smoothing_a_hierarchy_lessens_its_error_where_data_are_everywhere() -> None:
    plain, smoothed = (
        squared(errors(ecdf("hierarchy", 1024, s), 200, spread=1.0)) for s in ("none", "2")
    )
    saved = plain - smoothed
    assert saved.mean() > WIDTH * saved.std(ddof=1) / math.sqrt(len(saved))


@pytest.mark.parametrize("spread", [1.0, 5.0])
def test_no_release_of_a_hierarchy_gets_farther_in_its_own_metric(spread: float) -> None:
    """A projection on curves that do not decrease, of which the truth is one: node by node it is
    nearer to the truth. The curve itself need not be: empty cells gain what others lose."""
    shape = shape_of(ecdf("hierarchy", 256))
    plain, smoothed = (errors(ecdf("hierarchy", 256, s), 50, spread=spread) for s in ("none", "2"))
    for before, after in zip(plain, smoothed, strict=True):
        assert (shape.node_counts(after) ** 2).sum() <= (shape.node_counts(before) ** 2).sum()


# --- end to end ---

RUNS = 250
BAND = (0.55, 1.65)
"""Of the mean of RUNS squared standardised errors. By Chernoff's bound a mean of 250 squared normal
variables leaves it once in 10^8; those of many thresholds, or of many noises, vary no more."""


def results(statistic: Bounded, servers: int, data: str, aggregator: str) -> list[Result]:
    """Of one federation. Ranges differ by a hair, or the same curve would be given again."""
    with Federation(
        parties=5, hosts=1, servers=servers, data=data, aggregator=aggregator, seed=1
    ) as federation:
        return [
            federation.run(replace(statistic, lower=0.0, upper=1.0 + run * 1e-9), 1)
            for run in range(RUNS)
        ]


def standardised(result: Result) -> Errors:
    """Errors in units of the deviations that the result states; what is exact is left out."""
    assert isinstance(result.estimate, Curve)
    assert isinstance(result.truth, Curve)
    noisy = result.deviations > 0
    error = np.array(result.estimate.y) - np.array(result.truth.y)
    assert np.abs(error[~noisy]).max(initial=0.0) < 1e-12
    scaled: Errors = error[noisy] / result.deviations[noisy]
    return scaled


SCORES = "synthetic:scores?n=200"
STREAM = "synthetic:stream?n=200"
CASES: list[tuple[Bounded, int, str, str]] = [
    (Ecdf(value="score", thresholds=16, strategy="tree"), 3, SCORES, "additive"),
    (Ecdf(value="score", thresholds=27), 2, SCORES, "fss"),
    (Ecdf(value="score", thresholds=27), 3, SCORES, "additive"),
    (RunningSum(steps=200), 2, STREAM, "additive"),
]


@pytest.mark.parametrize(("statistic", "servers", "data", "aggregator"), CASES)
def test_results_state_the_deviation_that_they_have(
    statistic: Bounded, servers: int, data: str, aggregator: str
) -> None:
    """Each of m servers adds the full noise: m times the variance, and the result says so."""
    found = results(statistic, servers, data, aggregator)
    low, high = BAND
    assert low < np.mean([(standardised(result) ** 2).mean() for result in found]) < high
    model = found[0].privacy.threat_model
    assert f"each of {servers} servers adds the full noise" in model
    assert f"its variance is {servers} times that of one" in model


def test_points_on_demand_state_the_deviation_that_they_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The 33 noises of a path, from each of two servers."""
    in_bulk(monkeypatch)
    statistic = EcdfPoints(value="score", at=(0.5,))
    found = results(statistic, 2, SCORES, "fss")
    stated = found[0].deviations[0] * 200
    assert stated == pytest.approx(math.sqrt(2 * 2 * 33**3), rel=1e-3)
    low, high = BAND
    assert low < np.mean([(standardised(result) ** 2).mean() for result in found]) < high
