"""Statistics that release a choice and nothing else: two servers choose together on counts that
they share, under noise that neither knows (`protocols.joint.choice`)."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.joint.choice import Choice, Moved, units_of_epsilon
from tallyroom.protocols.plans.contract import NoisyChoice
from tallyroom.protocols.plans.encodings import EqualBins
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.groups import ByGroup, Groups
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.contract import ReadInParts
from tallyroom.protocols.statistics.drawing import Style
from tallyroom.protocols.statistics.estimates import Curve, Estimate
from tallyroom.protocols.statistics.histogram import CountedInBins
from tallyroom.protocols.statistics.option import option
from tallyroom.protocols.statistics.release import Answer, Release

MAX_CHOSEN = 100
MAX_CANDIDATES = 1 << 16
UNSURE = "how sure a choice is depends on how far apart the scores are, which nobody sees"


@dataclass(frozen=True)
class BinsByMiddle(EqualBins):
    """Bins of which one is chosen and told by its middle."""

    @property
    def grid_words(self) -> str:
        return "a bin is told by its middle"

    @property
    def middles(self) -> Column:
        middles: Column = (self.edges[:-1] + self.edges[1:]) / 2
        return middles


@dataclass(frozen=True)
class FirstCells:
    """So many cells of a row; records in the others are no candidates."""

    count: int

    def measure(self, total: Vector) -> Vector:
        return total[: self.count]


@dataclass(frozen=True)
class TopK(ReadInParts, CountedInBins):
    """The k fullest bins, in order; how many records they have stays hidden."""

    k: int = option(3, "How many bins.")

    name: ClassVar[str] = "top-k"
    style: ClassVar[Style] = Style("marks", "place", "middle of the bin")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.categories:
            raise LocalError(f"{self.name} counts numbers in bins: leave --categories out")
        if not 2 <= self.bins <= MAX_CANDIDATES:
            raise LocalError(f"--bins must be between 2 and {MAX_CANDIDATES}, not {self.bins}")
        if not 1 <= self.k <= min(self.bins, MAX_CHOSEN):
            raise LocalError(
                f"--k must be between 1 and {min(self.bins, MAX_CHOSEN)}, not {self.k}: there are "
                f"{self.bins} bins"
            )

    @cached_property
    def _bins(self) -> BinsByMiddle:
        return BinsByMiddle(self.value, *self.bounds, self.bins)

    def plan(self, facts: Facts) -> NoisyChoice:
        """A record is in one bin: replaced, it moves one count down and one up."""
        units = units_of_epsilon(self.k, Moved.ONE_UP_ONE_DOWN)
        return NoisyChoice(self._bins, Choice(self.bins, facts.records, self.k), units)

    def plan_of(self, facts: Facts, groups: Groups) -> NoisyChoice:
        """A record outside is in none of the bins: at most one count falls, and one rises."""
        if groups.count > 1:
            raise LocalError(
                f"{self.name} chooses once: ask for it --where, one group after the other"
            )
        plan, encoding = self.plan(facts), ByGroup(self._bins, groups)
        return replace(plan, encoding=encoding, strategy=FirstCells(self.bins))

    def parts_of(self, release: Release, groups: Groups) -> list[Release]:
        return [release]

    def read(self, release: Release) -> Answer:
        return release.without_errors(self._found(release.chosen(self.bins)), UNSURE)

    def reference(self, holdings: Holdings) -> Estimate:
        """The fullest bins of the raw records; of two that hold equally many, the lower comes
        first."""
        counts, _ = np.histogram(self.raw(holdings), bins=self.edges)
        return self._found(np.argsort(-counts, kind="stable")[: self.k])

    def _found(self, bins: NDArray[np.int64]) -> Estimate:
        places = np.arange(1, self.k + 1, dtype=np.float64)
        return Curve(places.tolist(), self._bins.middles[bins].tolist())


@dataclass(frozen=True)
class Mode(TopK):
    """The middle of the fullest bin; how many records it has stays hidden."""

    k: int = 1

    name: ClassVar[str] = "mode"
    style: ClassVar[Style] = Style()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k != 1:
            raise LocalError("the mode is one bin: ask for top-k to get more")

    def _found(self, bins: NDArray[np.int64]) -> Estimate:
        return float(self._bins.middles[bins[0]])
