"""U-statistics by S1's Algorithm 1: against enumeration, numpy and scipy, and Theorem 1."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.local.pairs import FIXED_POINT, PairResponse, Rounding, mean_over_pairs
from tallyroom.protocols.local.response import RandomizedResponse
from tallyroom.protocols.randomness import Randomness
from tests.goodness import ALPHA

SIMPLE = Rounding((3,), (1,))
KERNEL = np.array([[[0.0, 1.0, 0.5], [0.25, 1.0, 0.0], [1.0, 0.75, 0.5]]])


def pair_response(epsilon: Fraction = Fraction(1)) -> PairResponse:
    return PairResponse(RandomizedResponse.spending(epsilon, 3), SIMPLE, KERNEL, (1.0,))


def test_the_estimate_is_the_mean_over_pairs_of_reports() -> None:
    """Against all ordered pairs of reports, one by one, for a kernel that is not symmetric."""
    randomizer = pair_response()
    reports = np.random.default_rng(1).integers(0, 3, 40)
    response = randomizer.response
    units = np.eye(3)[reports] - response.q
    pairs = [
        units[i] @ KERNEL[0] @ units[j] for i, j in itertools.permutations(range(len(reports)), 2)
    ]
    expected = np.mean(pairs) / response.truthful**2
    found = randomizer.estimate(np.bincount(reports, minlength=3))
    assert found / FIXED_POINT == pytest.approx([expected])


def test_it_is_unbiased_by_enumeration() -> None:
    """Three records, all 27 reports with their probabilities."""
    randomizer = pair_response()
    records, response = (0, 1, 1), randomizer.response
    mean = 0.0
    for said in itertools.product(range(3), repeat=3):
        chance = math.prod(
            response.p if a == b else response.q for a, b in zip(said, records, strict=True)
        )
        mean += chance * float(randomizer.estimate(np.bincount(said, minlength=3))[0])
    truth = np.mean([KERNEL[0, a, b] for a, b in itertools.permutations(records, 2)])
    assert mean / FIXED_POINT == pytest.approx(truth, abs=1e-9)
    assert mean_over_pairs(KERNEL, np.array([1, 2, 0])) == pytest.approx([truth])


def test_its_variance_is_within_theorem_1() -> None:
    """2000 estimates from 300 records: the mean at ALPHA; the spread below the bound, and within a
    quarter of its first-order term, where the ratio has a deviation of √(2/2000)."""
    runs, n = 2000, 300
    randomizer = pair_response()
    inputs = np.repeat(np.arange(3), (150, 100, 50))
    words = Randomness(bytes(16)).words(n * runs).reshape(-1, 1)
    said = randomizer.randomize(np.tile(inputs, runs), words).reshape(runs, n)
    counts = [np.bincount(row, minlength=3) for row in said]
    found = np.array([randomizer.estimate(row)[0] for row in counts]) / FIXED_POINT
    truth = mean_over_pairs(KERNEL, np.bincount(inputs))[0]
    bound = stats.norm.isf(ALPHA / 2)
    assert abs(found.mean() - truth) < bound * found.std() / math.sqrt(runs)
    [stated] = randomizer.variances(np.zeros(1), n) / FIXED_POINT**2
    assert found.var() < stated
    response = randomizer.response
    law = response.q + np.eye(3) * response.truthful
    held = np.bincount(inputs) * response.truthful
    slope = response.gain**2 * (KERNEL[0] + KERNEL[0].T) @ held / (n * (n - 1))
    first_order = np.bincount(inputs) @ (law @ slope**2 - (law @ slope) ** 2)
    assert abs(found.var() / first_order - 1) < 0.25
    beta = 3 / (3 + math.e - 1)
    first = 1 / (n * (1 - beta) ** 2)
    assert stated == pytest.approx(
        first + (1 + beta) ** 2 / (2 * n * (n - 1) * (1 - beta) ** 4), rel=1e-9
    )


def test_randomized_rounding_is_exactly_unbiased() -> None:
    """All 16 values of the bits that decide, for every place between three points and two."""
    rounding = Rounding((3, 2), (16, 8))
    words = np.array(list(itertools.product(range(8), range(16))), dtype=np.uint64)
    for first, second in itertools.product(range(33), range(9)):
        codes = np.full(len(words), first * rounding.radix(1) + second)
        points = np.divmod(rounding.cells(codes, words), 2)
        assert points[0].mean() == first / 16
        assert points[1].mean() == second / 8
        assert np.abs(points[0] - first / 16).max() < 1
    none = np.zeros((1, 0), dtype=np.uint64)
    assert rounding.cells(np.array([9 * rounding.radix(1) + 3]), none).tolist() == [2]


def test_a_single_record_has_no_pairs() -> None:
    with pytest.raises(LocalError, match="two records"):
        mean_over_pairs(KERNEL, np.array([1, 0, 0]))
