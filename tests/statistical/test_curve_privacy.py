"""Curves through the real servers on adjacent data: what an attacker can measure stays below ε.

The analyst sees what server-0 releases and all that server-1 holds, so that only server-0's noise
is left: the threat that `each-server` is for, and with one noise the view of any analyst. An attack
is an event of that view; `measured` bounds the logarithm of its probability ratio on the two data
sets by Clopper and Pearson, each probability on each side at ALPHA. A right program is accused
with probability at most 2·ALPHA; sizes are such that noise of half the scale escapes less than once
in a million.

Every run is a machine of its own. The noise that machines draw comes from the real sampler at the
scale that they ask for, many runs' at once (`in_bulk`): one by one it would take most of the time.
"""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import deal
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.statistics.on_demand import EcdfPoints
from tallyroom.protocols.statistics.running_sum import RunningSum
from tests.goodness import ALPHA, discrete_laplace_pmf
from tests.samples import a_query
from tests.statistical.bulk_noise import in_bulk
from tests.statistical.likelihoods import (
    Attack,
    Event,
    collected,
    likelihood,
    released,
    submissions,
    views,
)


def measured(attack: Attack, aggregator: str) -> tuple[float, float]:
    """Confidence bounds of ln(p/p') for the attack's event."""
    here, there = (
        int(np.count_nonzero(attack.event(views(attack, aggregator, record))))
        for record in (attack.here, attack.there)
    )
    (low, high), (low_there, high_there) = (interval(k, attack.runs) for k in (here, there))
    return math.log(low / high_there), math.log(high / max(low_there, 1e-300))


def interval(seen: int, runs: int) -> tuple[float, float]:
    low = stats.beta.ppf(ALPHA, seen, runs - seen + 1) if seen else 0.0
    high = stats.beta.ppf(1 - ALPHA, seen + 1, runs - seen) if seen < runs else 1.0
    return max(float(low), 1e-300), float(high)


def likelier(
    there: list[int], here: list[int], scale: float, least: float, unit: float = 1.0
) -> Event:
    """Neyman and Pearson's event: the views whose log-likelihood ratio is at least `least`.

    The exact answers and `scale` are in steps of `unit`, to which views are rounded first.
    """

    def event(views: NDArray[np.int64]) -> NDArray[np.bool]:
        steps = np.rint(views / unit)
        ratio = likelihood(steps - here, scale) / likelihood(steps - there, scale)
        found: NDArray[np.bool] = np.log(ratio) >= least
        return found

    return event


def all_shifted(gained: list[int], lost: list[int]) -> Event:
    """Every count that the record moves is on its own side."""

    def event(views: NDArray[np.int64]) -> NDArray[np.bool]:
        inside: NDArray[np.bool] = np.hstack([views[:, gained] >= 1, views[:, lost] <= 0])
        found: NDArray[np.bool] = np.logical_and.reduce(inside, axis=1)
        return found

    return event


def ecdf(thresholds: int, strategy: str) -> Ecdf:
    return Ecdf(lower=0.0, upper=1.0, thresholds=thresholds, strategy=strategy)


KEYS = "fss?verified=no"

HIERARCHY = Attack(
    ecdf(4, "hierarchy"), Fraction(1), (0.1, 1), (0.9, 1), all_shifted([0], [3]), 1.0, 4000
)
"""One level of four counts: p = e^ε·p' exactly, p = 0.39. Halved noise gives p = 0.53 and 2ε, of
which 0.43 goes into the bounds: it is caught by 9 standard deviations."""

TWO_LEVELS = Attack(
    ecdf(64, "hierarchy"),
    Fraction(3, 2),
    (0.01, 1),
    (0.99, 1),
    all_shifted([0, 8], [7, 71]),
    1.5,
    4000,
)
"""8-ary: four counts move, of 72, and the event is as tight."""

TREE = Attack(
    ecdf(4, "tree"),
    Fraction(4),
    (0.3, 1),
    (0.9, 1),
    likelier([0, 0, 0, 1], [0, 1, 1, 1], 0.75, 1.6),
    4 * 2 / 3,
    6000,
)
"""Counts 2 and 3 of 4 move. Two noises explain that and no fewer, where the scale is for L + 1 = 3:
nothing above L/(L+1)·ε can be right. The event has ln(p/p') = 2.1; halved noise gives 5.0, of which
1.25 goes into the bounds: above the 2.67 that are due by 5.5 standard deviations."""

RUNNING = Attack(
    RunningSum(lower=0.0, upper=1.0, steps=2, strategy="tree"),
    Fraction(2),
    (1.0, 1),
    (0.0, 1),
    likelier([0, 0], [8, 8], 4.0, 0.8, RunningSum(lower=0.0, upper=1.0).encoding.grid.steps / 8),
    2.0,
    6000,
)
"""Both sums move by the whole width, which one noise explains: Theorem 3's scale has no slack. The
event has ln(p/p') = 1.5; halved noise gives 3.1, of which 0.5 goes into the bounds."""


