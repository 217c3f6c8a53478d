"""Statistics of which nothing is released but what was chosen: two servers choose it together on
counts that they share, under noise that neither knows (`protocols.joint.choice`)."""

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import Vector, signed
from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.joint.above_threshold import FirstAbove
from tallyroom.protocols.joint.choice import Choice, Moved, units_of_epsilon
from tallyroom.protocols.plans.interval import Interval
from tallyroom.protocols.plans.thresholds import (
    as_written,
    threshold_values,
    thresholds_around,
)
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.drawing import Style
from tallyroom.protocols.statistics.estimates import Curve, Estimate
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.legacy import Legacy
from tallyroom.protocols.statistics.option import option
from tallyroom.protocols.statistics.quantiles import QuantilesAmongThresholds, at_quantiles

MAX_CHOSEN = 100
MAX_CANDIDATES = 1 << 16
LEAST_IN_PARTS = 16


@dataclass(frozen=True)
class Chosen(Legacy):
    """What all of these have in common. `decode` takes indices."""

    def placement(self, servers: int) -> Placement:
        return Placement.JOINT

    @property
    def released(self) -> int:
        return self.choice(MAX_CANDIDATES).chosen

    @property
    def noises(self) -> int:
        return self.choice(MAX_CANDIDATES).noises

    @abstractmethod
    def choice(self, records: int) -> Choice | FirstAbove:
        """What is chosen; how many and of how many does not depend on the records."""

    # --- counts are added up as they are: nothing is measured, and no release is given again ---

    @property
    def measures(self) -> bool:
        return False

    def measure(self, total: Vector) -> Vector:
        return total

    def place(self, noise: Vector) -> Vector:
        return noise

    @property
    def reuse_key(self) -> str | None:
        return None

    def release_key(self) -> str:
        return Legacy.release_key(self)

    def noiseless(self, holdings: Holdings) -> Estimate:
        pooled = Holdings(holdings.ids[:1], np.zeros(1, dtype=np.intp), holdings.columns)
        scores = signed(self.measure(self.encode(pooled)[0]))
        chosen = self.choice(holdings.rows).in_clear(scores)
        return self.decode(chosen.astype(np.uint64), holdings.rows, exact=True)

    def deviations(self, noise_variance: float, records: int) -> Column:
        """Not known before the data: it depends on how far the scores are apart."""
        return np.full(self.released, np.nan)

    def interval(
        self, released: Vector, records: int, noise_variance: float, width: float
    ) -> Interval:
        why = "how sure a choice is depends on how far apart the scores are, which nobody sees"
        return Interval.none(self.released, why)

    def mechanism_words(self, scale: float) -> str:
        return (
            f"report noisy max: geometric noise of scale {scale:.6g} on {self.noises} scores that "
            "nobody sees; what is chosen is all that is opened"
        )

    def _indices(self, released: Vector, candidates: int) -> NDArray[np.int64]:
        """Raises `RunFailed` where servers released something that is no index."""
        found = signed(released)
        if ((found < 0) | (found >= candidates)).any():
            raise RunFailed("the servers' shares do not add up to anything that can be chosen")
        return found


@dataclass(frozen=True)
class TopK(Chosen, Histogram):
    """The k fullest bins, in order; how many records they have stays hidden."""

    k: int = option(3, "How many bins.")

    name: ClassVar[str] = "top-k"
    style: ClassVar[Style] = Style("marks", "place", "middle of the bin")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.categories:
            raise LocalError(f"{self.name} is of bins of numbers: it takes no --categories")
        if not 2 <= self.bins <= MAX_CANDIDATES:
            raise LocalError(f"--bins must be between 2 and {MAX_CANDIDATES}, not {self.bins}")
        if not 1 <= self.k <= min(self.bins, MAX_CHOSEN):
            raise LocalError(
                f"--k must be between 1 and {min(self.bins, MAX_CHOSEN)}, not {self.k}: there are "
                f"{self.bins} bins"
            )

    @property
    def sensitivity(self) -> int:
        """A record is in one bin: replaced, it moves one count down and one up."""
        return units_of_epsilon(self.k, Moved.ONE_UP_ONE_DOWN)

    def choice(self, records: int) -> Choice:
        return Choice(self.bins, records, self.k)

    @property
    def middles(self) -> Column:
        middles: Column = (self.edges[:-1] + self.edges[1:]) / 2
        return middles

    def decode(self, released: Vector, records: int, exact: bool = False) -> Estimate:
        return self._found(self._indices(released, self.bins))

    def reference(self, holdings: Holdings) -> Estimate:
        """Of the raw records, the lower bin first where two have equally many."""
        counts, _ = np.histogram(self.raw(holdings), bins=self.edges)
        return self._found(np.argsort(-counts, kind="stable")[: self.k])

    def _found(self, bins: NDArray[np.int64]) -> Estimate:
        places = np.arange(1, self.k + 1, dtype=np.float64)
        return Curve(places.tolist(), self.middles[bins].tolist())

    @property
    def grid_words(self) -> str:
        return "a bin is told by its middle"


