"""The first count that reaches a threshold, by the sparse vector technique between two servers: an
index is all that is released (`protocols.joint.above_threshold`)."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.joint.above_threshold import FirstAbove, units_of_epsilon
from tallyroom.protocols.plans.contract import NoisyChoice
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.statistics.bounded import OneColumn
from tallyroom.protocols.statistics.choices import (
    MAX_CANDIDATES,
    UNSURE,
    BinsByMiddle,
)
from tallyroom.protocols.statistics.drawing import Style
from tallyroom.protocols.statistics.estimates import Estimate, Rows
from tallyroom.protocols.statistics.histogram import CountedInBins
from tallyroom.protocols.statistics.magnitudes import BINS, LEFT, RIGHT, MagnitudeBins
from tallyroom.protocols.statistics.option import option
from tallyroom.protocols.statistics.release import Answer, Release

MAX_THRESHOLD = 1 << 32
BEYOND = 1e-2
"""The probability that bounds go one bin further than there are records, on either side."""


def words_of(searches: int) -> str:
    """Describes the mechanism, with a {scale} that is still to be filled in."""
    times = "" if searches == 1 else f"{searches} times "
    return (
        f"{times}above threshold (sparse vector technique): geometric noise of scale {{scale:.6g}} "
        "on the threshold and on every score, which nobody sees; the first index above is all "
        "that is opened"
    )


@dataclass(frozen=True)
class FirstAboveThreshold(CountedInBins):
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
            raise LocalError("names have no order, so none is the first: leave --categories out")
        if not 1 <= self.threshold <= MAX_THRESHOLD:
            raise LocalError(
                f"--threshold is from 1 to the number of records, not {self.threshold}"
            )

    @cached_property
    def _bins(self) -> BinsByMiddle:
        return BinsByMiddle(self.value, *self.bounds, self.bins)

    def plan(self, facts: Facts) -> NoisyChoice:
        rule = FirstAbove(self.bins, facts.records, (self.threshold,))
        units = units_of_epsilon(1, monotone=False)
        return NoisyChoice(self._bins, rule, units, described=words_of(1))

    def read(self, release: Release) -> Answer:
        [found] = release.chosen(self.bins + 1).tolist()
        return release.without_errors(self._found(found), UNSURE)

    def reference(self, holdings: Holdings) -> Estimate:
        counts, _ = np.histogram(self.raw(holdings), bins=self.edges)
        reached = np.flatnonzero(counts >= self.threshold)
        return self._found(int(reached[0]) if len(reached) else self.bins)

    def _found(self, at: int) -> Estimate:
        return math.inf if at == self.bins else float(self._bins.middles[at])


@dataclass(frozen=True)
class FromBothEnds:
    """Counts the records in each bin and above it, from the highest bin down; then the records in
    each bin and below it, from the lowest up."""

    def measure(self, total: Vector) -> Vector:
        above: Vector = np.cumsum(total[::-1], dtype=np.uint64)
        below: Vector = np.cumsum(total, dtype=np.uint64)
        return np.concatenate([above, below])


@dataclass(frozen=True)
class MagnitudeBounds(OneColumn):
    """Bounds that hold all but a few records, among powers of two of either sign.

    From each side the first bound past which at most a few records lie: the counts within it all
    move the same way when a record is replaced.
    """

    name: ClassVar[str] = "magnitude-bounds"
    part_of: ClassVar[str] = "magnitudes"

    def plan(self, facts: Facts) -> NoisyChoice:
        units = units_of_epsilon(2, monotone=True)
        within = max(1, facts.records - records_beyond(facts, units))
        rule = FirstAbove(BINS, facts.records, (within, within))
        return NoisyChoice(MagnitudeBins(self.value), rule, units, FromBothEnds(), words_of(2))

    def read(self, release: Release) -> Answer:
        """The ends of the range; infinite where noise hid them."""
        down, up = release.chosen(BINS + 1).tolist()
        lower = -math.inf if down == BINS else float(LEFT[BINS - 1 - down])
        upper = math.inf if up == BINS else float(RIGHT[up])
        return release.without_errors(_ends(lower, upper), UNSURE)

    def reference(self, holdings: Holdings) -> Estimate:
        """The bins that the least and the largest value lie in."""
        bins = MagnitudeBins(self.value).measured(holdings)
        return _ends(float(LEFT[bins.min()]), float(RIGHT[bins.max()]))


def records_beyond(facts: Facts, units: int) -> int:
    """How many records may lie beyond either bound: so many that noise seldom leads past all
    records. P(ρ − ν > t) is at most exp(−t/s)/2 for noises ρ and ν of scale s."""
    if facts.record_epsilon is None:
        return 0
    scale = units / float(facts.record_epsilon)
    return min(math.ceil(-math.log(2 * BEYOND) * scale), facts.records - 1)


def _ends(lower: float, upper: float) -> Rows:
    return Rows(["end", "value"], [["lower", lower], ["upper", upper]])
