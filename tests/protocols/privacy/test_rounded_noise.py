"""Noise rounded to a grid: against the exact distribution of each, on few bits and on many."""

from collections.abc import Callable
from fractions import Fraction
from math import floor

import numpy as np
import pytest
from scipy import stats

from tallyroom.protocols.privacy import rounded_noise
from tallyroom.protocols.privacy.rounded_noise import Cauchy, Laplace, Real, rounded
from tallyroom.protocols.randomness import Randomness
from tests.goodness import ALPHA, fits

RUNS = 3000


@pytest.mark.parametrize(("noise", "ideal"), [(Cauchy, stats.cauchy), (Laplace, stats.laplace)])
@pytest.mark.parametrize("bits", [1, 64])
def test_each_multiple_has_its_exact_probability(
    noise: Callable[[Randomness], Real],
    ideal: stats.rv_continuous,
    bits: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With one bit at a time nearly every decision has to ask for more of them."""
    if bits == 1:
        monkeypatch.setattr(rounded_noise, "BITS", 1)

        class Bits(Randomness):
            def words(self, count: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
                return super().words(count) & np.uint64(1)

        randomness: Randomness = Bits(bytes(16))
    else:
        randomness = Randomness(bytes(16))
    value, scale, grid = Fraction(2, 7), Fraction(5, 3), Fraction(1, 2)
    runs = RUNS // 2 if bits == 1 else RUNS
    drawn = [rounded(value, scale, grid, noise, randomness) for _ in range(runs)]
    support = np.arange(-40, 41)
    edges = (np.append(support, 41) - 0.5) * float(grid)
    p = np.diff(ideal.cdf(edges, float(value), float(scale)))
    clipped = np.clip(drawn, -1000, 1000)
    assert fits(clipped, support, p) > ALPHA
    halved = np.diff(ideal.cdf(edges, float(value), float(scale) / 2))
    assert fits(clipped, support, halved) < ALPHA


def test_the_rounding_is_to_the_nearest_multiple() -> None:
    class Known:
        def __init__(self, randomness: Randomness) -> None:
            self.width = Fraction(1)

        def bounds(self) -> tuple[Fraction, Fraction]:
            return Fraction(1, 3) - self.width, Fraction(1, 3) + self.width

        def refine(self) -> None:
            self.width /= 2

    for value in (Fraction(0), Fraction(-17, 5), Fraction(9)):
        for grid in (Fraction(1, 8), Fraction(3)):
            exact = (value + 2 * Fraction(1, 3)) / grid
            multiple = rounded(value, Fraction(2), grid, Known, Randomness(bytes(16)))
            assert multiple == floor(exact + Fraction(1, 2))


def test_bad_scales_are_refused() -> None:
    for scale, grid in ((0, 1), (1, 0), (-1, 1)):
        with pytest.raises(ValueError, match="positive"):
            rounded(Fraction(0), Fraction(scale), Fraction(grid), Cauchy, Randomness(bytes(16)))
