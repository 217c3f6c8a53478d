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
from tallyroom.protocols.statistics.calibration_test import NoisyTest
from tallyroom.protocols.statistics.planned import laplace_noise, planned
from tallyroom.protocols.studies.conformance import conducted
from tallyroom.protocols.studies.hosmer_lemeshow import HosmerLemeshow, between, power_of


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
    assert table.freedom == 3
    assert table.p_value == pytest.approx(stats.chi2.sf(by_hand, 3))
    fitted = replace(table, fitted=True)
    assert fitted.freedom == 1
    assert fitted.p_value == pytest.approx(stats.chi2.sf(by_hand, 1))
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


@pytest.mark.parametrize("fitted", [False, True])
def test_the_simulated_null_without_noise_is_chi_squared(fitted: bool) -> None:
    """Kolmogorov–Smirnov over n = 10,000 draws: α = 1e-7. Groups are so large that what noise of
    no size leaves is χ², with Q degrees of freedom or Q − 2."""
    size, share = np.full(6, 1e7), np.array([0.05, 0.1, 0.3, 0.5, 0.6, 0.9])
    cells = np.stack([size * share, size * share, size * (1 - share)], axis=1)
    test = NoisyTest(cells, laplace_noise(1e-6), 1.0, fitted)
    null = test.null_draws[:, 0]
    assert stats.kstest(null, stats.chi2(6 - 2 * fitted).cdf).pvalue > 1e-7
    assert stats.kstest(null, stats.chi2(6 - 2 * (not fitted)).cdf).pvalue < 1e-7


@pytest.mark.parametrize("noises", [1, 2])
def test_power_is_that_of_draws_by_numpy(noises: int) -> None:
    """Records drawn anew with a share of positives that is off by what is detectable: of n = 1500
    runs 80 % reject. A right program is off by less than 0.07 (6 deviations and what 10,000 draws
    of the null err by)."""
    generator, scale = np.random.default_rng(noises), 8.0
    size, share = np.full(5, 400.0), np.array([0.1, 0.2, 0.4, 0.6, 0.8])
    noise = laplace_noise(2 * noises * (scale * FIXED_POINT) ** 2, noises)

    def tested(difference: float) -> NoisyTest:
        positives = generator.binomial(400, share + difference)
        cells = np.stack([size * share, positives, size - positives], axis=1)
        drawn = generator.laplace(scale=scale, size=(noises, *cells.shape)).sum(axis=0)
        return NoisyTest(cells + drawn, noise, 1 / FIXED_POINT)

    one = tested(0.0)
    assert one.detectable is not None
    critical = float(np.quantile(one.null_draws[:, 0], 0.95))
    rejected = np.mean([tested(one.detectable).statistic > critical for _ in range(1500)])
    assert abs(rejected - 0.8) < 0.07


def test_noise_that_hides_everything_is_said() -> None:
    cells = np.tile([[50.0, 50.0, 50.0]], (4, 1))
    test = NoisyTest(cells, laplace_noise((1e4 * FIXED_POINT) ** 2), 1 / FIXED_POINT)
    assert test.detectable is None
    assert "none is found" in power_of(test)
    assert 0.02 < test.power(0.0) < 0.08


def test_one_release_has_one_p_value() -> None:
    cells = np.array([[20.0, 30.0, 70.0], [50.0, 48.0, 52.0], [80.0, 90.0, 11.0]])
    noise = laplace_noise((5.0 * FIXED_POINT) ** 2, 2)
    first, second = (Calibration([0.3, 0.6, 1.0], cells, 5.0, noise) for _ in range(2))
    assert first.p_value == second.p_value
    other = Calibration([0.3, 0.6, 1.0], cells + 0.25, 5.0, noise)
    assert first.p_value != other.p_value


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
    assert most <= plan.sensitivity.l1 == 4 * FIXED_POINT
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
    assert finding.estimate.freedom == 4
    assert "equal or close scores leave 4 of 10 groups" in finding.notes


def test_thresholds_rise_and_are_inside() -> None:
    assert between([0.0, 0.5, 0.2, 0.5, 1.0]) == (0.2, 0.5)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"groups": 2}, "groups is between 3"),
        ({"groups": 10**6}, "groups is between 3"),
        ({"share": 0.0}, "share is between 0 and 1"),
        ({"strategy": "wood"}, "no strategy"),
        ({"trained": "there"}, "no trained"),
        ({"thresholds": 0}, "thresholds"),
        ({"positive": float("inf")}, "finite"),
    ],
)
def test_options_that_cannot_be_are_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(LocalError, match=words):
        replace(HosmerLemeshow(), **changes)  # type: ignore[arg-type]


def test_scores_that_are_no_probabilities_are_refused() -> None:
    with pytest.raises(LocalError, match="not probabilities"):
        CalibrationCounts().reference(data(np.array([0.5, 1.5]), np.array([0.0, 1.0]), 1))
    with pytest.raises(LocalError, match="must rise"):
        CalibrationCounts(at=(0.5, 0.5))
    assert sum(HosmerLemeshow().shares()) == Fraction(1)
