"""Sensitivities against all pairs of records on a small grid, under whatever parameters a
coordinator may choose: bounds next to nothing or next to overflow, coefficients of any size.

Vectors add up over records, so replacing a record of any data set moves the sum by what the two
records' own vectors differ in: pairs of records are all neighbouring data sets there are.
"""

from itertools import combinations, product

import numpy as np
import pytest

from tallyroom.protocols.algebra.ring import signed
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.records import deal
from tallyroom.protocols.statistics.calibration import CalibrationCounts
from tallyroom.protocols.statistics.choices import TopK
from tallyroom.protocols.statistics.contract import Statistic
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.linear_regression import LinearRegression
from tallyroom.protocols.statistics.logistic_step import LogisticStep
from tallyroom.protocols.statistics.magnitudes import Magnitudes
from tallyroom.protocols.statistics.moments import Sum
from tallyroom.protocols.statistics.planned import planned
from tallyroom.protocols.statistics.projected import NextAttribute, ProjectedCells
from tallyroom.protocols.statistics.residuals import ResidualCells, ResidualReach

TINY, HUGE = 5e-324, 8.9e307
SCHEMA = ("x=0:1", "y=0:1e-323", "label=0,1")
WIDE = tuple(f"c{i}" for i in range(8))
OVERFLOW = (1e308,) * 5 + (-1e308,) * 4


def far_apart(statistic: Statistic, values: tuple[float, ...]) -> int:
    """How far apart the measured vectors of two records are at most, over all records of those
    values in every column that is asked about."""
    columns = statistic.columns
    free = columns[:3]
    records = np.array(list(product(values, repeat=len(free))))
    held = {name: records[:, i] for i, name in enumerate(free)}
    held |= {name: records[:, i % len(free)] for i, name in enumerate(columns) if name not in free}
    plan = planned(statistic).plan
    vectors = [plan.measure(row) for row in plan.encode(deal(held, len(records)))]
    exact = [signed(each).astype(object) for each in vectors]
    return max(int(np.abs(one - two).sum()) for one, two in combinations(exact, 2))


ASKED = [
    Sum(lower=-1.0, upper=1.0),
    Sum(lower=1e16, upper=1.0000000000000002e16),
    Histogram(lower=0.0, upper=TINY, bins=3),
    Histogram(lower=-HUGE, upper=HUGE, bins=3),
    Ecdf(lower=0.0, upper=1.0, thresholds=7),
    Ecdf(lower=-HUGE, upper=HUGE, thresholds=5, mechanism="hb"),
    Magnitudes(),
    CalibrationCounts("x", "label", None, (0.0, 0.5, 1.0)),
    CalibrationCounts("x", "label", TINY, (TINY,)),
    LinearRegression(("x=0:1", "y=0:1"), ("x",), "y"),
    LinearRegression(("x=-8.9e307:8.9e307", "y=0:1e-323", "z=0:1"), ("x", "z"), "y"),
    LogisticStep(("x=0:1",), at=(0.0, 0.0)),
    LogisticStep(("x=0:1e-323", "y=0:1"), ("x", "y"), at=(1e6, -1e6, 1e6)),
    ResidualReach(("x",), "y", (1e308, -1e308)),
    ResidualReach(("x",), "y", (0.0, 1.0), TINY, 64),
    ResidualCells(("x",), "y", (0.0, 1e308), 0.0, TINY, 8e307, side=3),
    ResidualCells(("x",), "y", (0.0, 1.0), method="hb", side=3),
    ResidualCells(("x",), "y", (0.0, 1.0), -0.25, 1.0, method="hb", side=2),
    NextAttribute(SCHEMA, "label", (), 3),
    NextAttribute(SCHEMA, "label", ("x",), 3),
    ProjectedCells(SCHEMA, "label", ("x", "y"), 3),
]


@pytest.mark.parametrize("statistic", ASKED, ids=lambda each: each.name)
def test_no_two_records_are_farther_apart_than_the_sensitivity(statistic: Statistic) -> None:
    values = (0.0, 1.0, -1.0, TINY, 1.7e308, -1.7e308, 0.5)
    assert 0 < far_apart(statistic, values) <= planned(statistic).plan.sensitivity


def test_the_bound_of_a_sum_and_of_a_count_is_reached() -> None:
    """Noise is no larger than it must be, either."""
    for statistic in (Sum(lower=-1.0, upper=1.0), Histogram(lower=0.0, upper=1.0, bins=3)):
        assert far_apart(statistic, (-1.0, 0.0, 1.0)) == planned(statistic).plan.sensitivity


@pytest.mark.parametrize(
    "asked",
    [
        lambda: LogisticStep(("x=0:5e-324",)),  # half of its width is 0: 0/0 was 2^63 of a record
        lambda: LinearRegression(("x=0:5e-324", "y=0:1"), ("x",), "y"),
        lambda: LinearRegression(("x=1e308:1.7e308", "y=0:1"), ("x",), "y"),
        lambda: LogisticStep(tuple(f"{each}=0:1" for each in WIDE), WIDE, at=OVERFLOW),
        lambda: LogisticStep(("x=0:1",), at=(0.0, float("nan"))),
        lambda: NextAttribute(("x=0:5e-324", "label=0,1"), "label", (), 3),
    ],
)
def test_what_leaves_doubles_is_refused_before_any_record_is_looked_at(asked: object) -> None:
    """No number has no sensitivity: as an integer it was −2^63, so that a sum told exactly, beside
    any noise, whether the number of such records is odd."""
    with pytest.raises(LocalError, match=r"no middle|coefficients"):
        asked()  # type: ignore[operator]


def test_a_top_k_is_about_the_counts_of_a_histogram() -> None:
    top = TopK(lower=0.0, upper=1.0, bins=4, k=2)
    assert far_apart(top, (0.0, 0.3, 0.9)) == 2  # one count up and one down by 1, k picks: k + 1
    assert planned(top).plan.sensitivity == 3
