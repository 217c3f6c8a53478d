"""Quantiles by smooth sensitivity: brute force over all data sets on a small grid of values."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from protocols.privacy.quantiles import (
    quantile,
    rank,
    recursive_medians,
    smooth_quantile,
)
from protocols.privacy.smooth_sensitivity import SmoothNoise
from protocols.randomness import Randomness

Data = tuple[int, ...]
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


@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(1), Fraction(2), Fraction(4)])
def test_a_noisy_median_loses_at_most_epsilon_and_a_quarter_of_the_noise_more(
    epsilon: Fraction,
) -> None:
    """The exact densities of every two adjacent data sets of up to three values, on a grid of
    outputs. With half of the noise the loss is still below ε at these sizes, since a median that
    moves far does not change its smooth sensitivity as much: there is nothing to catch."""
    noise, outputs = SmoothNoise(epsilon), np.linspace(-40, 40, 801)
    losses = {1.0: 0.0, 0.5: 0.0, 0.25: 0.0}
    for records in (1, 2, 3):
        data = [
            np.array(each)
            for each in itertools.combinations_with_replacement((0, 2, 6, 8), records)
        ]
        told = [
            (
                float(quantile(each, Fraction(1, 2), 0, 8)),
                float(noise.scale(smooth_quantile(each, Fraction(1, 2), 0, 8, noise.beta))),
            )
            for each in data
        ]
        for one, two in itertools.permutations(range(len(data)), 2):
            tally = np.bincount(data[one], minlength=9) - np.bincount(data[two], minlength=9)
            if np.abs(tally).sum() != 2:
                continue
            for part in losses:
                here, there = (
                    np.log(part * scale / ((part * scale) ** 2 + (outputs - at) ** 2))
                    for at, scale in (told[one], told[two])
                )
                losses[part] = max(losses[part], float((here - there).max()))
    assert losses[1.0] <= epsilon
    assert losses[0.5] <= epsilon
    assert losses[0.25] > epsilon
