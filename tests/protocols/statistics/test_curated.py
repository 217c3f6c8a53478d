"""Noise by smooth sensitivity through a real curator, and that nobody else may run it."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from sklearn import metrics

from tallyroom.protocols.algebra.ring import Vector, add_rows
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.offers import Offer
from tallyroom.protocols.plans.contract import Curated, NoisySum
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.pairs import PairwiseMean
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.privacy.smooth_sensitivity import SmoothNoise, local_auc, smooth_auc
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings, deal
from tallyroom.protocols.run.machines import check
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.areas import AveragePrecision
from tallyroom.protocols.statistics.class_counts import ClassCounts
from tallyroom.protocols.statistics.classifier_curves import Roc
from tallyroom.protocols.statistics.classifier_estimates import RocEstimate
from tallyroom.protocols.statistics.curated import CountsInBins, SmoothArea, binormal
from tallyroom.protocols.statistics.of_pairs import Auc
from tallyroom.protocols.statistics.planned import planned
from tallyroom.simulation.federation import Federation
from tests.every_statistic import EVERY
from tests.samples import a_query

AUC = Auc(lower=0.0, upper=1.0, method="smooth")
AVERAGE = AveragePrecision(lower=0.0, upper=1.0, method="smooth")
BINORMAL = Roc(lower=0.0, upper=1.0, method="binormal")


def curated(statistic: Statistic) -> Curated:
    plan = planned(statistic).plan
    assert isinstance(plan, Curated)
    return plan


def number(statistic: Statistic, released: Vector) -> float:
    found = planned(statistic).decode(released, 60)
    assert isinstance(found, float)
    return found


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
    mechanism = SmoothArea("auc")
    local = local_auc(5)
    value: dict[tuple[int, ...], float] = {
        data: float(mechanism.exact(counts_of(np.array(data), 3)))
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
    area = planned(AUC).noiseless(data)
    assert area == pytest.approx(metrics.roc_auc_score(labels, cells), abs=1e-12)
    average = planned(AVERAGE).noiseless(data)
    own = sorted(cells[labels == 1], reverse=True)
    others = cells[labels == 0]
    precisions = [hits / (hits + int((others >= at).sum())) for hits, at in enumerate(own, 1)]
    assert average == pytest.approx(sum(precisions) / len(own), abs=1e-12)


def test_average_precision_is_eq_2_of_s3() -> None:
    """By hand, and lower than scikit-learn's where positives tie with a negative."""
    scores = np.array([0.9, 0.8, 0.5, 0.5, 0.5, 0.1])
    labels = np.array([1.0, 0.0, 1.0, 0.0, 1.0, 0.0])
    data = deal({"score": scores, "label": labels}, 1)
    found = planned(AVERAGE).noiseless(data)
    assert isinstance(found, float)
    assert found == pytest.approx((1 + 2 / 4 + 3 / 5) / 3)
    assert found < metrics.average_precision_score(labels, scores)


@pytest.mark.parametrize("statistic", [AUC, AVERAGE, BINORMAL], ids=lambda each: each.name)
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
    statistic: Statistic, changes: dict[str, object], words: str
) -> None:
    """Whoever wrote the query: parties and servers build it from the wire."""
    with pytest.raises(LocalError, match=words):
        check(a_query(statistic=statistic, epsilon=Fraction(1), **changes))


def test_whatever_publishes_by_itself_is_neither_summed_nor_reported() -> None:
    """Whichever way its records are encoded: those may be measured and reported one by one."""
    plans = [each for each in map(planned, EVERY) if isinstance(each.plan, Curated)]
    assert len(plans) >= 9
    for each in plans:
        plan = each.plan
        assert (plan.needs, plan.measures, plan.measurement) == (Offer.CURATE, True, None)
        assert plan.noises == 1
        with pytest.raises(LocalError, match="no linear function"):
            plan.measure(np.zeros(plan.length, dtype=np.uint64))


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
@pytest.mark.parametrize("statistic", [AUC, AVERAGE], ids=lambda each: each.name)
def test_areas_are_near_the_truth_and_clipped(statistic: Statistic, delta: float) -> None:
    plan = curated(statistic)
    total = add_rows(plan.encode(holdings()).view(np.uint8))
    source = Randomness.from_seed(3, "release")
    precise = plan.mechanism.publish(total, Fraction(10**5), delta, source)
    truth = planned(statistic).noiseless(holdings())
    assert number(statistic, precise) == pytest.approx(truth, abs=1e-3)
    drawn = [plan.mechanism.publish(total, Fraction(1, 100), delta, source) for _ in range(30)]
    assert {number(statistic, each) for each in drawn} >= {0.0, 1.0}
    assert all(0 <= number(statistic, each) <= 1 for each in drawn)


@pytest.mark.parametrize("statistic", [AUC, AVERAGE], ids=lambda each: each.name)
@pytest.mark.parametrize("label", [0.0, 1.0])
def test_one_class_alone_has_a_defined_area(statistic: Statistic, label: float) -> None:
    plan = curated(statistic)
    data = deal({"score": np.array([0.1, 0.2, 0.3]), "label": np.full(3, label)}, 1)
    total = add_rows(plan.encode(data).view(np.uint8))
    found = plan.mechanism.publish(total, Fraction(1), 0.0, Randomness.from_seed(4, "one"))
    assert 0 <= number(statistic, found) <= 1


def test_methods_are_plans_of_their_own() -> None:
    asked = planned(Auc(method="curve", score="s", thresholds=32, lower=0.0, upper=1.0))
    assert isinstance(asked.plan, NoisySum)
    assert isinstance(asked.plan.encoding, ClassCounts)
    assert (asked.plan.encoding.scores, asked.plan.encoding.points) == (("s",), 32)
    assert isinstance(planned(Auc()).plan, PairwiseMean)
    assert isinstance(planned(AveragePrecision(lower=0.0, upper=1.0)).plan, NoisySum)
    assert curated(AVERAGE).mechanism == SmoothArea("average-precision")
    assert curated(AUC).mechanism == curated(BINORMAL).mechanism == SmoothArea("auc")
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
    drawn = planned(BINORMAL).noiseless(holdings())
    assert isinstance(drawn, RocEstimate)
    assert drawn.error(BINORMAL.reference(holdings()))["auc"] < 2e-3


@pytest.mark.parametrize("method", ["priroc", "priroc-fix"])
def test_bins_are_chosen_by_n_and_epsilon(method: str) -> None:
    for counts, epsilon, found in (
        ("hb", Fraction(1), 4),
        ("hb", Fraction(1, 5), 3),
        ("dawa", Fraction(1), 9),
        ("hb", None, 9),
    ):
        asked = Roc(lower=0.0, upper=1.0, counts=counts, method=method)
        plan = asked.plan(Facts.of_one_server(1000, 1, epsilon, False, b""))
        assert isinstance(plan, Curated)
        assert plan.mechanism == CountsInBins(found, counts, method == "priroc-fix")


ALPHA = 1e-7
RUNS = 1500


def releases_above(labels: list[int], at: float, runs: int, noise: SmoothNoise) -> int:
    """How often a curator's AUC of records 0 … n−1, in that order, comes out above."""
    mechanism = SmoothArea("auc")
    total = counts_of(np.arange(len(labels)) + 8 * np.array(labels), 8)
    return sum(
        number(
            AUC,
            mechanism.publish(
                total,
                noise.epsilon,
                noise.delta,
                Randomness.from_seed(run, f"curator {labels} {float(noise.epsilon):g}"),
            ),
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
