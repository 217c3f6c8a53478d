"""Quantiles by smooth sensitivity: brute force over all data sets on a small grid of values."""

import itertools
import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tallyroom.protocols.privacy.quantiles import (
    quantile,
    rank,
    recursive_medians,
    smooth_quantile,
)
from tallyroom.protocols.privacy.smooth_sensitivity import SmoothNoise
from tallyroom.protocols.randomness import Randomness
from tests.goodness import ALPHA, chi_square_p
from tests.protocols.privacy.choices import worst_loss

Data = tuple[int, ...]
Vector = NDArray[np.float64]
TOP = 5
QUANTILES = [Fraction(1, 2), Fraction(0), Fraction(1, 4), Fraction(9, 10), Fraction(1)]


def all_data(records: int) -> list[Data]:
    return list(itertools.combinations_with_replacement(range(TOP + 1), records))


def exact(data: Data, q: Fraction) -> float:
    return float(quantile(np.array(data, dtype=np.int64), q, 0, TOP))


def smooth(data: Data, q: Fraction, beta: float) -> float:
    return smooth_quantile(np.array(data, dtype=np.int64), q, 0, TOP, beta)


def replaced(here: Data, there: Data) -> int:
    """How many records two data sets of one size differ by."""
    common = sum(min(here.count(value), there.count(value)) for value in set(here))
    return len(here) - common


@pytest.mark.parametrize("q", QUANTILES)
@pytest.mark.parametrize("records", [1, 2, 3, 4])
def test_it_is_the_smooth_sensitivity_exactly(q: Fraction, records: int) -> None:
    """All data sets at all distances. All of 0..5 are values, so the suprema are attained."""
    data = all_data(records)
    distance = np.array([[replaced(x, y) for y in data] for x in data])
    values = np.array([exact(x, q) for x in data])
    local = np.where(distance == 1, np.abs(values[:, None] - values), 0.0).max(axis=1)
    for beta in (0.05, 0.7, 3.0):
        brute = (local * np.exp(-beta * distance)).max(axis=1)
        ours = [smooth(x, q, beta) for x in data]
        np.testing.assert_allclose(ours, brute, rtol=1e-12)


@pytest.mark.parametrize("q", QUANTILES)
def test_it_is_smooth_and_a_bound_when_a_value_is_added_or_removed(q: Fraction) -> None:
    """What the recursion's parts go through. Sizes 0 to 4."""
    for records in range(4):
        for data in all_data(records):
            for value in range(TOP + 1):
                more = tuple(sorted((*data, value)))
                for beta in (0.05, 0.7):
                    here, there = smooth(data, q, beta), smooth(more, q, beta)
                    assert abs(math.log(here / there)) <= beta + 1e-12
                    assert abs(exact(data, q) - exact(more, q)) <= min(here, there) + 1e-12


def naive(values: np.ndarray[tuple[int], np.dtype[np.int64]], r: int, beta: float) -> float:
    padded = [0, *values.tolist(), 1000]
    return max(
        (padded[b] - padded[a]) * math.exp(-beta * (b - a - 1))
        for a in range(r + 1)
        for b in range(max(r, a + 1), len(padded))
    )


def test_halving_finds_what_all_pairs_find() -> None:
    rng = np.random.default_rng(11)
    for records, beta in itertools.product((1, 7, 60), (1e-4, 0.03, 1.0)):
        for values in (rng.integers(0, 1001, records), rng.integers(480, 500, records)):
            ordered = np.sort(values)
            for q in QUANTILES:
                ours = smooth_quantile(ordered, q, 0, 1000, beta)
                assert ours == pytest.approx(naive(ordered, rank(q, records), beta))


def test_a_private_median_is_near_when_epsilon_is_large_and_within_bounds_always() -> None:
    rng = np.random.default_rng(12)
    values = rng.integers(-500, 10_000, 2001)
    source = Randomness.from_seed(6, "quantile")
    (noisy,) = recursive_medians(values, 1, -500, 10_000, Fraction(10**4), source)
    assert abs(noisy - np.median(values)) <= 5
    for values_ in ([], [3], [-500, 10_000]):
        drawn = [
            recursive_medians(values_, 1, -500, 10_000, Fraction(1), source)[0] for _ in range(20)
        ]
        assert all(-500 <= value <= 10_000 for value in drawn)
        assert len(set(drawn)) > 2
    assert recursive_medians([7, 7], 1, 7, 7, Fraction(1), source) == [7]


def test_recursive_medians_part_the_values_evenly() -> None:
    values = np.random.default_rng(13).integers(0, 1 << 20, 20_000)
    source = Randomness.from_seed(7, "medians")
    thresholds = recursive_medians(values, 3, 0, 1 << 20, Fraction(100), source)
    assert len(thresholds) == 7
    assert thresholds == sorted(thresholds)
    shares = np.diff(np.searchsorted(np.sort(values), [0, *thresholds, 1 << 20])) / 20_000
    np.testing.assert_allclose(shares, 1 / 8, atol=0.02)
    for values_ in ([], [5, 5, 5]):
        assert len(recursive_medians(values_, 4, 0, 9, Fraction(1), source)) == 15
    assert recursive_medians([], 2, 3, 3, Fraction(1), source) == [3, 3, 3]


