"""Survival curves without noise against scipy's, and what they say under noise."""

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.privacy.mechanisms import DiscreteLaplace
from tallyroom.protocols.records import Column, Holdings, deal
from tallyroom.protocols.statistics.contract import Statistic
from tallyroom.protocols.statistics.drawing import Beside
from tallyroom.protocols.statistics.estimates import shape_of
from tallyroom.protocols.statistics.group_estimates import OfEachGroup
from tallyroom.protocols.statistics.grouped import grouped
from tallyroom.protocols.statistics.life_table import LifeTable, falls_to
from tallyroom.protocols.statistics.planned import planned
from tallyroom.protocols.statistics.release import Answer, Noise, Release
from tallyroom.protocols.statistics.survival import KaplanMeier, NelsonAalen, SurvivalTable
from tallyroom.protocols.statistics.survival_estimates import SurvivalCurve, TimeCurve

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"


def holdings(times: Column, events: Column, parties: int = 3) -> Holdings:
    return deal({"time": times, "event": events}, parties)


def exactly(asked: SurvivalTable, data: Holdings) -> TimeCurve:
    estimate = planned(asked).noiseless(data)
    assert isinstance(estimate, TimeCurve)
    return estimate


def noisily(asked: Statistic, data: Holdings, epsilon: Fraction, seed: int) -> Answer:
    """An answer with one noise in every count."""
    plan = asked.plan(Facts.of_one_server(data.rows, epsilon=epsilon))
    law = DiscreteLaplace(Fraction(plan.sensitivity.l1) / epsilon)
    total = plan.measure(plan.encode(data).sum(axis=0, dtype=np.uint64))
    drawn = np.random.default_rng(seed).laplace(scale=float(law.scale), size=plan.released)
    values = total + np.rint(drawn).astype(np.int64).view(np.uint64)
    return asked.read(Release(plan, values, data.rows, Noise.of(law)))


def generated(shape: str) -> tuple[Column, Column]:
    """Times in whole units from 0 to 30, and marks."""
    generator = np.random.default_rng(3)
    times = np.ceil(np.minimum(generator.exponential(12, 200), 30.0))
    events = (generator.random(200) < 0.6).astype(float)
    match shape:
        case "an event at zero":
            times[:5] = 0.0
            events[:5] = 1.0
        case "negative times":
            times[:4] = -2.0
            events[:4] = 1.0
        case "all censored":
            events[:] = 0.0
        case "no censoring":
            events[:] = 1.0
        case "one record":
            times, events = times[:1], np.ones(1)
        case "all at once":
            times[:] = 7.0
        case "followed beyond":
            times[::3] += 500.0
    return times, events


SHAPES = (
    *("plain", "an event at zero", "negative times", "all censored", "no censoring"),
    *("one record", "all at once", "followed beyond"),
)
POINTS = np.arange(1.0, 31.0)


@pytest.mark.parametrize("shape", SHAPES)
def test_without_noise_it_is_scipys_product_limit(shape: str) -> None:
    """Every time is a threshold. Times below the range count as the lowest, above it as censored
    there; scipy knows neither range."""
    times, events = generated(shape)
    asked = KaplanMeier(upper=30.0, thresholds=30, method="product-limit")
    found = exactly(asked, holdings(times, events, 1))
    raw = stats.CensoredData.right_censored(times, events == 0)
    wanted = np.append(1.0, stats.ecdf(raw).sf.probabilities)[
        np.searchsorted(np.unique(times), POINTS, side="right")
    ]
    np.testing.assert_allclose(found.values(), wanted, atol=1e-12)
    truth = asked.reference(holdings(times, events, 1))
    assert isinstance(truth, TimeCurve)
    np.testing.assert_allclose(truth.beside(found).values(), wanted, atol=1e-12)
    if (times > 0).all():  # an event at 0 is seen at the first threshold
        assert found.error(truth.beside(found))["over_time"] == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_without_noise_the_hazard_is_nelson_and_aalens(shape: str) -> None:
    times, events = generated(shape)
    asked = NelsonAalen(upper=30.0, thresholds=30, method="product-limit")
    found = exactly(asked, holdings(times, events, 1))
    times = np.maximum(times, 1.0)  # the first threshold
    at = np.unique(times)
    parts = np.array([events[times == t].sum() / (times >= t).sum() for t in at])
    wanted = np.append(0.0, np.cumsum(parts))[np.searchsorted(at, POINTS, side="right")]
    np.testing.assert_allclose(found.values(), wanted, atol=1e-12)


