"""ROC and precision–recall curves without noise against scikit-learn, and what they refuse."""

import warnings

import numpy as np
import pytest
from sklearn import metrics

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.records import Column, Holdings, deal
from tallyroom.protocols.statistics.areas import AveragePrecision
from tallyroom.protocols.statistics.classifier_curves import PrCurve, Roc
from tallyroom.protocols.statistics.classifier_estimates import (
    Judgement,
    Judgements,
    area_between,
    cost_of,
)
from tallyroom.protocols.statistics.planned import planned


def holdings(scores: Column, labels: Column, parties: int = 3) -> Holdings:
    return deal({"score": scores, "label": labels}, parties)


def told(kind: type[Roc] | type[PrCurve], data: Holdings, **options: object) -> Judgement:
    statistic = planned(kind(lower=0.0, upper=1.0, **options))  # type: ignore[arg-type]
    estimate = statistic.decode(statistic.total(data), data.rows, exact=True)
    assert isinstance(estimate, Judgements)
    return estimate.named["score"]


def generated(kind: str) -> tuple[Column, Column]:
    generator = np.random.default_rng(11)
    labels = (generator.random(200) < 0.3).astype(float)
    scores = 1 / (1 + np.exp(-generator.normal(2 * labels - 1)))
    match kind:
        case "ties":
            scores = np.round(scores, 1)
        case "two values":
            scores = np.round(scores)
        case "one positive":
            labels = (np.arange(200) == 3).astype(float)
        case "inverted":
            labels = 1 - labels
        case "all equal":
            scores = np.full(200, 0.4)
        case "perfect":
            scores = 0.2 + 0.6 * labels
    return scores, labels


SHAPES = ("plain", "ties", "two values", "one positive", "inverted", "all equal", "perfect")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("thresholds", [1, 7, 64])
def test_without_noise_curves_are_scikit_learns_on_the_thresholds(
    shape: str, thresholds: int
) -> None:
    """Average precision is the mean over orders of the records between the same two thresholds."""
    scores, labels = generated(shape)
    found = told(Roc, holdings(scores, labels), thresholds=thresholds)
    # A score is known by the first threshold that it is at most.
    cells = np.searchsorted(np.arange(1, thresholds + 1) / thresholds, scores)
    false, true, at = metrics.roc_curve(labels, cells, drop_intermediate=False)
    for x, y, cell in zip(false[1:], true[1:], at[1:], strict=True):
        place = int(cell)  # above threshold τ_cell, counted from −∞: the same records
        assert found.false_positive[place] == pytest.approx(x, abs=1e-12)
        assert found.true_positive[place] == pytest.approx(y, abs=1e-12)
    assert (found.false_positive[-1], found.true_positive[-1]) == (0.0, 0.0)
    assert found.auc == pytest.approx(metrics.roc_auc_score(labels, cells), abs=1e-12)
    if labels.sum() > 2:  # of a few positives the mean precision is not smooth in their ranks
        generator = np.random.default_rng(1)
        drawn = [
            metrics.average_precision_score(labels, cells + generator.random(len(cells)))
            for _ in range(300)
        ]
        deviation = np.std(drawn) / np.sqrt(300)
        assert found.average_precision == pytest.approx(np.mean(drawn), abs=0.005 + 5 * deviation)
    precision, recall, at = metrics.precision_recall_curve(labels, cells)
    for p, r, cell in zip(precision, recall, at, strict=False):
        assert found.precision[int(cell)] == pytest.approx(p, abs=1e-12)
        assert found.true_positive[int(cell)] == pytest.approx(r, abs=1e-12)
    assert (found.negatives, found.positives) == ((labels == 0).sum(), labels.sum())


