"""Statistics about attributes whose values a public schema tells."""

from dataclasses import dataclass
from functools import cached_property

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.statistics.attributes import MAX_BINS, Attribute, parse_schema
from tallyroom.protocols.statistics.contract import Statistic


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