def test_greenwoods_errors_are_scipys() -> None:
    """scipy's plain intervals are 1.96 of them to either side."""
    times, events = generated("plain")
    found = exactly(
        KaplanMeier(upper=30.0, thresholds=30, method="product-limit"), holdings(times, events)
    )
    raw: Any = stats.ecdf(stats.CensoredData.right_censored(times, events == 0)).sf
    high = raw.confidence_interval(0.95).high.probabilities[:-1]
    errors = (high - raw.probabilities[:-1]) / stats.norm.ppf(0.975)
    at = np.searchsorted(POINTS, np.unique(times)[:-1])
    inside = high < 1
    ours = found.table_of.survival_deviations[at]
    np.testing.assert_allclose(ours[inside], errors[inside], rtol=1e-9)
    assert inside.sum() > 15


def test_the_actuarial_estimate_is_that_of_a_life_table() -> None:
    """Berkson and Gage: of 100 at risk 20 are censored and 9 have the event, so 9/90; then of 71,
    10 and 33, so 33/66."""
    table = LifeTable(0.0, np.array([1.0, 2.0]), np.array([9.0, 33.0]), np.array([20.0, 10.0]), 28)
    np.testing.assert_array_equal(table.at_risk, [100.0, 71.0, 28.0])
    np.testing.assert_allclose(table.survival, [0.9, 0.45])
    assert falls_to(0.5, 0.0, table.ends, table.survival, "actuarial") == pytest.approx(17 / 9)
    assert falls_to(0.5, 0.0, table.ends, table.survival, "product-limit") == 2.0
    assert math.isinf(falls_to(0.4, 0.0, table.ends, table.survival, "actuarial"))


def test_marks_other_than_zero_and_one_are_told() -> None:
    times, events = generated("plain")
    with pytest.raises(LocalError, match=r"labels are 0 or 1.*--positive 2"):
        KaplanMeier(upper=30.0).reference(holdings(times, events + 1))
    found = exactly(KaplanMeier(upper=30.0, positive=2.0), holdings(times, events + 1))
    np.testing.assert_array_equal(
        found.values(), exactly(KaplanMeier(upper=30.0), holdings(times, events)).values()
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"upper": 0.0}, "--lower 0 must be below --upper 0"),
        ({"upper": float("inf")}, "bounds must be finite"),
        ({"upper": 1.0, "event": "time"}, "cannot be both --time and --event"),
        ({"upper": 1.0, "thresholds": -1}, "--thresholds must be between"),
        ({"upper": 1.0, "at": (0.5, 0.5)}, "must rise"),
        ({"upper": 1.0, "at": (float("nan"),)}, "must rise"),
        ({"upper": 1.0, "at": (1.0,)}, "must lie within"),
        ({"upper": 1.0, "at": (0.5,), "thresholds": 5}, "does not match"),
        ({"upper": 1.0, "method": "cox"}, "method"),
        ({"upper": 1.0, "positive": float("nan")}, "--positive is a finite number"),
    ],
)
def test_bad_options_are_refused_in_one_line(options: dict[str, object], words: str) -> None:
    with pytest.raises(LocalError, match=words) as refusal:
        KaplanMeier(**options)  # type: ignore[arg-type]
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", [KaplanMeier, NelsonAalen])
def test_noisy_curves_are_curves(kind: type[SurvivalTable], shape: str) -> None:
    """Monotone, within what is possible, and in their intervals, whatever the noise was."""
    data = holdings(*generated(shape), 1)
    for seed in range(3):
        answer = noisily(kind(upper=30.0, thresholds=8), data, Fraction(1, 4), seed)
        assert isinstance(answer.estimate, TimeCurve)
        y, interval = answer.estimate.values(), answer.interval
        steps = np.diff(y) if kind is NelsonAalen else -np.diff(y)
        assert (steps >= 0).all()
        assert ((y >= 0) & (y <= (np.inf if kind is NelsonAalen else 1))).all()
        assert interval is not None
        assert (interval.low <= y + 1e-12).all()
        assert (y <= interval.high + 1e-12).all()
        assert answer.population is not None
        assert (answer.population.low <= interval.low + 1e-12).all()
        assert answer.estimate.table()[1][0][0] == pytest.approx(30 / 8)


def test_one_release_has_one_answer() -> None:
    data = holdings(*generated("plain"))
    one, two = (noisily(KaplanMeier(upper=30.0), data, Fraction(1), 5) for _ in range(2))
    assert one.interval is not None
    assert two.interval is not None
    np.testing.assert_array_equal(one.interval.low, two.interval.low)


