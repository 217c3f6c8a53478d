"""Tests of means without noise against scipy's, and their p-values and intervals under noise."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.privacy.mechanisms import DiscreteLaplace
from tallyroom.protocols.records import Column, Holdings, deal
from tallyroom.protocols.statistics.estimates import Estimate
from tallyroom.protocols.statistics.mean_tests import Anova, MeansTest, MeanTest, TTest
from tallyroom.protocols.statistics.planned import planned
from tallyroom.protocols.statistics.release import Answer, Noise, Release

BOUNDS: dict[str, Any] = {"lower": -50.0, "upper": 150.0}


def generated(seed: int, groups: int, rows: int, apart: float = 0.0) -> Holdings:
    generator = np.random.default_rng(seed)
    group = generator.integers(groups, size=rows).astype(float)
    values = generator.normal(50 + apart * group, 10 + 4 * group)
    return deal({"value": np.round(values, 1), "group": group}, min(rows, 3))


def samples(data: Holdings, groups: int) -> list[Column]:
    return [data.columns["value"][data.columns["group"] == each] for each in range(groups)]


def as_test(estimate: Estimate) -> MeanTest:
    assert isinstance(estimate, MeanTest)
    return estimate


def both(asked: MeansTest, data: Holdings) -> list[MeanTest]:
    return [as_test(planned(asked).noiseless(data)), as_test(asked.reference(data))]


@pytest.mark.parametrize("equal", [True, False])
@pytest.mark.parametrize("rows", [9, 400])
def test_two_samples_without_noise_are_scipys(rows: int, equal: bool) -> None:
    data = generated(3, 2, rows, 4.0)
    one, two = samples(data, 2)
    wanted: Any = stats.ttest_ind(one, two, equal_var=equal)
    for found in both(TTest(**BOUNDS, groups="0,1", equal=equal), data):
        assert found.statistic == pytest.approx(wanted.statistic, rel=1e-4)
        assert found.p_value == pytest.approx(wanted.pvalue, rel=1e-3)
        assert found.freedom[0] == pytest.approx(wanted.df, rel=1e-4)
        assert found.effects["difference"] == pytest.approx(one.mean() - two.mean(), rel=1e-4)


def test_one_sample_without_noise_is_scipys() -> None:
    data = generated(5, 1, 60)
    wanted: Any = stats.ttest_1samp(data.columns["value"], 52.0)
    for found in both(TTest(**BOUNDS, mean=52.0), data):
        assert found.statistic == pytest.approx(wanted.statistic, rel=1e-4)
        assert found.p_value == pytest.approx(wanted.pvalue, rel=1e-3)


def test_the_analysis_of_variance_without_noise_is_scipys() -> None:
    data = generated(6, 4, 200, 2.0)
    wanted: Any = stats.f_oneway(*samples(data, 4))
    for found in both(Anova(**BOUNDS, groups="0,1,2,3"), data):
        assert found.statistic == pytest.approx(wanted.statistic, rel=1e-4)
        assert found.p_value == pytest.approx(wanted.pvalue, rel=1e-3)
        assert found.freedom == pytest.approx((3.0, 196.0))


def noisily(asked: MeansTest, data: Holdings, epsilon: Fraction, seed: int) -> Answer:
    plan = asked.plan(Facts.of_one_server(data.rows, epsilon=epsilon))
    law = DiscreteLaplace(Fraction(plan.sensitivity.l1) / epsilon)
    drawn = np.random.default_rng(seed).laplace(scale=float(law.scale), size=plan.released)
    total = plan.encode(data).sum(axis=0, dtype=np.uint64)
    values = total + np.rint(drawn).astype(np.int64).view(np.uint64)
    return asked.read(Release(plan, values, data.rows, Noise.of(law)))


@pytest.mark.parametrize(
    ("asked", "groups"),
    [
        (TTest(**BOUNDS, groups="0,1"), 2),
        (TTest(**BOUNDS, mean=50.0), 1),
        (Anova(**BOUNDS, groups="0,1,2"), 3),
    ],
)
def test_means_that_are_equal_are_seldom_told_apart(asked: MeansTest, groups: int) -> None:
    """At the 5 % level of 50 tests, 2.5 reject; more than 13 once in a million. The mean of the
    p-values is ½ within 5 standard errors of 0.041."""
    found = []
    for seed in range(50):
        answer = noisily(asked, generated(seed, groups, 500), Fraction(1), seed)
        found.append(as_test(answer.estimate).p_value)
    assert np.count_nonzero(np.array(found) <= 0.05) <= 13
    assert abs(np.mean(found) - 0.5) < 0.205


def test_the_interval_of_a_difference_covers_it() -> None:
    """Of 50 intervals of 95 %, 47.5 cover on average, and 37 or more all but once in a
    million."""
    held = also = 0
    for seed in range(50):
        data = generated(seed, 2, 500, 3.0)
        answer = noisily(TTest(**BOUNDS, groups="0,1"), data, Fraction(1), seed)
        one, two = samples(data, 2)
        assert answer.interval is not None
        assert answer.population is not None
        held += answer.interval.low[0] <= one.mean() - two.mean() <= answer.interval.high[0]
        also += answer.population.low[0] <= -3.0 <= answer.population.high[0]
    assert held >= 37
    assert also >= 37


@pytest.mark.parametrize("kind", ["one record", "one group", "all equal"])
def test_odd_samples_have_a_defined_answer(kind: str) -> None:
    data = generated(1, 2, 1 if kind == "one record" else 30)
    columns = dict(data.columns)
    if kind == "one group":
        columns["group"] = np.zeros(30)
    if kind == "all equal":
        columns["value"] = np.full(30, 7.0)
    held = deal(columns, 1)
    for asked in (TTest(**BOUNDS, groups="0,1"), Anova(**BOUNDS, groups="0,1")):
        assert str(as_test(asked.reference(held)))
        for seed in range(3):
            p_value = as_test(noisily(asked, held, Fraction(1), seed).estimate).p_value
            assert 0 < p_value <= 1
    assert math.isnan(both(TTest(**BOUNDS, groups="0,1"), held)[1].p_value) or kind != "one group"


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: TTest(**BOUNDS, groups="0,1,2"), "two groups"),
        (lambda: TTest(**BOUNDS, mean=math.nan), "--mean is a finite number"),
        (lambda: TTest(**BOUNDS, mean=1.0, groups="0,1"), "one sample"),
        (lambda: TTest(**BOUNDS, group="value", groups="0,1"), "both --value and --group"),
        (lambda: planned(Anova(**BOUNDS)).plan, "needs the public names"),
        (lambda: Anova(**BOUNDS, groups="0"), "2 to 256 groups"),
        (lambda: planned(TTest()).plan, "needs public bounds"),
    ],
)
def test_bad_options_are_refused_in_one_line(ask: Any, words: str) -> None:
    with pytest.raises(LocalError, match=words):
        ask()
