"""The measurement of what intervals cover, against laws that are known."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from tallyroom.protocols.plans.interval import NOISE, Interval
from tallyroom.protocols.records import Column
from tallyroom.protocols.statistics import statistics
from tallyroom.protocols.statistics.estimates import Curve
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.protocols.statistics.release import Answer, Release
from tallyroom.protocols.studies import studies
from tallyroom.simulation.in_the_clear import ClearAnswer
from tallyroom.simulation.reproduce.contract import Scale
from tallyroom.simulation.reproduce.coverage import SIZES, Cell, held, judge, measure
from tallyroom.simulation.reproduce.coverage_questions import (
    COUNTED_UNDER,
    NOT_NUMBERS,
    columns_of,
    questions,
)

X = (1.0, 2.0, 3.0, 4.0)


def answer(low: Column, high: Column, why: str = "") -> ClearAnswer:
    return ClearAnswer(
        Curve(list(X), [0.0, 0.0, 0.0, 0.0]), {NOISE: Interval(high - low, low, high, why)}
    )


def test_the_share_of_values_that_are_held_is_counted() -> None:
    truth = Curve(list(X), [0.0, 1.0, 2.0, 3.0])
    low, high = np.array([0.0, 1.1, -1.0, np.nan]), np.array([0.0, 2.0, 5.0, np.nan])
    assert held(answer(low, high), truth) == pytest.approx(2 / 3)
    assert held(answer(low, high, "nobody knows"), truth) == "nobody knows"
    assert held(ClearAnswer(truth, {NOISE: None}), truth) == "the answer has no noise"


@pytest.mark.parametrize(("runs", "hits"), [(10, 10), (100, 93), (400, 372), (7, 0)])
def test_its_interval_is_wilsons(runs: int, hits: int) -> None:
    wanted = stats.binomtest(hits, runs).proportion_ci(0.95, method="wilson")
    found = Cell("a", 5, "1", runs, hits / runs, Counter()).within(stats.norm.ppf(0.975))
    assert found == pytest.approx((wanted.low, wanted.high))


def test_a_coverage_that_is_too_small_is_seen() -> None:
    """An interval that holds 80 % is surely short in 100 runs, one that holds 92 % is not."""
    cells = [Cell("a", 5, "1", 100, each, Counter()) for each in (0.8, 0.92)]
    assert [cell.is_surely_short for cell in cells] == [True, False]
    assert list(judge(cells[:1]).values()) == [False, False, True]
    assert list(judge([Cell("a", 5, "1", 0, np.nan, Counter())]).values())[-1] is False


class Half(Mean):
    """A mean whose interval is half as wide as it should be."""

    def read(self, release: Release) -> Answer:
        found = super().read(release)
        told = found.intervals[NOISE]
        assert told is not None
        low, high = ((found.number + each) / 2 for each in (told.low, told.high))
        return Answer(found.estimate, Interval(told.errors, low, high), found.records)


@pytest.mark.parametrize(("kind", "least", "most"), [(Mean, 0.90, 0.99), (Half, 0.5, 0.86)])
def test_it_tells_a_right_interval_from_one_of_half_its_width(
    kind: type[Mean], least: float, most: float
) -> None:
    """Of 400 seeded runs; the noise is the sum of two Laplace noises, of which half of a 95 %
    interval holds 73 %."""
    columns = {"value": np.random.default_rng(1).random(500)}
    cell = measure("mean", kind(lower=0.0, upper=1.0), columns, "1", 400)
    assert cell.runs == 400
    assert least <= cell.held <= most
    assert cell.is_surely_short == (kind is Half)


def test_every_statistic_and_study_is_measured() -> None:
    asked = {name.partition(",")[0].split()[0] for name in questions()}
    there = {name for name, kind in statistics().items() if not kind.part_of} | set(studies())
    assert there == asked | NOT_NUMBERS.keys() | COUNTED_UNDER.keys()
    assert not asked & (NOT_NUMBERS.keys() | COUNTED_UNDER.keys())


def test_records_are_drawn_without_replacement_while_there_are_others() -> None:
    people = columns_of(300, made_up=True)["people"]
    assert {len(column) for column in people.values()} == {300}
    days = columns_of(2_000, made_up=True)["patients"]["days"]
    more = columns_of(4_000, made_up=True)["patients"]["days"]
    assert np.array_equal(np.sort(more), np.sort(np.concatenate([days, days])))
    assert SIZES[Scale.PAPER].records == (500, 5_000, 50_000)
    assert Fraction(SIZES[Scale.PAPER].epsilons[0]) == Fraction(1, 10)
