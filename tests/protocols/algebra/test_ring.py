"""Z_2^64 vectors and the fixed-point grid."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tallyroom.protocols.algebra.ring import PRECISION_BITS, FixedPoint, add_rows, signed
from tallyroom.protocols.errors import LocalError

words = st.integers(0, 2**64 - 1)
bounds = st.tuples(st.floats(-1e12, 1e12), st.floats(-1e12, 1e12)).filter(
    lambda ends: ends[0] < ends[1] and max(map(abs, ends)) > 1e-200
)


@given(st.lists(st.lists(words, min_size=3, max_size=3), min_size=1, max_size=8))
def test_rows_are_added_mod_2_64(rows: list[list[int]]) -> None:
    matrix = np.array(rows, dtype="<u8").view(np.uint8)
    expected = [sum(row[i] for row in rows) % 2**64 for i in range(3)]
    assert add_rows(matrix).tolist() == expected


@given(words)
def test_signed_is_the_representative_around_zero(word: int) -> None:
    value = int(signed(np.array([word], dtype=np.uint64))[0])
    assert -(2**63) <= value < 2**63
    assert (value - word) % 2**64 == 0


@given(bounds, st.floats(0, 1))
@example((1.7e9, 1.7e9 + 1), 0.3)
def test_a_value_in_bounds_comes_back_within_half_a_step(
    ends: tuple[float, float], at: float
) -> None:
    """And a step is small beside the range, wherever that lies."""
    lower, upper = ends
    value = min(max(lower + at * (upper - lower), lower), upper)
    grid = FixedPoint.for_bounds(lower, upper)
    encoded = int(grid.encode(np.array([value]))[0])
    assert abs(Fraction(grid.decode(encoded, 1)) - Fraction(value)) <= Fraction(grid.step) / 2
    assert grid.step <= (upper - lower) * 2.0 ** (1 - PRECISION_BITS)
    assert 0 <= encoded <= grid.steps


@given(bounds)
def test_a_large_number_of_the_largest_values_fits_the_ring(ends: tuple[float, float]) -> None:
    assert FixedPoint.for_bounds(*ends).steps * (2**33 - 1) < 2**63


@given(bounds)
def test_steps_count_the_grid_between_the_bounds(ends: tuple[float, float]) -> None:
    grid = FixedPoint.for_bounds(*ends)
    low, high = (round(Fraction(end) * Fraction(2) ** grid.fraction_bits) for end in ends)
    assert grid.steps == high - low
    assert grid.encode(np.array(ends)).tolist() == [0, grid.steps]


def test_the_grid_of_nothing_and_of_the_extremes() -> None:
    for upper in (0.0, 5e-324, 1e-308):
        with pytest.raises(LocalError, match="out of the range"):
            FixedPoint.for_bounds(0.0, upper)


@pytest.mark.parametrize("magnitude", [1e200, 1e308, 1.7e308])
def test_a_sum_over_huge_bounds_is_finite_or_refused(magnitude: float) -> None:
    try:
        grid = FixedPoint.for_bounds(-magnitude, magnitude)
    except LocalError:
        return
    assert math.isfinite(grid.decode(2**63 - 1, 2**32))
