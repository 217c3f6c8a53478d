"""Noise by smooth sensitivity through a real curator, and that nobody else may run it."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from sklearn import metrics

from tallyroom.protocols.aggregation.curator import Curator
from tallyroom.protocols.aggregation.fss.aggregator import Fss
from tallyroom.protocols.algebra.ring import Vector, add_rows
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.contract import Curated
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.pairs import PairwiseMean
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.privacy.smooth_sensitivity import SmoothNoise, local_auc, smooth_auc
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings, deal
from tallyroom.protocols.run.machines import check
from tallyroom.protocols.statistics import Statistic, statistics
from tallyroom.protocols.statistics.areas import AveragePrecision, AveragePrecisionByCurve
from tallyroom.protocols.statistics.by_curator import ByCurator
from tallyroom.protocols.statistics.classifier_curves import Roc
from tallyroom.protocols.statistics.classifier_estimates import RocEstimate
from tallyroom.protocols.statistics.curated import (
    BinormalRoc,
    CuratedCounts,
    SmoothArea,
    SmoothAuc,
    SmoothAveragePrecision,
    binormal,
)
from tallyroom.protocols.statistics.of_pairs import Auc
from tallyroom.protocols.statistics.planned import planned
from tallyroom.protocols.statistics.private_thresholds import PriRoc, PriRocFix
from tallyroom.simulation.federation import Federation
from tests.samples import a_query

KINDS = (SmoothAuc, SmoothAveragePrecision, BinormalRoc)


def counts_of(cells: NDArray[np.int64], size: int) -> Vector:
    return np.cumsum(np.bincount(cells, minlength=2 * size)).astype(np.uint64)


def holdings(seed: int = 0, records: int = 60) -> Holdings:
    generator = np.random.default_rng(seed)
    labels = (generator.random(records) < 0.4).astype(float)
    scores = np.clip(generator.normal(0.4 + 0.2 * labels, 0.2), 0, 1)
    return deal({"score": scores, "label": labels}, 4)


def test_replacing_a_record_moves_a_tied_auc_by_its_local_sensitivity_at_most() -> None:
    """Over all data sets of five records in three cells of two classes, labels that flip included;
    and the bound is smooth."""
    statistic = SmoothAuc(lower=0.0, upper=1.0, thresholds=3)
    local = local_auc(5)
    value: dict[tuple[int, ...], float] = {
        data: statistic.number(counts_of(np.array(data), 3), exact=True)
        for data in itertools.combinations_with_replacement(range(6), 5)
    }
    beta = 0.3
    for data, here in value.items():
        positives = sum(cell >= 3 for cell in data)
        smooth = smooth_auc(positives, 5 - positives, beta)
        for place, cell in itertools.product(range(5), range(6)):
            other = tuple(sorted((*data[:place], cell, *data[place + 1 :])))
            theirs = sum(each >= 3 for each in other)
            assert abs(value[other] - here) <= local[positives] + 1e-12
            assert smooth <= math.exp(beta) * smooth_auc(theirs, 5 - theirs, beta) + 1e-12


@pytest.mark.parametrize("seed", range(4))
def test_without_noise_they_are_scikit_learns_on_the_steps(seed: int) -> None:
    data = holdings(seed)
    cells = np.searchsorted(np.arange(1, 1025) / 1024, data.column("score"))
    labels = data.column("label")
    area = SmoothAuc(lower=0.0, upper=1.0).noiseless(data)
    assert area == pytest.approx(metrics.roc_auc_score(labels, cells), abs=1e-12)
    average = SmoothAveragePrecision(lower=0.0, upper=1.0).noiseless(data)
    own = sorted(cells[labels == 1], reverse=True)
    others = cells[labels == 0]
    precisions = [hits / (hits + int((others >= at).sum())) for hits, at in enumerate(own, 1)]
    assert average == pytest.approx(sum(precisions) / len(own), abs=1e-12)


def test_average_precision_is_eq_2_of_s3() -> None:
    """By hand, and lower than scikit-learn's where positives tie with a negative."""
    scores = np.array([0.9, 0.8, 0.5, 0.5, 0.5, 0.1])
    labels = np.array([1.0, 0.0, 1.0, 0.0, 1.0, 0.0])
    data = deal({"score": scores, "label": labels}, 1)
    found = SmoothAveragePrecision(lower=0.0, upper=1.0, thresholds=10).noiseless(data)
    assert found == pytest.approx((1 + 2 / 4 + 3 / 5) / 3)
    assert found < metrics.average_precision_score(labels, scores)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"aggregator": "additive", "servers": 2, "noise": Placement.EACH_SERVER}, "curator"),
        ({"aggregator": "masking", "servers": 1, "noise": Placement.CURATOR}, "curator"),
        ({"aggregator": "curator", "servers": 1, "noise": Placement.PARTIES}, "curator"),
        (
            {
                "servers": 1,
                "noise": Placement.CURATOR,
                "aggregator": "curator",
                "records_per_unit": 2,
            },
            "unit record",
        ),
    ],
)
def test_no_query_puts_them_to_anybody_but_a_curator(
    kind: type[CuratedCounts], changes: dict[str, object], words: str
) -> None:
    """Whoever wrote the query: parties and servers build it from the wire."""
    statistic = kind(lower=0.0, upper=1.0)
    with pytest.raises(LocalError, match=words):
        check(a_query(statistic=statistic, epsilon=Fraction(1), **changes))
    with pytest.raises(LocalError, match="no linear function"):
        statistic.measure(np.zeros(statistic.length, dtype=np.uint64))