def test_the_truth_has_scikit_learns_area() -> None:
    scores, labels = generated("plain")
    truth = Roc(lower=0.0, upper=1.0, thresholds=4).reference(holdings(scores, labels))
    assert isinstance(truth, Judgements)
    assert truth.named["score"].auc == metrics.roc_auc_score(labels, scores)


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_rates_of_a_class_without_records_are_no_numbers(label: float) -> None:
    """As scikit-learn's, which warns."""
    scores = np.linspace(0.1, 0.9, 9)
    found = told(Roc, holdings(scores, np.full(9, label)), thresholds=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        false, true, _ = metrics.roc_curve(np.full(9, label), scores)
    missing = found.false_positive if label else found.true_positive
    assert np.isnan(missing[1:]).all()
    assert np.isnan(false).all() == bool(label)
    assert np.isnan(true).all() != bool(label)
    assert np.isnan(found.auc)


@pytest.mark.parametrize("strategy", ["hierarchy", "tree"])
def test_a_noisy_release_of_one_class_is_a_curve(strategy: str) -> None:
    statistic = planned(Roc(lower=0.0, upper=1.0, thresholds=16, strategy=strategy))
    plan = statistic.plan
    data = holdings(np.linspace(0.1, 0.9, 50), np.zeros(50))
    total = plan.measure(statistic.total(data))
    noise = np.random.default_rng(2).integers(-20, 20, plan.noises).view(np.uint64)
    estimate = statistic.decode(total + plan.place(noise), 50)
    assert isinstance(estimate, Judgements)
    found = estimate.named["score"]
    assert found.monotone
    assert np.isfinite(estimate.values()).all()
    assert found.positives >= 1
    assert (found.positives == 1) == ("hardly any positive records" in str(estimate))
    assert str(found.auc)[0] != "-"
    assert ((estimate.values() >= 0) & (estimate.values() <= 1)).all()


def test_the_best_threshold_by_youden_and_by_cost() -> None:
    scores = np.array([0.1, 0.3, 0.35, 0.4, 0.6, 0.7, 0.9])
    labels = np.array([0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0])
    data = holdings(scores, labels)

    def best(by: str) -> float:
        found = told(Roc, data, thresholds=20, best=by)
        return float(found.thresholds[found.best_place])

    assert best("youden") == pytest.approx(0.3)  # 1 − 1/3, against 1/2 − 0 at 0.6
    assert best("cost=10") == pytest.approx(0.6)  # no false positive: two positives are given up
    assert best("cost=0.1") == pytest.approx(0.3)


@pytest.mark.parametrize("best", ["", "cost=", "cost=0", "cost=-1", "cost=nan", "f1", "cost=1e99"])
def test_a_best_threshold_by_nothing_known_is_refused(best: str) -> None:
    with pytest.raises(LocalError, match="--best is youden, or cost=R"):
        cost_of(best)


def test_the_area_between_curves() -> None:
    diagonal = np.array([0.0, 1.0]), np.array([0.0, 1.0])
    corner = np.array([0.0, 0.0, 1.0]), np.array([0.0, 1.0, 1.0])
    stairs = np.array([0.0, 0.5, 0.5, 1.0]), np.array([0.0, 0.0, 1.0, 1.0])
    assert area_between(diagonal, corner) == pytest.approx(0.5)
    assert area_between(corner, corner) == 0.0
    assert area_between(diagonal, stairs) == pytest.approx(0.25)  # on both sides of it
    backwards = corner[0][::-1], corner[1][::-1]
    assert area_between(diagonal, backwards) == pytest.approx(0.5)
    generator = np.random.default_rng(4)
    one, two = (
        (np.sort(np.append(generator.random(9), [0, 1])), np.sort(generator.random(11)))
        for _ in range(2)
    )
    x = np.linspace(0, 1, 400001)
    by_grid = np.abs(np.interp(x, *one) - np.interp(x, *two)).mean()
    assert area_between(one, two) == pytest.approx(by_grid, abs=1e-5)


@pytest.mark.parametrize(
    ("labels", "positive", "words"),
    [
        ([1.0, 2.0, 2.0], None, "labels are 0 or 1: column 'label' has 1, 2; .*positive 2"),
        ([-1.0, 1.0, 1.0], None, "has -1, 1; name the positive one: --positive 1"),
        ([0.0, np.nan, 1.0], None, "missing or not finite"),
        ([0.0, np.nan, 1.0], 1.0, "missing or not finite"),
    ],
)
def test_labels_that_are_no_classes_are_refused(
    labels: list[float], positive: float | None, words: str
) -> None:
    data = holdings(np.array([0.1, 0.2, 0.3]), np.array(labels))
    with pytest.raises(LocalError, match=words):
        Roc(lower=0.0, upper=1.0, positive=positive).reference(data)


def test_the_positive_label_can_be_named() -> None:
    scores, labels = generated("plain")
    one = told(Roc, holdings(scores, labels + 4), positive=5.0)
    two = told(Roc, holdings(scores, labels))
    assert one.auc == two.auc


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"thresholds": -1}, "thresholds must be between"),
        ({"counts": "dawa"}, "--counts goes with --method priroc"),
        ({"counts": "laplace", "method": "priroc"}, "counts"),
        ({"thresholds": 1 << 20}, "thresholds must be between"),
        ({"score": ()}, "score names 1 to"),
        ({"score": ("a", "a")}, "each once"),
        ({"score": ("label",)}, "cannot be both score and label"),
        ({"smooth": "1"}, "strategy tree"),
        ({"labels": "secret"}, "labels"),
        ({"positive": float("nan")}, "finite"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(LocalError, match=words):
        Roc(lower=0.0, upper=1.0, **options)  # type: ignore[arg-type]


def test_roc_and_precision_recall_share_a_release() -> None:
    asked = (
        Roc(lower=0.0, upper=1.0),
        PrCurve(lower=0, upper=1, smooth="2", best="cost=3", positive=1.0),
        AveragePrecision(lower=0.0, upper=1.0),
        Roc(lower=0.0, upper=1.0, labels="public"),
    )
    one, two, three, other = (planned(each).plan for each in asked)
    assert one.identity == two.identity == three.identity != other.identity
    assert one.reusable
