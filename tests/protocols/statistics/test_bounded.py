"""Bounds by column: which are needed, which are known, and what a data set may fill in."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.contract import Plan
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.records import Holdings, deal
from tallyroom.protocols.statistics.bounded import (
    Bounded,
    BoundedColumn,
    Clipped,
    check_bounds,
    clipped_records,
    columns_to_bound,
    known_bounds,
    with_bounds,
)
from tallyroom.protocols.statistics.contract import Bounds, Statistic
from tallyroom.protocols.statistics.magnitudes import Magnitudes
from tallyroom.protocols.statistics.moments import Sum
from tallyroom.protocols.statistics.of_pairs import Pairwise
from tallyroom.protocols.statistics.release import Answer, Release
from tallyroom.simulation.statement import stated_bounds

COUNTED = Magnitudes("value")
TWO = Pairwise(kernel_name="abs(a.x - b.y)")


@dataclass(frozen=True)
class Schema(Clipped):
    """How many records there are, of two columns with a range each: no `value`, no `lower`."""

    name: ClassVar[str] = "schema"

    @property
    def columns(self) -> tuple[str, ...]:
        return ("age", "pay")

    @property
    def bounded(self) -> tuple[str, ...]:
        return self.columns

    @property
    def column_bounds(self) -> Mapping[str, Bounds]:
        return {"age": (0.0, 100.0), "pay": (0.0, 9000.0)}

    def with_bounds(self, published: Mapping[str, Bounds]) -> "Schema":
        return self

    def check_bounds(self) -> None:
        if missing := [name for name in self.bounded if name not in self.column_bounds]:
            raise LocalError(f"schema needs public bounds of column {missing[0]!r}")

    def plan(self, facts: Facts) -> Plan:
        raise LocalError("nobody asks this")

    def read(self, release: Release) -> Answer:
        raise LocalError("nobody asks this")

    def reference(self, holdings: Holdings) -> float:
        return float(holdings.rows)


@dataclass(frozen=True)
class Unknown(Schema):
    """The same, of which nobody told the bounds."""

    @property
    def column_bounds(self) -> Mapping[str, Bounds]:
        return {"age": (0.0, 100.0)}


def test_the_base_has_no_column_and_no_bounds_of_its_own() -> None:
    assert dataclasses.fields(Statistic) == ()
    assert [field.name for field in dataclasses.fields(Bounded)] == ["lower", "upper"]
    assert [f.name for f in dataclasses.fields(BoundedColumn)] == ["value", "lower", "upper"]


def test_several_columns_have_a_range_each() -> None:
    columns = {"age": np.array([-1.0, 50.0, 101.0, 7.0]), "pay": np.array([1.0, 2.0, 1e4, 9e4])}
    assert clipped_records(Schema(), deal(columns, 2)) == 3
    check_bounds(Schema())
    assert stated_bounds(Schema()) == {"age": [0, 100], "pay": [0, 9000]}
    with pytest.raises(LocalError, match="schema needs public bounds of column 'pay'"):
        check_bounds(Unknown())


@pytest.mark.parametrize(
    ("published", "expected"),
    [
        ({}, {}),
        ({"x": (0.0, 1.0)}, {"x": (0.0, 1.0)}),
        ({"x": (0.0, 1.0), "y": (0.0, 2.0)}, {"x": (0.0, 1.0), "y": (0.0, 2.0)}),
        ({"x": (0.0, 1.0), "y": (0.0, 1.0)}, {"x": (0.0, 1.0), "y": (0.0, 1.0)}),
    ],
)
def test_each_of_two_columns_has_the_bounds_that_are_published_for_it(
    published: dict[str, Bounds], expected: dict[str, Bounds]
) -> None:
    assert TWO.with_bounds(published).column_bounds == expected


def test_bounds_that_were_given_stay() -> None:
    published = {"value": (0.0, 1.0)}
    assert Sum(upper=5.0).with_bounds(published).bounds == (0.0, 5.0)
    assert Sum(lower=-1.0, upper=5.0).with_bounds(published).bounds == (-1.0, 5.0)
    assert stated_bounds(Sum(lower=-1.0, upper=5.0)) == [-1.0, 5.0]


def test_a_statistic_that_clips_nothing_needs_no_bounds() -> None:
    """And one that clips cannot be written without saying which columns, and where to."""
    assert not isinstance(COUNTED, Clipped)
    check_bounds(COUNTED)
    assert with_bounds(COUNTED, {"value": (0.0, 1.0)}) is COUNTED
    assert (known_bounds(COUNTED), columns_to_bound(COUNTED)) == ({}, ())
    assert Clipped.__abstractmethods__ - Statistic.__abstractmethods__ == {
        *("bounded", "check_bounds", "column_bounds", "with_bounds"),
    }
    assert known_bounds(Sum(lower=0.0, upper=2.0)) == {"value": (0.0, 2.0)}
    assert columns_to_bound(TWO) == ("x", "y")


def test_bounds_that_are_needed_are_asked_for() -> None:
    for statistic in (Sum(), Sum(lower=1.0), TWO):
        with pytest.raises(LocalError, match="give --lower and --upper"):
            check_bounds(statistic)
