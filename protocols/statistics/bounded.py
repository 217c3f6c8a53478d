"""Statistics that clip columns to public bounds: one range for all of them, or one for each.

Bounds come from the user, or from a data set that publishes them; bounds taken from the records
would not be private.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol, Self, TypeVar, runtime_checkable

import numpy as np

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.offers import Offer, Offers
from tallyroom.protocols.plans.scaled import ScaledColumn
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.contract import AsksAnother, Bounds, Statistic, asked_as
from tallyroom.protocols.statistics.option import option, role

MAX_COLUMNS = 64


@dataclass(frozen=True)
class Clipped(Statistic):
    """A statistic that clips some of its columns to public bounds."""

    @property
    @abstractmethod
    def bounded(self) -> tuple[str, ...]:
        """The columns whose public bounds must be known."""

    @property
    @abstractmethod
    def column_bounds(self) -> Mapping[str, Bounds]:
        """The public bounds that are known, by column; values are clipped to them."""

    @abstractmethod
    def with_bounds(self, published: Mapping[str, Bounds]) -> Self:
        """The statistic with bounds that a data set publishes, where it has none of its own."""

    @abstractmethod
    def check_bounds(self) -> None:
        """Raises `LocalError` where bounds are needed and not known."""


# --- of any statistic ---

AnyStatistic = TypeVar("AnyStatistic", bound=Statistic)


def known_bounds(asked: object) -> Mapping[str, Bounds]:
    """The public bounds of a statistic, by column. Studies have none: their questions do."""
    if isinstance(asked, AsksAnother):
        return known_bounds(asked.asked)
    return asked.column_bounds if isinstance(asked, Clipped) else {}


def columns_to_bound(statistic: Statistic) -> tuple[str, ...]:
    """The columns whose public bounds must be known."""
    if isinstance(statistic, AsksAnother):
        return columns_to_bound(statistic.asked)
    return statistic.bounded if isinstance(statistic, Clipped) else ()


def with_bounds(statistic: AnyStatistic, published: Mapping[str, Bounds]) -> AnyStatistic:
    """The statistic with bounds that a data set publishes, where it needs some and has none."""
    if isinstance(statistic, AsksAnother):
        return statistic.asking(with_bounds(statistic.asked, published))
    return statistic.with_bounds(published) if isinstance(statistic, Clipped) else statistic


def check_bounds(statistic: Statistic) -> None:
    """Raises `LocalError` where bounds are needed and not known."""
    if isinstance(statistic, AsksAnother):
        check_bounds(statistic.asked)
    elif isinstance(statistic, Clipped):
        statistic.check_bounds()


def clipped_records(statistic: Statistic, holdings: Holdings) -> int:
    """How many records have a value outside the public bounds."""
    outside = np.zeros(holdings.rows, dtype=bool)
    for name, (lower, upper) in known_bounds(statistic).items():
        values = holdings.column(name)
        outside |= (values < lower) | (values > upper)
    return int(np.count_nonzero(outside))


# --- one range for all columns ---


@dataclass(frozen=True)
class Bounded(Clipped):
    """A statistic with one public range for the values of all its `valued` columns."""

    lower: float | None = option(None, "Public lower bound of the values.")
    upper: float | None = option(None, "Public upper bound of the values.")

    def __post_init__(self) -> None:
        super().__post_init__()
        for bound in (self.lower, self.upper):
            if bound is not None and not math.isfinite(bound):
                raise LocalError(f"bounds must be finite numbers, not {bound}")
        if self.lower is not None and self.upper is not None:
            _check_order(self.lower, self.upper)
        if not math.isfinite((self.upper or 0.0) - (self.lower or 0.0)):
            raise LocalError(f"bounds {self.lower:g} and {self.upper:g} are too far apart")

    @property
    def valued(self) -> tuple[str, ...]:
        """The columns that are clipped to the bounds: all but labels."""
        return self.columns

    @property
    def bounded(self) -> tuple[str, ...]:
        return self.valued

    @property
    def bounds(self) -> Bounds:
        if self.lower is None or self.upper is None:
            raise LocalError(
                f"{self.name} needs public bounds: give --lower and --upper, or --bounds private, "
                "which finds some with a share of ε (those of the data would not be private)"
            )
        return float(self.lower), float(self.upper)

    @property
    def column_bounds(self) -> Mapping[str, Bounds]:
        if self.lower is None or self.upper is None:
            return {}
        return dict.fromkeys(self.valued, (self.lower, self.upper))

    def check_bounds(self) -> None:
        if self.bounded:
            _ = self.bounds

    def with_bounds(self, published: Mapping[str, Bounds]) -> Self:
        """Bounds that a data set publishes for one column do not apply to another: bounds must be
        published for every column that needs them, and be the same."""
        found = {published.get(name) for name in self.bounded}
        if len(found) != 1 or (bounds := found.pop()) is None:
            return self
        return replace(
            self,
            lower=bounds[0] if self.lower is None else self.lower,
            upper=bounds[1] if self.upper is None else self.upper,
        )


def _check_order(lower: float, upper: float) -> None:
    if not lower < upper:
        raise LocalError(f"--lower {lower:g} must be below --upper {upper:g}")
    if not float(lower) < float(upper):  # whole numbers in Python differ beyond 2^53
        raise LocalError(
            f"--lower {lower} and --upper {upper} are the same as doubles: subtract a public "
            "number from the values and the bounds"
        )


@dataclass(frozen=True)
class OneColumn(Statistic):
    """A statistic of one column."""

    value: str = role("value", "The column to compute it from.", bounded=True)

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.value,)


@dataclass(frozen=True)
class BoundedColumn(Bounded, OneColumn):
    """A statistic of one numeric column, clipped to public bounds."""

    def raw(self, holdings: Holdings) -> Column:
        """The values as they are, for the truth. Raises `LocalError` unless all are numbers."""
        _ = self.bounds
        return finite_column(holdings, self.value)


def finite_column(holdings: Holdings, name: str) -> Column:
    """A column for the truth, never at a party. Raises `LocalError` unless all values are finite
    numbers."""
    values = holdings.column(name)
    if not np.isfinite(values).all():
        raise LocalError(f"column {name!r} has values that are not finite numbers")
    return values


# --- a range for each column ---


@dataclass(frozen=True)
class Ranged(Clipped):
    """A statistic whose columns have a public range each, given as COLUMN=LOWER:UPPER."""

    ranges: tuple[str, ...] = option(
        (), "Public bounds of a column, as COLUMN=LOWER:UPPER; repeat.", flag="--range"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.ranges) > MAX_COLUMNS:
            raise LocalError(f"at most {MAX_COLUMNS} columns have a --range")
        for name in self.column_bounds:
            if name not in self.bounded:
                raise LocalError(f"--range {name}: {asked_as(self)} is not about that column")

    @property
    def bounded(self) -> tuple[str, ...]:
        return self.columns

    @cached_property
    def column_bounds(self) -> Mapping[str, Bounds]:
        return parse_ranges(self.ranges)

    def check_bounds(self) -> None:
        if missing := [name for name in self.bounded if name not in self.column_bounds]:
            raise LocalError(
                f"{asked_as(self)} needs public bounds of column {missing[0]!r}: give --range "
                f"{missing[0]}=LOWER:UPPER (bounds taken from the data would not be private)"
            )

    def with_bounds(self, published: Mapping[str, Bounds]) -> Self:
        missing = [name for name in self.bounded if name not in self.column_bounds]
        found = [format_range(name, published[name]) for name in missing if name in published]
        return replace(self, ranges=(*self.ranges, *found)) if found else self

    @property
    def scaled(self) -> tuple[ScaledColumn, ...]:
        """The columns that have ranges. Raises `LocalError` where a range is not known."""
        self.check_bounds()
        return tuple(ScaledColumn(name, *self.column_bounds[name]) for name in self.bounded)

    @cached_property
    def scaling(self) -> tuple[Column, Column]:
        """The middle and half the width of each column's range."""
        middles, halves = zip(*((each.middle, each.half) for each in self.scaled), strict=True)
        return np.array(middles), np.array(halves)


def parse_ranges(texts: tuple[str, ...]) -> dict[str, Bounds]:
    """Bounds by column. Raises `LocalError` for a text that is not COLUMN=LOWER:UPPER, and for a
    column that is named twice."""
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
    """A range as `parse_ranges` reads it."""
    return f"{name}={float(bounds[0])!r}:{float(bounds[1])!r}"


@runtime_checkable
class Binned(Protocol):
    """A statistic that needs bounds where records are counted in bins, as the local model does."""

    def with_bin_bounds(self, published: Mapping[str, Bounds]) -> Statistic: ...

    def bin_bounds(self) -> tuple[float, float]: ...


def with_published_bounds(
    statistic: Statistic, published: Mapping[str, Bounds], offers: Offers
) -> Statistic:
    """The statistic with bounds that a data set publishes, where it has none of its own and is put
    to an aggregator that offers that. Raises `LocalError` where it needs some that are not known.
    """
    bounded = with_bounds(statistic, published)
    check_bounds(bounded)
    if isinstance(bounded, Binned) and Offer.RANDOMIZE in offers:
        bounded = bounded.with_bin_bounds(published)
        assert isinstance(bounded, Binned)
        bounded.bin_bounds()
    return bounded