BLOCKS = Attack(
    RunningSum(lower=0.0, upper=1.0, steps=2),
    Fraction(1),
    (1.0, 1),
    (0.0, 1),
    lambda views: views[:, 0] >= RunningSum(lower=0.0, upper=1.0).encoding.grid.steps,
    1.0,
    4000,
)
"""One block of two moves, by the whole width: p = e^ε·p' exactly, p = 0.5. Halved noise has 2ε,
of which 0.5 goes into the bounds."""


def neighbours_ratio(scale: float) -> float:
    """ln P(D ≥ 0)/P(D ≥ 1) for the difference D of two noises."""
    support = np.arange(-200, 201)
    same = float((discrete_laplace_pmf(support, scale) ** 2).sum())
    return math.log((1 + same) / (1 - same))


POINTS = Attack(
    EcdfPoints(lower=0.0, upper=1.0, at=(0.5,)),
    Fraction(33),
    (0.5000000005, 1),
    (0.9, 1),
    lambda views: views[:, 1] - views[:, 0] >= 1,
    neighbours_ratio(1.0),
    1200,
    points=(10**9, 10**9 + 1),
)
"""Neighbours, 5e-10 apart, that share all nodes but their leaves, asked of a tree of 2^32 with
scale 33/ε = 1: the count between them is 1 or 0. The event's own ratio is exact, 0.58; halved noise
gives 1.39, of which 0.43 goes into the bounds."""


@pytest.mark.parametrize(
    ("attack", "aggregator"),
    [
        (HIERARCHY, "additive"),
        (HIERARCHY, KEYS),
        (TWO_LEVELS, "additive"),
        (BLOCKS, "additive"),
        (POINTS, KEYS),
    ],
    ids=["hierarchy-additive", "hierarchy-fss", "two-levels", "blocks", "points-on-demand"],
)
def test_what_can_be_measured_is_what_is_due(
    monkeypatch: pytest.MonkeyPatch, attack: Attack, aggregator: str
) -> None:
    """For an event whose ratio is known: no less privacy than that, and no more noise."""
    in_bulk(monkeypatch)
    low, high = measured(attack, aggregator)
    assert low <= attack.most <= high
    assert attack.most <= attack.epsilon


@pytest.mark.parametrize(
    ("attack", "aggregator", "least"),
    [(TREE, KEYS, 0.9), (RUNNING, "additive", 0.7)],
    ids=["tree", "running-sum"],
)
def test_less_than_epsilon_can_be_measured(
    monkeypatch: pytest.MonkeyPatch, attack: Attack, aggregator: str, least: float
) -> None:
    """For the likeliest event of a given size. `least` shows that the estimator is not blind."""
    in_bulk(monkeypatch)
    low, _ = measured(attack, aggregator)
    assert least < low <= attack.most <= attack.epsilon


@pytest.mark.parametrize(
    ("attack", "aggregator"),
    [
        (HIERARCHY, "additive"),
        (TREE, "additive"),
        (RUNNING, "additive"),
        (BLOCKS, "additive"),
        (POINTS, KEYS),
    ],
    ids=["hierarchy", "tree", "running-sum", "blocks", "points-on-demand"],
)
def test_noise_that_was_halved_is_caught(
    monkeypatch: pytest.MonkeyPatch, attack: Attack, aggregator: str
) -> None:
    in_bulk(monkeypatch, Fraction(1, 2))
    low, _ = measured(attack, aggregator)
    assert low > attack.most


def test_noise_follows_from_a_machines_own_randomness() -> None:
    """The other half of `in_bulk`. Two of 72 noises of scale 4/3 agree with probability below
    0.3^72."""
    few = replace(TWO_LEVELS, runs=8)
    rows = views(few, "additive", few.here)
    assert len(np.unique(rows, axis=0)) == few.runs
    assert (rows == views(few, "additive", few.here)).all()


def test_asking_again_says_no_more() -> None:
    """Noise that was drawn anew for every question would average away."""
    repeated = tuple(point for _ in range(64) for point in POINTS.points)
    query = a_query(statistic=POINTS.statistic, aggregator=KEYS, parties=1, epsilon=Fraction(33))
    holdings = deal({"value": np.array([0.5])}, 1)
    keys = submissions(query, holdings, "party")[0]
    server = collected(query, 0, Randomness.from_seed(1, "server-0"), keys)
    answers = released(query, server, repeated).reshape(64, 2)
    assert (answers == answers[0]).all()
    assert (released(query, server, POINTS.points) == answers[0]).all()
