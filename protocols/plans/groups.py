"""Groups of records that one release is about, and encodings by group.

Every record is in one group or in none. Which one depends on its own cells alone, and is private:
so is how many records a group has. Adjacency replaces a record, so one may move from any group to
any other, out of all, or in. What that moves is what each encoding here states.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import product

import numpy as np

from tallyroom.protocols.algebra.ring import FixedPoint, Vector, signed
from tallyroom.protocols.categories import format_categories, parse_categories
from tallyroom.protocols.cells import places
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.contract import Encoding, Integers
from tallyroom.protocols.plans.encodings import ClippedNumber, clipped, sum_by_party
from tallyroom.protocols.plans.measurement import BoundedNumber, Measurement, OneHot, Step
from tallyroom.protocols.predicates import canonical, parse_condition
from tallyroom.protocols.privacy.noise_law import Sensitivity
from tallyroom.protocols.records import Holdings

MAX_GROUPS = 4096
MAX_COLUMNS = 16


@dataclass(frozen=True)
class Division:
    """A column, and those of its names that have a group each; all are public."""

    column: str
    names: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> "Division":
        """Reads COLUMN=NAME,NAME. Raises `LocalError`."""
        column, equals, names = text.partition("=")
        if not (column and equals and names):
            raise LocalError(f"groups are COLUMN=NAME,NAME, not {text[:60]!r}")
        return cls(column, parse_categories(names))

    def __str__(self) -> str:
        return f"{self.column}={format_categories(self.names)}"


@dataclass(frozen=True)
class Groups:
    """The records that meet the condition `where`, all if it is empty; divided by the names of
    columns, one group for each combination. A record with another name in one of these columns, or
    none, is in no group."""

    where: str = ""
    by: tuple[Division, ...] = ()

    def __post_init__(self) -> None:
        if not (self.where or self.by):
            raise LocalError("groups are told by a condition or by columns")
        if self.where and canonical(self.where) != self.where:
            raise LocalError("the condition is not in its canonical form")
        columns = [each.column for each in self.by]
        if len(set(columns)) < len(columns) or len(columns) > MAX_COLUMNS:
            raise LocalError(f"records are divided by 1 to {MAX_COLUMNS} columns, each once")
        if self.count > MAX_GROUPS:
            raise LocalError(f"{self.count} groups are too many: {MAX_GROUPS} at most")

    @property
    def count(self) -> int:
        count = 1
        for each in self.by:
            count *= len(each.names)
        return count

    @property
    def labels(self) -> list[tuple[str, ...]]:
        """The names of each group, in the order of `of`."""
        return list(product(*(each.names for each in self.by)))

    @property
    def columns(self) -> tuple[str, ...]:
        conditional = parse_condition(self.where).columns if self.where else ()
        return tuple(dict.fromkeys((*conditional, *(each.column for each in self.by))))

    def of(self, holdings: Holdings) -> Integers:
        """The group of each record; `count` for those that are in none."""
        found = np.zeros(holdings.rows, dtype=np.int64)
        inside = np.ones(holdings.rows, dtype=np.bool_)
        if self.where:
            inside &= parse_condition(self.where).met(holdings)
        for each in self.by:
            place = places(holdings.column(each.column), each.names)
            inside &= place < len(each.names)
            found = found * len(each.names) + place
        return np.where(inside, found, self.count)


@dataclass(frozen=True)
class ByGroup(Encoding):
    """Records that an encoding takes to be in one cell of a row each, in a row for each group: that
    of the first group, the second, and so on. A last cell holds all records that are in no group,
    so every record is in one cell, whatever it is replaced by."""

    one: Encoding
    groups: Groups

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.one.columns, *self.groups.columns)))

    @property
    def length(self) -> int:
        return self.groups.count * self.one.length + 1

    @property
    def sensitivity(self) -> Sensitivity:
        """A replaced record leaves one cell and enters another."""
        return Sensitivity.of_counts(2)

    @property
    def measurement(self) -> Measurement | None:
        one = self.one.measurement
        return OneHot(self.length, one.oracle) if isinstance(one, OneHot) else None

    def measured(self, holdings: Holdings) -> Integers:
        group = self.groups.of(holdings)
        cells = group * self.one.length + self.one.measured(holdings)
        return np.where(group < self.groups.count, cells, self.length - 1)

    def encode(self, holdings: Holdings) -> Vector:
        return holdings.count_by_party(self.measured(holdings), self.length)

    @property
    def grid_step(self) -> float:
        return self.one.grid_step

    @property
    def grid_words(self) -> str:
        return self.one.grid_words


@dataclass(frozen=True)
class UpToByGroup(ByGroup):
    """The same row, of which a vector counts the records in cells 1..i. Of each group, `one` counts
    the records in cells 1..i too."""

    @property
    def sensitivity(self) -> Sensitivity:
        """From the first cell to the last, all counts but the last one change."""
        return Sensitivity.of_counts(self.length - 1)

    @property
    def measurement(self) -> Measurement | None:
        return Step(self.length) if isinstance(self.one.measurement, Step) else None

    def encode(self, holdings: Holdings) -> Vector:
        return np.cumsum(super().encode(holdings), axis=1)


@dataclass(frozen=True)
class SumByGroup(Encoding):
    """A column within public bounds, by group: a record adds its value, in steps from 0, to the sum
    of its group, and nothing to others."""

    column: str
    lower: float
    upper: float
    groups: Groups

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.column, *self.groups.columns)))

    @cached_property
    def grid(self) -> FixedPoint:
        """Of a range that holds 0 as well, which is what a record outside counts as."""
        return FixedPoint.for_bounds(min(self.lower, 0.0), max(self.upper, 0.0))

    @property
    def length(self) -> int:
        return self.groups.count

    @property
    def _ends(self) -> tuple[int, int]:
        """The least and the largest value, in steps from 0."""
        scale = Fraction(2) ** self.grid.fraction_bits
        return round(Fraction(self.lower) * scale), round(Fraction(self.upper) * scale)

    @property
    def sensitivity(self) -> Sensitivity:
        """Replaced within its group, a record moves one sum by the width of the range; moved in or
        out, by its value; moved to another group, each of two sums by a value."""
        first, last = self._ends
        width, largest = last - first, max(abs(first), abs(last))
        if self.groups.count == 1:
            return Sensitivity.of_number(max(width, largest))
        return Sensitivity(2 * largest, max(width**2, 2 * largest**2))

    @property
    def measurement(self) -> Measurement | None:
        """One group's sum is that of numbers from 0, unless some may be negative."""
        first, last = self._ends
        return BoundedNumber(most=last) if self.groups.count == 1 and first >= 0 else None

    def measured(self, holdings: Holdings) -> Integers:
        values = clipped(holdings.column(self.column), self.lower, self.upper)
        steps = signed(self.grid.encode(values)) + self.grid.origin
        return np.where(self.groups.of(holdings) < self.groups.count, steps, 0)

    def encode(self, holdings: Holdings) -> Vector:
        return by_group(self.measured(holdings)[:, None], self.groups, holdings)

    @property
    def grid_step(self) -> float:
        return self.grid.step

    @property
    def grid_words(self) -> str:
        return f"values are rounded to multiples of {self.grid_step:.3g}"


