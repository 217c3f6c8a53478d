"""Formulas, names and products in regressions: against statsmodels' formulas, and their bounds
against every pair of records of a small grid."""

import itertools
import re
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as models
from scipy import stats

from tallyroom.parties.schema import names_of
from tallyroom.protocols.algebra.ring import signed
from tallyroom.protocols.cells import encode_cells
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.mechanisms import DiscreteLaplace
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import deal
from tallyroom.protocols.statistics.coefficients import Coefficients
from tallyroom.protocols.statistics.linear_regression import STEPS, LinearRegression
from tallyroom.protocols.statistics.logistic_step import LogisticStep
from tallyroom.protocols.statistics.planned import laplace_noise, planned
from tallyroom.protocols.statistics.terms import ModelTerm, parse_formula
from tallyroom.protocols.studies.logistic_regression import LogisticRegression
from tallyroom.protocols.studies.residual_plot import ResidualPlot
from tallyroom.simulation.federation import Federation

RANGES = ("age=0:100", "bmi=0:60")
FORMULAS = [
    ("age", "age"),
    ("C(sex, F, M)", "C(sex)"),
    ("age * C(sex, F, M) + bmi + C(site, b, a, c)", "age*C(sex) + bmi + C(site, Treatment('b'))"),
    ("age * bmi", "age * bmi"),
    ("C(sex, M, F) * C(site, a, b, c)", "C(sex, Treatment('M')) * C(site)"),
    ("C(site, a, other)", "I(1.0 * (site != 'a'))"),
    ("C(ward, 1, 2.0)", "C(ward)"),
]


def people(records: int, seed: int = 3) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": generator.uniform(20, 80, records),
            "bmi": generator.normal(27, 4, records),
            "sex": generator.choice(["F", "M"], records),
            "site": generator.choice(["a", "b", "c"], records),
            "ward": generator.choice([1, 2], records),
        }
    )
    slope = 0.2 - 0.1 * (frame.sex == "M")
    frame["cost"] = 10 + slope * frame.age + 0.1 * frame.bmi + generator.normal(0, 3, records)
    odds = (frame.age - 50) / 15 + 0.5 * (frame.sex == "M")
    frame["died"] = (generator.random(records) < 1 / (1 + np.exp(-odds))).astype(int)
    return frame


def named(frame: pd.DataFrame) -> dict[str, np.ndarray]:
    return {
        str(name): encode_cells(map(str, column))
        if name in ("sex", "site")
        else column.to_numpy(float)
        for name, column in frame.items()
    }


def ranges_of(formula: str, *others: str) -> tuple[str, ...]:
    return (*(each for each in RANGES if each.partition("=")[0] in formula), *others)


def own_order(found: Coefficients, numbers: Any, model: Any) -> list[float]:
    """A peer's numbers in the order of our terms, by the names of columns and of levels."""
    theirs = {frozenset(re.findall(r"T\.\w+|age|bmi", name)): name for name in model.params.index}
    if len(theirs) < len(model.params):
        return list(numbers)
    keys = [
        frozenset(re.findall(r"T\.\w+|age|bmi", each)) if each != "intercept" else frozenset()
        for each in found.terms
    ]
    return [float(numbers[theirs[key]]) for key in keys]


@pytest.mark.parametrize(("ours", "theirs"), FORMULAS, ids=lambda each: each)
def test_without_noise_the_table_is_that_of_statsmodels(ours: str, theirs: str) -> None:
    """Coefficients, errors, p-values and R², of 7 parties' 317 records."""
    frame = people(317)
    model = models.ols(f"cost ~ {theirs}", frame).fit()
    asked = LinearRegression(ranges_of(ours, "cost=-100:200"), formula=f"cost ~ {ours}")
    holdings = deal(named(frame), 7)
    for found in (planned(asked).noiseless(holdings), asked.reference(holdings)):
        assert isinstance(found, Coefficients)
        for mine, peer in (
            (found.coefficients, model.params),
            (found.errors, model.bse),
            (found.p_values, model.pvalues),
        ):
            expected = own_order(found, peer, model) if "I(" not in theirs else list(peer)
            np.testing.assert_allclose(mine, expected, rtol=2e-3, atol=1e-5)
        assert found.explained == pytest.approx(model.rsquared, abs=1e-5)


