"""Smooth sensitivity of AUC and average precision, by brute force over every data set of 7 records.

Only the order of scores matters, so a data set of N records without ties is a string of N labels,
best score last. A neighbour takes one record out and puts any other one in anywhere.
"""

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.smooth_sensitivity import (
    LARGEST_EPSILON,
    SmoothNoise,
    auc,
    average_precision,
    local_auc,
    local_average_precision,
    smooth_auc,
    smooth_average_precision,
)

Vector = NDArray[np.float64]
Labels = tuple[int, ...]
RECORDS = 7


def classes(scores: ArrayLike, labels: ArrayLike) -> tuple[Vector, Vector]:
    """Scores of the positives and of the negatives."""
    x, positive = np.asarray(scores, dtype=np.float64), np.asarray(labels) == 1
    return x[positive], x[~positive]


def value_of(statistic: Callable[[Vector, Vector], Fraction], labels: Labels) -> float:
    return float(statistic(*classes(np.arange(len(labels)), labels)))


@cache
def world() -> tuple[list[Labels], NDArray[np.bool], Vector]:
    """All data sets, who is whose neighbour, and all distances."""
    data = list(itertools.product((0, 1), repeat=RECORDS))
    place = {labels: index for index, labels in enumerate(data)}
    adjacent = np.zeros((len(data), len(data)), dtype=bool)
    for labels in data:
        for out, into, label in itertools.product(range(RECORDS), range(RECORDS), (0, 1)):
            left = labels[:out] + labels[out + 1 :]
            moved = (*left[:into], label, *left[into:])
            adjacent[place[labels], place[moved]] = True
    np.fill_diagonal(adjacent, False)
    distances = shortest_path(csr_array(adjacent.astype(float)), unweighted=True)
    return data, adjacent, distances


STATISTICS = [
    (auc, smooth_auc, local_auc),
    (average_precision, smooth_average_precision, local_average_precision),
]
Statistic = Callable[[Vector, Vector], Fraction]
Smooth = Callable[[int, int, float], float]
statistics = pytest.mark.parametrize(("statistic", "smooth", "local"), STATISTICS)


@statistics
def test_bounds_hold_at_every_data_set_and_are_smooth(
    statistic: Statistic, smooth: Smooth, local: Callable[[int], Vector]
) -> None:
    data, adjacent, distances = world()
    values = np.array([value_of(statistic, labels) for labels in data])
    positives = np.array([sum(labels) for labels in data])
    exact = np.where(adjacent, np.abs(values[:, None] - values), 0.0).max(axis=1)
    assert (exact <= local(RECORDS)[positives] + 1e-12).all()
    for beta in (0.01, 0.3, 2.0):
        bound = np.array([smooth(n, RECORDS - n, beta) for n in range(RECORDS + 1)])[positives]
        brute = (exact * np.exp(-beta * distances)).max(axis=1)
        assert (bound >= brute - 1e-12).all()
        ratio = bound[:, None] / bound
        assert ratio[adjacent].max() <= math.exp(beta) * (1 + 1e-12)
        assert (bound <= 1 + 1e-9).all()


def test_the_local_sensitivity_of_auc_is_exact() -> None:
    """Some data set with n positives and m negatives attains 1/min(n, m)."""
    data, adjacent, _ = world()
    values = np.array([value_of(auc, labels) for labels in data])
    exact = np.where(adjacent, np.abs(values[:, None] - values), 0.0).max(axis=1)
    for n in range(2, RECORDS - 1):
        worst = max(exact[i] for i, labels in enumerate(data) if sum(labels) == n)
        assert worst == pytest.approx(1 / min(n, RECORDS - n))
        assert local_auc(RECORDS)[n] == pytest.approx(worst)