def test_whatever_publishes_by_itself_is_neither_summed_nor_reported() -> None:
    """Whichever statistic it refines: that one may be measured, and reported record by record."""
    found = [kind for kind in statistics().values() if kind.published is not Statistic.published]
    assert len(found) >= 9
    for kind in found:
        assert kind.curated, kind
        for name in ("measure", "measures", "measurement", "noises"):
            assert getattr(kind, name) is getattr(ByCurator, name), (kind, name)


@pytest.mark.parametrize(("delta", "words"), [(0.0, "Cauchy, δ = 0"), (1e-6, "Laplace, δ = 1e-06")])
def test_the_answer_says_what_noise_it_has_and_whom_one_trusts(delta: float, words: str) -> None:
    data = dict(holdings().columns)
    with Federation(parties=4, aggregator="curator", data=data, seed=1) as federation:
        result = federation.run(Auc(method="smooth", lower=0.0, upper=1.0), "2", delta=delta)
    assert result.statistic == "auc"
    assert words in result.privacy.mechanism
    assert "curator" in result.privacy.threat_model
    assert result.privacy.delta == delta
    assert isinstance(result.estimate, float)
    assert 0 <= result.estimate <= 1
    assert np.isnan(result.deviations).all()


@pytest.mark.parametrize("delta", [0.0, 1e-4])
@pytest.mark.parametrize("kind", [SmoothAuc, SmoothAveragePrecision])
def test_areas_are_near_the_truth_and_clipped(kind: type[SmoothArea], delta: float) -> None:
    statistic = kind(lower=0.0, upper=1.0)
    total = add_rows(statistic.encode(holdings()).view(np.uint8))
    source = Randomness.from_seed(3, "release")
    precise = statistic.published(total, Fraction(10**5), delta, source)
    truth = statistic.noiseless(holdings())
    assert statistic.number(precise, exact=False) == pytest.approx(truth, abs=1e-3)
    drawn = [statistic.published(total, Fraction(1, 100), delta, source) for _ in range(30)]
    assert {statistic.number(each, exact=False) for each in drawn} >= {0.0, 1.0}
    assert all(0 <= statistic.number(each, exact=False) <= 1 for each in drawn)


@pytest.mark.parametrize("kind", [SmoothAuc, SmoothAveragePrecision])
@pytest.mark.parametrize("label", [0.0, 1.0])
def test_one_class_alone_has_a_defined_area(kind: type[SmoothArea], label: float) -> None:
    statistic = kind(lower=0.0, upper=1.0)
    data = deal({"score": np.array([0.1, 0.2, 0.3]), "label": np.full(3, label)}, 1)
    total = add_rows(statistic.encode(data).view(np.uint8))
    found = statistic.published(total, Fraction(1), 0.0, Randomness.from_seed(4, "one"))
    assert 0 <= statistic.number(found, exact=False) <= 1


def test_methods_have_plans_and_statistics_of_their_own() -> None:
    plan = planned(Auc(method="curve", score="s", thresholds=32, lower=0.0, upper=1.0)).plan
    assert (plan.columns, plan.length) == (("s", "label"), 2 * 32)
    assert isinstance(planned(Auc()).plan, PairwiseMean)
    assert isinstance(planned(Auc(method="smooth", lower=0.0, upper=1.0)).plan, Curated)
    assert type(AveragePrecision().asked_of(Fss.offers)) is AveragePrecisionByCurve
    assert type(AveragePrecision(method="smooth").asked_of(frozenset())) is SmoothAveragePrecision
    assert type(Roc(method="binormal").asked_of(Curator.offers)) is BinormalRoc
    for kind, name in ((Auc, "method"), (Roc, "method"), (AveragePrecision, "method")):
        with pytest.raises(LocalError, match="no method 'best'"):
            kind(**{name: "best"})  # type: ignore[arg-type]


