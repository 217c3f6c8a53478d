"""The contract of a statistic, and contracts for what only some statistics can do.

Everything here is public: parties, servers and coordinator each build the same statistic from its
parameters.
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self, runtime_checkable

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.contract import Plan
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.groups import Groups
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.statistics.drawing import Style
from tallyroom.protocols.statistics.estimates import Estimate
from tallyroom.protocols.statistics.option import Parametrized, as_taken, fits
from tallyroom.protocols.statistics.release import Answer, Release

Bounds = tuple[float, float]


@dataclass(frozen=True)
class Statistic(Parametrized, ABC):
    """A statistic over records with named columns: a frozen dataclass of a person's options.

    Most statistics clip one column to public bounds:
    `protocols.statistics.bounded.BoundedColumn`.
    """

    part_of: ClassVar[str] = ""
    """The study that asks it, if nobody else does: the command does not offer the statistic."""

    def __post_init__(self) -> None:
        """Takes options as people write them in Python: one number or name where there may be
        several, 2 for the choice "2". Raises `LocalError`, which is a ValueError, for a value of
        another type."""
        for each in dataclasses.fields(self):
            value = getattr(self, each.name)
            taken = as_taken(value, each.type)
            if not fits(taken, each.type):
                raise LocalError(f"{self.name}: {each.name} cannot be {value!r}")
            if taken is not value:
                object.__setattr__(self, each.name, taken)

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The columns of the data that it reads."""

    @abstractmethod
    def plan(self, facts: Facts) -> Plan:
        """The plan that all roles follow, given what is public. Raises `LocalError` if there is no
        way to compute the statistic."""

    @abstractmethod
    def read(self, release: Release) -> Answer:
        """The answer, from what was released; reading spends nothing."""

    @abstractmethod
    def reference(self, holdings: Holdings) -> Estimate:
        """The plain statistic of the raw records, as numpy, scipy or scikit-learn compute it:
        without clipping, rounding or noise."""


def asked_as(statistic: Statistic) -> str:
    """The name that users know it by: its own, or that of the only study that asks it."""
    if isinstance(statistic, AsksAnother):
        return asked_as(statistic.asked)
    return statistic.part_of or statistic.name


def style_of(statistic: Statistic) -> Style:
    """How it is drawn."""
    return style_of(statistic.asked) if isinstance(statistic, AsksAnother) else statistic.style


# --- what some statistics can do ---


class ReadsNames(ABC):
    """A statistic that reads names, not numbers, in some of its columns."""

    @property
    @abstractmethod
    def named_columns(self) -> tuple[str, ...]:
        """The columns that hold names."""


@dataclass(frozen=True)
class OfGroups(Statistic):
    """A statistic that can be asked of groups of records, whose sizes are private: which group a
    record is in, if any, is decided by its own cells."""

    @abstractmethod
    def plan_of(self, facts: Facts, groups: Groups) -> Plan:
        """The plan of one release for all groups. Raises `LocalError` where there is none."""

    @abstractmethod
    def read_of(self, release: Release, groups: Groups) -> list[Answer]:
        """The answer of each group."""


@dataclass(frozen=True)
class ReadInParts(OfGroups):
    """A statistic whose release has a part for each group, which unless it says otherwise is read
    as that of all records is."""

    @abstractmethod
    def parts_of(self, release: Release, groups: Groups) -> list[Release]:
        """What is about each group."""

    def read_of(self, release: Release, groups: Groups) -> list[Answer]:
        return [self.read(part) for part in self.parts_of(release, groups)]


class AsksAnother(ABC):
    """A statistic that asks another one in its own way."""

    @property
    @abstractmethod
    def asked(self) -> Statistic:
        """The other one."""

    @abstractmethod
    def asking(self, other: Statistic) -> Self:
        """The same way of asking, for another."""


class Piloted(ABC):
    """A statistic that plans by public data that is like the data it is asked about."""

    @abstractmethod
    def planned_by(self, pilot: Holdings, bounds: Mapping[str, Bounds]) -> Self:
        """The statistic planned by public data, within `bounds` by column where it has none of its
        own. Raises `LocalError` for data that it cannot plan by."""

    @property
    @abstractmethod
    def open_to_pilot(self) -> bool:
        """Whether public data would decide something better than the defaults."""


@runtime_checkable
class ReadBetweenThresholds(Protocol):
    """A statistic whose number of `thresholds` may be chosen when a run is planned."""

    def between_thresholds(self, truth: Estimate) -> float | None:
        """The error (root mean square) that so many thresholds cause without any noise, given the
        truth; None where the number of thresholds is not to be chosen."""
