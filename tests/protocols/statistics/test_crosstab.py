"""Two-way tables without noise against pandas and scipy, and the p-value under noise."""

from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tallyroom.protocols.cells import encode_cells
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.privacy.mechanisms import DiscreteLaplace
from tallyroom.protocols.records import Holdings, deal
from tallyroom.protocols.statistics.crosstab import ChiSquare, Crosstab, TwoWayTable
from tallyroom.protocols.statistics.estimates import Estimate
from tallyroom.protocols.statistics.planned import planned
from tallyroom.protocols.statistics.release import Noise, Release

NAMES: dict[str, Any] = {"down_names": "a,b,c", "across_names": "yes,no"}

MANY = ",".join(f"n{i}" for i in range(200))


def drawn(seed: int, rows: int, apart: float = 0.0) -> tuple[list[str], list[str]]:
    generator = np.random.default_rng(seed)
    down = generator.choice(["a", "b", "c", "odd"], rows, p=[0.5, 0.3, 0.15, 0.05])
    chance = 0.4 + apart * (down == "a")
    across = np.where(generator.random(rows) < chance, "yes", "no")
    return down.tolist(), across.tolist()


def held(down: list[str], across: list[str]) -> Holdings:
    return deal({"down": encode_cells(down), "across": encode_cells(across)}, 1)


def as_table(estimate: Estimate) -> TwoWayTable:
    assert isinstance(estimate, TwoWayTable)
    return estimate


def test_without_noise_it_is_pandas_table_and_scipys_test() -> None:
    down, across = drawn(1, 300, 0.2)
    wanted = pd.crosstab(pd.Series(down), pd.Series(across))[["yes", "no"]]
    listed = wanted.loc[["a", "b", "c"]].to_numpy()
    told: Any = stats.chi2_contingency(listed, correction=False)
    asked = Crosstab(**NAMES)
    for found in (
        planned(asked).noiseless(held(down, across)),
        asked.reference(held(down, across)),
    ):
        table = as_table(found)
        np.testing.assert_array_equal(table.cells[:-1, :-1], listed)
        np.testing.assert_array_equal(table.cells[-1, :-1], wanted.loc["odd"])
        assert table.statistic == pytest.approx(told.statistic)
        assert table.p_value == pytest.approx(told.pvalue)
        strength = stats.contingency.association(listed.astype(int), method="cramer")
        assert table.strength == pytest.approx(strength)
        assert table.table()[1][-1] == ["all", *wanted.sum().tolist(), 0.0, 300.0]


def test_a_table_of_one_row_has_no_test() -> None:
    found = as_table(Crosstab(**NAMES).reference(held(["a"] * 5, ["yes", "no"] * 2 + ["no"])))
    assert np.isnan(found.p_value)
    assert np.isnan(found.strength)


def noisily(asked: Crosstab, data: Holdings, epsilon: Fraction, seed: int) -> TwoWayTable:
    plan = asked.plan(Facts.of_one_server(data.rows, epsilon=epsilon))
    law = DiscreteLaplace(Fraction(plan.sensitivity.l1) / epsilon)
    noise = np.random.default_rng(seed).laplace(scale=float(law.scale), size=plan.released)
    total = plan.encode(data).sum(axis=0, dtype=np.uint64)
    values = total + np.rint(noise).astype(np.int64).view(np.uint64)
    return as_table(asked.read(Release(plan, values, data.rows, Noise.of(law))).estimate)


def test_names_that_are_independent_are_seldom_told_apart() -> None:
    """At the 5 % level of 50 tests, 2.5 reject; more than 13 once in a million. The mean of the
    p-values is ½ within 5 standard errors of 0.041."""
    asked = ChiSquare(**NAMES)
    found = [
        noisily(asked, held(*drawn(seed, 400)), Fraction(1), seed).p_value for seed in range(50)
    ]
    assert np.count_nonzero(np.array(found) <= 0.05) <= 13
    assert abs(np.mean(found) - 0.5) < 0.205


def test_names_that_depend_on_each_other_are_told_apart() -> None:
    found = noisily(ChiSquare(**NAMES), held(*drawn(3, 2000, 0.2)), Fraction(1), 3)
    assert found.p_value < 0.001
    assert found.values().shape == (1,)


def test_the_table_and_the_test_are_one_release() -> None:
    facts = Facts.of_one_server(100, epsilon=Fraction(1))
    one, two = (kind(**NAMES).plan(facts) for kind in (Crosstab, ChiSquare))
    assert one.identity == two.identity
    assert one.reusable


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"down": "across"}, "both --down and --across"),
        ({"down_names": ""}, "needs public names: --down-names"),
        ({"across_names": "yes"}, "two names or more"),
        ({"across_names": "yes,yes"}, "listed twice"),
        (
            {"down_names": ",".join(f"n{i}" for i in range(200)), "across_names": MANY},
            "cells",
        ),
    ],
)
def test_bad_options_are_refused_in_one_line(options: dict[str, str], words: str) -> None:
    with pytest.raises(LocalError, match=words):
        _ = planned(Crosstab(**(NAMES | options))).plan
