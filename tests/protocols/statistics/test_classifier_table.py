"""The table of a classifier against scikit-learn's, and its intervals under noise."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from sklearn import metrics

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.records import Holdings, deal
from tallyroom.protocols.statistics.classifier_curves import Roc
from tallyroom.protocols.statistics.classifier_table import ClassifierRates, ClassifierTable
from tallyroom.protocols.statistics.estimates import Estimate
from tallyroom.protocols.statistics.planned import planned
from tests.protocols.statistics.noisily import answered

UNIT: dict[str, Any] = {"lower": 0.0, "upper": 1.0}


def drawn(seed: int, rows: int) -> Holdings:
    """Scores with ties, some of them on the threshold."""
    generator = np.random.default_rng(seed)
    labels = (generator.random(rows) < 0.35).astype(float)
    scores = np.clip(0.35 + 0.25 * labels + 0.2 * generator.normal(size=rows), 0, 1)
    return deal({"score": np.round(scores * 32) / 32, "label": labels}, min(rows, 3))


def scikit_learns(data: Holdings, threshold: float) -> list[float]:
    labels, taken = data.columns["label"], data.columns["score"] > threshold
    (passed, wrong), (missed, right) = metrics.confusion_matrix(labels, taken)
    specificity = metrics.recall_score(labels, taken, pos_label=0)
    rates = [
        metrics.accuracy_score(labels, taken),
        metrics.precision_score(labels, taken),
        metrics.recall_score(labels, taken),
        specificity,
        metrics.f1_score(labels, taken),
    ]
    return [right, wrong, missed, passed, *rates]


def as_rates(estimate: Estimate) -> ClassifierRates:
    assert isinstance(estimate, ClassifierRates)
    return estimate


@pytest.mark.parametrize("options", [{"thresholds": 4}, {"at": (0.5,)}])
def test_without_noise_it_is_scikit_learns(options: dict[str, Any]) -> None:
    data = drawn(1, 300)
    asked = ClassifierTable(**UNIT, **options, threshold=0.5)
    for found in (planned(asked).noiseless(data), asked.reference(data)):
        np.testing.assert_allclose(as_rates(found).values(), scikit_learns(data, 0.5), rtol=1e-9)


def test_without_a_threshold_it_is_at_the_best() -> None:
    data = drawn(1, 300)
    found = as_rates(planned(ClassifierTable(**UNIT, thresholds=8)).noiseless(data))
    [at] = found.thresholds.values()
    wanted = {each: scikit_learns(data, each) for each in np.arange(1, 8) / 8}
    best = max(wanted, key=lambda each: wanted[each][6] + wanted[each][7])
    assert at == best
    np.testing.assert_allclose(found.values(), wanted[best])


def test_it_is_the_release_of_the_curve() -> None:
    facts = Facts.of_one_server(100, epsilon=Fraction(1))
    plans = [each.plan(facts) for each in (Roc(**UNIT), ClassifierTable(**UNIT, threshold=0.3))]
    assert plans[0].identity == plans[1].identity


def test_a_threshold_that_the_curve_has_not_is_said() -> None:
    answer = answered(
        ClassifierTable(**UNIT, thresholds=4, threshold=0.3), drawn(1, 50), Fraction(1), 1
    )
    assert "this is at 0.25, the nearest" in answer.remarks[0]


def test_intervals_cover_what_they_say() -> None:
    """Of 20 intervals of 95 %, 19 cover on average, and 11 or more of each of the nine all but once
    in a million."""
    held = np.zeros(9)
    asked = ClassifierTable(**UNIT, at=(0.5,), threshold=0.5)
    for seed in range(20):
        data = drawn(seed, 600)
        answer = answered(asked, data, Fraction(1), seed)
        assert answer.interval is not None
        truth = np.array(scikit_learns(data, 0.5))
        held += (answer.interval.low <= truth) & (truth <= answer.interval.high)
    assert (held >= 11).all()


@pytest.mark.parametrize("labels", [np.zeros(20), np.ones(20)])
def test_one_class_has_a_defined_answer(labels: Any) -> None:
    data = deal({"score": np.linspace(0, 1, 20), "label": labels}, 2)
    asked = ClassifierTable(**UNIT, thresholds=4, threshold=0.5)
    assert str(as_rates(planned(asked).noiseless(data)))
    for seed in range(3):
        answer = answered(asked, data, Fraction(1), seed)
        assert np.isfinite(as_rates(answer.estimate).values()).all()


@pytest.mark.parametrize(("threshold", "words"), [(2.0, "must lie within"), (np.nan, "finite")])
def test_bad_thresholds_are_refused_in_one_line(threshold: float, words: str) -> None:
    with pytest.raises(LocalError, match=words):
        ClassifierTable(**UNIT, threshold=threshold)
