"""How many thresholds a classifier's curves have and where they lie: by what is public alone."""

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike
from sklearn import metrics
from sklearn.metrics import roc_curve

from tallyroom.parties.dataset import Dataset
from tallyroom.parties.models import SEED, scored
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.contract import NoisySum
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.records import Column, Holdings, deal
from tallyroom.protocols.statistics.areas import Area, AucOfCounts, AveragePrecision
from tallyroom.protocols.statistics.class_counts import ClassCounts, shares_of
from tallyroom.protocols.statistics.classifier_curves import ClassifierCurves, PrCurve, Roc
from tallyroom.protocols.statistics.classifier_estimates import (
    Judgement,
    PrecisionRecallEstimate,
    RocEstimate,
)
from tallyroom.protocols.statistics.estimates import shape_of
from tallyroom.protocols.statistics.of_pairs import Auc
from tallyroom.protocols.statistics.planned import laplace_noise, planned
from tallyroom.protocols.statistics.score_thresholds import (
    by_rank,
    every,
    followed_points,
    points_for,
)
from tallyroom.simulation import Federation
from tallyroom.simulation.command.run import with_pilot


def known(records: int, epsilon: Fraction | None = Fraction(1)) -> Facts:
    return Facts.of_one_server(records, 1, epsilon, False, bytes(32))


def counts(asked: ClassifierCurves, facts: Facts | None = None) -> ClassCounts:
    """As it is asked of those records, by a curve."""
    plan = planned(asked, facts).plan
    assert isinstance(plan, NoisySum)
    assert isinstance(plan.encoding, ClassCounts)
    return plan.encoding


def public(scores: ArrayLike) -> Holdings:
    values: Column = np.array(scores, dtype=np.float64)
    labels: Column = (np.arange(len(values)) % 2).astype(np.float64)
    return deal({"score": values, "label": labels}, 1)


# --- how many ---


@given(st.integers(1, 10**7), st.fractions(Fraction(1, 1000), 100))
def test_as_many_as_the_root_of_records_times_epsilon(records: int, epsilon: Fraction) -> None:
    found = points_for(records, epsilon)
    assert found & (found - 1) == 0
    root = math.sqrt(records * epsilon)
    if 9 < root < 1020:
        assert found <= root * (1 + 1e-9) < 2 * found * (1 + 1e-9)
    assert 8 <= found <= 1024


@pytest.mark.parametrize("kind", [Roc, PrCurve, AucOfCounts, AveragePrecision])
def test_thresholds_that_nobody_chose_follow_from_records_and_epsilon(
    kind: type[ClassifierCurves],
) -> None:
    asked = kind(lower=0.0, upper=1.0)
    assert counts(asked, known(10_000)).points == 64
    assert counts(asked, known(10_000, Fraction(1, 100))).points == 8
    assert counts(asked, known(10_000, None)).points == 256
    of_parties = replace(known(10_000), records_per_unit=16)  # noise is that of ε/16
    assert counts(asked, of_parties).points == 16
    assert counts(kind(lower=0.0, upper=1.0, thresholds=5), known(10_000)).points == 5


# --- where ---


def test_thresholds_follow_ranks_and_are_denser_at_high_scores() -> None:
    scores = np.random.default_rng(1).beta(1, 9, 20_000)
    found = np.array(by_rank(scores, 0.0, 1.0))
    assert len(found) == 255
    above = np.array([(scores >= at).mean() for at in found])[::-1]
    gaps = np.diff(above, prepend=0.0)
    assert gaps[:20].max() < 1 / 256 < gaps[-20:].min()
    assert gaps.max() < 3 / 256  # nowhere are there none: a part is even in ranks