def test_each_median_spends_what_the_docstring_says(monkeypatch: pytest.MonkeyPatch) -> None:
    spent: list[Fraction] = []
    release = SmoothNoise.release

    def watched(self: SmoothNoise, *arguments: object) -> Fraction:
        spent.append(self.epsilon)
        return release(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(SmoothNoise, "release", watched)
    recursive_medians([1, 2, 3], 3, 0, 100, Fraction(1), Randomness.from_seed(8, "spent"))
    assert spent == [Fraction(1, 5)] * 7
    assert spent[0] * (1 + 2 + 2) == 1, "one part of the first level, two of each further one"


def test_bad_input_is_refused() -> None:
    source = Randomness.from_seed(9, "bad")
    for values, lower, upper, message in (
        ([1], 2, 1, "range"),
        ([1], 0, 1 << 51, "range"),
        ([1], 1 << 61, 1 << 61, "range"),
        ([0.5], 0, 1, "integers"),
        ([[1]], 0, 1, "vector"),
        ([2], 0, 1, "outside"),
        ([-1], 0, 1, "outside"),
    ):
        with pytest.raises(ValueError, match=message):
            recursive_medians(values, 1, lower, upper, Fraction(1), source)
    for depth in (0, 21, -1):
        with pytest.raises(ValueError, match="depth"):
            recursive_medians([1], depth, 0, 1, Fraction(1), source)


# --- the law of one noisy median ---

LOW, HIGH = -1, 41
HALF = Fraction(1, 2)


def median_law(data: Data, noise: SmoothNoise, part: float) -> Vector:
    """The exact chances of thresholds 0..40 of one level, with so large a part of the noise: a
    Cauchy variable rounded to integers, and all that is outside at the midpoint."""
    values = np.array(data, dtype=np.int64)
    smooth = smooth_quantile(values, HALF, LOW, HIGH, noise.beta)
    centre = float(quantile(values, HALF, LOW, HIGH))
    edges = np.arange(LOW, HIGH) + 0.5
    below = stats.cauchy.cdf(edges, centre, part * float(noise.scale(smooth)))
    chances: Vector = np.diff(below)
    chances[(LOW + HIGH) // 2] += 1 - chances.sum()
    return chances


def median_losses(epsilon: Fraction, part: float) -> float:
    """The worst of all data sets of up to three values, and others with one replaced, added or
    removed: parts of the recursion differ by any of these."""
    noise = SmoothNoise(epsilon)
    laws = {
        each: median_law(each, noise, part)
        for records in range(4)
        for each in itertools.combinations_with_replacement((0, 1, 14, 27, 39, 40), records)
    }
    return max(
        worst_loss(laws[here], laws[there])
        for here, there in itertools.combinations(laws, 2)
        if max(replaced(here, there), replaced(there, here)) == 1
    )


@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(1), Fraction(2), Fraction(4)])
def test_a_noisy_median_loses_at_most_epsilon_and_half_of_the_noise_more(
    epsilon: Fraction,
) -> None:
    """One value that goes from end to end moves the median by the smooth sensitivity of both. For
    an ε below 0.3 the outputs that tell are outside the bounds, and give way to the midpoint."""
    assert 0.5 * epsilon < median_losses(epsilon, 1.0) <= epsilon < median_losses(epsilon, 0.5)


@pytest.mark.parametrize("epsilon", [Fraction(1, 64), Fraction(1, 8), Fraction(1), Fraction(8)])
def test_before_it_gives_way_it_loses_nearly_epsilon_and_half_of_the_noise_more(
    epsilon: Fraction,
) -> None:
    """The same value, and all outputs: the shift alone, by the whole range."""
    noise = SmoothNoise(epsilon)
    scales = [
        float(noise.scale(smooth_quantile(np.array([each]), HALF, LOW, HIGH, noise.beta)))
        for each in (LOW, HIGH)
    ]
    assert scales[0] == scales[1]
    honest, halved = (2 * math.asinh((HIGH - LOW) / (2 * part * scales[0])) for part in (1, 0.5))
    assert 0.86 * epsilon < honest <= epsilon < halved


def test_medians_between_two_crowds_lose_at_most_epsilon() -> None:
    """Up to 14 values in two crowds, far from the bounds: there the local sensitivity is the gap or
    0, and smooth sensitivities of neighbours differ by up to e^β. All outputs."""
    most = 0.0
    for epsilon in (Fraction(1, 4), Fraction(1), Fraction(3)):
        noise = SmoothNoise(epsilon)
        for records, gap in itertools.product(range(1, 15), (1, 30, 1000)):
            told = []
            for low in range(records + 1):
                values = np.array([0] * low + [gap] * (records - low))
                smooth = smooth_quantile(values, HALF, -1000, 2000, noise.beta)
                told.append((float(quantile(values, HALF, 0, 1)), float(noise.scale(smooth))))
            for (m, s), (centre, scale) in pairwise(told):
                apart = ((m - centre) ** 2 + (s - scale) ** 2) / (4 * s * scale)
                loss = 2 * math.asinh(math.sqrt(apart))
                assert loss <= epsilon
                most = max(most, loss / float(epsilon))
    assert most > 0.6


def test_thresholds_have_the_law_of_a_noisy_median() -> None:
    """4000 thresholds of one level; the law with halved noise would not pass."""
    noise, runs, data = SmoothNoise(Fraction(2)), 4000, (0,)
    source = Randomness.from_seed(10, "law")
    drawn = [recursive_medians(data, 1, LOW, HIGH, noise.epsilon, source)[0] for _ in range(runs)]
    law = median_law(data, noise, 1.0)
    assert chi_square_p(np.bincount(drawn, minlength=41), law * runs) > ALPHA
    halved = np.rint(median_law(data, noise, 0.5) * runs).astype(np.int64)
    assert chi_square_p(halved, law * runs) < ALPHA
