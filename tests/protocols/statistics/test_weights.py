"""Weighted means and histograms, and proportions, against numpy, and their intervals."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tallyroom.protocols.cells import encode_cells
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.records import Column, deal
from tallyroom.protocols.statistics.estimates import shape_of
from tallyroom.protocols.statistics.grouped import grouped
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.protocols.statistics.planned import planned
from tallyroom.protocols.statistics.proportion import Proportion
from tests.protocols.statistics.noisily import answered, covered

WEIGHED: dict[str, Any] = {"weights": "w", "weight_upper": 8.0}
BOUNDS: dict[str, Any] = {"lower": 100.0, "upper": 110.0}
BY: dict[str, Any] = {"by": ("sex",), "groups": {"sex": "F,M"}}


def drawn(seed: int, rows: int) -> dict[str, Column]:
    """Values on edges and off them, weights of 0 and of the upper bound."""
    generator = np.random.default_rng(seed)
    values = np.where(generator.random(rows) < 0.5, 104, 110) - generator.integers(0, 4, rows) / 2
    sexes = generator.choice(["F", "M", ""], rows, p=[0.6, 0.3, 0.1]).tolist()
    weights = np.minimum(np.round(generator.exponential(2, rows), 1), 8.0)
    return {"value": values, "w": weights, "sex": encode_cells(sexes)}


@pytest.mark.parametrize("rows", [3, 200])
def test_without_noise_they_are_numpys(rows: int) -> None:
    columns = drawn(2, rows)
    data, values, weights = deal(columns, 3), columns["value"], columns["w"]
    mean, bars = Mean(**BOUNDS, **WEIGHED), Histogram(**BOUNDS, **WEIGHED, bins=5)
    wanted = np.histogram(values, 5, (100, 110), weights=weights)[0]
    for found in (planned(mean).noiseless(data), mean.reference(data)):
        assert found == pytest.approx(np.average(values, weights=weights), abs=1e-3)
    for found in (planned(bars).noiseless(data), bars.reference(data)):
        np.testing.assert_allclose(shape_of(found).values(), wanted, atol=rows * 4e-5)
    women = Proportion("sex", "F")
    for found in (planned(women).noiseless(data), women.reference(data)):
        assert found == np.mean(columns["sex"].view(np.uint64) == encode_cells("F").view(np.uint64))


def test_groups_without_noise_are_numpys_on_their_rows() -> None:
    columns = drawn(4, 60)
    data, inside = deal(columns, 3), columns["value"] > 104
    mean = grouped(Mean(**BOUNDS, **WEIGHED), "value > 104")
    wanted = np.average(columns["value"][inside], weights=columns["w"][inside])
    assert planned(mean).noiseless(data) == pytest.approx(wanted, abs=1e-3)
    share = grouped(Proportion("value", "110,104"), **BY)
    found = shape_of(planned(share).noiseless(data)).values()
    np.testing.assert_array_equal(found, shape_of(share.reference(data)).values())
    assert 0 < found[0] < 1


def test_records_that_weigh_nothing_have_no_mean() -> None:
    columns = drawn(4, 9) | {"w": np.zeros(9)}
    mean = Mean(**BOUNDS, **WEIGHED)
    assert math.isnan(float(shape_of(planned(mean).noiseless(deal(columns, 3))).values()[0]))
    answer = answered(mean, deal(columns, 3), Fraction(1), 1)
    assert answer.interval is not None
    assert (answer.interval.low[0], answer.interval.high[0]) == pytest.approx((100, 110), abs=1)


def test_intervals_cover_what_they_say() -> None:
    """Of 60 intervals of 95 %, 57 cover on average, and 46 or more all but once in a million."""
    held = np.zeros(4)
    for seed in range(60):
        columns = drawn(seed, 400)
        data = deal(columns, 1)
        asked = (
            Mean(**BOUNDS, **WEIGHED),
            grouped(Mean(**BOUNDS, **WEIGHED), "sex = 'M'"),
            Proportion("sex", "F"),
            grouped(Proportion("value", "110,104"), "sex = 'F'"),
        )
        for at, each in enumerate(asked):
            answer = answered(each, data, Fraction(1), seed)
            held[at] += covered(answer, shape_of(each.reference(data)).values())
    assert (held >= 46).all()


def test_a_share_covers_that_of_the_population() -> None:
    """As above, for both ways to ask."""
    held = np.zeros(2)
    for seed in range(60):
        data = deal(drawn(seed, 400), 1)
        for at, asked in enumerate(
            (Proportion("sex", "F"), grouped(Proportion("sex", "F"), "w >= 0"))
        ):
            held[at] += covered(answered(asked, data, Fraction(1), seed), 0.6, True)
    assert (held >= 46).all()


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: planned(Mean(**BOUNDS, weights="w")).plan, "give --weight-upper"),
        (lambda: Mean(**BOUNDS, weight_upper=2.0), "goes with --weights"),
        (lambda: Mean(**BOUNDS, weights="value", weight_upper=2.0), "both --value and --weights"),
        (lambda: Mean(**BOUNDS, weights="w", weight_upper=0.0), "a number above 0"),
        (lambda: Mean(**BOUNDS, weights="w", weight_upper=math.nan), "a number above 0"),
        (
            lambda: planned(grouped(Histogram(**BOUNDS, **WEIGHED), **BY)).plan,
            "about all records",
        ),
        (lambda: Proportion("value", ""), "separated by commas"),
        (
            lambda: Mean(**BOUNDS, **WEIGHED).reference(
                deal({"value": np.ones(2), "w": -np.ones(2)}, 1)
            ),
            "weights below 0",
        ),
    ],
)
def test_bad_options_are_refused_in_one_line(ask: Any, words: str) -> None:
    with pytest.raises(LocalError, match=words):
        ask()
