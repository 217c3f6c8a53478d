"""Statistics whose values are clipped to public bounds: of one column, or of several."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.contract import Bounds, Statistic
from tallyroom.protocols.statistics.option import option, role


@dataclass(frozen=True)
class OneColumn(Statistic):
    """A statistic about one column."""

    value: str = role("value", "The column to compute it from.", bounded=True)

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.value,)


@dataclass(frozen=True)
class Bounded(Statistic):
    """A statistic with one public range for the values of all its columns, or of those that are
    `valued`."""

    lower: float | None = option(None, "Public lower bound of the values.")
    upper: float | None = option(None, "Public upper bound of the values.")

    def __post_init__(self) -> None:
        super().__post_init__()
        for bound in (self.lower, self.upper):
            if bound is not None and not math.isfinite(bound):
                raise LocalError(f"bounds must be finite numbers, not {bound}")
        if self.lower is not None and self.upper is not None and not self.lower < self.upper:
            raise LocalError(f"--lower {self.lower:g} must be below --upper {self.upper:g}")
        if not math.isfinite((self.upper or 0.0) - (self.lower or 0.0)):
            raise LocalError(f"bounds {self.lower:g} and {self.upper:g} are too far apart")

    @property
    def valued(self) -> tuple[str, ...]:
        """Those of the columns that are clipped to the bounds: all but labels."""
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
        """Bounds that a data set publishes for one column are not those of another: all that are
        needed must be published, and be the same."""
        found = {published.get(name) for name in self.bounded}
        if len(found) != 1 or (bounds := found.pop()) is None:
            return self
        return replace(
            self,
            lower=bounds[0] if self.lower is None else self.lower,
            upper=bounds[1] if self.upper is None else self.upper,
        )


@dataclass(frozen=True)
class BoundedColumn(Bounded, OneColumn):
    """A statistic about one numeric column, clipped to public bounds."""

    def raw(self, holdings: Holdings) -> Column:
        """The values as they are, for the truth. Raises `LocalError` for what is no number."""
        _ = self.bounds
        return finite_column(holdings, self.value)


def finite_column(holdings: Holdings, name: str) -> Column:
    """For the truth, never at a party. Raises `LocalError` for what is no finite number."""
    values = holdings.column(name)
    if not np.isfinite(values).all():
        raise LocalError(f"column {name!r} has values that are not finite numbers")
    return values


def clipped_records(statistic: Statistic, holdings: Holdings) -> int:
    """How many records have a value outside the public bounds."""
    outside = np.zeros(holdings.rows, dtype=bool)
    for name, (lower, upper) in statistic.column_bounds.items():
        values = holdings.column(name)
        outside |= (values < lower) | (values > upper)
    return int(np.count_nonzero(outside))
