"""95 % intervals of statistics of pairs hold the statistic over all pairs of the raw records, where
pairs are drawn and noise is added.

On real columns (scikit-learn's breast cancer data, 569 records), with new pairs and new noise in
every run. Of RUNS = 300, an interval that holds 95 % holds fewer than 264 with probability below
10^-6 (binomial). Intervals of the noise alone hold fewer than 60 at ε = 50, in all of these cases.
"""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from sklearn.datasets import load_breast_cancer

from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.pairs import PairwiseMean
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.estimates import shape_of
from tallyroom.protocols.statistics.of_pairs import (
    Auc,
    CollisionEntropy,
    Gini,
    KendallTau,
    Pairwise,
    Variance,
)
from tallyroom.protocols.statistics.pairwise import MOST_AUTOMATIC, Pairs
from tallyroom.protocols.statistics.planned import laplace_noise, planned
from tests.statistical.discrete_noise import noises, variance_of

RUNS, FEWEST = 300, 264
NAMES = {"area": 3, "texture": 1, "radius": 0}


def real_columns() -> Mapping[str, Column]:
    data = load_breast_cancer()
    columns = {name: data.data[:, place] for name, place in NAMES.items()}
    return columns | {"label": 1.0 - data.target, "whole": np.rint(data.data[:, 0])}


def as_holdings(columns: Mapping[str, Column]) -> Holdings:
    return Holdings(np.zeros(1, dtype=np.uint32), np.zeros(1, dtype=np.intp), dict(columns))


def times_held(statistic: Pairs, epsilon: str, runs: int = RUNS) -> int:
    """How many of so many intervals hold the statistic of all pairs."""
    held = as_holdings(real_columns())
    (truth,) = shape_of(statistic.reference(held)).values()
    generator = np.random.default_rng(7)
    hits = 0
    for run in range(runs):
        known = Facts.of_one_server(held.rows, 1, Fraction(epsilon), seed=generator.bytes(32))
        asked = planned(statistic, known)
        assert isinstance(asked.plan, PairwiseMean)
        scale = asked.plan.sensitivity.l1 / float(epsilon)
        (noise,) = noises(scale, 1, 1, asked.plan.noises, seed=run)
        released = asked.plan.without_noise(held) + noise.view(np.uint64)
        counted = asked.plan.sample.count(held.rows)
        found = asked.interval(released, counted, laplace_noise(variance_of(scale)))
        hits += int(found.low[0] <= truth <= found.high[0])
    return hits


ASKED: list[Pairs] = [
    Gini(value="area", lower=0, upper=2600),
    Variance(value="area", lower=0, upper=2600),
    CollisionEntropy(value="whole"),
    KendallTau(x="texture", y="radius"),
    KendallTau(x="texture", y="radius", tau="b"),
    Auc(score="texture", label="label", method="pairs"),
    Pairwise(kernel_name="max(a.radius, b.radius)", lower=0, upper=30),
]


def test_so_many_are_enough_to_tell() -> None:
    assert stats.binom.cdf(FEWEST - 1, RUNS, 0.95) < 1e-6


@pytest.mark.parametrize("statistic", ASKED, ids=lambda each: each.name)
@pytest.mark.parametrize("epsilon", ["1", "5", "50"])
def test_of_pairs_that_are_drawn(statistic: Pairs, epsilon: str) -> None:
    assert times_held(statistic, epsilon) >= FEWEST


@pytest.mark.parametrize("statistic", ASKED[1:3], ids=lambda each: each.name)
def test_where_the_bound_is_reached_they_are_no_wider_than_they_say(statistic: Pairs) -> None:
    """At ε = 50 the drawing of pairs is nearly all of the error. All of 300 would be held with
    probability 2·10^-7."""
    assert times_held(statistic, "50") < RUNS


def test_by_servers_the_drawing_vanishes_beside_the_noise() -> None:
    """At ε = 1 about a tenth of the variance is left to it, at worst."""
    statistic = replace(ASKED[3], meet="servers")
    known = Facts.of_one_server(300, 1, Fraction(1))
    asked, between_parties = planned(statistic, known), planned(ASKED[3], known)
    assert isinstance(asked.plan, PairwiseMean)
    assert asked.plan.sample.matchings > 10 * MOST_AUTOMATIC
    variance = variance_of(asked.plan.sensitivity.l1)
    (error,) = asked.deviations(np.zeros(1, np.uint64), variance, asked.plan.sample.count(300))
    noise = variance / asked.plan.sample.count(300) ** 2
    assert noise < error**2 < 1.15 * noise
    assert isinstance(between_parties.plan, PairwiseMean)
    assert between_parties.plan.sample.matchings == MOST_AUTOMATIC


def test_without_noise_the_drawing_alone_is_told() -> None:
    held = as_holdings(real_columns())
    (truth,) = shape_of(ASKED[3].reference(held)).values()
    hits = 0
    for seed in range(RUNS):
        known = Facts.of_one_server(held.rows, seed=seed.to_bytes(32, "little"))
        asked = planned(ASKED[3], known)
        assert isinstance(asked.plan, PairwiseMean)
        counted = asked.plan.sample.count(held.rows)
        interval = asked.read(asked.plan.without_noise(held), counted).interval
        assert interval is not None
        hits += int(interval.low[0] <= truth <= interval.high[0])
    assert hits >= FEWEST
    everything = planned(replace(ASKED[3], pairs_per_party="all"), known)
    assert isinstance(everything.plan, PairwiseMean)
    counted = everything.plan.sample.count(held.rows)
    answer = everything.read(everything.plan.without_noise(held), counted)
    assert answer.interval is None
    assert answer.estimate == pytest.approx(truth)
