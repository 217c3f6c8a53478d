"""Thresholds are the numbers that a person would name, and the fine grid knows decimals."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.thresholds import FineGrid, quantiles, threshold_values
from tallyroom.protocols.records import Column, deal
from tallyroom.protocols.statistics import Curve
from tallyroom.protocols.statistics.ecdf import CumulativeHistogram, Ecdf, Quantile
from tallyroom.protocols.statistics.planned import planned

AGES = np.clip(np.rint(np.random.default_rng(3).normal(40, 15, 4000)), 0, 120)


@given(st.integers(-(10**9), 10**9), st.integers(1, 2000))
def test_integer_ranges_have_integer_thresholds(lower: int, width: int) -> None:
    found = threshold_values(float(lower), float(lower + width), width, "linear")
    assert found.tolist() == list(range(lower + 1, lower + width + 1))


@given(st.integers(-999, 999), st.integers(1, 300), st.integers(0, 6))
def test_decimal_ranges_have_decimal_thresholds(lower: int, width: int, places: int) -> None:
    """Each is the double that its decimal reads as: 0.3, not 3 · 0.1."""
    ends = [float(Decimal(end).scaleb(-places)) for end in (lower, lower + width)]
    wanted = [float(Decimal(lower + i).scaleb(-places)) for i in range(1, width + 1)]
    assert threshold_values(*ends, width, "linear").tolist() == wanted


@given(st.floats(-1e9, 1e9), st.floats(1e-3, 1e9), st.integers(1, 500))
def test_thresholds_are_the_nearest_doubles(lower: float, width: float, count: int) -> None:
    upper = lower + width
    low, high = Fraction(repr(lower)), Fraction(repr(upper))
    wanted = [float(low + i * (high - low) / count) for i in range(1, count + 1)]
    assert threshold_values(lower, upper, count, "linear").tolist() == wanted


@pytest.mark.parametrize("powers", range(1, 13))
@pytest.mark.parametrize("between", [1, 2, 5])
def test_logarithmic_thresholds_meet_the_powers_of_ten(powers: int, between: int) -> None:
    found = threshold_values(1.0, 10.0**powers, powers * between, "log")
    assert found[between - 1 :: between].tolist() == [10.0**k for k in range(1, powers + 1)]
    ratios = found[1:] / found[:-1]
    assert np.allclose(ratios, ratios[:1] if len(ratios) else 1.0, rtol=1e-14)


@pytest.mark.parametrize("bits", [32, 7])
def test_keys_decide_as_numpy_does_on_integers(bits: int) -> None:
    statistic = Ecdf(lower=0.0, upper=120.0, thresholds=120)
    points = statistic.encoding.measurement.points(bits)
    alphas = points[statistic.encoding.measured(deal({"value": AGES}, 1))]
    wanted = AGES[:, None] <= np.arange(1.0, 121.0)
    assert ((alphas[:, None] <= points) == wanted).all()


def test_ages_fall_into_the_bins_and_quantiles_of_numpy() -> None:
    holdings = deal({"value": AGES}, 4)
    binned = CumulativeHistogram(lower=0.0, upper=120.0, thresholds=120)
    curve = planned(binned).noiseless(holdings)
    assert isinstance(curve, Curve)
    counts = np.bincount(AGES.astype(int), minlength=121)
    assert curve.y == [float(counts[0] + counts[1]), *counts[2:].astype(float)]
    quantile = Quantile(lower=0.0, upper=120.0, thresholds=120, quantile=(0.75,))
    wanted = np.quantile(AGES, 0.75, method="inverted_cdf")
    assert planned(quantile).noiseless(holdings) == wanted == quantile.reference(holdings)


RANGES = [
    (0.0, 120.0),
    (0.0, 1.0),
    (-5.0, 5.0),
    (0.1, 0.7),
    (1.7e9, 1.7e9 + 1),
    (-1e12, 1e12),
    (1e-30, 3e-30),
    (-1e250, 1e260),
]


@pytest.mark.parametrize("ends", RANGES)
@pytest.mark.parametrize("spacing", ["linear", "log"])
def test_values_stand_on_the_first_line_that_they_are_at_most(
    ends: tuple[float, float], spacing: str
) -> None:
    lower, upper = ends
    if spacing == "log" and lower <= 0:
        lower = upper / 1e6
    grid = FineGrid(lower, upper, spacing)
    assert grid.last < 2**32
    share = np.random.default_rng(5).random(2000)
    values: Column = np.clip(lower + share * (upper - lower), lower, upper)
    values = np.concatenate([values, [lower, upper]])
    points = grid.points(values)
    lines = grid.lines(points)
    assert (values <= lines).all()
    before = grid.lines(points - np.minimum(points, np.uint64(1)))
    assert ((points == 0) | (before < values)).all()
    gap = np.float64(grid.step) + 4 * np.spacing(np.abs(lines))
    assert ((lines - values) <= gap).all()
    assert grid.lines(np.array([grid.last], dtype=np.uint64))[0] == upper


@pytest.mark.parametrize(("upper", "places"), [(120, 7), (1, 9), (1000, 6)])
def test_decimals_are_on_the_lines(upper: int, places: int) -> None:
    """What a person asks for is what is compared with."""
    grid = FineGrid(0.0, float(upper))
    numbers = np.random.default_rng(6).integers(0, upper * 10**places, 2000).tolist()
    asked = np.array([float(Decimal(number).scaleb(-places)) for number in numbers])
    assert (grid.lines(grid.points(asked)) == asked).all()


@pytest.mark.parametrize("ends", [(0.0, 5e-324), (0.0, 1e-300), (-1e300, 1e300)])
def test_ranges_past_the_fine_grid_are_refused(ends: tuple[float, float]) -> None:
    with pytest.raises(LocalError, match="out of the range"):
        FineGrid(*ends)


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=40), st.integers(0, 100))
def test_quantiles_are_those_of_the_distribution_function(values: list[int], cent: int) -> None:
    ordered = sorted(values)
    reached = (
        v for v in ordered if 100 * sum(w <= v for w in ordered) >= max(cent, 1e-9) * len(ordered)
    )
    assert quantiles(np.array(values, dtype=float), (cent / 100,)) == [float(next(reached))]