def test_a_logistic_table_is_that_of_statsmodels() -> None:
    """By Newton steps over seven parties, and of the raw records."""
    frame = people(800)
    model = models.logit("died ~ age*C(sex) + C(site)", frame).fit(disp=0)
    formula = "died ~ age*C(sex, F, M) + C(site, a, b, c)"
    with Federation(parties=7, data=frame) as federation:
        result = federation.run(
            LogisticRegression(ranges=("age=0:100",), formula=formula, newton_steps=9), "inf"
        )
    for found in (result.estimate, result.truth):
        assert isinstance(found, Coefficients)
        for mine, peer in (
            (found.coefficients, model.params),
            (found.errors, model.bse),
            (found.p_values, model.pvalues),
        ):
            np.testing.assert_allclose(mine, own_order(found, peer, model), rtol=2e-3, atol=2e-4)


def test_names_that_a_schema_tells() -> None:
    schema = names_of(("sex=F,M", "site=a,b,c"))
    asked = LinearRegression(
        ranges=("age=0:100", "cost=-100:200"), formula="cost ~ age*C(sex) + C(site, c, a)"
    ).with_names(schema)
    assert asked.x == ("age", "C(sex, F,M)", "age:C(sex, F,M)", "C(site, c,a)")
    assert asked.terms == ["intercept", "age", "C(sex)[T.M]", "age:C(sex)[T.M]", "C(site)[T.a]"]
    assert asked.named_columns == ("sex", "site")
    again = LinearRegression.from_parameters(asked.parameters())
    assert again == asked
    assert parse_formula("cost ~ age*C(sex, F, M)")[1] == tuple(
        str(ModelTerm.parse(each)) for each in ("age", "C(sex, F,M)", "age:C(sex, F,M)")
    )


def test_a_name_that_is_not_listed_counts_as_the_reference_and_changes_no_other_record() -> None:
    asked = LinearRegression(ranges=("cost=0:1",), formula="cost ~ C(sex, F, M)")
    rows = {"sex": encode_cells(["F", "M", "X", "", "12"]), "cost": np.zeros(5)}
    own = signed(planned(asked).plan.encode(deal(rows, 5)))
    assert [list(own[at]) == list(own[0]) for at in range(5)] == [True, False, True, True, True]


@pytest.mark.parametrize(
    "formula",
    [
        "y ~ C(s, 1, 2, 3, 4)",
        "y ~ C(s, 1, 2, 3, 4, other)",
        "y ~ x + C(s, 1, 2, 3, 4)",
        "y ~ x * C(s, 1, 2, 3)",
        "y ~ C(s, 1, 2, 3) * C(t, 1, 2, 3)",
        "y ~ x * t",
    ],
)
def test_the_sensitivity_holds_for_all_pairs_of_records(formula: str) -> None:
    """It is met but for squares and for products of numbers that cannot be at all corners."""
    target, x = parse_formula(formula)
    asked = LinearRegression((), x, target)
    asked = LinearRegression(tuple(f"{name}=-1:1" for name in (*asked.numbers, "y")), x, target)
    names = ("x", "s", "t", "y")
    levels = [
        (-1.0, 0.0, 1.0, np.nan) if name in (*asked.numbers, "y") else (1.0, 2.0, 3.0, 4.0, 9.0)
        for name in names
    ]
    used = [each for each, name in zip(levels, names, strict=True) if name in asked.columns]
    columns = [name for name in names if name in asked.columns]
    records = np.array(list(itertools.product(*used)))
    plan = planned(asked).plan
    held = {name: records[:, at] for at, name in enumerate(columns)}
    rows = plan.encode(deal(held, len(records))).view(np.int64) / STEPS**2
    moved = max(float(np.abs(rows - row).sum(axis=1).max()) for row in rows)
    squares = max(float(((rows - row) ** 2).sum(axis=1).max()) for row in rows)
    assert moved <= plan.sensitivity.l1 / STEPS**2
    assert squares <= plan.sensitivity.squared_l2 / STEPS**4
    if not asked.numbers:
        assert moved >= plan.sensitivity.l1 / STEPS**2 - 1
    step = LogisticStep(asked.ranges[:-1], x, "y", at=(0.5,) * len(asked.terms))
    rows = planned(step).plan.encode(deal(held, len(records))).view(np.int64)
    moved = max(int(np.abs(rows - row).sum(axis=1).max()) for row in rows)
    assert moved <= planned(step).plan.sensitivity.l1


