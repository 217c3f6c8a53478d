"""Widths that a release tells hold 95 % of its noise, whoever drew it; 1.96 deviations do not.

By N = 200,000 draws of the noise: the share inside has a standard deviation of 0.05 %, so a right
program misses a bound that is 0.3 % away with probability below 10^-8. What holds 95 % of one noise
holds up to 96.6 % of several, where a statistic does not know how many there are.
"""

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from tallyroom.protocols.aggregation.mechanism import AddedNoise
from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.privacy.curves import HierarchyStrategy
from tallyroom.protocols.privacy.mechanisms import Placement, laplace_scale
from tallyroom.protocols.privacy.noise_sums import laplace_width
from tallyroom.protocols.records import Column
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.statistics.contract import Statistic
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.statistics.moments import Sum
from tallyroom.protocols.statistics.of_pairs import Gini
from tallyroom.protocols.statistics.release import Release

N = 200_000
RECORDS = 400


def drawn(scale: Fraction, noises: float, seed: int = 1) -> NDArray[np.int64]:
    """Sums of so many discrete Laplace noises, as differences of negative binomial numbers."""
    generator = np.random.default_rng(seed)
    success = -np.expm1(-1 / float(scale))
    one, two = (generator.negative_binomial(noises, success, N) for _ in range(2))
    return np.asarray(one - two, dtype=np.int64)


def half_width(
    statistic: Statistic, noise: Placement, servers: int, contributors: int
) -> tuple[float, Fraction]:
    """Of the first value, in units of its standard deviation, and the scale of a noise."""
    asked = Question(statistic, "additive", Fraction(1, 10), noise)
    query = asked.query(bytes(8), 7, servers, RECORDS, 100)
    assert query.noise_law is not None
    put = query.statistic
    middle = RECORDS << 30 if isinstance(put, Gini) else 10**9  # far from where it would be clipped
    released = np.full(query.plan.released, middle, dtype=np.uint64)
    release = AddedNoise(query).release(released, RECORDS, contributors)
    found = put.read(release).interval
    assert found is not None
    scale = laplace_scale(query.noise_law)
    return float((found.high - found.low)[0] / (2 * found.errors[0])), scale


@pytest.mark.parametrize("statistic", [Sum(lower=0, upper=1), Gini(lower=0, upper=1)], ids=str)
@pytest.mark.parametrize(
    ("noise", "servers", "contributors", "noises"),
    [
        (Placement.CURATOR, 2, 7, 1.0),
        (Placement.JOINT, 2, 7, 1.0),
        (Placement.EACH_SERVER, 2, 7, 2.0),
        (Placement.EACH_SERVER, 3, 7, 3.0),
        (Placement.SHARED, 3, 7, 1.5),
        (Placement.PARTIES, 2, 5, 5 / 4),
        (Placement.PARTIES, 2, 7, 7 / 4),
    ],
)
def test_of_one_total(
    statistic: Statistic, noise: Placement, servers: int, contributors: int, noises: float
) -> None:
    if isinstance(statistic, Gini) and noise in (Placement.CURATOR, Placement.PARTIES):
        pytest.skip("not of pairs")
    width, scale = half_width(statistic, noise, servers, contributors)
    errors = np.abs(drawn(scale, noises))
    deviation = np.sqrt(noises / 2) / np.sinh(1 / (2 * float(scale)))
    assert 0.947 <= np.mean(errors <= width * deviation * (1 + 1e-9)) <= 0.953
    assert np.mean(errors <= 1.96 * deviation) < 0.947


@pytest.mark.parametrize("noise", [Placement.JOINT, Placement.EACH_SERVER])
@pytest.mark.parametrize("strategy", ["tree", "hierarchy", "hb"])
def test_of_points_of_curves(strategy: str, noise: Placement) -> None:
    """Of the first, the middle and a late threshold, by the weights of the noises in them, which
    units of noise tell one after the other."""
    statistic = Ecdf(lower=0, upper=1, thresholds=32, strategy=strategy, smooth="none")
    asked = Question(statistic, "additive", Fraction(1, 10), noise)
    query = asked.query(bytes(8), 7, 2, RECORDS, 100)
    law = AddedNoise(query).noise(np.zeros(1, dtype=np.uint64), RECORDS, 7)
    assert law is not None
    width = law.width(statistic.curve_strategy.noises_in_count)
    units = np.eye(query.plan.noises, dtype=np.uint64) << np.uint64(20)

    def curve(released: Vector) -> Column:
        return statistic.unsmoothed(Release(query.plan, released, RECORDS, law))

    zero = curve(np.zeros(query.plan.released, dtype=np.uint64))
    moved = np.array([curve(query.plan.place(u)) - zero for u in units])
    servers = 2 if noise is Placement.EACH_SERVER else 1
    generator = np.random.default_rng(2)
    laws = generator.laplace(size=(servers, N // 4, query.plan.noises)).sum(axis=0)
    for point in (0, 15, 29):
        weights = moved[:, point]
        errors = np.abs(laws @ weights) / np.sqrt(2 * servers * (weights @ weights))
        assert 0.945 <= np.mean(errors <= width) <= 0.967


def exact_width(weights: NDArray[np.float64]) -> float:
    """Of a weighted sum of Laplace noises, by its characteristic function."""
    squares = weights**2 / (weights @ weights)
    size, step = 1 << 14, 0.004
    at = 2 * np.pi * np.fft.fftfreq(size, step)
    law = np.fft.fftshift(np.fft.ifft(np.exp(-np.log1p(np.outer(at**2 / 2, squares)).sum(1))).real)
    upto = np.cumsum(law / law.sum()) - law / law.sum() / 2
    return float(np.interp(0.975, upto, (np.arange(size) - size // 2) * step))


def test_noises_of_unequal_weights_are_held_by_as_many_equal_ones() -> None:
    """Those of the same kurtosis: never narrower, and at most 0.03 deviations wider."""
    generator = np.random.default_rng(0)
    for _ in range(40):
        weights = generator.random(generator.integers(2, 12)) ** generator.integers(1, 6)
        equal = (weights @ weights) ** 2 / (weights**2 @ weights**2)
        assert -1e-4 <= laplace_width(0.975, float(equal)) - exact_width(weights) <= 0.03
        assert exact_width(weights) <= laplace_width(0.975, 1) + 1e-4


def test_weights_of_a_hierarchy_are_those_of_its_estimates() -> None:
    for points in (2, 9, 32):
        shape = HierarchyStrategy(points).shape
        columns = np.array([shape.prefix_counts(unit, 0.0) for unit in np.eye(shape.nodes)])
        for at in range(points - 1):
            assert shape.prefix_weights(at) == pytest.approx(columns[:, at], abs=1e-12)
