"""The Hosmer–Lemeshow test against a table computed by hand, and what it refuses."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from tallyroom.extend import StudyContract
from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.records import Column, Holdings, deal
from tallyroom.protocols.statistics.calibration import (
    FIXED_POINT,
    Calibration,
    CalibrationCounts,
    grouped,
)
from tallyroom.protocols.statistics.planned import planned
from tallyroom.protocols.studies.conformance import conducted
from tallyroom.protocols.studies.hosmer_lemeshow import HosmerLemeshow, between


def data(scores: Column, labels: Column, parties: int = 4) -> Holdings:
    return deal({"score": scores, "label": labels}, parties)


def calibrated(records: int = 400) -> Holdings:
    generator = np.random.default_rng(3)
    scores = generator.uniform(0.05, 0.95, records)
    return data(scores, (generator.random(records) < scores).astype(float))


class TestHosmerLemeshow(StudyContract):
    study = HosmerLemeshow(groups=5)

    def holdings(self, seed: int = 0, parties: int = 4, records: int = 400) -> Holdings:
        return calibrated(records)


def test_the_statistic_of_a_table_by_hand() -> None:
    """Three groups of ten: Σ (O − E)²/E over both labels."""
    table = Calibration(
        [0.3, 0.6, 1.0], np.array([[2.0, 1.0, 9.0], [5.0, 6.0, 4.0], [8.0, 10.0, 0.0]])
    )
    by_hand = (1 / 2 + 1 / 8) + (1 / 5 + 1 / 5) + (4 / 8 + 4 / 2)
    assert table.statistic == pytest.approx(by_hand)
    assert table.freedom == 1
    assert table.p_value == pytest.approx(stats.chi2.sf(by_hand, 1))
    across, up = table.curve()
    assert across.tolist() == [0.2, 0.5, 0.8]
    assert up.tolist() == [0.1, 0.6, 1.0]


def test_a_count_below_its_noise_does_not_decide() -> None:
    cells = np.array([[-3.0, 1.0, 9.0], [5.0, 6.0, 4.0], [8.0, 10.0, 0.0]])
    noisy = Calibration([0.3, 0.6, 1.0], cells, floor=2.0)
    assert noisy.floored == 1
    rest = (1 / 5 + 1 / 5) + (4 / 8 + 4 / 2)
    assert noisy.statistic == pytest.approx(16 / 2 + 16 / 13 + rest)
    assert noisy.noise_part() > 0
    empty = Calibration([0.5, 0.7, 1.0], np.zeros((3, 3)))
    assert (empty.statistic, empty.p_value, empty.noise_part()) == (0.0, 1.0, 0.0)


def test_without_noise_the_study_finds_the_reference() -> None:
    """Thresholds lie within 1/4096 of the quantiles: few records change groups."""
    holdings = calibrated(2000)
    study = HosmerLemeshow(thresholds=4096)

    class Exactly(TestHosmerLemeshow):
        __test__ = False

        def holdings(self, seed: int = 0, parties: int = 4, records: int = 400) -> Holdings:
            return holdings

    finding, asked = conducted(study, Exactly().exactly)
    assert len(asked) == 2
    assert isinstance(finding.estimate, Calibration)
    scores, positive = holdings.column("score"), holdings.column("label") == 1
    at = tuple(finding.estimate.upper[:-1])
    assert len(at) == 9
    np.testing.assert_allclose(
        finding.estimate.cells, grouped(scores, positive, at), atol=2000 / FIXED_POINT
    )
    sizes = finding.estimate.cells[:, 1:].sum(axis=1)
    assert sizes.sum() == 2000
    assert abs(sizes - 200).max() <= 5
    truth = study.reference(holdings)
    assert isinstance(truth, Calibration)
    # By plain numpy: ten equal groups of the sorted scores.
    order = np.argsort(scores)
    expected = scores[order].reshape(10, 200).sum(axis=1)
    observed = positive[order].reshape(10, 200).sum(axis=1)
    by_numpy = ((observed - expected) ** 2 * (1 / expected + 1 / (200 - expected))).sum()
    assert truth.statistic == pytest.approx(by_numpy)


def test_replacing_a_record_moves_four_at_most_and_flips_that_much() -> None:
    plan = planned(CalibrationCounts(at=(0.25, 0.5))).plan
    most = 0
    points = [(score, label) for score in (0.0, 0.2, 0.4, 1.0) for label in (0.0, 1.0)]
    for one in points:
        for two in points:
            vectors = [
                plan.encode(data(np.array([score]), np.array([label]), 1))[0].astype(np.int64)
                for score, label in (one, two)
            ]
            most = max(most, int(np.abs(vectors[0] - vectors[1]).sum()))
    assert most <= plan.sensitivity == 4 * FIXED_POINT
    assert most >= 3 * FIXED_POINT


@pytest.mark.parametrize("scores", [np.full(40, 0.5), np.repeat([0.2, 0.8], 20)])
def test_too_few_distinct_scores_are_refused(scores: Column) -> None:
    holdings = data(scores, np.tile([0.0, 1.0], 20))

    class Equal(TestHosmerLemeshow):
        __test__ = False

        def holdings(self, seed: int = 0, parties: int = 4, records: int = 400) -> Holdings:
            return holdings

    with pytest.raises(RunFailed, match="groups only, where the test needs 3"):
        conducted(HosmerLemeshow(), Equal().exactly)


def test_more_groups_than_scores_are_fewer_groups() -> None:
    holdings = data(np.repeat([0.1, 0.3, 0.6, 0.9], 10), np.tile([0.0, 1.0], 20))

    class Few(TestHosmerLemeshow):
        __test__ = False

        def holdings(self, seed: int = 0, parties: int = 4, records: int = 400) -> Holdings:
            return holdings

    finding, _ = conducted(HosmerLemeshow(), Few().exactly)
    assert isinstance(finding.estimate, Calibration)
    assert finding.estimate.held.sum() == 4
    assert finding.estimate.freedom == 2
    assert "equal or close scores leave 4 of 10 groups" in finding.notes


def test_thresholds_rise_and_are_inside() -> None:
    assert between([0.0, 0.5, 0.2, 0.5, 1.0]) == (0.2, 0.5)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"groups": 2}, "groups is between 3"),
        ({"groups": 10**6}, "groups is between 3"),
        ({"share": 0.0}, "share is between 0 and 1"),
        ({"mechanism": "wood"}, "mechanism"),
        ({"thresholds": 0}, "thresholds"),
        ({"positive": float("inf")}, "finite"),
    ],
)
def test_options_that_cannot_be_are_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(LocalError, match=words):
        replace(HosmerLemeshow(), **changes)  # type: ignore[arg-type]


def test_scores_that_are_no_probabilities_are_refused() -> None:
    with pytest.raises(LocalError, match="no probabilities"):
        CalibrationCounts().reference(data(np.array([0.5, 1.5]), np.array([0.0, 1.0]), 1))
    with pytest.raises(LocalError, match="must rise"):
        CalibrationCounts(at=(0.5, 0.5))
    assert sum(HosmerLemeshow().shares()) == Fraction(1)
