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

from protocols.errors import LocalError
from protocols.privacy.smooth_sensitivity import (
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


@pytest.mark.parametrize("epsilon", ["1/2", "2", "10"])
@statistics
def test_cauchy_noise_is_pure(
    epsilon: str, statistic: Statistic, smooth: Smooth, local: object
) -> None:
    """Densities of the release at all pairs of neighbours."""
    noise = SmoothNoise(Fraction(epsilon))
    honest = worst_density_ratio(noise, statistic, smooth, 1.0)
    assert honest <= float(noise.epsilon) + 1e-9


@statistics
def test_too_little_cauchy_noise_is_caught(
    statistic: Statistic, smooth: Smooth, local: object
) -> None:
    """The proof's two halves of ε are not spent by one pair here: a third of the noise shows."""
    noise = SmoothNoise(Fraction(1, 2))
    assert worst_density_ratio(noise, statistic, smooth, 1 / 3) > 0.5


def worst_density_ratio(
    noise: SmoothNoise, statistic: Statistic, smooth: Smooth, factor: float
) -> float:
    data, adjacent, _ = world()
    values = np.array([value_of(statistic, labels) for labels in data])
    scales = factor * np.array(
        [float(noise.scale(smooth(sum(x), RECORDS - sum(x), noise.beta))) for x in data]
    )
    outputs = np.concatenate([np.linspace(-3, 4, 141), [-1e6, 1e6]])
    density: Vector = np.asarray(stats.cauchy.logpdf(outputs[:, None], values, scales))
    here, there = np.nonzero(adjacent)
    return float((density[:, here] - density[:, there]).max())


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
    assert SmoothNoise(Fraction(1)).scale(0.25) == pytest.approx(Fraction(1, 2), rel=1e-8)
    assert SmoothNoise(Fraction(1)).scale(0.25) > Fraction(1, 2), "rounded up, never down"
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