@given(
    st.lists(st.floats(-2, 2), min_size=1, max_size=40),
    st.integers(2, 400),
)
def test_whatever_the_scores_thresholds_rise_within_the_bounds(
    scores: list[float], points: int
) -> None:
    found = by_rank(np.clip(scores, -1, 1), -1.0, 1.0)
    assert set(found) <= set(np.clip(scores, -1, 1).tolist())
    assert len(found) <= 255
    assert all(-1 <= each < 1 for each in found)
    chosen = every(found, points)
    assert list(chosen) == sorted(set(chosen))
    assert set(chosen) <= set(found)
    assert len(chosen) == min(points - 1, len(found))


def test_a_pilot_places_a_quarter_as_many() -> None:
    rng = np.random.default_rng(2)
    piloted = Roc(lower=0.0, upper=1.0).planned_by(public(rng.beta(1, 9, 5000)), {})
    asked = counts(piloted, known(10_000))
    assert (asked.points, len(asked.at)) == (16, 15)
    assert followed_points(64) == 16
    assert asked.x[-1] == 1.0
    assert asked.at[7] < 0.2  # where the scores are
    more = counts(replace(piloted, thresholds=100), known(10_000))
    assert more.points == 100
    assert repr(more) != repr(asked)


def test_a_pilot_follows_the_scores_of_all_columns() -> None:
    columns = {"a": np.full(50, 0.1), "b": np.full(50, 0.9), "label": np.arange(50) % 2.0}
    asked = Roc(lower=0.0, upper=1.0, score=("a", "b")).planned_by(deal(columns, 1), {})
    assert asked.pilot_scores == (0.1, 0.9)


@pytest.mark.parametrize(
    ("asked", "scores", "words"),
    [
        (Roc(lower=0.0, upper=1.0, at=(0.5,)), [0.1, 0.2], "leave --at out"),
        (Roc(lower=0.0, upper=1.0, strategy="tree"), [0.1, 0.2], "evenly spaced"),
        (Roc(lower=0.0, upper=1.0), [1.0, 1.0], "all at one end"),
        (Roc(lower=0.0, upper=1.0), [0.1, math.nan], "not finite"),
        (Roc(), [0.1, 0.2], "needs public bounds"),
        (Auc(lower=0.0, upper=1.0, method="curve"), [0.1, 0.2], "leave it out with --method"),
    ],
)
def test_pilots_that_are_refused(asked: Roc | Auc, scores: list[float], words: str) -> None:
    with pytest.raises(LocalError, match=words):
        asked.planned_by(public(scores), {})


# --- thresholds that are given ---


@pytest.mark.parametrize(
    "at", [(0.5, 0.5), (0.7, 0.2), (-0.1,), (1.0,), (math.nan,), (math.inf,), (0.5, math.nan)]
)
@pytest.mark.parametrize("field", ["at", "pilot_scores"])
def test_thresholds_that_are_none(at: tuple[float, ...], field: str) -> None:
    with pytest.raises(LocalError, match="threshold"):
        Roc(lower=0.0, upper=1.0, **{field: at})  # type: ignore[arg-type]


def test_as_many_thresholds_as_are_given() -> None:
    with pytest.raises(LocalError, match="does not match 1 of --at"):
        Roc(lower=0.0, upper=1.0, thresholds=3, at=(0.4,))
    with pytest.raises(LocalError, match="too many"):
        Roc(lower=0.0, upper=1.0, at=tuple(np.linspace(0.0, 0.9, 1 << 16).tolist()))
    assert counts(Roc(lower=0.0, upper=1.0, at=(0.4,)), known(10**6)).points == 2


def test_a_curator_needs_none() -> None:
    for asked in (
        Roc(lower=0.0, upper=1.0, at=(0.5,), method="priroc"),
        AveragePrecision(lower=0.0, upper=1.0, at=(0.5,), method="smooth"),
    ):
        with pytest.raises(LocalError, match="--at is for curves without a curator"):
            planned(asked).plan  # noqa: B018


def test_other_thresholds_are_another_release() -> None:
    one, two = (planned(Roc(lower=0.0, upper=1.0, at=(each,))).plan for each in (0.4, 0.5))
    assert one.identity != two.identity
    assert one.identity != planned(Roc(lower=0.0, upper=1.0, thresholds=2)).plan.identity


