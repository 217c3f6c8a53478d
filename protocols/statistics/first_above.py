"""The first count that reaches a threshold, by the sparse vector technique between two servers: an
index is all that is released (`protocols.joint.above_threshold`)."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.joint.above_threshold import FirstAbove, units_of_epsilon
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.statistics.choices import MAX_CANDIDATES, Chosen
from tallyroom.protocols.statistics.drawing import Style
from tallyroom.protocols.statistics.estimates import Estimate, Rows
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.magnitudes import BINS, LEFT, RIGHT, Magnitudes
from tallyroom.protocols.statistics.option import option

MAX_THRESHOLD = 1 << 32
BEYOND = 1e-2
"""The probability that bounds go one bin further than there are records, on either side."""


@dataclass(frozen=True)
class Searched(Chosen):
    """What statistics by the sparse vector technique have in common."""

    searches: ClassVar[int] = 1
    monotone: ClassVar[bool] = False

    @property
    def sensitivity(self) -> int:
        """ε·s of all searches: a replaced record moves a score by one at most."""
        return units_of_epsilon(self.searches, self.monotone)

    @property
    def released(self) -> int:
        return self.searches

    def mechanism_words(self, scale: float) -> str:
        times = "" if self.searches == 1 else f"{self.searches} times "
        return (
            f"{times}above threshold (sparse vector technique): geometric noise of scale "
            f"{scale:.6g} on the threshold and on every score, which nobody sees; the first index "
            "above is all that is opened"
        )


@dataclass(frozen=True)
class FirstAboveThreshold(Searched, Histogram):
    """The middle of the first bin with at least `--threshold` records; inf if there is none.

    Bins are searched from the lowest values up.
    """

    threshold: int = option(1, "How many records the bin has to have.")

    name: ClassVar[str] = "first-above"
    style: ClassVar[Style] = Style()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.bins < MAX_CANDIDATES:
            raise LocalError(f"--bins must be between 1 and {MAX_CANDIDATES - 1}, not {self.bins}")
        if self.categories:
            raise LocalError("the names of --categories are in no order: none is the first")
        if not 1 <= self.threshold <= MAX_THRESHOLD:
            raise LocalError(
                f"--threshold is from 1 to the number of records, not {self.threshold}"
            )

    @property
    def noises(self) -> int:
        return self.bins + 1

    def choice(self, records: int) -> FirstAbove:
        return FirstAbove(self.bins, records, (self.threshold,))

    def decode(self, released: Vector, records: int, exact: bool = False) -> Estimate:
        return self._found(int(self._indices(released, self.bins + 1)[0]))

    def reference(self, holdings: Holdings) -> Estimate:
        counts, _ = np.histogram(self.raw(holdings), bins=self.edges)
        reached = np.flatnonzero(counts >= self.threshold)
        return self._found(int(reached[0]) if len(reached) else self.bins)

    def _found(self, at: int) -> Estimate:
        edges = self.edges
        return math.inf if at == self.bins else float((edges[at] + edges[at + 1]) / 2)

    @property
    def grid_words(self) -> str:
        return "a bin is told by its middle"


@dataclass(frozen=True)
class MagnitudeBounds(Searched, Magnitudes):
    """Bounds that hold all but a few records, among powers of two of either sign.

    From each side the first bound past which at most `beyond` records lie: the counts within it all
    move the same way when a record is replaced. `beyond` is for the coordinator to fill in by ε:
    so many that noise seldom leads past all records.
    """

    beyond: int = 0

    name: ClassVar[str] = "magnitude-bounds"
    way_of: ClassVar[str] = "magnitudes"
    style: ClassVar[Style] = Style()
    searches: ClassVar[int] = 2
    monotone: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.beyond <= MAX_THRESHOLD:
            raise LocalError("beyond bounds lie 0 records or more")

    def prepared(self, known: Facts) -> Self:
        """P(ρ − ν > t) is at most exp(−t/s)/2 for noises ρ and ν of scale s."""
        if known.record_epsilon is None or self.beyond:
            return self
        scale = self.sensitivity / float(known.record_epsilon)
        beyond = min(math.ceil(-math.log(2 * BEYOND) * scale), known.records - 1)
        return replace(self, beyond=beyond)

    @property
    def noises(self) -> int:
        return 2 * (BINS + 1)

    @property
    def measures(self) -> bool:
        return True

    def measure(self, total: Vector) -> Vector:
        """How many records are in each bin and above it, from the highest bin down; then in each
        bin and below it, from the lowest up."""
        above: Vector = np.cumsum(total[::-1], dtype=np.uint64)
        below: Vector = np.cumsum(total, dtype=np.uint64)
        return np.concatenate([above, below])

    def choice(self, records: int) -> FirstAbove:
        return FirstAbove(BINS, records, (max(1, records - self.beyond),) * 2)

    def decode(self, released: Vector, records: int, exact: bool = False) -> Estimate:
        """The ends of the range; infinite where noise found none."""
        down, up = self._indices(released, BINS + 1).tolist()
        lower = -math.inf if down == BINS else float(LEFT[BINS - 1 - down])
        upper = math.inf if up == BINS else float(RIGHT[up])
        return Rows(["end", "value"], [["lower", lower], ["upper", upper]])

    def reference(self, holdings: Holdings) -> Estimate:
        """The bins that the least and the largest value lie in."""
        bins = self.measured(holdings)
        lower, upper = float(LEFT[bins.min()]), float(RIGHT[bins.max()])
        return Rows(["end", "value"], [["lower", lower], ["upper", upper]])
