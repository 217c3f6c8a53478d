"""Columns that are clipped to public ranges, each scaled to [−1, 1]."""

from dataclasses import dataclass

import numpy as np

from tallyroom.protocols.plans.encodings import clipped
from tallyroom.protocols.records import Column, Holdings


@dataclass(frozen=True)
class ScaledColumn:
    """The middle of its range is 0, and the ends are −1 and 1."""

    name: str
    lower: float
    upper: float

    @property
    def middle(self) -> float:
        return (self.lower + self.upper) / 2

    @property
    def half(self) -> float:
        """Half the width of the range."""
        return (self.upper - self.lower) / 2

    def of(self, holdings: Holdings) -> Column:
        return self.scale(holdings.column(self.name))

    def scale(self, values: Column) -> Column:
        """A cell that is no number counts as the lower end."""
        inside = clipped(values, self.lower, self.upper)
        found: Column = np.clip((inside - self.middle) / self.half, -1.0, 1.0)
        return found
