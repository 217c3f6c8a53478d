"""What statistics about a public schema of attributes have in common."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.laplace import Integers
from tallyroom.protocols.privacy.thresholded import Space
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.statistics.attributes import MAX_BINS, Attribute, parse_schema
from tallyroom.protocols.statistics.contract import Statistic
from tallyroom.protocols.statistics.legacy import Legacy
from tallyroom.protocols.statistics.synthetic_rows import SyntheticRows


@dataclass(frozen=True)
class OfSchema(Statistic):
    """About attributes, a target among them, whose values are public."""

    attributes: tuple[str, ...] = ()
    target: str = "target"

    @cached_property
    def schema(self) -> tuple[list[Attribute], Attribute]:
        """The attributes but for the target, and the target."""
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


@dataclass(frozen=True)
class Projected(Legacy, OfSchema):
    """Of which some are `chosen`; numbers are counted in `bins`."""

    chosen: tuple[str, ...] = ()
    bins: int = 2

    way_of: ClassVar[str] = "projected-histogram"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bins(self.bins)
        known = {each.name for each in self.schema[0]}
        if set(self.chosen) - known or len(set(self.chosen)) < len(self.chosen):
            raise LocalError("chosen attributes are those of the schema, each once")

    @cached_property
    def projected(self) -> list[Attribute]:
        """The chosen attributes, and the target."""
        predictors, target = self.schema
        by_name = {each.name: each for each in predictors}
        return [*(by_name[name] for name in self.chosen), target]

    def space_of(self, attributes: list[Attribute]) -> Space:
        """Raises `LocalError` past 2^60 cells."""
        return Space(tuple(each.size(self.bins) for each in attributes))

    def codes_of(self, attributes: list[Attribute], holdings: Holdings) -> Integers:
        """A row for each record."""
        return np.stack([each.codes(holdings, self.bins) for each in attributes], axis=1)

    def rows_with(self, cells: Integers, counts: Integers) -> SyntheticRows:
        """Of the projected space, by the numbers of its cells."""
        return SyntheticRows(
            [each.name for each in self.projected],
            [each.labels(self.bins) for each in self.projected],
            self.space_of(self.projected).decode(cells),
            counts,
        )