def test_both_are_read_off_one_release() -> None:
    facts = Facts.of_one_server(500, epsilon=Fraction(1))
    plans = [kind(upper=9.0).plan(facts) for kind in (KaplanMeier, NelsonAalen)]
    assert plans[0].identity == plans[1].identity
    assert plans[0].reusable


def test_intervals_of_noise_and_population_cover() -> None:
    """95 % of 8 thresholds in 25 samples: the mean share has a standard error of about 2 %, as
    thresholds of one curve err alike; 5.5 of them below, and never 100 % of all."""
    generator = np.random.default_rng(12)
    asked = KaplanMeier(upper=20.0, thresholds=8)
    held: list[float] = []
    also: list[float] = []
    for seed in range(25):
        life, end = generator.exponential(14, 800), generator.uniform(0, 40, 800)
        data = holdings(np.minimum(life, end), (life <= end).astype(float))
        answer = noisily(asked, data, Fraction(1), seed)
        truth = asked.reference(data)
        assert isinstance(truth, TimeCurve)
        assert answer.interval is not None
        assert answer.population is not None
        raw = truth.beside(answer.estimate).values()
        wanted = np.exp(-asked.grid(8).x / 14)
        held += ((answer.interval.low <= raw) & (raw <= answer.interval.high)).tolist()
        both = answer.population
        also += ((both.low <= wanted) & (wanted <= both.high)).tolist()
    assert 0.84 <= np.mean(held) < 1
    assert 0.84 <= np.mean(also) < 1


@pytest.mark.parametrize("kind", [KaplanMeier, NelsonAalen])
def test_where_nobody_is_at_risk_the_interval_holds_the_last_value(
    kind: type[SurvivalTable],
) -> None:
    """All 800 are followed until 10 at most, and thresholds go on to 20: noise alone is at risk
    there. In 25 runs an interval of 95 % misses at the last threshold more than 9 times once in
    10^6."""
    generator = np.random.default_rng(13)
    asked = kind(upper=20.0, thresholds=8)
    missed = 0
    for seed in range(25):
        life, end = generator.exponential(14, 800), generator.uniform(0, 10, 800)
        data = holdings(np.minimum(life, end), (life <= end).astype(float))
        answer = noisily(asked, data, Fraction(1), seed)
        truth = asked.reference(data)
        assert isinstance(truth, TimeCurve)
        assert answer.interval is not None
        last = truth.beside(answer.estimate).values()[-1]
        missed += not answer.interval.low[-1] <= last <= answer.interval.high[-1]
    assert missed <= 9


@pytest.mark.parametrize(
    ("file", "columns", "upper", "most"),
    [
        ("lung", ("time", "status"), 1100.0, 0.045),
        ("gbsg2", ("time", "cens"), 2700.0, 0.016),
        ("actg175", ("days", "cens"), 1250.0, 0.005),
    ],
)
def test_the_error_on_real_data_with_one_noise(
    file: str, columns: tuple[str, str], upper: float, most: float
) -> None:
    """The mean over 8 runs of the root mean square over time, plus a third for chance."""
    path = DATA / f"{file}.csv.gz"
    if not path.exists():
        pytest.skip("the data set is not on this machine")
    table = pd.read_csv(path)
    times, marks = (table[name].to_numpy(dtype=float) for name in columns)
    data = holdings(times, (marks == marks.max()).astype(float))
    asked = KaplanMeier(upper=upper)
    truth, errors = asked.reference(data), []
    assert isinstance(truth, SurvivalCurve)
    for seed in range(8):
        estimate = noisily(asked, data, Fraction(1), seed).estimate
        assert isinstance(estimate, SurvivalCurve)
        errors.append(estimate.error(truth.beside(estimate))["over_time"])
    assert np.mean(errors) <= most * 4 / 3


def test_the_median_and_its_interval_are_told() -> None:
    times, events = generated("plain")
    answer = noisily(KaplanMeier(upper=30.0), holdings(times, events), Fraction(2), 1)
    estimate = answer.estimate
    assert isinstance(estimate, SurvivalCurve)
    assert estimate.ends_of_median is not None
    low, high = estimate.ends_of_median
    assert low <= estimate.median <= high
    told = estimate.as_json()
    assert isinstance(told, dict)
    assert told["median"] == estimate.median
    assert f"median {estimate.median:.6g}" in str(estimate)
    none = exactly(KaplanMeier(upper=1.0), holdings(times + 5, events))
    assert isinstance(none, SurvivalCurve)
    assert "not reached" in str(none)


