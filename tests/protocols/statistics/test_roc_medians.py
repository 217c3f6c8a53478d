"""PriROC's stand-in without a curator: thresholds that part the scores, and a curve at them."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_curve

from tallyroom.extend import StudyContract
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.records import Column, Holdings, deal
from tallyroom.protocols.statistics.classifier_curves import Roc
from tallyroom.protocols.statistics.classifier_estimates import RocEstimate
from tallyroom.protocols.studies.conformance import conducted
from tallyroom.protocols.studies.roc_medians import RocMedians
from tallyroom.simulation import Federation


def skewed(records: int = 2000) -> tuple[Column, Column]:
    rng = np.random.default_rng(5)
    label = (rng.random(records) < 0.3).astype(float)
    return np.clip(rng.beta(1, 12, records) + 0.05 * label, 0, 1), label


class Exactly(StudyContract):
    __test__ = False
    study = RocMedians(bins=16)

    def holdings(self, seed: int = 0, parties: int = 4, records: int = 400) -> Holdings:
        score, label = skewed()
        return deal({"score": score, "label": label}, parties)


def test_without_noise_rates_are_scikit_learns_and_bins_are_even() -> None:
    finding, asked = conducted(Exactly.study, Exactly().exactly)
    assert [each.share for each in asked] == list(Exactly.study.shares())
    assert isinstance(finding.estimate, RocEstimate)
    [found] = finding.estimate.named.values()
    score, label = skewed()
    inner = found.thresholds[1:-1]
    held = np.histogram(score, [0, *inner, 1])[0]
    assert held.max() <= 2 * len(score) / 16
    false, true, at = roc_curve(label, score, drop_intermediate=False)
    for place, threshold in enumerate(inner, 1):
        above = np.flatnonzero(at > threshold)[-1]
        assert found.false_positive[place] == pytest.approx(false[above])
        assert found.true_positive[place] == pytest.approx(true[above])


def test_equal_scores_leave_one_threshold() -> None:
    class Equal(Exactly):
        def holdings(self, seed: int = 0, parties: int = 4, records: int = 400) -> Holdings:
            return deal({"score": np.zeros(40), "label": np.arange(40.0) % 2}, parties)

    finding, asked = conducted(Exactly.study, Equal().exactly)
    assert len(asked) == 2
    assert isinstance(asked[1].statistic, Roc)
    assert len(asked[1].statistic.at) == 1
    assert "of 16 bins" in finding.notes[0]


@pytest.mark.parametrize(
    "wrong",
    [{"bins": 1}, {"bins": 1 << 11}, {"share": 1.0}, {"strategy": "tree"}, {"upper": 0.0}],
)
def test_what_it_refuses(wrong: dict[str, float | str]) -> None:
    with pytest.raises(LocalError):
        replace(RocMedians(), **wrong)  # type: ignore[arg-type]


def test_between_two_servers_with_noise() -> None:
    """At ε = 50 a node's noise has the scale 3/40 per server and is 0 but for 3 in a million: no
    rate is off by more than 5 records of its class."""
    with Federation(5, aggregator="additive", data="synthetic:scores?n=300", seed=1) as federation:
        found = federation.run(RocMedians(bins=8, thresholds=64), 50)
        score, label = (federation.holdings.column(name) for name in ("score", "label"))
    assert isinstance(found.estimate, RocEstimate)
    [each] = found.estimate.named.values()
    assert each.monotone
    assert len(each.thresholds) > 4
    for rates, of in ((each.false_positive, 0.0), (each.true_positive, 1.0)):
        own = score[label == of]
        above = np.array([(own > at).sum() for at in each.thresholds])
        assert np.abs(rates * len(own) - above).max() <= 5
