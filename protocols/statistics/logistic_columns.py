"""What ways to fit a logistic regression have in common: its columns, and how they are scaled."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.records import Column
from tallyroom.protocols.statistics.ranged import MAX_COLUMNS, Ranged


@dataclass(frozen=True)
class LogisticColumns(Ranged):
    """A label by columns that are clipped and scaled to [−1, 1]."""

    x: tuple[str, ...] = ("x",)
    label: str = "label"
    positive: float | None = None

    way_of: ClassVar[str] = "logistic-regression"

    def __post_init__(self) -> None:
        if not self.x or len(set(self.columns)) != len(self.columns):
            raise LocalError("--x names one column or more, each once, and none is the label")
        if len(self.columns) > MAX_COLUMNS:
            raise LocalError(f"a regression is of at most {MAX_COLUMNS} columns, not more")
        super().__post_init__()

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.x, self.label)

    @property
    def bounded(self) -> tuple[str, ...]:
        return self.x

    @property
    def terms(self) -> list[str]:
        return ["intercept", *self.x]

    @cached_property
    def scaling(self) -> tuple[Column, Column]:
        """The middle and half the width of each column's range."""
        self.check_bounds()
        lower, upper = np.array([self.column_bounds[name] for name in self.x]).T
        return (lower + upper) / 2, (upper - lower) / 2
