"""What judges a classifier, on data that leave little or nothing to judge: an answer that JSON can
hold, with or without noise, or one clear refusal."""

import json
from pathlib import Path

import numpy as np
import pytest

from protocols.errors import LocalError
from protocols.records import Column, Holdings, deal
from protocols.statistics.areas import AucByCurve, AveragePrecisionByCurve
from protocols.statistics.classifier_curves import ClassifierCurves, PrCurve, Roc
from protocols.statistics.estimates import plain
from simulation import Federation

KINDS = [Roc, PrCurve, AucByCurve, AveragePrecisionByCurve]
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
    data, statistic = holdings(*ODD[odd]), asked(kind)
    assert is_json(plain(statistic.noiseless(data)))
    generator = np.random.default_rng(1)
    total = statistic.measure(statistic.encode(data)[0])
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
    one = asked(Roc, positive=2.0).encode(holdings(SPREAD, 2 - MIXED))
    two = asked(Roc).encode(holdings(SPREAD, 1 - MIXED))
    assert (one == two).all()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_scores_that_are_no_numbers_are_refused(kind: type[ClassifierCurves], wrong: float) -> None:
    scores = SPREAD.copy()
    scores[3] = wrong
    with pytest.raises(LocalError, match="not finite"):
        asked(kind).encode(holdings(scores, MIXED))


@pytest.mark.parametrize("method", ["binormal", "priroc", "priroc-fix"])
def test_a_curator_answers_about_one_class_and_equal_scores(method: str, tmp_path: Path) -> None:
    for place, odd in enumerate(("positives alone", "scores all equal")):
        path = tmp_path / f"{place}.csv"
        rows = [f"{score},{label}" for score, label in zip(*ODD[odd], strict=True)]
        path.write_text("\n".join(["score,label", *rows]) + "\n")
        with Federation(3, aggregator="curator", data=str(path), seed=1) as federation:
            found = federation.run(Roc(lower=0.0, upper=1.0, method=method), 1)
        assert is_json(found.as_json()["estimate"])
