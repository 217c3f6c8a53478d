"""Randomized response: its probabilities are exact integers, and its estimates unbiased."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.local.response import WORD, RandomizedResponse, exp_below
from tallyroom.protocols.randomness import Randomness
from tests.goodness import ALPHA, chi_square_p
from tests.protocols.local.odds import exponential

EPSILONS = [Fraction(1, 1000), Fraction(1, 3), Fraction(1), Fraction(4), Fraction(12), Fraction(50)]


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("values", [2, 3, 10, 1000])
def test_the_ratio_is_within_epsilon_and_as_large_as_words_allow(
    epsilon: Fraction, values: int
) -> None:
    response = RandomizedResponse.spending(epsilon, values)
    assert response.keep + (values - 1) * response.other == WORD
    assert response.ratio <= exponential(epsilon)
    assert response.ratio <= exp_below(epsilon)  # exact, but for ties in the 55th digit
    assert response.ratio > exp_below(epsilon * Fraction(99, 100)) or response.other == 1
    if response.other > 1:
        assert RandomizedResponse(values, response.other - 1).ratio > exponential(epsilon)


@pytest.mark.parametrize("values", [2, 7, 64])
def test_every_report_has_exactly_its_probability(values: int) -> None:
    """What a word says changes only at the ends of stretches, whose lengths are the probabilities:
    both ends of each stretch are tried for every input. So ε is exactly ln(keep/other)."""
    response = RandomizedResponse.spending(Fraction(2), values)
    starts = [0] + [response.keep + i * response.other for i in range(values)]
    assert starts[-1] == WORD
    for truth in range(values):
        others = [value for value in range(values) if value != truth]
        for said, first, end in zip([truth, *others], starts, starts[1:], strict=False):
            words = np.array([[first], [end - 1]], dtype=np.uint64)
            assert response.randomize(np.full(2, truth), words).tolist() == [said, said]


@pytest.mark.parametrize("values", [2, 5])
def test_probabilities_are_those_of_the_paper(values: int) -> None:
    """S1 Algorithm 1: β = k/(k+e^ε-1), keep with probability 1-β+β/k."""
    for epsilon in (0.1, 1.0, 3.0):
        response = RandomizedResponse.spending(Fraction(epsilon), values)
        beta = values / (values + math.exp(epsilon) - 1)
        assert response.p == pytest.approx(1 - beta + beta / values, rel=1e-14)
        assert response.q == pytest.approx(beta / values, rel=1e-14)


@pytest.mark.parametrize("values", [2, 5])
def test_reports_are_drawn_with_these_probabilities(values: int) -> None:
    """n = 200,000 reports of one value, chi-square at ALPHA."""
    response = RandomizedResponse.spending(Fraction(1), values)
    words = Randomness(bytes(16)).words(200_000).reshape(-1, 1)
    counts = np.bincount(response.randomize(np.full(200_000, 1), words), minlength=values)
    expected = np.where(np.arange(values) == 1, response.p, response.q) * 200_000
    assert chi_square_p(counts, expected) > ALPHA


@pytest.mark.parametrize("values", [2, 4])
def test_estimates_are_unbiased_with_the_variance_that_is_stated(values: int) -> None:
    """4000 estimates from 300 records: means within the two-sided ALPHA quantile of their own
    deviation; the ratio of variances is nearly normal with deviation √(2/4000)."""
    runs, response = 4000, RandomizedResponse.spending(Fraction(1), values)
    truth = np.array([200, 70, 20, 10])[:values] if values > 2 else np.array([230, 70])
    inputs = np.tile(np.repeat(np.arange(values), truth), runs)
    words = Randomness(bytes(16)).words(300 * runs).reshape(-1, 1)
    said = response.randomize(inputs, words).reshape(runs, 300)
    estimates = np.stack([response.estimate(np.bincount(r, minlength=values)) for r in said])
    variances = response.variances(truth.astype(float), 300)
    bound = stats.norm.isf(ALPHA / 2)
    assert (np.abs(estimates.mean(axis=0) - truth) < bound * np.sqrt(variances / runs)).all()
    ratio = estimates.var(axis=0) / variances
    assert (np.abs(ratio - 1) < bound * math.sqrt(2 / runs)).all()
    assert estimates.sum(axis=1) == pytest.approx(300)


def test_an_estimate_of_expected_counts_is_the_truth() -> None:
    response = RandomizedResponse(3, 1 << 62)
    assert (response.p, response.q) == (0.5, 0.25)
    truth = np.array([8, 4, 0])
    expected = (truth * 0.5 + (12 - truth) * 0.25).astype(np.int64)
    assert response.estimate(expected).tolist() == truth.tolist()


def test_what_cannot_be() -> None:
    with pytest.raises(LocalError, match="too small"):
        RandomizedResponse.spending(Fraction(1, 10**9), 1 << 20)
    with pytest.raises(LocalError, match="needs at least 2 values"):
        RandomizedResponse.spending(Fraction(1), 1)
    with pytest.raises(LocalError, match="more likely to tell the truth"):
        RandomizedResponse(2, 1 << 63)


def test_e_is_bounded_from_below() -> None:
    for epsilon in EPSILONS:
        exact = exponential(epsilon)
        assert 0 < exact - exp_below(epsilon) < exact / 10**54
    assert exp_below(Fraction(10**9)) == exp_below(Fraction(64)) > WORD
