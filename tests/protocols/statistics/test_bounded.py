"""Bounds by column: which are needed, which are known, and what a data set may fill in."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.records import Column, Holdings, deal
from tallyroom.protocols.statistics.bounded import Bounded, BoundedColumn
from tallyroom.protocols.statistics.contract import Bounds, Statistic
from tallyroom.protocols.statistics.legacy import Legacy
from tallyroom.protocols.statistics.moments import Sum
from tallyroom.protocols.statistics.of_pairs import Pairwise
from tallyroom.simulation.statement import stated_bounds

TWO = Pairwise(kernel_name="abs(a.x - b.y)")


@dataclass(frozen=True)
class Schema(Legacy):
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

    @property
    def length(self) -> int:
        return 1

    @property
    def sensitivity(self) -> int:
        return 0

    def encode(self, holdings: Holdings) -> Vector:
        return holdings.counts.astype(np.uint64)[:, None]

    def decode(self, released: Vector, records: int, exact: bool = False) -> float:
        return float(released[0])

    def reference(self, holdings: Holdings) -> float:
        return float(holdings.rows)

    def deviations(self, noise_variance: float, records: int) -> Column:
        return np.zeros(1)


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
    assert Schema().clipped(deal(columns, 2)) == 3
    Schema().check_bounds()
    assert stated_bounds(Schema()) == {"age": [0, 100], "pay": [0, 9000]}
    with pytest.raises(LocalError, match="schema needs public bounds of column 'pay'"):
        Unknown().check_bounds()


@pytest.mark.parametrize(
    ("published", "expected"),
    [
        ({}, {}),
        ({"x": (0.0, 1.0)}, {}),
        ({"x": (0.0, 1.0), "y": (0.0, 2.0)}, {}),
        ({"x": (0.0, 1.0), "y": (0.0, 1.0)}, {"x": (0.0, 1.0), "y": (0.0, 1.0)}),
    ],
)
def test_one_range_for_two_columns_is_filled_in_if_both_have_it(
    published: dict[str, Bounds], expected: dict[str, Bounds]
) -> None:
    assert TWO.with_bounds(published).column_bounds == expected


def test_bounds_that_were_given_stay() -> None:
    published = {"value": (0.0, 1.0)}
    assert Sum(upper=5.0).with_bounds(published).bounds == (0.0, 5.0)
    assert Sum(lower=-1.0, upper=5.0).with_bounds(published).bounds == (-1.0, 5.0)
    assert stated_bounds(Sum(lower=-1.0, upper=5.0)) == [-1.0, 5.0]


def test_bounds_that_are_needed_are_asked_for() -> None:
    for statistic in (Sum(), Sum(lower=1.0), TWO):
        with pytest.raises(LocalError, match="give --lower and --upper"):
            statistic.check_bounds()