def test_a_run_has_the_truth_of_its_own_thresholds() -> None:
    """Chosen by nobody, without noise: the curve is scikit-learn's at the thresholds, and so is
    the truth that it is compared with."""
    with Federation(3, data="synthetic:scores?n=300", seed=1) as federation:
        found = federation.run(Roc(), "inf")
        noisy = federation.run(Roc(), 40)
        score, label = (federation.holdings.column(name) for name in ("score", "label"))
    assert isinstance(found.estimate, RocEstimate)
    [each] = found.estimate.named.values()
    assert len(each.thresholds) == 257
    false, true, at = roc_curve(label, score, drop_intermediate=False)
    for place, threshold in enumerate(each.thresholds):
        last = np.flatnonzero(at > threshold)[-1]
        assert each.false_positive[place] == pytest.approx(false[last])
        assert each.true_positive[place] == pytest.approx(true[last])
    assert isinstance(noisy.estimate, RocEstimate)
    assert isinstance(noisy.truth, RocEstimate)
    [told], [true_one] = noisy.estimate.named.values(), noisy.truth.named.values()
    assert len(told.thresholds) == len(true_one.thresholds) == 65  # √(300·40) = 109
    assert noisy.error is not None
    assert noisy.error["max"] < 0.2


def test_the_area_between_curves_counts_what_lies_between_thresholds() -> None:
    """Four thresholds without noise: at them nothing is off, between them the curve is."""
    with Federation(3, data="synthetic:scores?n=300", seed=1) as federation:
        found = federation.run(Roc(thresholds=4), "inf")
        score, label = (federation.holdings.column(name) for name in ("score", "label"))
    false, true, _ = roc_curve(label, score)
    at = (np.arange(200_000) + 0.5) / 200_000
    rates = [
        [(score[label == of] > each).mean() for each in (1, 0.75, 0.5, 0.25, -1)] for of in (0, 1)
    ]
    apart = np.abs(np.interp(at, false, true) - np.interp(at, rates[0], rates[1])).mean()
    assert found.error is not None
    assert found.error["max"] == pytest.approx(0, abs=1e-12)
    assert found.error["symmetric_difference"] == pytest.approx(apart, rel=1e-3)
    assert apart > 0.01


def test_precision_where_nothing_is_taken_is_that_of_the_nearest_threshold() -> None:
    scores = np.array([0.1, 0.3, 0.4, 0.45])
    found = PrCurve(lower=0.0, upper=1.0, thresholds=4).reference(
        deal({"score": scores, "label": np.array([0.0, 1.0, 0.0, 1.0])}, 1)
    )
    assert isinstance(found, PrecisionRecallEstimate)
    [each] = found.named.values()
    assert each.precision.tolist() == pytest.approx([1 / 2, 2 / 3, 2 / 3, 2 / 3, 2 / 3])


def scored_with(folder: Path, moved: float) -> Dataset:
    """A model's scores, where the half that it does not train on has values that far away."""
    generator = np.random.default_rng(1)
    x = generator.normal(size=400)
    positive = generator.random(400) < 1 / (1 + np.exp(-2 * x))
    held = np.random.default_rng(SEED).permutation(400)[200:]
    x[held] += moved
    path = folder / "data.csv"
    path.write_text("x,y\n" + "".join(f"{a},{int(b)}\n" for a, b in zip(x, positive, strict=True)))
    return scored(f"{path}?label=y", "logistic")


def test_a_models_training_half_places_the_thresholds(tmp_path: Path) -> None:
    """And nothing of the other half does: other records there, the same thresholds."""
    one, two = (scored_with(tmp_path, moved) for moved in (0.0, 5.0))
    assert np.abs(one.columns["score"] - two.columns["score"]).mean() > 0.1
    asked = [with_pilot(Roc(), None, each) for each in (one, two)]
    assert asked[0] == asked[1]
    assert isinstance(asked[0], Roc)
    assert set(asked[0].pilot_scores) <= set(one.public["score"].tolist())
    assert len(asked[0].pilot_scores) > 100
    for chosen in (Roc(lower=0.0, upper=1.0, thresholds=7), AveragePrecision()):
        assert with_pilot(chosen, None, one) == chosen


