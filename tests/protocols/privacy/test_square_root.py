"""The square-root factorisation on integers: exact sensitivity, exact sums in the ring, and the
best linear unbiased estimates."""

from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from scipy.linalg import toeplitz

from tallyroom.protocols.plans.contract import NoisySum
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.privacy.curves import HierarchyStrategy, SquareRootStrategy, curve_strategy
from tallyroom.protocols.privacy.gaussian import DiscreteGaussian
from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.protocols.privacy.square_root import SquareRootFactor
from tallyroom.protocols.privacy.sums_over_time import BlocksOverTime, SquareRootOverTime
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import deal
from tallyroom.protocols.statistics.contract import Statistic
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.statistics.estimates import shape_of
from tallyroom.protocols.statistics.planned import planned
from tallyroom.protocols.statistics.release import Noise
from tallyroom.protocols.statistics.running_sum import RunningSum

SIZES = [1, 2, 3, 5, 8, 17, 40]


def matrix(cells: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """R, of integers."""
    columns = toeplitz(SquareRootFactor(cells).coefficients, np.zeros(cells))
    return columns.astype(np.int64)


@pytest.mark.parametrize("cells", SIZES)
def test_its_sensitivities_are_exact(cells: int) -> None:
    """By enumeration of all pairs of cells, and of all cells."""
    factor, columns = SquareRootFactor(cells), matrix(cells).T
    moves = [np.abs(one - other) for one, other in combinations(columns, 2)]
    assert factor.of_record.l1 == max((int(each.sum()) for each in moves), default=0)
    assert factor.of_record.squared_l2 == max((int((each**2).sum()) for each in moves), default=0)
    assert factor.of_value.l1 == max(int(each.sum()) for each in columns)
    assert factor.of_value.squared_l2 == max(int((each**2).sum()) for each in columns)


@pytest.mark.parametrize("cells", [*SIZES, 3000])
def test_shares_are_measured_exactly(cells: int) -> None:
    """Modulo 2^64, at the largest limbs too."""
    factor = SquareRootFactor(cells)
    random = np.random.default_rng(cells).integers(0, 2**64, cells, dtype=np.uint64)
    for prefix in (random, np.full(cells, 2**64 - 1, dtype=np.uint64)):
        found = factor.measure(prefix)
        for at in {0, cells // 2, cells - 1}:
            r, values = factor.coefficients.tolist(), [0, *prefix.tolist()]
            exact = sum(r[at - i] * (values[i + 1] - values[i]) for i in range(at + 1))
            assert int(found[at]) == exact % 2**64


@pytest.mark.parametrize("cells", SIZES)
def test_counts_are_least_squares_given_the_number_of_records(cells: int) -> None:
    strategy, records = SquareRootStrategy(cells), 50
    noisy = np.random.default_rng(1).normal(size=cells) * 1000
    upto = np.tril(np.ones((cells, cells)))[:-1]
    # The last cell is what is left of n: R·x = R·(F·y + n·e) for the others, y.
    others = np.eye(cells)[:, :-1] - np.eye(cells)[:, -1:]
    fitted = matrix(cells) @ others
    rest = noisy - records * matrix(cells)[:, -1]
    pseudo = np.linalg.pinv(fitted)
    counts = upto[:, :-1] @ (pseudo @ rest) if cells > 1 else np.zeros(0)
    assert strategy.estimate(noisy, records) * records == pytest.approx([*counts, records])
    weights = upto[:, :-1] @ pseudo
    expected = [*(weights**2).sum(axis=1), 0.0]
    assert strategy.count_variances(1.0) == pytest.approx(expected, abs=1e-12)
    for last in range(cells - 1):
        found = strategy.factor.weights(last, True)
        assert found == pytest.approx(weights[last], abs=1e-9)


@pytest.mark.parametrize("cells", SIZES)
def test_sums_are_least_squares(cells: int) -> None:
    strategy = SquareRootOverTime(cells, 1, False)
    weights = np.tril(np.ones((cells, cells))) @ np.linalg.inv(matrix(cells))
    noisy = np.random.default_rng(1).normal(size=cells)
    assert strategy.sums(noisy) == pytest.approx(weights @ noisy)
    assert strategy.sum_variances(2.0) == pytest.approx(2 * (weights**2).sum(axis=1))
    for last in range(cells):
        assert strategy.factor.weights(last, False) == pytest.approx(weights[last], abs=1e-12)


@pytest.mark.parametrize("cells", [64, 1024, 16384])
def test_whole_coefficients_cost_a_thousandth_of_the_variance_at_most(cells: int) -> None:
    j = np.arange(1, cells)
    c = np.cumprod(np.append(1.0, (2 * j - 1) / (2 * j)))
    factor = SquareRootFactor(cells)
    exact = (c**2).sum() * np.cumsum(c**2).mean()
    assert factor.of_value.squared_l2 * factor.variances.mean() <= 1.001 * exact


def test_many_counts_go_by_it_under_noise_of_the_l2_norm() -> None:
    """Mean variance of a count per σ² of noise for one unit of sensitivity. The optimum is not
    below twice the squared mean of the singular values of prefix sums, 12.2 at 1024."""

    def mean_variance(strategy: HierarchyStrategy | SquareRootStrategy) -> float:
        return strategy.sensitivity.squared_l2 * float(strategy.count_variances(1.0).mean())

    assert mean_variance(SquareRootStrategy(1024)) == pytest.approx(15.08, abs=0.02)
    assert mean_variance(SquareRootStrategy(16384)) == pytest.approx(26.60, abs=0.02)
    assert mean_variance(HierarchyStrategy(16384)) > 53
    assert isinstance(curve_strategy("auto", 16384, "gaussian"), SquareRootStrategy)
    assert isinstance(curve_strategy("auto", 3, "gaussian"), HierarchyStrategy)


def test_sums_over_time_too() -> None:
    root, blocks = SquareRootOverTime(1024, 1, False), BlocksOverTime(1024, 1, False)
    found = [s.sensitivity.squared_l2 * s.sum_variances(1.0).mean() for s in (root, blocks)]
    assert found == pytest.approx([9.67, 19.66], abs=0.01)


@pytest.mark.parametrize(
    "statistic",
    [
        Ecdf(lower=0, upper=1, thresholds=200, smooth="none"),
        RunningSum(lower=0, upper=1, steps=200),
    ],
    ids=lambda each: each.name,
)
def test_intervals_under_gaussian_noise_hold_what_they_say(statistic: Statistic) -> None:
    """400 releases of 200 values, whose noise is correlated: a right share leaves 92 to 98 % less
    than once in a million."""
    runs, records = 400, 300
    asked = planned(statistic, replace(Facts.of_one_server(records), law="gaussian"))
    assert isinstance(asked.plan, NoisySum)
    assert isinstance(asked.plan.strategy, SquareRootStrategy | SquareRootOverTime)
    loss = PrivacyLoss.of(Fraction(1), 1e-6)
    law = DiscreteGaussian.calibrated(loss, asked.plan.sensitivity)
    values = np.random.default_rng(1).random(records)
    times = np.random.default_rng(2).integers(1, 201, records)
    held = deal({"value": values, "time": times.astype(float)}, records)
    exact = asked.plan.measure(asked.total(held))
    truth = np.array(shape_of(statistic.reference(held)).values())
    drawn = law.draw(runs * asked.plan.noises, Randomness.from_seed(3, "noise"))
    hits = 0
    for noise in drawn.view(np.uint64).reshape(runs, -1):
        found = asked.interval(exact + asked.plan.place(noise), records, Noise.of(law))
        hits += int(((found.low <= truth + 1e-6) & (truth <= found.high + 1e-6)).sum())
    assert 0.92 <= hits / (runs * len(truth)) <= 0.98
