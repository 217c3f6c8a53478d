"""Statistics of several columns, each clipped to public bounds of its own."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.scaled import ScaledColumn
from tallyroom.protocols.records import Column
from tallyroom.protocols.statistics.contract import Bounds, Statistic
from tallyroom.protocols.statistics.option import option

MAX_COLUMNS = 64


@dataclass(frozen=True)
class Ranged(Statistic):
    """Each of its columns has a public range, given as COLUMN=LOWER:UPPER or published."""

    ranges: tuple[str, ...] = option(
        (), "Public bounds of a column, as COLUMN=LOWER:UPPER; repeat.", flag="--range"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.ranges) > MAX_COLUMNS:
            raise LocalError(f"at most {MAX_COLUMNS} columns have a --range")
        for name in self._given:
            if name not in self.bounded:
                raise LocalError(f"--range {name}: {self.asked_as} is not about that column")

    @property
    def bounded(self) -> tuple[str, ...]:
        return self.columns

    @cached_property
    def _given(self) -> Mapping[str, Bounds]:
        return parse_ranges(self.ranges)

    @property
    def column_bounds(self) -> Mapping[str, Bounds]:
        return self._given

    def check_bounds(self) -> None:
        if missing := [name for name in self.bounded if name not in self._given]:
            raise LocalError(
                f"{self.asked_as} needs public bounds of column {missing[0]!r}: give --range "
                f"{missing[0]}=LOWER:UPPER (bounds taken from the data would not be private)"
            )

    def with_bounds(self, published: Mapping[str, Bounds]) -> Self:
        lacking = [name for name in self.bounded if name not in self._given and name in published]
        if not lacking:
            return self
        told = (format_range(name, published[name]) for name in lacking)
        return replace(self, ranges=(*self.ranges, *told))

    @property
    def scaled(self) -> tuple[ScaledColumn, ...]:
        """The columns that have ranges. Raises `LocalError` where one is not known."""
        self.check_bounds()
        return tuple(ScaledColumn(name, *self._given[name]) for name in self.bounded)

    @cached_property
    def scaling(self) -> tuple[Column, Column]:
        """The middle and half the width of each column's range."""
        middles, halves = zip(*((each.middle, each.half) for each in self.scaled), strict=True)
        return np.array(middles), np.array(halves)


def parse_ranges(texts: tuple[str, ...]) -> dict[str, Bounds]:
    """Raises `LocalError` for what is no COLUMN=LOWER:UPPER, or names a column twice."""
    found: dict[str, Bounds] = {}
    for text in texts:
        name, equals, ends = text.rpartition("=")
        try:
            lower, upper = (float(each) for each in ends.split(":"))
        except ValueError:
            lower = upper = math.nan
        if not (equals and name and math.isfinite(upper - lower)):
            raise LocalError(f"a range is COLUMN=LOWER:UPPER, not {text[:60]!r}")
        if lower < upper and not ((upper - lower) / 2 > 0 and math.isfinite(lower + upper)):
            raise LocalError(f"--range {name}: doubles have no middle of {lower:g} and {upper:g}")
        if name in found:
            raise LocalError(f"column {name!r} has two ranges")
        if not lower < upper:
            raise LocalError(f"--range {name}: {lower:g} must be below {upper:g}")
        found[name] = lower, upper
    return found


def format_range(name: str, bounds: Bounds) -> str:
    """What `parse_ranges` reads."""
    return f"{name}={float(bounds[0])!r}:{float(bounds[1])!r}"
