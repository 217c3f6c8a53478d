"""What public data, or data made up in its place, decides before a question is asked."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Protocol, Self, runtime_checkable

from tallyroom.protocols.records import Holdings
from tallyroom.protocols.statistics.contract import Bounds
from tallyroom.protocols.statistics.estimates import Estimate


class Piloted(ABC):
    """A statistic that plans by public data that is like the data it is asked about."""

    @abstractmethod
    def planned_by(self, pilot: Holdings, bounds: Mapping[str, Bounds]) -> Self:
        """The statistic that knows public data, within `bounds` by column where it has none of its
        own, and plans by them. Raises `LocalError` for data that it cannot plan by."""

    @property
    @abstractmethod
    def open_to_pilot(self) -> bool:
        """Whether something is left open that public data would decide better."""


@runtime_checkable
class ReadBetweenThresholds(Protocol):
    """A statistic with so many `thresholds` that a plan may choose their number."""

    def between_thresholds(self, truth: Estimate) -> float | None:
        """The error (root mean square), without any noise, of having so many thresholds and no
        more, where that is the truth; None where their number is not for a plan to choose."""