def test_a_curator_takes_no_thresholds_of_public_data(tmp_path: Path) -> None:
    """A pilot that is named is refused, not left out in silence; a model's own is not used."""
    for asked in (
        Roc(lower=0.0, upper=1.0, method="priroc"),
        Roc(lower=0.0, upper=1.0, method="binormal"),
        AveragePrecision(lower=0.0, upper=1.0, method="smooth"),
    ):
        with pytest.raises(LocalError, match="--pilot is for curves without a curator"):
            planned(asked.planned_by(public([0.1, 0.2]), {})).plan  # noqa: B018
        assert with_pilot(asked, None, scored_with(tmp_path, 0.0)) == asked


def test_a_pilot_may_lack_scores_that_it_says_to_drop(tmp_path: Path) -> None:
    path = tmp_path / "pilot.csv"
    path.write_text("score,label\n0.2,1\n,0\n0.4,0\n")
    asked = with_pilot(Roc(lower=0.0, upper=1.0), f"csv:{path}?missing=drop", None)
    assert isinstance(asked, Roc)
    assert asked.pilot_scores == (0.2, 0.4)
    with pytest.raises(LocalError, match="not finite"):
        with_pilot(Roc(lower=0.0, upper=1.0), f"csv:{path}", None)


def test_the_grid_is_as_wide_as_the_widest_gap() -> None:
    assert counts(Roc(lower=0.0, upper=1.0, thresholds=4)).grid_step == 0.25
    assert counts(Roc(lower=0.0, upper=1.0, at=(0.125, 0.25))).grid_step == 0.75
    assert counts(Roc(lower=-1.0, upper=1.0, at=(0.5, 0.75))).grid_step == 1.5


@pytest.mark.parametrize("kind", [AucOfCounts, AveragePrecision])
@pytest.mark.parametrize("thresholds", [1, 4, 16])
def test_the_interval_of_an_area_covers_the_order_between_thresholds(
    kind: type[Area], thresholds: int
) -> None:
    """Few thresholds, hardly any noise, and nearly all scores below the first: what is off is the
    order of the scores between thresholds. The interval of the noise alone misses the truth."""
    asked = planned(kind(lower=0.0, upper=1.0, thresholds=thresholds))
    generator = np.random.default_rng(3)
    scores = generator.beta(1, 30, 2000)
    held = deal({"score": scores, "label": (generator.random(2000) < scores).astype(np.float64)}, 1)
    released = asked.plan.measure(asked.total(held))
    answer = asked.read(released, 2000, laplace_noise(0.01))
    truth = shape_of(asked.statistic.reference(held)).values()
    assert answer.interval is not None
    assert (answer.interval.low <= truth).all()
    assert (truth <= answer.interval.high).all()
    estimate = shape_of(answer.estimate).values()
    assert (estimate + 3 * answer.interval.errors < truth).all()
    assert "the interval covers an order" in asked.plan.grid_words


def test_areas_in_perfect_order_are_scikit_learns() -> None:
    """Of scores that are moved up by their label, where that leaves their cell as it was."""
    generator = np.random.default_rng(8)
    cells, positive = generator.integers(0, 6, 3000), generator.random(3000) < 0.3
    x = np.arange(6.0)
    found = Judgement.of(shares_of(cells.astype(float), positive, x), x, "youden")
    parted = cells + 0.5 * positive
    assert found.perfect_auc == pytest.approx(metrics.roc_auc_score(positive, parted))
    expected = metrics.average_precision_score(positive, parted + generator.random(3000) / 4)
    assert found.perfect_average_precision == pytest.approx(expected, abs=1e-3)