@pytest.mark.parametrize(
    ("formula", "words"),
    [
        ("cost", "with one ~"),
        ("cost ~ age ~ bmi", "with one ~"),
        ("cost ~ ", "a column on both sides"),
        ("cost ~ age + + bmi", "a column on both sides"),
        ("cost ~ 0 + age", "always has an intercept"),
        ("cost ~ cost", "none is 'cost'"),
        ("cost ~ age:bmi", "needs the term age beside it"),
        ("cost ~ age:age", "names a column twice"),
        ("cost ~ C(sex, F)", "needs two names"),
        ("cost ~ C(sex, F, F)", "listed twice"),
        ("cost ~ age + C(age, 1, 2)", "either as numbers or as C"),
        ("cost ~ C(sex, F, M) + C(sex, M, F)", "with the same names"),
        ("cost ~ C(sex, 1, 1.0)", "are the same number"),
        ("cost ~ a*b*c*d*e", "at most 4 factors"),
        ("cost ~ " + "a" * (1 << 17), "at most"),
    ],
)
def test_what_is_no_formula_is_one_clear_line(formula: str, words: str) -> None:
    for kind in (LinearRegression, LogisticRegression):
        with pytest.raises(LocalError, match=words) as refused:
            kind(formula=formula)
        assert "\n" not in str(refused.value)


def test_what_needs_names_or_is_too_large_is_refused_before_records_are_looked_at() -> None:
    many = ",".join(f"n{at}" for at in range(100))
    for formula, words in (
        ("cost ~ C(sex)", "C(sex) needs its names, which are public"),
        (f"cost ~ C(sex, {many})", "at most 64 terms, not 99"),
        (f"cost ~ C(sex, {many}) * C(site, {many})", "at most 64 terms, not 9999"),
    ):
        with pytest.raises(LocalError, match=re.escape(words)):
            _ = planned(LinearRegression(("cost=0:1",), formula=formula)).plan
    with pytest.raises(LocalError, match="leave the range of doubles"):
        _ = planned(LinearRegression(("a=0:1e200", "b=0:1e200", "y=0:1"), formula="y ~ a*b")).plan
    with pytest.raises(LocalError, match="columns of numbers only"):
        ResidualPlot(x=("C(sex, F, M)",), y="cost")


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1, 3])
def test_p_values_are_small_as_often_as_they_say(epsilon: int) -> None:
    """400 data sets of 4000 records in which a name and a number tell nothing, and one number does.
    5 % of p-values below 5 %: fewer than 9.5 % and more than 1.5 % of 800 (by twos dependent: as
    of 400) unless once in a million."""
    asked = planned(
        LinearRegression(("age=0:100", "bmi=0:60", "y=-20:40"), formula="y ~ age+bmi+C(sex, F, M)")
    )
    mechanism = DiscreteLaplace.spending(Fraction(epsilon), asked.plan.sensitivity.l1)
    randomness, small = Randomness.from_seed(epsilon, "p-values"), np.zeros(4)
    generator = np.random.default_rng(epsilon)
    for _ in range(400):
        sex = generator.integers(2, size=4000)
        age, bmi = generator.uniform(0, 100, 4000), generator.uniform(10, 50, 4000)
        y = 0.1 * age + generator.normal(0, 3, 4000)
        rows = {"age": age, "bmi": bmi, "y": y, "sex": encode_cells(np.array(["F", "M"])[sex])}
        drawn = mechanism.draw(asked.plan.length, randomness).view(np.uint64)
        values = asked.total(deal(rows, 1)) + drawn
        found = asked.read(values, 4000, laplace_noise(mechanism.variance)).estimate
        assert isinstance(found, Coefficients)
        small += np.array(found.p_values) < 0.05
    of_null = int(small[2] + small[3])
    assert stats.binomtest(of_null // 2, 400, 0.05).pvalue > 1e-6
    assert small[1] > 390