def test_the_bound_for_average_precision_is_eq_33_with_4_for_8() -> None:
    def harmonic(n: int) -> float:
        return sum(1 / k for k in range(1, n + 1))

    table = local_average_precision(60)
    assert table.shape == (61,)
    assert (table[:2] == 1).all()
    assert table.max() == 1, "capped at the range"
    for n in (10, 33, 60):
        negative = (harmonic(n + 1) - 1) / n
        removed, added = (4 + harmonic(n - 1)) / (4 * (n - 1)), (4 + harmonic(n)) / (4 * n)
        assert table[n] == pytest.approx(max(negative, removed) + max(negative, added))
    assert [len(local_average_precision(records)) for records in range(4)] == [1, 2, 3, 4]


# --- the noise ---


def farthest(centres: ArrayLike, scales: ArrayLike) -> Vector:
    """The largest log-ratio of Cauchy densities over all outputs, for all pairs: the hyperbolic
    distance of centre and scale in the upper half-plane."""
    m, s = np.asarray(centres, dtype=np.float64), np.asarray(scales, dtype=np.float64)
    apart = (m[:, None] - m) ** 2 + (s[:, None] - s) ** 2
    distances: Vector = 2 * np.arcsinh(np.sqrt(apart / (4 * np.multiply.outer(s, s))))
    return distances


def test_densities_differ_by_the_hyperbolic_distance() -> None:
    """scipy's densities on a fine grid of outputs."""
    outputs = np.tan(np.linspace(-1, 1, 200_002)[1:-1] * math.pi / 2)
    for centre, scale in ((0.0, 2.0), (1.0, 1.0), (3.0, 0.4), (0.01, 1.5)):
        ratio = stats.cauchy.logpdf(outputs, 0, 1) - stats.cauchy.logpdf(outputs, centre, scale)
        exact = farthest([0.0, centre], [1.0, scale])[0, 1]
        assert ratio.max() == pytest.approx(exact, abs=1e-5)
        assert -ratio.min() == pytest.approx(exact, abs=1e-5)


EPSILONS = [2.0**each for each in range(-20, 6)] + [0.5, 0.53, 0.54, 0.6, 3.0, 63.0, 65.0, 1000.0]


def test_the_scale_is_the_least_that_shifts_and_dilations_need() -> None:
    """Shifts up to S and dilations up to e^β, all of them on a grid: none costs more than ε, and
    one costs ε but for a millionth."""
    for epsilon in EPSILONS:
        noise = SmoothNoise(Fraction(epsilon))
        spent = min(epsilon, LARGEST_EPSILON)
        dilations = np.linspace(0, noise.beta, 1001)
        shift, here = 1.0, float(noise.scale(1.0))
        there = here * np.exp(dilations)
        costs = 2 * np.arcsinh(np.sqrt((shift + (there - here) ** 2) / (4 * here * there)))
        assert spent * (1 - 1e-6) < costs.max() <= spent


@pytest.mark.parametrize("epsilon", ["1/8", "1/2", "2", "10"])
@statistics
def test_cauchy_noise_is_pure(
    epsilon: str, statistic: Statistic, smooth: Smooth, local: object
) -> None:
    """All pairs of neighbours, at the worst output of each."""
    assert worst_loss(SmoothNoise(Fraction(epsilon)), statistic, smooth, 1.0) <= Fraction(epsilon)


@pytest.mark.parametrize("epsilon", ["1/8", "1/2", "2", "10"])
def test_halved_cauchy_noise_of_an_auc_is_caught(epsilon: str) -> None:
    """Some of these data sets have a neighbour as far away as the smooth sensitivity of both."""
    noise = SmoothNoise(Fraction(epsilon))
    assert worst_loss(noise, auc, smooth_auc, 1.0) > 0.85 * float(noise.epsilon)
    assert worst_loss(noise, auc, smooth_auc, 0.5) > float(noise.epsilon)


