"""S1's Theorem 2: quantization and randomized response together, against the parameter itself."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tallyroom.protocols.local.pairs import FIXED_POINT, PairResponse, Rounding
from tallyroom.protocols.local.response import RandomizedResponse
from tallyroom.protocols.randomness import Randomness
from tests.goodness import ALPHA

RUNS, RECORDS = 1500, 400
Reals = NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    """A kernel on bins with its expectation `parameter` under the density that `draw` draws from,
    and the terms of the bound that are due to quantization."""

    kernel: Callable[[int], Reals]
    draw: Callable[[np.random.Generator, int], Reals]
    parameter: float
    quantization: Callable[[int], float]


def differences(k: int) -> Reals:
    """|x - y| at the middles of bins."""
    middles = (np.arange(k) + 0.5) / k
    return np.abs(middles[:, None] - middles)


def above_one(k: int) -> Reals:
    """1 where x + y > 1, and ½ for bins that the line divides."""
    places = np.arange(k)[:, None] + np.arange(k)
    return np.where(places == k - 1, 0.5, (places > k - 1).astype(float))


def rising(rng: np.random.Generator, count: int) -> Reals:
    """From the density 2x, which is 2-Lipschitz."""
    return np.sqrt(rng.random(count))


LIPSCHITZ_KERNEL = Case(
    differences, lambda rng, count: rng.random(count), 1 / 3, lambda k: 1 / (2 * k**2)
)
LIPSCHITZ_DENSITY = Case(above_one, rising, 5 / 6, lambda k: 4 * 2**2 / k**2 + 4 * 2**4 / k**4)


def estimates(case: Case, epsilon: Fraction, k: int) -> Reals:
    """Each of its own records."""
    response = RandomizedResponse.spending(epsilon, k)
    randomizer = PairResponse(response, Rounding((k,), (1,)), case.kernel(k)[None], (1.0,))
    records = case.draw(np.random.default_rng(k), RUNS * RECORDS)
    words = Randomness(bytes(16)).words(RUNS * RECORDS).reshape(-1, 1)
    said = randomizer.randomize(np.floor(records * k).astype(np.int64), words)
    places = np.repeat(np.arange(RUNS), RECORDS) * k + said
    counts = np.bincount(places, minlength=RUNS * k).reshape(RUNS, k)
    return np.array([randomizer.estimate(row)[0] for row in counts]) / FIXED_POINT


@pytest.mark.parametrize("case", [LIPSCHITZ_KERNEL, LIPSCHITZ_DENSITY], ids=["kernel", "density"])
@pytest.mark.parametrize(("epsilon", "k"), [(1, 3), (1, 8), (4, 16)])
def test_the_mean_square_error_is_within_theorem_2(case: Case, epsilon: int, k: int) -> None:
    """1500 estimates from 400 records each. The measured mean square has a relative deviation of at
    most √(2/1500), so at ALPHA the true one is below that quantile above it: still within the
    bound. And not far below it: a bound that were met by nothing would say nothing."""
    found = estimates(case, Fraction(epsilon), k)
    error = float(np.mean((found - case.parameter) ** 2))
    beta = k / (k + math.exp(epsilon) - 1)
    response = 1 / (RECORDS * (1 - beta) ** 2)
    response += (1 + beta) ** 2 / (2 * RECORDS * (RECORDS - 1) * (1 - beta) ** 4)
    margin = stats.norm.isf(ALPHA) * math.sqrt(2 / RUNS)
    assert error * (1 + margin) < response + case.quantization(k)
    assert error > response / 50


def test_quantization_alone_errs_as_it_must() -> None:
    """With next to no lies and two bins of uniform values, a mean difference of ⅓ is told as ¼: at
    ALPHA, and the squared difference is within L²/2k²."""
    found = estimates(LIPSCHITZ_KERNEL, Fraction(50), 2)
    bound = stats.norm.isf(ALPHA / 2)
    assert abs(found.mean() - 1 / 4) < bound * found.std() / math.sqrt(RUNS)
    assert (1 / 3 - 1 / 4) ** 2 < 1 / (2 * 2**2)
