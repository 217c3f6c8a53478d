"""What judges a classifier, on data that leave little or nothing to judge: an answer that JSON can
hold, with or without noise, or one clear refusal."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.records import Column, Holdings, deal
from tallyroom.protocols.statistics.areas import AucOfCounts, AveragePrecision
from tallyroom.protocols.statistics.classifier_curves import ClassifierCurves, PrCurve, Roc
from tallyroom.protocols.statistics.estimates import plain
from tallyroom.protocols.statistics.of_pairs import Auc, Pairwise
from tallyroom.protocols.statistics.planned import planned
from tallyroom.simulation import Federation
from tests.protocols.statistics.local_form_samples import labelled

KINDS = [Roc, PrCurve, AucOfCounts, AveragePrecision]
SPREAD = np.linspace(0.1, 0.9, 24)
MIXED = np.arange(24.0) % 2
ODD = {
    "positives alone": (SPREAD, np.ones(24)),
    "negatives alone": (SPREAD, np.zeros(24)),
    "scores all equal": (np.full(24, 0.4), MIXED),
    "scores all at a bound": (np.full(24, 1.0), MIXED),
    "one record": (np.array([0.4]), np.array([1.0])),
    "ties across classes": (np.repeat([0.25, 0.5, 0.75], 8), MIXED),
}


def holdings(scores: Column, labels: Column) -> Holdings:
    return deal({"score": scores, "label": labels}, 1)


def asked(kind: type[ClassifierCurves], **changes: object) -> ClassifierCurves:
    return kind(lower=0.0, upper=1.0, thresholds=16, **changes)  # type: ignore[arg-type]


def is_json(found: object) -> bool:
    """Whether it can be written: nan and infinity cannot."""
    try:
        json.dumps(found, allow_nan=False)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("odd", ODD)
def test_a_defined_answer_without_and_with_noise(kind: type[ClassifierCurves], odd: str) -> None:
    data, statistic = holdings(*ODD[odd]), planned(asked(kind))
    assert is_json(plain(statistic.noiseless(data)))
    generator = np.random.default_rng(1)
    total = statistic.plan.measure(statistic.plan.encode(data)[0])
    for reach in (3, 1 << 30):
        drawn = generator.integers(-reach, reach, len(total)).astype(np.uint64)
        assert is_json(plain(statistic.decode(total + drawn, data.rows)))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("labels", [np.arange(24.0) % 3, 2 - MIXED, MIXED + 0.5, MIXED * np.nan])
def test_other_labels_are_named_and_how_to_name_the_positive_one(
    kind: type[ClassifierCurves], labels: Column
) -> None:
    with pytest.raises(LocalError, match="'label'") as refused:
        asked(kind).reference(holdings(SPREAD, labels))
    if np.isfinite(labels).all():
        assert "--positive" in str(refused.value)
        assert f"{labels.max():g}" in str(refused.value)


def test_a_named_positive_label_is_taken() -> None:
    one = planned(asked(Roc, positive=2.0)).plan.encode(holdings(SPREAD, 2 - MIXED))
    two = planned(asked(Roc)).plan.encode(holdings(SPREAD, 1 - MIXED))
    assert (one == two).all()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_scores_that_are_no_numbers_count_as_the_lower_bound(
    kind: type[ClassifierCurves], wrong: float
) -> None:
    """A party that refused them would tell of its records. Simulations do (`Dataset.check`)."""
    scores, least = SPREAD.copy(), SPREAD.copy()
    scores[3], least[3] = wrong, 0.0
    plan = planned(asked(kind)).plan
    taken, meant = (plan.encode(holdings(each, MIXED)) for each in (scores, least))
    assert (taken == meant).all()


@pytest.mark.parametrize("method", ["binormal", "priroc", "priroc-fix"])
def test_a_curator_answers_about_one_class_and_equal_scores(method: str, tmp_path: Path) -> None:
    for place, odd in enumerate(("positives alone", "scores all equal")):
        path = tmp_path / f"{place}.csv"
        rows = [f"{score},{label}" for score, label in zip(*ODD[odd], strict=True)]
        path.write_text("\n".join(["score,label", *rows]) + "\n")
        with Federation(3, aggregator="curator", data=str(path), seed=1) as federation:
            found = federation.run(Roc(lower=0.0, upper=1.0, method=method), 1)
        assert is_json(found.as_json()["estimate"])


@pytest.mark.parametrize("labels", [2 - MIXED, 7 * MIXED, -MIXED])
def test_auc_takes_a_named_positive_label_however_it_is_computed(labels: Column) -> None:
    """Pairs, reports of the local model, curves and a curator's cells see the same as if it were 1
    and all others 0; without the name the truth is refused, with the labels that are there."""
    positive = next(float(each) for each in labels if each not in (0.0, 1.0))
    given, plain_ones = holdings(SPREAD, labels), holdings(SPREAD, (labels == positive) * 1.0)
    named = Auc(lower=0.0, upper=1.0, bins="8", positive=positive)
    unnamed = Auc(lower=0.0, upper=1.0, bins="8")
    met, same = (planned(each).plan.measured for each in (named, unnamed))
    assert (met(given) == same(plain_ones)).all()
    pairs = planned(Auc(positive=positive)).plan.pairs
    assert pairs is not None
    assert pairs.tied_by_rounding(given) == 0
    assert named.reference(given) == pytest.approx(roc_auc_score(labels == positive, SPREAD))
    reported, same = (labelled(each).measured for each in (named, unnamed))
    assert (reported(given) == same(plain_ones)).all()
    for method in ("curve", "smooth"):
        asked_now, same_now = (
            planned(replace(each, method=method)).plan for each in (named, unnamed)
        )
        assert (asked_now.encode(given) == same_now.encode(plain_ones)).all()
    with pytest.raises(LocalError, match=f"has .*{positive:g}.*--positive"):
        unnamed.reference(given)
    with pytest.raises(LocalError, match="finite"):
        Auc(positive=np.inf)


def test_labels_of_a_kernel_are_named_too() -> None:
    asked_now = Pairwise(kernel_name="auc", lower=0.0, upper=1.0)
    with pytest.raises(LocalError, match=r"'label' has 1, 2$"):
        asked_now.reference(holdings(SPREAD, 2 - MIXED))
