"""Columns that are clipped to public ranges, each scaled to [−1, 1], and products of them."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from tallyroom.protocols.cells import places
from tallyroom.protocols.plans.encodings import clipped
from tallyroom.protocols.records import Column, Holdings


@dataclass(frozen=True)
class ScaledColumn:
    """The middle of its range is 0, and the ends are −1 and 1."""

    name: str
    lower: float
    upper: float

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the data that it is read from."""
        return (self.name,)

    @property
    def middle(self) -> float:
        return (self.lower + self.upper) / 2

    @property
    def half(self) -> float:
        """Half the width of the range."""
        return (self.upper - self.lower) / 2

    def of(self, holdings: Holdings) -> Column:
        return self.scale(holdings.column(self.name))

    def raw(self, holdings: Holdings) -> Column:
        """The values as they are, for the truth alone."""
        return holdings.column(self.name)

    def scale(self, values: Column) -> Column:
        """A cell that is no number counts as the lower end."""
        inside = clipped(values, self.lower, self.upper)
        found: Column = np.clip((inside - self.middle) / self.half, -1.0, 1.0)
        return found


@dataclass(frozen=True)
class Indicator:
    """1 for records that have a name in a column, 0 for all others: that at place `at` of `names`,
    or any other where it is their number."""

    column: str
    names: tuple[str, ...]
    at: int

    def of(self, holdings: Holdings) -> Column:
        found: Column = (places(holdings.column(self.column), self.names) == self.at).astype(float)
        return found

    def __str__(self) -> str:
        name = self.names[self.at] if self.at < len(self.names) else "other"
        return f"C({self.column})[T.{name}]"


@dataclass(frozen=True)
class ScaledProduct(ScaledColumn):
    """A product of columns, each clipped to its own range, and of marks of names. Its range is that
    of all such products."""

    numbers: tuple[ScaledColumn, ...] = ()
    marks: tuple[Indicator, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        return (*(each.name for each in self.numbers), *(each.column for each in self.marks))

    def of(self, holdings: Holdings) -> Column:
        inside = [
            clipped(holdings.column(each.name), each.lower, each.upper) for each in self.numbers
        ]
        return self.scale(self._product(inside, holdings))

    def raw(self, holdings: Holdings) -> Column:
        return self._product([holdings.column(each.name) for each in self.numbers], holdings)

    def _product(self, numbers: list[Column], holdings: Holdings) -> Column:
        found = np.ones(holdings.rows)
        for each in (*numbers, *(mark.of(holdings) for mark in self.marks)):
            found = found * each
        return found


def columns_of(scaled: Iterable[ScaledColumn]) -> tuple[str, ...]:
    """The columns of the data that all of them are read from, each once."""
    return tuple(dict.fromkeys(name for each in scaled for name in each.columns))


def sign_changes(scaled: Iterable[ScaledColumn]) -> int:
    """How many of them may change between −1 and 1 at most when a record is replaced. Of marks of
    the same columns a record has one at most: it leaves that, and enters another."""
    marks = [_marked(each) for each in scaled]
    several = (len(list(each)) for names, each in groupby(sorted(filter(None, marks))))
    return marks.count(()) + sum(min(each, 2) for each in several)


def free_squares(scaled: Iterable[ScaledColumn]) -> int:
    """How many of the columns have a square that is not always 1."""
    return [_marked(each) for each in scaled].count(())


def _marked(each: ScaledColumn) -> tuple[str, ...]:
    """The columns of names of a term that is nothing but marks."""
    if isinstance(each, ScaledProduct) and not each.numbers:
        return tuple(mark.column for mark in each.marks)
    return ()