ARMS: dict[str, Any] = {"by": ("arm",), "groups": {"arm": "0,1,2"}}


def by_arm(seed: int, size: int = 900) -> tuple[Holdings, list[float]]:
    """Two arms, a third that nobody is in, and some records that are in none; the mean lives."""
    generator = np.random.default_rng(seed)
    arm = generator.choice([0.0, 1.0, 7.0], size, p=[0.5, 0.4, 0.1])
    means = [10.0, 22.0]
    life = generator.exponential(np.where(arm == 1, means[1], means[0]))
    end = generator.uniform(5, 40, size)
    marks = (life <= end).astype(float)
    return deal({"time": np.minimum(life, end), "event": marks, "arm": arm}, 3), means


def of_each(answer: Answer) -> list[TimeCurve]:
    assert isinstance(answer.estimate, OfEachGroup)
    found = [each for each in answer.estimate.estimates if isinstance(each, TimeCurve)]
    assert len(found) == 3
    return found


@pytest.mark.parametrize("kind", [KaplanMeier, NelsonAalen])
def test_by_group_without_noise_it_is_the_curve_of_each_groups_records(
    kind: type[SurvivalTable],
) -> None:
    data, _ = by_arm(1, 300)
    data.columns["time"][:] = np.ceil(data.columns["time"])
    asked = kind(upper=30.0, thresholds=30, method="product-limit")
    answer = planned(grouped(asked, "time > 2", **ARMS)).noiseless(data)
    assert isinstance(answer, OfEachGroup)
    times, events, arm = (data.columns[name] for name in ("time", "event", "arm"))
    for place, found in enumerate(answer.estimates[:2]):
        inside = (arm == place) & (times > 2)
        alone = exactly(asked, holdings(times[inside], events[inside]))
        assert isinstance(found, TimeCurve)
        np.testing.assert_allclose(found.values(), alone.values(), atol=1e-12)
        assert found.as_json() == alone.as_json()
    nobody = answer.estimates[2]
    assert isinstance(nobody, TimeCurve)
    assert np.isnan(nobody.values()).all()


def test_by_group_intervals_cover_and_groups_cost_no_more_than_one() -> None:
    """As above: of both arms, 8 thresholds each in 20 samples."""
    asked = KaplanMeier(upper=20.0, thresholds=8)
    whole = grouped(asked, **ARMS)
    facts = Facts.of_one_server(900, epsilon=Fraction(1))
    assert whole.plan(facts).sensitivity == asked.plan(facts).sensitivity
    held: list[float] = []
    also: list[float] = []
    for seed in range(20):
        data, means = by_arm(seed)
        answer = noisily(whole, data, Fraction(1), seed)
        truth = whole.reference(data)
        assert isinstance(truth, OfEachGroup)
        raw = truth.beside(answer.estimate)
        assert answer.interval is not None
        assert answer.population is not None
        for place, mean in enumerate(means):
            part = slice(8 * place, 8 * place + 8)
            interval, both = answer.interval.part(part), answer.population.part(part)
            true = shape_of(raw.estimates[place]).values()
            held += ((interval.low <= true) & (true <= interval.high)).tolist()
            wanted = np.exp(-asked.grid(8).x / mean)
            also += ((both.low <= wanted) & (wanted <= both.high)).tolist()
    assert 0.84 <= np.mean(held) < 1
    assert 0.84 <= np.mean(also) < 1


def test_by_group_a_group_that_noise_alone_fills_has_an_answer() -> None:
    data, _ = by_arm(2)
    answer = noisily(grouped(KaplanMeier(upper=20.0), **ARMS), data, Fraction(1, 100), 3)
    for each in of_each(answer):
        assert np.isfinite(each.values()).all()
        assert (np.diff(each.values()) <= 0).all()


def test_curves_of_groups_are_drawn_over_one_another() -> None:
    from matplotlib.figure import Figure

    data, _ = by_arm(4)
    whole = grouped(KaplanMeier(upper=20.0), **ARMS)
    answer, truth = noisily(whole, data, Fraction(1), 5), whole.reference(data)
    axes = Figure().add_subplot()
    shape_of(answer.estimate).draw(axes, truth, Beside(interval=answer.interval))
    drawn = axes.get_legend_handles_labels()[1]
    assert drawn == ["0, truth", "0", "1, truth", "1", "2, truth", "2"]
    assert len(axes.collections) == 3
    written = [each.get_text() for each in axes.texts]
    assert written.count("at risk") == 1
    assert {"0", "1", "2"} <= set(written)
