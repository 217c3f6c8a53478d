"""Covariances and correlations against pandas and scipy, and their intervals under noise."""

from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.records import Column, Holdings, deal
from tallyroom.protocols.statistics.estimates import Estimate
from tallyroom.protocols.statistics.planned import planned
from tallyroom.protocols.statistics.second_moments import (
    Correlation,
    Covariance,
    OfPairsOfColumns,
)
from tests.protocols.statistics.noisily import answered, covered

RANGES = ("a=-6:6", "b=1000000:1000012", "c=0:3")
NAMES = ("a", "b", "c")
TWO: dict[str, Any] = {"ranges": RANGES[:2], "column": NAMES[:2]}


def drawn(seed: int, rows: int, slope: float = 0.6) -> dict[str, Column]:
    """One column lies far from 0, one has ties on its edges."""
    generator = np.random.default_rng(seed)
    a = generator.normal(size=rows)
    b = 1e6 + 6 + slope * a + np.sqrt(1 - slope**2) * generator.normal(size=rows)
    return {"a": a, "b": b, "c": generator.integers(0, 4, rows).astype(float)}


def as_pairs(estimate: Estimate) -> OfPairsOfColumns:
    assert isinstance(estimate, OfPairsOfColumns)
    return estimate


def both(asked: Covariance, data: Holdings) -> list[OfPairsOfColumns]:
    return [as_pairs(planned(asked).noiseless(data)), as_pairs(asked.reference(data))]


@pytest.mark.parametrize("rows", [2, 5, 300])
def test_without_noise_they_are_pandas(rows: int) -> None:
    columns = drawn(1, rows)
    frame = pd.DataFrame(columns)
    for found in both(Covariance(RANGES, NAMES), deal(columns, min(rows, 3))):
        np.testing.assert_allclose(found.cells, frame.cov(), rtol=1e-4, atol=1e-5)
    for found in both(Correlation(RANGES, NAMES), deal(columns, min(rows, 3))):
        np.testing.assert_allclose(found.cells, frame.corr(), rtol=1e-4, atol=1e-5)
        if rows > 2:
            wanted: Any = stats.pearsonr(columns["a"], columns["b"])
            assert found.p_values is not None
            assert found.p_values[0, 1] == pytest.approx(wanted.pvalue, rel=1e-3)


def test_a_column_that_does_not_vary_has_no_correlation() -> None:
    columns = drawn(1, 20) | {"c": np.full(20, 1.5)}
    for found in both(Correlation(RANGES, NAMES), deal(columns, 3)):
        np.testing.assert_array_equal(np.isnan(found.cells), pd.DataFrame(columns).corr().isna())


def test_intervals_cover_what_they_say() -> None:
    """Of 50 intervals of 95 %, 47.5 cover on average, and 37 or more all but once in a million."""
    held = np.zeros(4)
    for seed in range(50):
        columns = drawn(seed, 1000)
        data, frame = deal(columns, 1), pd.DataFrame(columns)[["a", "b"]]
        moments = answered(Covariance(**TWO), data, Fraction(2), seed)
        related = answered(Correlation(**TWO), data, Fraction(2), seed)
        variance = moments.interval is not None and moments.interval.part(slice(0, 1))
        assert variance
        held[0] += bool(variance.low[0] <= frame.cov().iloc[0, 0] <= variance.high[0])
        held[1] += covered(related, frame.corr().iloc[0, 1])
        held[2] += covered(related, 0.6, population=True)
        sampled = moments.population
        assert sampled is not None
        held[3] += bool(sampled.low[1] <= 0.6 <= sampled.high[1])
    assert (held >= 37).all()


def test_columns_that_are_independent_are_seldom_taken_to_be_correlated() -> None:
    """At the 5 % level of 50 tests, 2.5 reject; more than 13 once in a million."""
    found = []
    for seed in range(50):
        answer = answered(Correlation(**TWO), deal(drawn(seed, 500, 0.0), 1), Fraction(1), seed)
        told = as_pairs(answer.estimate).p_values
        assert told is not None
        found.append(told[0, 1])
    assert np.count_nonzero(np.array(found) <= 0.05) <= 13
    assert abs(np.mean(found) - 0.5) < 0.205


def test_columns_that_depend_on_each_other_are_told() -> None:
    answer = answered(Correlation(**TWO), deal(drawn(1, 5000), 1), Fraction(1), 1)
    told = as_pairs(answer.estimate)
    assert told.p_values is not None
    assert told.p_values[0, 1] < 0.01
    assert "p < 0.001" in str(told) or "p = 0.00" in str(told)


def test_a_spread_that_noise_hides_is_said() -> None:
    columns = drawn(1, 30) | {"b": np.full(30, 1e6 + 6)}
    answer = answered(Correlation(**TWO), deal(columns, 1), Fraction(1, 10), 3)
    assert any("hides how much column 'b'" in each for each in answer.remarks)
    assert np.isfinite(as_pairs(answer.estimate).values()).all()


def test_both_are_one_release() -> None:
    facts = Facts.of_one_server(100, epsilon=Fraction(1))
    plans = [kind(**TWO).plan(facts) for kind in (Covariance, Correlation)]
    assert plans[0].identity == plans[1].identity
    assert plans[0].reusable


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: Correlation(RANGES[:1], ("a",)), "two columns or more"),
        (lambda: Covariance(RANGES[:1], ("a", "a")), "each once"),
        (lambda: Covariance(RANGES, ("a", "b")), "is not about that column"),
        (lambda: planned(Correlation((), ("a", "b"))).plan, "needs public bounds of column 'a'"),
    ],
)
def test_bad_options_are_refused_in_one_line(ask: Any, words: str) -> None:
    with pytest.raises(LocalError, match=words):
        ask()
