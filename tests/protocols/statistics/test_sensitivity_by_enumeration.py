"""Sensitivities against all pairs of records on a small grid, under whatever parameters a
coordinator may choose: bounds next to nothing or next to overflow, coefficients of any size.

Vectors add up over records, so replacing a record of any data set moves the sum by what the two
records' own vectors differ in: pairs of records are all neighbouring data sets there are.
"""

from functools import cache
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

from tallyroom.protocols.algebra.ring import signed
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.contract import Encoding
from tallyroom.protocols.plans.encodings import ClippedNumber, UpToThresholds
from tallyroom.protocols.plans.thresholds import ThresholdGrid
from tallyroom.protocols.privacy.class_curves import ClassCurves
from tallyroom.protocols.privacy.curves import TreeStrategy
from tallyroom.protocols.privacy.noise_law import Sensitivity
from tallyroom.protocols.privacy.sums_over_time import TreeOverTime
from tallyroom.protocols.records import deal
from tallyroom.protocols.statistics.calibration import CalibrationCounts
from tallyroom.protocols.statistics.choices import TopK
from tallyroom.protocols.statistics.class_counts import ClassCounts
from tallyroom.protocols.statistics.classifier_curves import Roc
from tallyroom.protocols.statistics.contract import Statistic
from tallyroom.protocols.statistics.crosstab import ChiSquare, Crosstab
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.statistics.event_times import EventTimes, EventTimesByGroup, TimeGrid
from tallyroom.protocols.statistics.grouped import grouped
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.linear_regression import LinearRegression
from tallyroom.protocols.statistics.log_rank import LogRank
from tallyroom.protocols.statistics.logistic_moments import LogisticMoments
from tallyroom.protocols.statistics.logistic_step import LogisticStep
from tallyroom.protocols.statistics.magnitudes import Magnitudes
from tallyroom.protocols.statistics.mean_tests import Anova, TTest
from tallyroom.protocols.statistics.moments import Mean, Sum
from tallyroom.protocols.statistics.planned import planned
from tallyroom.protocols.statistics.projected import NextAttribute, ProjectedCells
from tallyroom.protocols.statistics.proportion import Proportion
from tallyroom.protocols.statistics.residuals import ResidualCells, ResidualReach
from tallyroom.protocols.statistics.running_sum import SumsOverTime
from tallyroom.protocols.statistics.second_moments import Covariance
from tallyroom.protocols.statistics.survival import KaplanMeier, NelsonAalen
from tallyroom.protocols.statistics.whitened_step import WhitenedStep

TINY, HUGE = 5e-324, 8.9e307
SCHEMA = ("x=0:1", "y=0:1e-323", "label=0,1")
WIDE = tuple(f"c{i}" for i in range(8))
OVERFLOW = (1e308,) * 5 + (-1e308,) * 4


def far_apart(statistic: Statistic, values: tuple[float, ...]) -> tuple[int, int]:
    """How far apart the measured vectors of two records are at most, over all records of those
    values in every column that is asked about: in L1, and in the square of L2."""
    columns = statistic.columns
    free = columns[:3]
    records = np.array(list(product(values, repeat=len(free))))
    held = {name: records[:, i] for i, name in enumerate(free)}
    held |= {name: records[:, i % len(free)] for i, name in enumerate(columns) if name not in free}
    plan = planned(statistic).plan
    vectors = [plan.measure(row) for row in plan.encode(deal(held, len(records)))]
    exact = [signed(each).astype(object) for each in vectors]
    moves = [np.abs(one - two) for one, two in combinations(exact, 2)]
    return max(int(each.sum()) for each in moves), max(int(each @ each) for each in moves)


def told(statistic: Statistic) -> tuple[int, int]:
    sensitivity = planned(statistic).plan.sensitivity
    return sensitivity.l1, sensitivity.squared_l2


