"""Statistics of several columns, each clipped to public bounds of its own."""

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from tallyroom.protocols.cells import numbers
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.contract import Bounds
from tallyroom.protocols.statistics.legacy import Legacy
from tallyroom.protocols.statistics.option import option

MAX_COLUMNS = 64


@dataclass(frozen=True)
class Ranged(Legacy):
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
    @abstractmethod
    def columns(self) -> tuple[str, ...]: ...

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

    def scaled(self, holdings: Holdings, name: str) -> Column:
        """A column clipped to its range, whose middle is 0 and whose ends are −1 and 1. What is no
        number counts as the lower end."""
        self.check_bounds()
        lower, upper = self.column_bounds[name]
        clipped = np.clip(numbers(holdings.column(name), lower), lower, upper)
        found: Column = np.clip((clipped - (lower + upper) / 2) / ((upper - lower) / 2), -1.0, 1.0)
        return found


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
