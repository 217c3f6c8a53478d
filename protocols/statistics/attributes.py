"""Attributes whose values a public schema lists, as AGE=17:90 or SEX=Female,Male, and the
statistics that are about them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.categories import OTHER, parse_categories
from tallyroom.protocols.cells import numbers, places
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.statistics.contract import ReadsNames, Statistic

MAX_ATTRIBUTES = 256
MAX_BINS = 4096


@dataclass(frozen=True)
class Attribute:
    """A column of numbers within public bounds, counted in bins; or a column of names, of which
    those that are not listed count as `other`."""

    name: str
    bounds: tuple[float, float] | None = None
    names: tuple[str, ...] = ()

    def size(self, bins: int) -> int:
        return bins if self.bounds else len(self.names) + 1

    def codes(self, holdings: Holdings, bins: int) -> NDArray[np.int64]:
        """The code of each record's value, from 0. A cell that is not a number counts as the lower
        bound, a name that is not listed as `other`."""
        column = holdings.column(self.name)
        if self.bounds is None:
            return places(column, self.names)
        lower, upper = self.bounds
        scaled = (np.clip(numbers(column, lower), lower, upper) - lower) / (upper - lower)
        return np.minimum((scaled * bins).astype(np.int64), bins - 1)

    def labels(self, bins: int) -> list[float | str]:
        """The value that each code stands for in synthetic rows: a name, or the middle of a bin."""
        if self.bounds is None:
            return [*self.names, OTHER]
        lower, upper = self.bounds
        return [lower + (at + 0.5) * (upper - lower) / bins for at in range(bins)]

    def outside(self, holdings: Holdings) -> NDArray[np.bool]:
        """Marks the records that lie outside the bounds, or have a name that is not listed."""
        if self.bounds is None:
            return np.equal(self.codes(holdings, 1), len(self.names))
        column = holdings.column(self.name)
        return np.asarray((column < self.bounds[0]) | (column > self.bounds[1]))

    def clipped(self, holdings: Holdings) -> int:
        """The number of records that `outside` marks."""
        return int(self.outside(holdings).sum())


def parse_attribute(text: str) -> Attribute:
    """Reads COLUMN=LOWER:UPPER or COLUMN=NAME,NAME. Raises `LocalError` for any other text."""
    name, equals, values = text.partition("=")
    if not (name and equals and values):
        raise LocalError(
            f"an attribute is COLUMN=LOWER:UPPER or COLUMN=NAME,NAME, not {text[:60]!r}"
        )
    try:
        lower, upper = (float(each) for each in values.split(":"))
    except ValueError:
        return Attribute(name, None, parse_categories(values))
    if not (lower < upper and math.isfinite(upper - lower)):
        raise LocalError(f"attribute {name}: {lower:g} must be below {upper:g}, both finite")
    if not ((upper - lower) / 2 > 0 and math.isfinite(lower + upper)):
        raise LocalError(f"attribute {name}: doubles have no middle of {lower:g} and {upper:g}")
    return Attribute(name, (lower, upper))


def parse_schema(texts: tuple[str, ...], target: str) -> tuple[list[Attribute], Attribute]:
    """The attributes that predict and the one that is predicted. Raises `LocalError`."""
    if len(texts) > MAX_ATTRIBUTES:
        raise LocalError(f"at most {MAX_ATTRIBUTES} attributes are taken, not {len(texts)}")
    found = {each.name: each for each in map(parse_attribute, texts)}
    if len(found) < len(texts):
        raise LocalError("each attribute has one --attribute")
    if target not in found:
        raise LocalError(f"the target needs its values: --attribute {target}=NAME,NAME or --schema")
    predictors = [each for name, each in found.items() if name != target]
    if not predictors:
        raise LocalError("a projection needs an attribute besides the target: give --attribute")
    return predictors, found[target]


def outside_of(attributes: Sequence[Attribute], holdings: Holdings) -> int:
    """How many records lie outside the public values of one attribute or more."""
    found = np.zeros(holdings.rows, dtype=bool)
    for each in attributes:
        found |= each.outside(holdings)
    return int(found.sum())


@dataclass(frozen=True)
class OfSchema(ReadsNames, Statistic):
    """A statistic of attributes, one of them the target, whose values are public."""

    attributes: tuple[str, ...] = ()
    target: str = "target"

    @cached_property
    def schema(self) -> tuple[list[Attribute], Attribute]:
        """The attributes without the target, and the target."""
        return parse_schema(self.attributes, self.target)

    @property
    def columns(self) -> tuple[str, ...]:
        predictors, target = self.schema
        return (*(each.name for each in predictors), target.name)

    @property
    def named_columns(self) -> tuple[str, ...]:
        predictors, target = self.schema
        return tuple(each.name for each in (*predictors, target) if each.bounds is None)


def check_bins(bins: int) -> None:
    if not 1 <= bins <= MAX_BINS:
        raise LocalError(f"--bins is from 1 to {MAX_BINS}, not {bins}")
