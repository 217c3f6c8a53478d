"""Means of bounded values: mean and variance against enumeration of all that can be reported."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.local import BoundedResponse, RandomizedResponse
from tallyroom.protocols.randomness import Randomness
from tests.goodness import ALPHA

STEPS = 12


def bounded(values: int, epsilon: Fraction = Fraction(1), steps: int = STEPS) -> BoundedResponse:
    return BoundedResponse(RandomizedResponse.spending(epsilon, values), steps)


def enumerate_reports(randomizer: BoundedResponse, value: int) -> tuple[float, float]:
    """Mean and variance of one record's estimate, from the probability of every report."""
    k, response = randomizer.values, randomizer.response
    place = Fraction(value * (k - 1), randomizer.steps)
    below = min(math.floor(place), k - 2)
    points = np.zeros(k)
    points[below], points[below + 1] = float(1 - (place - below)), float(place - below)
    chance = points * response.p + (1 - points) * response.q
    estimates = np.array([randomizer.estimate(row)[0] for row in np.eye(k, dtype=np.int64)])
    mean = float(chance @ estimates)
    return mean, float(chance @ (estimates - mean) ** 2)


@pytest.mark.parametrize("values", [2, 3, 5, 8])
@pytest.mark.parametrize("epsilon", [Fraction(1, 4), Fraction(2), Fraction(8)])
def test_unbiased_with_exactly_this_variance(values: int, epsilon: Fraction) -> None:
    randomizer = bounded(values, epsilon)
    for value in range(STEPS + 1):
        mean, variance = enumerate_reports(randomizer, value)
        assert mean == pytest.approx(value, abs=1e-9)
        assert randomizer.variance(value / STEPS) * STEPS**2 == pytest.approx(variance)


@pytest.mark.parametrize("values", [2, 3, 5, 8])
@pytest.mark.parametrize("epsilon", [Fraction(1, 4), Fraction(2), Fraction(8)])
def test_the_worst_variance_is_the_worst(values: int, epsilon: Fraction) -> None:
    randomizer = bounded(values, epsilon)
    dense = [randomizer.variance(x) for x in np.linspace(0, 1, 4001)]
    assert max(dense) == pytest.approx(randomizer.worst_variance, rel=1e-5)
    assert max(dense) <= randomizer.worst_variance * (1 + 1e-12)
    summed = randomizer.variances(np.zeros(1), 7)[0]
    assert summed == pytest.approx(7 * STEPS**2 * randomizer.worst_variance)


def test_one_bit_is_best_under_strong_privacy_and_a_grid_under_weak() -> None:
    def best(epsilon: Fraction) -> int:
        return min((2, 3, 4, 8, 16), key=lambda k: bounded(k, epsilon).worst_variance)

    assert best(Fraction(1, 2)) == 2
    assert best(Fraction(8)) > 2
    assert bounded(2).worst_variance == pytest.approx((1 / math.tanh(0.5)) ** 2 / 4)


@pytest.mark.parametrize(("steps", "values"), [(12, 5), (1 << 31, 3), (1 << 32, 32), (7, 2)])
def test_rounding_has_the_right_thresholds(steps: int, values: int) -> None:
    """A word below ⌊2^64·f⌋ rounds up, f the place in the cell: both sides of it are tried."""
    truthful = RandomizedResponse(values, 1)
    randomizer = BoundedResponse(truthful, steps)
    for value in {0, 1, steps // 3, steps // 2, steps - 1, steps}:
        below, rest = divmod(value * (values - 1), steps)
        threshold = (rest << 64) // steps
        words = np.array([[max(threshold, 1) - 1, 0], [threshold, 0]], dtype=np.uint64)
        points = randomizer.randomize(np.full(2, value), words).tolist()
        assert points == [below + (threshold > 0), below]


@pytest.mark.parametrize("values", [2, 5])
def test_sums_of_samples_are_unbiased_with_this_variance(values: int) -> None:
    """2000 sums of 100 values: the mean within ALPHA, variances within √(2/2000) deviations."""
    runs, randomizer = 2000, bounded(values)
    inputs = np.arange(100) % (STEPS + 1)
    words = Randomness(bytes(16)).words(2 * 100 * runs).reshape(-1, 2)
    said = randomizer.randomize(np.tile(inputs, runs), words).reshape(runs, 100)
    sums = [randomizer.estimate(np.bincount(r, minlength=values))[0] for r in said]
    variance = sum(randomizer.variance(x / STEPS) for x in inputs.tolist()) * STEPS**2
    bound = stats.norm.isf(ALPHA / 2)
    assert abs(np.mean(sums) - inputs.sum()) < bound * math.sqrt(variance / runs)
    assert abs(np.var(sums) / variance - 1) < bound * math.sqrt(2 / runs)


def test_one_report_moves_an_estimate_by_at_most_its_gain() -> None:
    for values in (2, 3, 8):
        randomizer = bounded(values)
        one = np.eye(values, dtype=np.int64)
        largest = max(abs(randomizer.estimate(row)[0]) for row in one)
        assert randomizer.gain * 0.5 <= largest <= randomizer.gain


def test_too_many_steps_are_refused() -> None:
    with pytest.raises(LocalError, match="cannot be rounded"):
        bounded(2, steps=(1 << 32) + 1)