def test_a_binormal_curve_has_its_area() -> None:
    x = np.linspace(0, 1, 20001)
    for area in (0.5, 0.7, 0.9):
        y = binormal(area, x)
        assert (y[0], y[-1]) == (0.0, 1.0)
        assert np.trapezoid(y, x) == pytest.approx(area, abs=1e-3)
        # Symmetric about the line y = 1 − x: (x, y) and (1 − y, 1 − x) are both on it.
        np.testing.assert_allclose(binormal(area, 1 - y)[1:-1], 1 - x[1:-1], atol=1e-6)
    assert binormal(1.0, x)[1:].min() == 1.0
    assert binormal(0.0, x)[:-1].max() == 0.0
    drawn = BinormalRoc(lower=0.0, upper=1.0).noiseless(holdings())
    assert isinstance(drawn, RocEstimate)
    assert drawn.error(BinormalRoc(lower=0.0, upper=1.0).reference(holdings()))["auc"] < 2e-3


@pytest.mark.parametrize("kind", [PriRoc, PriRocFix])
def test_bins_are_chosen_by_n_and_epsilon_unless_somebody_says(
    kind: type[PriRoc | PriRocFix],
) -> None:
    for counts, depth, epsilon, found in (
        ("hb", 0, Fraction(1), 4),
        ("hb", 0, Fraction(1, 5), 3),
        ("dawa", 0, Fraction(1), 9),
        ("hb", 0, None, 9),
        ("hb", 6, Fraction(1), 6),
    ):
        asked = kind(lower=0.0, upper=1.0, counts=counts, depth=depth)
        known = Facts.of_one_server(1000, 1, epsilon, False, b"")
        assert asked.prepared(known).depth == found


ALPHA = 1e-7
RUNS = 1500


def releases_above(labels: list[int], at: float, runs: int, noise: SmoothNoise) -> int:
    """How often a curator's AUC of records 0 … n−1, in that order, comes out above."""
    statistic = SmoothAuc(lower=0.0, upper=1.0, thresholds=8)
    total = counts_of(np.arange(len(labels)) + 8 * np.array(labels), 8)
    return sum(
        statistic.number(
            statistic.published(
                total,
                noise.epsilon,
                noise.delta,
                Randomness.from_seed(run, f"curator {labels} {float(noise.epsilon):g}"),
            ),
            exact=False,
        )
        > at
        for run in range(runs)
    )


def as_stated(noise: SmoothNoise) -> bool:
    """Whether data sets that differ in a flipped label come out above a value as often as the
    stated noise has it, and those chances within ε of each other."""
    kind = stats.laplace if noise.delta else stats.cauchy
    right, chances = [], []
    for labels, area in (([0, 0, 0, 1, 1, 1, 1, 1], 1.0), ([1, 0, 0, 1, 1, 1, 1, 1], 10 / 12)):
        positives = sum(labels)
        factor = 2 / float(noise.epsilon) if noise.delta else 1 / (2 * math.sinh(2))
        scale = factor * smooth_auc(positives, 8 - positives, noise.beta)
        chance = float(kind.sf((0.6 - area) / scale))
        seen = releases_above(labels, 0.6, RUNS, noise)
        low, high = (float(stats.binom.ppf(at, RUNS, chance)) for at in (ALPHA, 1 - ALPHA))
        right.append(low <= seen <= high)
        chances += [chance, 1 - chance]
    ratios = (chances[0] / chances[2], chances[1] / chances[3])
    assert max(abs(math.log(ratio)) for ratio in ratios) <= float(noise.epsilon)
    return all(right)


NOISES = (SmoothNoise(Fraction(4)), SmoothNoise(Fraction(4), 1e-3))


@pytest.mark.parametrize("noise", NOISES, ids=("Cauchy", "Laplace"))
def test_a_flipped_label_is_hidden_by_the_stated_noise(noise: SmoothNoise) -> None:
    """A right program fails with probability 4·ALPHA; half the noise escapes as rarely."""
    assert as_stated(noise)


@pytest.mark.parametrize("noise", NOISES, ids=("Cauchy", "Laplace"))
def test_halved_noise_is_caught(monkeypatch: pytest.MonkeyPatch, noise: SmoothNoise) -> None:
    full = SmoothNoise.scale
    monkeypatch.setattr(SmoothNoise, "scale", lambda self, smooth: full(self, smooth) / 2)
    assert not as_stated(noise)