BY_Y: dict[str, Any] = {"by": ("y",), "groups": {"y": "0,1,0.5"}}
WHITE = ((0.0, 0.5), (9.0, 30.0, 0.0, 2.0), (0.1, 4.0, -5.0))
ASKED = [
    Sum(lower=-1.0, upper=1.0),
    Sum(lower=1e16, upper=1.0000000000000002e16),
    Histogram(lower=0.0, upper=TINY, bins=3),
    Histogram(lower=-HUGE, upper=HUGE, bins=3),
    Ecdf(lower=0.0, upper=1.0, thresholds=7),
    Ecdf(lower=-HUGE, upper=HUGE, thresholds=5, strategy="hb"),
    Mean(lower=-1.0, upper=1.0, weights="w", weight_upper=1.0),
    Mean(lower=0.0, upper=1e-323, weights="w", weight_upper=HUGE),
    Histogram(lower=0.0, upper=1.0, bins=3, weights="w", weight_upper=TINY * 2**60),
    Proportion("value", "1,-1"),
    Covariance(("x=-8.9e307:8.9e307", "y=0:1e-323", "z=0:1"), ("x", "y", "z")),
    Magnitudes(),
    CalibrationCounts("x", "label", None, (0.0, 0.5, 1.0)),
    CalibrationCounts("x", "label", TINY, (TINY,)),
    KaplanMeier(time="x", upper=1.0, event="label", thresholds=3),
    KaplanMeier(time="x", upper=HUGE, event="label", positive=TINY, thresholds=40),
    LogRank(time="x", upper=1.0, event="label", group="y", groups="0,1", thresholds=3),
    TTest(lower=-1.0, upper=1.0),
    TTest(lower=-1.0, upper=1.0, groups="0,1"),
    TTest(lower=-HUGE, upper=HUGE, groups="0,1"),
    Anova(lower=0.0, upper=1e-323, groups="0,1,-1,0.5"),
    Crosstab(down="x", across="y", down_names="0,1", across_names="0,1,-1"),
    NelsonAalen(time="x", upper=TINY, event="label", at=(0.0,)),
    LinearRegression(("x=0:1", "y=0:1"), ("x",), "y"),
    LinearRegression(("x=-8.9e307:8.9e307", "y=0:1e-323", "z=0:1"), ("x", "z"), "y"),
    LogisticStep(("x=0:1",), at=(0.0, 0.0)),
    LogisticStep(("x=0:1e-323", "y=0:1"), ("x", "y"), at=(1e6, -1e6, 1e6)),
    LogisticMoments(("x=0:1",)),
    LogisticMoments(("x=-8.9e307:8.9e307", "y=0:1e-323", "z=0:1"), ("x", "y", "z")),
    WhitenedStep(("x=-1:1",), whitening=(1.5,), at=(0.0, 3.0)),
    WhitenedStep(("x=-1:1",), centre=(1.0,), whitening=(-40.0,), at=(1e6, 1e6)),
    WhitenedStep(("x=0:1e-323", "y=0:1"), ("x", "y"), "label", None, *WHITE),
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
    for moved, most in zip(far_apart(statistic, values), told(statistic), strict=True):
        assert 0 < moved <= most


REACHED = [
    Sum(lower=-1.0, upper=1.0),
    Histogram(lower=0.0, upper=1.0, bins=3),
    Mean(lower=-1.0, upper=1.0, weights="w", weight_upper=1.0),
    grouped(Mean(lower=-1.0, upper=1.0, weights="w", weight_upper=1.0), "y > -1"),
    grouped(Mean(lower=-1.0, upper=1.0, weights="w", weight_upper=1.0), **BY_Y),
    Histogram(lower=0.0, upper=1.0, bins=3, weights="w", weight_upper=1.0),
    Proportion("value", "1"),
    grouped(Proportion("value", "1"), **BY_Y),
    Ecdf(lower=0.0, upper=1.0, thresholds=9),
    Ecdf(lower=0.0, upper=1.0, thresholds=9, strategy="hb"),
    Magnitudes(),
    Roc(lower=0.0, upper=1.0, thresholds=9),
    Roc(lower=0.0, upper=1.0, thresholds=2),
    KaplanMeier(time="x", upper=1.0, event="label", thresholds=3),
    grouped(KaplanMeier(time="x", upper=1.0, event="label", thresholds=3), "y >= 0", **BY_Y),
    LogRank(time="x", upper=1.0, event="label", group="y", groups="0,1", thresholds=3),
    TTest(lower=-1.0, upper=1.0),
    TTest(lower=-1.0, upper=1.0, groups="0,1"),
    ChiSquare(down="x", across="y", down_names="0,1", across_names="0,1,-1"),
    ProjectedCells(SCHEMA, "label", ("x", "y"), 3),
]


@pytest.mark.parametrize("statistic", REACHED, ids=lambda each: each.name)
def test_bounds_are_reached(statistic: Statistic) -> None:
    """Noise is no larger than it must be, either, in both norms."""
    assert far_apart(statistic, (-1.0, 0.0, 0.5, 1.0)) == told(statistic)


@pytest.mark.parametrize("records", [1, 2, 3])
def test_a_unit_of_several_records_moves_so_many_times_as_far(records: int) -> None:
    """All of them go from one end of the range to the other."""
    statistic = Histogram(lower=0.0, upper=1.0, bins=3)
    plan = planned(statistic).plan
    low, high = (plan.encode(deal({"value": np.full(records, at)}, 1))[0] for at in (0.0, 1.0))
    moved = np.abs(signed(high - low))
    unit = plan.sensitivity.of_group(records)
    assert (int(moved.sum()), int(moved @ moved)) == (unit.l1, unit.squared_l2)


@pytest.mark.parametrize(
    "encoding",
    [
        UpToThresholds("value", ThresholdGrid(0.0, 1.0, 6)),
        ClassCounts(("value",), "label", 1.0, 0.0, 1.0, 3),
        ClippedNumber("value", -1.0, 1.0),
        SumsOverTime("value", "time", 0.0, 1.0, 5),
        EventTimes("value", "label", 1.0, TimeGrid(0.0, 1.0, 5)),
        EventTimes("value", "label", 1.0, TimeGrid(0.0, 1.0, 2, (0.5,))),
        EventTimesByGroup("value", "label", 1.0, TimeGrid(0.0, 1.0, 5), "label", ("0", "1")),
        EventTimesByGroup("value", "label", 1.0, TimeGrid(0.0, 1.0, 5), "label", ("0",)),
    ],
    ids=lambda each: type(each).__name__,
)
def test_encodings_state_what_their_own_vectors_move(encoding: Encoding) -> None:
    """Times are public: adjacent records have the same."""
    values = [
        {"value": value, "label": label} for value in (-1.0, 0.0, 0.4, 1.0) for label in (0, 1)
    ]
    rows = {name: np.array([each[name] for each in values], dtype=float) for name in values[0]}
    vectors = encoding.encode(deal({**rows, "time": np.ones(len(values))}, len(values)))
    exact = [signed(each).astype(object) for each in vectors]
    moves = [np.abs(one - two) for one, two in combinations(exact, 2)]
    most = Sensitivity(max(int(m.sum()) for m in moves), max(int(m @ m) for m in moves))
    assert most == encoding.sensitivity


def least_squares(target: list[int], leaves: int) -> int:
    """The least sum of squares of whole changes of the nodes' noises of a binary tree that change
    the sums along its paths by `target`; leaves beyond it are free."""

    @cache
    def least(first: int, width: int, above: int) -> int:
        if first >= len(target):
            return 0
        if width == 1:
            return (target[first] - above) ** 2
        half = width // 2
        return min(
            own**2 + least(first, half, above + own) + least(first + half, half, above + own)
            for own in range(-2, 3)
        )

    return least(0, leaves, 0)


@pytest.mark.parametrize("points", [1, 2, 3, 5, 8, 13, 16, 32])
def test_the_noises_of_a_tree_make_up_for_a_record_within_the_l2_norm_that_is_told(
    points: int,
) -> None:
    """Of a curve, an interval of counts moves by one; of sums over time, a suffix; of both classes
    of a score, an interval of one or a suffix of each."""
    leaves = 1 << (points - 1).bit_length()
    shift = [
        [int(i <= at < j) for at in range(points)] for i in range(points) for j in range(points)
    ]
    of_interval = max(least_squares(each, leaves) for each in shift)
    suffixes = [[int(at >= i) for at in range(points)] for i in range(points)]
    of_suffix = max(least_squares(each, leaves) for each in suffixes)
    assert of_interval <= TreeStrategy(points).sensitivity.squared_l2
    assert of_suffix <= TreeOverTime(points, 1, False).sensitivity.squared_l2
    assert 49 * of_suffix <= TreeOverTime(points, 7, False).sensitivity.squared_l2
    classes = ClassCurves(points, "tree").sensitivity.squared_l2
    assert max(of_interval, 2 * of_suffix) <= classes


@pytest.mark.parametrize(
    "asked",
    [
        lambda: LogisticStep(("x=0:5e-324",)),  # half of its width is 0: 0/0 was 2^63 of a record
        lambda: LinearRegression(("x=0:5e-324", "y=0:1"), ("x",), "y"),
        lambda: LinearRegression(("x=1e308:1.7e308", "y=0:1"), ("x",), "y"),
        lambda: LogisticStep(tuple(f"{each}=0:1" for each in WIDE), WIDE, at=OVERFLOW),
        lambda: LogisticStep(("x=0:1",), at=(0.0, float("nan"))),
        lambda: WhitenedStep(("x=0:1",), whitening=(float("nan"),)),
        lambda: WhitenedStep(("x=0:1",), centre=(1e300,)),
        lambda: WhitenedStep(("x=0:1",), at=(0.0, float("inf"))),
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
    assert far_apart(top, (0.0, 0.3, 0.9)) == (
        2,
        2,
    )  # one count up and one down by 1
    assert planned(top).plan.sensitivity.l1 == 3  # k picks: k + 1
