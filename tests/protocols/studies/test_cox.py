"""Cox's regression: that of statsmodels without noise, and honest errors with it."""

import itertools
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.duration.hazard_regression import PHReg

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.mechanisms import DiscreteLaplace
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import deal
from tallyroom.protocols.statistics.cox_step import STEPS, CoxStep
from tallyroom.protocols.statistics.planned import laplace_noise, planned
from tallyroom.protocols.studies.contract import Finding
from tallyroom.protocols.studies.cox import Cox, HazardRatios
from tallyroom.simulation.federation import Federation

AGE = ("age=20:80",)


def patients(count: int, seed: int = 0, whole: bool = True) -> pd.DataFrame:
    """Hazards of 3 % more a year and 40 % less in arm 1; whole months if asked."""
    generator = np.random.default_rng(seed)
    age, arm = generator.uniform(20, 80, count), generator.integers(0, 2, count)
    died = generator.exponential(30 * np.exp(-0.03 * (age - 50) + 0.5 * arm))
    left = generator.uniform(2, 60, count)
    months = np.minimum(np.minimum(died, left), 24.0)
    frame = {"age": age, "arm": arm, "months": np.ceil(months) if whole else months}
    return pd.DataFrame({**frame, "dead": ((died <= left) & (months < 24)).astype(int)})


@pytest.mark.parametrize("count", [60, 500])
def test_without_noise_it_is_efrons_fit(count: int) -> None:
    """Every month is a bin of its own; the truth is that of the raw times, whatever they are."""
    frame = patients(count)
    question = Cox(
        ("age", "C(arm, 0, 1)"), "months", "dead", None, AGE, 24.0, thresholds=24, newton_steps=8
    )
    with Federation(parties=7, data=frame) as federation:
        result = federation.run(question, "inf")
    raw = patients(count, whole=False)
    held = deal({str(name): column.to_numpy(float) for name, column in raw.items()}, 3)
    for found, rows in ((result.estimate, frame), (question.reference(held), raw)):
        x = rows[["age", "arm"]].to_numpy(float)
        model = PHReg(rows.months.to_numpy(), x, status=rows.dead.to_numpy(), ties="efron").fit()
        assert isinstance(found, HazardRatios)
        np.testing.assert_allclose(found.coefficients, model.params, rtol=1e-3)
        np.testing.assert_allclose(found.errors, model.bse, rtol=1e-3)
        np.testing.assert_allclose(found.p_values, model.pvalues, rtol=2e-2, atol=1e-6)
    assert "hazard ratio" in result.table()[0]


@pytest.mark.parametrize("at", [(0.0, 0.0), (1.5, -2.0), (10.0, -10.0)])
def test_the_sensitivity_holds_for_all_pairs_of_records(at: tuple[float, ...]) -> None:
    step = CoxStep(("a=-1:1", "b=-1:1"), ("a", "b"), upper=2.0, thresholds=2, at=at)
    levels = (-1.0, 0.0, 1.0, np.nan)
    records = np.array(list(itertools.product(levels, levels, (0.5, 2.0, 9.0, np.nan), (0, 1))))
    names = ("a", "b", "time", "event")
    held = {name: records[:, place] for place, name in enumerate(names)}
    plan = planned(step).plan
    rows = plan.encode(deal(held, len(records))).view(np.int64)
    far = max(int(np.abs(rows - row).sum(axis=1).max()) for row in rows)
    squares = max(float((((rows - row) / STEPS) ** 2).sum(axis=1).max()) for row in rows)
    assert far <= plan.sensitivity.l1
    assert squares <= plan.sensitivity.squared_l2 / STEPS**2
    if not any(at):
        assert far == plan.sensitivity.l1


def concluded(question: Cox, rows: pd.DataFrame, epsilon: int, seed: int) -> Finding:
    """Asks it of one curator's noise."""
    held = deal({str(name): column.to_numpy(float) for name, column in rows.items()}, 1)
    randomness, steps = Randomness.from_seed(seed, "cox"), question.steps()
    ask = next(steps)
    while True:
        asked = planned(ask.statistic)
        law = DiscreteLaplace.spending(epsilon * Fraction(ask.share), asked.plan.sensitivity.l1)
        noisy = asked.total(held) + law.draw(asked.plan.length, randomness).view(np.uint64)
        try:
            ask = steps.send(asked.read(noisy, len(rows), laplace_noise(law.variance)))
        except StopIteration as stop:
            finding = stop.value
            assert isinstance(finding, Finding)
            return finding


@pytest.mark.slow
def test_intervals_and_p_values_hold_what_they_say() -> None:
    """30 federations of 10,000 at ε = 4: 95 % of intervals hold the hazards that the data were
    drawn from, of noise and sampling together; a right program holds 20 or fewer of 30 less than
    once in a million."""
    question = Cox(("age", "C(arm, 0, 1)"), "months", "dead", None, AGE, 24.0)
    held, told = np.zeros(2), 0
    for seed in range(30):
        finding = concluded(question, patients(10_000, seed, whole=False), 4, seed)
        if finding.deviations is None:
            continue
        told += 1
        assert isinstance(finding.estimate, HazardRatios)
        found = np.array(finding.estimate.coefficients)
        error = np.hypot(finding.estimate.errors, finding.deviations)
        held += np.abs(found - [0.03, -0.5]) < 1.96 * error
        assert error[1] < 0.25
    assert told > 25
    assert stats.binomtest(int(held.min()), told, 0.95, "less").pvalue > 1e-6


@pytest.mark.parametrize("rows", ["nobody", "all at once", "one arm"])
def test_what_tells_nothing_has_no_interval_and_ends_well(rows: str) -> None:
    frame = patients(200)
    frame["dead"] = 0 if rows == "nobody" else frame.dead
    frame["months"] = 5.0 if rows == "all at once" else frame.months
    frame["arm"] = 1 if rows == "one arm" else frame.arm
    question = Cox(("age", "C(arm, 0, 1)"), "months", "dead", None, AGE, 24.0)
    with Federation(parties=4, data=frame, seed=1) as federation:
        for epsilon in ("inf", 1):
            result = federation.run(question, epsilon)
            assert isinstance(result.estimate, HazardRatios)
            assert np.isfinite(result.estimate.coefficients).all()
            if rows != "all at once" or epsilon == 1:
                assert result.estimate.weak
                assert not result.estimate.p_values
                assert any("noise hides" in note for note in result.notes)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"upper": None}, "give --upper"),
        ({"upper": -1.0}, "above 0"),
        ({"thresholds": 0}, "from 1 to"),
        ({"newton_steps": 0}, "from 1 to"),
        ({"event": "months"}, "different columns"),
        ({"event": "age"}, "different columns"),
        ({"x": ("months",)}, "none is 'months'"),
        ({"x": ()}, "one column or more"),
        ({"x": ("C(arm)",)}, "needs its names"),
        ({"ranges": ()}, "public bounds of column 'age'"),
    ],
)
def test_bad_input_is_one_clear_line(options: dict[str, object], words: str) -> None:
    given = {"x": ("age",), "time": "months", "event": "dead", "ranges": AGE, "upper": 24.0}
    if options.get("x", ("age",)) != ("age",):
        given["ranges"] = ()
    with (
        Federation(parties=2, data=patients(20)) as federation,
        pytest.raises(LocalError, match=words) as refused,
    ):
        federation.run(Cox(**{**given, **options}), 1)  # type: ignore[arg-type]
    assert "\n" not in str(refused.value)