@dataclass(frozen=True)
class Mode(TopK):
    """The middle of the fullest bin; how many records it has stays hidden."""

    k: int = 1

    name: ClassVar[str] = "mode"
    style: ClassVar[Style] = Style()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k != 1:
            raise LocalError("the mode is one bin: top-k has more")

    def _found(self, bins: NDArray[np.int64]) -> Estimate:
        return float(self.middles[bins[0]])


@dataclass(frozen=True)
class QuantileByMax(Chosen, QuantilesAmongThresholds):
    """Each quantile as the middle of the cell between two thresholds whose records' ranks come
    nearest, by report noisy max.

    Thresholds lie closer `within` a part of the range, where there is one: an eighth of them are on
    either side of it. Where they are `fanned` out from it, three eighths are, and the farther from
    it the farther apart.
    """

    thresholds: int = 1024
    within: tuple[float, ...] = ()
    fanned: bool = False

    name: ClassVar[str] = "quantile-by-max"
    way_of: ClassVar[str] = "quantile"

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.quantile) > MAX_CHOSEN:
            raise LocalError(f"--mechanism max takes 1 to {MAX_CHOSEN} quantiles")
        if not 2 <= self.thresholds <= MAX_CANDIDATES:
            raise LocalError(
                f"--mechanism max takes 2 to {MAX_CANDIDATES} thresholds, not {self.thresholds}"
            )
        if self.smooth in ("1", "2"):
            raise LocalError("--mechanism max tells no curve: there is nothing to --smooth")
        if self.within and (len(self.within) != 2 or self.thresholds < LEAST_IN_PARTS):
            raise LocalError(f"a part of the range has two ends, and {LEAST_IN_PARTS} thresholds")
        if self.fanned and not self.within:
            raise LocalError("thresholds are fanned out from a part of the range: there is none")
        if self.within and None not in (self.lower, self.upper):
            _ = self.x

    @cached_property
    def x(self) -> Column:
        """Raises `LocalError` where doubles cannot tell them apart."""
        if not self.within:
            return threshold_values(*self.bounds, self.thresholds, self.spacing)
        (lower, upper), (left, right) = self.bounds, self.within
        if not lower <= left < right <= upper:
            raise LocalError(f"[{left:g}, {right:g}] is no part of [{lower:g}, {upper:g}]")
        outside = self.thresholds * (3 if self.fanned else 1) // 8
        before, after = (outside if wide else 0 for wide in (lower < left, right < upper))
        if self.fanned:
            inside = self.thresholds - before - after
            return thresholds_around(self.bounds, (left, right), inside, outside)
        parts = (
            (lower, left, before),
            (left, right, self.thresholds - before - after),
            (right, upper, after),
        )
        return np.concatenate([threshold_values(*each, self.spacing) for each in parts if each[2]])

    @property
    def sensitivity(self) -> int:
        """A replaced record moves every score by at most one. Each quantile is a contest of its
        own."""
        return len(self.quantile) * units_of_epsilon(1, Moved.ANYHOW)

    def choice(self, records: int) -> Choice:
        ranks = (max(1, math.ceil(as_written(q) * records)) for q in self.quantile)
        return Choice(self.thresholds, records, ranks=tuple(ranks))

    def decode(self, released: Vector, records: int, exact: bool = False) -> Estimate:
        edges = np.concatenate([[self.bounds[0]], self.x])
        middles = (edges[:-1] + edges[1:]) / 2
        found = middles[self._indices(released, self.thresholds)].tolist()
        return at_quantiles(self.quantile, found)

    @property
    def grid_step(self) -> float:
        return super().grid_step / 2

    @property
    def grid_words(self) -> str:
        told = f"a quantile is told by the middle of its cell, up to {self.grid_step:.3g} off"
        if not self.within or None in (self.lower, self.upper):
            return told
        left, right = self.within
        fine = np.diff(self.x[(self.x >= left) & (self.x <= right)]).max() / 2
        return f"{told}, and {fine:.3g} within [{left:g}, {right:g}]"