def test_halved_cauchy_noise_of_an_average_precision_is_caught() -> None:
    """Where the bound is the range: one record, the only positive, goes from first to last."""
    noise = SmoothNoise(Fraction(2))
    for factor, caught in ((1.0, False), (0.5, True)):
        loss = worst_loss(noise, average_precision, smooth_average_precision, factor)
        assert (loss > 2) == caught


def worst_loss(noise: SmoothNoise, statistic: Statistic, smooth: Smooth, factor: float) -> float:
    data, adjacent, _ = world()
    values = [value_of(statistic, labels) for labels in data]
    scales = [
        factor * float(noise.scale(smooth(sum(x), RECORDS - sum(x), noise.beta))) for x in data
    ]
    return float(farthest(values, scales)[adjacent].max())


@pytest.mark.parametrize(("epsilon", "delta"), [("1/2", 1e-2), ("1", 1e-6), ("10", 1e-3)])
def test_laplace_noise_has_its_delta(epsilon: str, delta: float) -> None:
    """∫ max(0, p − e^ε·p') over the outputs, for the worst shift and dilation that S allows."""
    noise = SmoothNoise(Fraction(epsilon), delta)
    here, there = 1.0, math.exp(noise.beta)
    worst = 0.0
    for one, other in ((here, there), (there, here)):
        scale, wide = float(noise.scale(one)), float(noise.scale(other))
        shift = min(one, other)
        x = np.linspace(-80 * max(scale, wide), 80 * max(scale, wide), 400_001)
        p, q = stats.laplace.pdf(x, 0, scale), stats.laplace.pdf(x, shift, wide)
        excess = np.maximum(0.0, p - math.exp(float(noise.epsilon)) * q)
        worst = max(worst, float(excess.sum() * (x[1] - x[0])))
    assert worst <= delta * (1 + 1e-3)


def test_parameters_of_the_noise() -> None:
    assert SmoothNoise(Fraction(1)).beta == pytest.approx(0.5, abs=1e-11)
    exact = 0.25 / (2 * math.sinh(0.5))
    assert SmoothNoise(Fraction(1)).scale(0.25) == pytest.approx(Fraction(exact), rel=1e-8)
    assert SmoothNoise(Fraction(1)).scale(0.25) > exact, "rounded up, never down"
    assert SmoothNoise(Fraction(1, 100)).scale(1.0) == pytest.approx(115.4, abs=0.3)
    assert SmoothNoise(Fraction(1, 2), 1e-6).scale(0.25) == pytest.approx(1.0)
    published = 1 / (2 * math.log(2 / 1e-6))
    assert published < SmoothNoise(Fraction(1), 1e-6).beta < 1.1 * published
    for bad in (math.nan, math.inf, 0.0, -1.0):
        with pytest.raises(ValueError, match="smooth bound"):
            SmoothNoise(Fraction(1)).scale(bad)
    for delta in (-1e-9, 0.5, math.nan):
        with pytest.raises(LocalError, match="delta"):
            SmoothNoise(Fraction(1), delta)
    for epsilon in (Fraction(0), Fraction(-1), Fraction(1, 10**13)):
        with pytest.raises(LocalError, match="too small"):
            SmoothNoise(epsilon)


# --- the statistics ---


def test_the_statistics_are_scikit_learns_without_ties() -> None:
    from sklearn.metrics import average_precision_score, roc_auc_score

    rng = np.random.default_rng(9)
    for records in (2, 9, 200):
        scores = rng.permutation(records) / records
        labels = np.arange(records) % 2
        positive, negative = classes(scores, labels)
        assert float(auc(positive, negative)) == pytest.approx(roc_auc_score(labels, scores))
        reference = average_precision_score(labels, scores)
        assert float(average_precision(positive, negative)) == pytest.approx(reference)


def test_ties_put_negatives_before_positives() -> None:
    positive, negative = classes([1.0, 1.0, 2.0], [0, 1, 1])
    assert auc(positive, negative) == Fraction(1, 2)
    assert float(average_precision(positive, negative)) == pytest.approx((1 + 2 / 3) / 2)
