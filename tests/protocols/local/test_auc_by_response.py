"""AUC by randomized response among scores: its privacy, its error, and when it is chosen."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.local.auc import AucResponse
from tallyroom.protocols.local.auc_by_response import (
    ScoreResponse,
    best_values,
    predicted_of_tree,
)
from tallyroom.protocols.local.pairs import FIXED_POINT
from tests.protocols.local.auc_samples import Codes, estimates, plain_auc

BOTH = pytest.mark.parametrize("private", [False, True])
NO_QUESTION = np.zeros((0, 0), dtype=np.uint8)


def spread(records: int, values: int, seed: int = 1) -> tuple[Codes, float]:
    """Normal scores of two classes of equal size, cut into `values`; and the AUC of the uncut."""
    rng = np.random.default_rng(seed)
    labels = np.arange(records) % 2
    scores = stats.norm.cdf(rng.normal(0.8 * labels) - 0.4)
    wins = stats.mannwhitneyu(scores[labels == 1], scores[labels == 0], method="asymptotic")
    codes: Codes = 2 * np.floor(scores * values).astype(np.int64) + labels
    return codes, float(wins.statistic) / (records / 2) ** 2


def rmse(randomizer: AucResponse | ScoreResponse, codes: Codes, truth: float, runs: int) -> float:
    areas = estimates(randomizer, codes, runs)[:, 0] / FIXED_POINT
    return float(np.sqrt(np.mean((areas - truth) ** 2)))


@BOTH
def test_reports_are_within_epsilon_of_each_other(private: bool) -> None:
    """The law of every input's report, over words that are spread evenly over their range: no
    report is more than e times as likely for another input, and every one is possible. With public
    labels among records of one label, which the report shows."""
    randomizer = ScoreResponse.spending(Fraction(1), 4, private)
    many = 1 << 14
    words = (np.arange(many, dtype=np.uint64) << np.uint64(50))[:, None]
    laws = []
    for code in range(8):
        said = randomizer.reports(np.full(many, code), NO_QUESTION, words)[:, 0]
        laws.append(np.bincount(said, minlength=8))
        assert private or (said & 1 == code & 1).all()
    for one in range(8):
        for other in range(8):
            if private or one % 2 == other % 2:
                shown = laws[one] > 0
                assert (shown == (laws[other] > 0)).all()
                ratios = laws[one][shown] / laws[other][shown]
                assert ratios.max() < math.e * 1.01
    assert not private or all((law > 0).all() for law in laws)


@BOTH
def test_with_next_to_no_lies_it_is_the_auc_of_cut_scores(private: bool) -> None:
    codes, _ = spread(1001, 16)
    [[area, positives]] = estimates(ScoreResponse.spending(Fraction(60), 16, private), codes, 1)
    assert area / FIXED_POINT == pytest.approx(plain_auc(codes), abs=1e-6)
    assert positives == pytest.approx((codes & 1).sum(), abs=1e-6)


@BOTH
def test_the_error_is_as_predicted_and_within_the_bound(private: bool) -> None:
    """60 runs of 4000 records at ε = 2: their root mean square has a deviation of 9 %. The bound on
    the variance is about three times what is predicted."""
    codes, truth = spread(4000, 8)
    randomizer = ScoreResponse.spending(Fraction(2), 8, private)
    found = rmse(randomizer, codes, truth, 60)
    assert 0.6 < found / randomizer.predicted(4000) < 1.6
    [bound] = randomizer.variances(np.array([0.0, 2000.0]), 4000)
    noise = rmse(randomizer, codes, plain_auc(codes), 60)
    assert 0.3 < noise / (math.sqrt(bound) / FIXED_POINT) < 0.9


@BOTH
def test_the_chosen_protocol_errs_less(private: bool) -> None:
    """20 runs each of 4000 records at ε = 2: hierarchical histograms err several times as much as
    the response among the values that are chosen, and a fraction where 1024 are asked for."""
    values, error = best_values(Fraction(2), 4000, (8, 16, 32, 64), private)
    assert error < predicted_of_tree(Fraction(2), 4000, 64, private, "auto")
    tree = AucResponse.spending(Fraction(2), 6, private)
    response = ScoreResponse.spending(Fraction(2), values, private)
    assert rmse(response, *spread(4000, values), 20) < rmse(tree, *spread(4000, 64), 20) / 1.5
    wide = ScoreResponse.spending(Fraction(2), 1024, private)
    assert predicted_of_tree(Fraction(2), 4000, 1024, private, "auto") < wide.predicted(4000)
    codes, truth = spread(4000, 1024)
    assert rmse(AucResponse.spending(Fraction(2), 10, private), codes, truth, 20) < rmse(
        wide, codes, truth, 4
    )


def test_an_empty_class_has_no_auc() -> None:
    codes, _ = spread(40, 8)
    with pytest.raises(LocalError, match="one class is empty"):
        estimates(ScoreResponse.spending(Fraction(4), 8, False), codes & ~1, 1)


def test_no_values_can_be_responded_among_at_a_tiny_epsilon() -> None:
    assert best_values(Fraction(1, 10**22), 1000, (8, 16), True) == (0, math.inf)