@dataclass(frozen=True)
class MeanByGroup(Encoding):
    """A column within public bounds, by group: how far values lie above the middle of the range, in
    steps, and half the width of the range for every record. The quotient of the two sums tells the
    mean, and the second alone how many records there are.

    Half the width is as much weight as costs nothing: a record that moves in or out then moves the
    two sums, in the L1 norm, by no more than one that stays moves the first.
    """

    number: ClippedNumber
    groups: Groups

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.number.columns, *self.groups.columns)))

    @property
    def length(self) -> int:
        return 2 * self.groups.count

    @property
    def middle(self) -> int:
        """In steps above the lower bound. So many count each record."""
        return (self.number.grid.steps + 1) // 2

    @property
    def sensitivity(self) -> Sensitivity:
        steps, middle = self.number.grid.steps, self.middle
        if self.groups.count == 1:
            return Sensitivity(max(steps, 2 * middle), max(steps**2, 2 * middle**2))
        return Sensitivity(max(steps, 4 * middle), max(steps**2, 4 * middle**2))

    @property
    def measurement(self) -> Measurement | None:
        return None

    def encode(self, holdings: Holdings) -> Vector:
        above = self.number.measured(holdings) - self.middle
        both = np.stack([above, np.full(holdings.rows, self.middle)], axis=1)
        return by_group(both, self.groups, holdings)

    @property
    def grid_step(self) -> float:
        return self.number.grid_step

    @property
    def grid_words(self) -> str:
        return self.number.grid_words


def by_group(rows: Integers, groups: Groups, holdings: Holdings) -> Vector:
    """Adds up the rows of each party's records, side by side for each group: those of records in no
    group are left out."""
    group, width = groups.of(holdings), rows.shape[1]
    summed = np.zeros((len(holdings.ids), groups.count * width), dtype=np.uint64)
    for each in range(groups.count):
        inside = np.where((group == each)[:, None], rows, 0).view(np.uint64)
        summed[:, each * width : (each + 1) * width] = sum_by_party(inside, holdings)
    return summed
