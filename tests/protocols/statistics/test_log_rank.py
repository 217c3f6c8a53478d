"""The log-rank test without noise against scipy's and the definition, and under noise."""

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.privacy.mechanisms import DiscreteLaplace
from tallyroom.protocols.records import Column, Holdings, deal
from tallyroom.protocols.statistics.estimates import Estimate
from tallyroom.protocols.statistics.log_rank import LogRank, SurvivalTest
from tallyroom.protocols.statistics.planned import planned
from tallyroom.protocols.statistics.release import Noise, Release


def generated(seed: int, groups: int, rows: int, ratio: float = 1.0) -> Holdings:
    """Times in whole units, of which many tie."""
    generator = np.random.default_rng(seed)
    group = generator.integers(groups, size=rows).astype(float)
    life = generator.exponential(10 * ratio**group)
    end = generator.uniform(3, 30, rows)
    times = np.ceil(np.minimum(life, end))
    return deal(
        {"time": times, "event": (life <= end).astype(np.float64), "group": group}, min(rows, 3)
    )


def as_test(estimate: Estimate) -> SurvivalTest:
    assert isinstance(estimate, SurvivalTest)
    return estimate


@pytest.mark.parametrize("seed", range(3))
def test_two_groups_without_noise_are_scipys(seed: int) -> None:
    data = generated(seed, 2, 80, 1.5)
    asked = LogRank(upper=30.0, thresholds=30, groups="0,1", method="product-limit")
    sides = []
    for each in (0.0, 1.0):
        held = data.columns["group"] == each
        times, events = data.columns["time"][held], data.columns["event"][held]
        sides.append(stats.CensoredData.right_censored(times, events == 0))
    wanted = stats.logrank(sides[0], sides[1])
    for found in (as_test(planned(asked).noiseless(data)), as_test(asked.reference(data))):
        assert found.statistic == pytest.approx(wanted.statistic**2, rel=1e-9)
        assert found.p_value == pytest.approx(wanted.pvalue, rel=1e-9)
        assert found.freedom == 1


def by_definition(times: Column, events: Column, group: Column, names: int) -> float:
    """Time after time, with numpy's inverse."""
    excess, covariance = np.zeros(names), np.zeros((names, names))
    for at in np.unique(times[events > 0]):
        risk = np.array([((times >= at) & (group == each)).sum() for each in range(names)])
        died = np.array(
            [((times == at) & (events > 0) & (group == each)).sum() for each in range(names)]
        )
        n, d = risk.sum(), died.sum()
        share = risk / n
        excess += died - d * share
        if n > 1:
            covariance += d * (n - d) / (n - 1) * (np.diag(share) - np.outer(share, share))
    left = excess[:-1]
    return float(left @ np.linalg.inv(covariance[:-1, :-1]) @ left)


def test_several_groups_without_noise_are_the_definition() -> None:
    data = generated(4, 4, 150, 1.2)
    asked = LogRank(upper=30.0, thresholds=30, groups="0,1,2,3", method="product-limit")
    found, truth = as_test(planned(asked).noiseless(data)), as_test(asked.reference(data))
    times, events, group = (data.columns[name] for name in ("time", "event", "group"))
    wanted = by_definition(times, events, group, 4)
    assert found.statistic == pytest.approx(wanted, rel=1e-9)
    assert truth.statistic == pytest.approx(wanted, rel=1e-9)
    assert found.freedom == 3
    assert found.p_value == pytest.approx(stats.chi2.sf(wanted, 3))
    assert found.observed.sum() == pytest.approx(found.expected.sum())


@pytest.mark.parametrize("kind", ["one group only", "no event", "one record"])
def test_where_nothing_can_be_compared_there_is_no_p_value(kind: str) -> None:
    data = generated(1, 2, 1 if kind == "one record" else 40)
    columns = dict(data.columns)
    if kind == "one group only":
        columns["group"] = np.zeros(40)
    if kind == "no event":
        columns["event"] = np.zeros(40)
    held = deal(columns, 1)
    asked = LogRank(upper=30.0, thresholds=30, groups="0,1")
    assert np.isnan(as_test(planned(asked).noiseless(held)).p_value)
    assert np.isnan(as_test(asked.reference(held)).p_value)


def noisily(asked: LogRank, data: Holdings, epsilon: Fraction, seed: int) -> SurvivalTest:
    plan = asked.plan(Facts.of_one_server(data.rows, epsilon=epsilon))
    law = DiscreteLaplace(Fraction(plan.sensitivity.l1) / epsilon)
    drawn = np.random.default_rng(seed).laplace(scale=float(law.scale), size=plan.released)
    total = plan.encode(data).sum(axis=0, dtype=np.uint64)
    values = total + np.rint(drawn).astype(np.int64).view(np.uint64)
    return as_test(asked.read(Release(plan, values, data.rows, Noise.of(law))).estimate)


@pytest.mark.parametrize("groups", [2, 3])
def test_groups_that_are_alike_are_seldom_told_apart(groups: int) -> None:
    """At the 5 % level of 50 tests, 2.5 reject; more than 13 once in a million. The mean of the
    p-values is ½ within 5 standard errors of 0.041."""
    asked = LogRank(upper=30.0, groups=",".join(map(str, range(groups))))
    found = np.array(
        [noisily(asked, generated(s, groups, 400), Fraction(1), s).p_value for s in range(50)]
    )
    assert np.count_nonzero(found <= 0.05) <= 13
    assert abs(found.mean() - 0.5) < 0.205


def test_groups_that_differ_are_told_apart() -> None:
    """Hazards differ by half: without noise p is below 10^-6."""
    data = generated(3, 2, 2000, 1.5)
    assert noisily(LogRank(upper=30.0, groups="0,1"), data, Fraction(1), 1).p_value < 0.001


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "needs the public names"),
        ({"groups": "0"}, "2 to 64 groups"),
        ({"groups": "0,0"}, "listed twice"),
        ({"groups": "0,1", "group": "time"}, "three columns"),
    ],
)
def test_bad_options_are_refused_in_one_line(options: dict[str, str], words: str) -> None:
    with pytest.raises(LocalError, match=words):
        planned(LogRank(upper=1.0, **options)).total(generated(0, 2, 5))  # type: ignore[arg-type]
