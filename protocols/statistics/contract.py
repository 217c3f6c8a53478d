"""The contract of a statistic: encode at the party, decode at the coordinator, plain reference."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.contract import Plan
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.statistics.estimates import Estimate
from tallyroom.protocols.statistics.parameters import Parametrized, as_taken, fits
from tallyroom.protocols.statistics.release import Answer, Release

Bounds = tuple[float, float]


@dataclass(frozen=True)
class Statistic(Parametrized, ABC):
    """A statistic over records with named columns. Most are about one column, clipped to public
    bounds: `protocols.statistics.bounded.BoundedColumn`.

    Everything here is public: parties, servers and coordinator each build the same statistic from
    its parameters.
    """

    part_of: ClassVar[str] = ""
    """The study whose question it is, if only that study asks it: the command does not offer it."""

    def __post_init__(self) -> None:
        self._take_python()

    def _take_python(self) -> None:
        """As people write it: one number or name where there may be several, 2 for the choice "2".

        Raises `LocalError`, which is a ValueError, for a value of another type.
        """
        for each in dataclasses.fields(self):
            value = getattr(self, each.name)
            taken = as_taken(value, each.type)
            if not fits(taken, each.type):
                raise LocalError(f"{self.name}: {each.name} cannot be {value!r}")
            if taken is not value:
                object.__setattr__(self, each.name, taken)

    @abstractmethod
    def plan(self, facts: Facts) -> Plan:
        """What is computed for it, given what is public. Raises `LocalError` if nothing can be."""

    @abstractmethod
    def read(self, release: Release) -> Answer:
        """The answer, from what was released; it spends nothing."""

    @property
    def asked_as(self) -> str:
        """The name that a user knows it by."""
        return self.part_of or self.name

    @abstractmethod
    def reference(self, holdings: Holdings) -> Estimate:
        """The plain statistic of the raw records, as numpy, scipy or scikit-learn compute it:
        without clipping, rounding or noise."""

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The columns of the data that it is about."""

    @property
    def bounded(self) -> tuple[str, ...]:
        """Those of the columns whose public bounds must be known."""
        return ()

    @property
    def named_columns(self) -> tuple[str, ...]:
        """Those of its columns that are of names rather than of numbers."""
        return ()

    @property
    def column_bounds(self) -> Mapping[str, Bounds]:
        """The public bounds that are known, by column; values are clipped to them."""
        return {}

    def with_bounds(self, published: Mapping[str, Bounds]) -> Self:
        """The statistic with bounds that a data set publishes, where it has none of its own."""
        return self

    def check_bounds(self) -> None:
        """Raises `LocalError` where bounds are needed and not known."""
        if missing := [name for name in self.bounded if name not in self.column_bounds]:
            raise LocalError(f"{self.name} needs public bounds of column {missing[0]!r}")
