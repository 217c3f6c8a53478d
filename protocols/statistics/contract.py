"""The contract of a statistic: encode at the party, decode at the coordinator, plain reference."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.offers import Offers
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

    way_of: ClassVar[str] = ""
    """The statistic under whose name it is asked (`asked_of`); the command does not offer it."""

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
        return self.way_of or self.name

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

    def clipped(self, holdings: Holdings) -> int:
        """How many records have a value outside the public bounds."""
        outside = np.zeros(holdings.rows, dtype=bool)
        for name, (lower, upper) in self.column_bounds.items():
            values = holdings.column(name)
            outside |= (values < lower) | (values > upper)
        return int(np.count_nonzero(outside))

    def asked_of(self, offers: Offers) -> "Statistic":
        """The statistic that is put to a federation whose aggregator offers that.

        Most are asked as they are. One with several ways to its answer (in pairs, from a curve,
        from reports of the local model) is asked as the statistic of the way that is chosen; that
        one's name and parameters are what everybody is bound to.
        """
        return self

    def prepared(self, known: Facts) -> Self:
        """What the coordinator decides before it asks: most statistics leave nothing open."""
        return self


def sum_by_party(rows: NDArray[np.uint64], holdings: Holdings) -> Vector:
    """Adds up the rows of each party's records in the ring."""
    summed: Vector = np.add.reduceat(rows, holdings.starts, axis=0)
    return summed
