"""Points asked one at a time from one stored tree of noise over the whole fine grid.

The tree has 2^32 leaves and nobody ever holds it: servers draw the noise of a node when an answer
first touches it, and the same again afterwards. Any number of points costs ε once (S0 Theorem 1),
so quantiles are found by binary search (S0 Algorithm 1) without the whole curve.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import Vector, signed
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.offers import Offer
from tallyroom.protocols.plans.interval import Interval
from tallyroom.protocols.plans.measurement import Line, Measurement
from tallyroom.protocols.plans.thresholds import (
    LEAST_QUANTILE,
    RESOLUTION_BITS,
    FineGrid,
    Points,
)
from tallyroom.protocols.privacy.curves import CurveMechanism, TreeMechanism
from tallyroom.protocols.privacy.tree import Tree
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.cumulative import Cumulative
from tallyroom.protocols.statistics.drawing import Style
from tallyroom.protocols.statistics.estimates import Curve, Estimate, shape_of
from tallyroom.protocols.statistics.option import option
from tallyroom.protocols.statistics.quantiles import OfQuantiles, at_quantiles


@dataclass(frozen=True)
class OnDemand(Cumulative):
    """A statistic that decides from the answers so far which points to ask next."""

    mechanism: str = "tree"  # no other can be asked point by point
    smooth: str = "none"  # points by themselves are no curve

    needs: ClassVar[Offer | None] = Offer.COMPARE

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mechanism != "tree":
            raise LocalError("points on demand come from a tree: leave --mechanism out")

    @abstractmethod
    def next_points(self, known: Mapping[int, float]) -> list[int]:
        """Points to ask next, given the curve where it is known; none when it is enough."""

    @abstractmethod
    def conclude(self, known: Mapping[int, float]) -> Estimate:
        """The estimate, from the curve at all the points that `next_points` asked for."""

    def release_key(self) -> str:
        return repr((*self.bounds, self.value, "on demand", self.spacing))

    @property
    def tree(self) -> Tree:
        return Tree(1 << RESOLUTION_BITS)

    @cached_property
    def curve_mechanism(self) -> CurveMechanism:
        return TreeMechanism(self.tree.points)

    @property
    def released(self) -> int:
        """Nobody holds the whole of it."""
        return self.length

    @property
    def on_demand(self) -> bool:
        return True

    @property
    def noises(self) -> int:
        """They are drawn as questions touch them."""
        return 1

    def decode(self, released: Vector, records: int, exact: bool = False) -> Estimate:
        """`released` are the counts in the order in which `next_points` asked for them."""
        known: dict[int, float] = {}
        values = iter((signed(released) / records).tolist())
        while points := self.next_points(known):
            known |= {point: next(values) for point in points}
        return self.conclude(known)

    def noiseless(self, holdings: Holdings) -> Estimate:
        """It asks where the noise would not have led it astray."""
        stand = np.sort(self._points(holdings.column(self.value)))
        known: dict[int, float] = {}
        while points := self.next_points(known):
            asked = np.array(points, dtype=np.uint64)
            shares = np.searchsorted(stand, asked, side="right") / holdings.rows
            known |= dict(zip(points, shares.tolist(), strict=True))
        return self.conclude(known)

    def mechanism_words(self, scale: float) -> str:
        levels = self.tree.levels
        return f"tree: discrete Laplace of scale {scale:.6g} on touched nodes of {levels} levels"

    @cached_property
    def fine_grid(self) -> FineGrid:
        return FineGrid(*self.bounds, self.spacing)

    @property
    def measurement(self) -> Measurement:
        return Line(self.fine_grid.last + 1)

    def measured(self, holdings: Holdings) -> NDArray[np.int64]:
        """On the fine grid, which knows nothing of what will be asked."""
        return self._points(holdings.column(self.value)).astype(np.int64)

    def _points(self, values: Column) -> Points:
        return self.fine_grid.points(self.clip(values))

    @property
    def grid_step(self) -> float:
        return self.fine_grid.step

    @property
    def grid_words(self) -> str:
        return (
            "values count up to the next grid line above a point: less than "
            f"{self.fine_grid.resolution} above it, exactly where a point is on a line"
        )

    def _line(self, point: int) -> float:
        return float(self.fine_grid.lines(np.array([point], dtype=np.uint64))[0])


@dataclass(frozen=True)
class EcdfPoints(OnDemand):
    """The distribution function at any values that you ask for (`--at`)."""

    span: ClassVar[tuple[float, float]] = (0.0, 1.0)

    at: tuple[float, ...] = option((), "A value to ask about; repeat it for more.")

    name: ClassVar[str] = "ecdf-points"
    style: ClassVar[Style] = Style("marks", "value", "share of records at most the value")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.at:
            raise LocalError("say where: --at VALUE, as often as you like")
        if not np.isfinite(self.at).all():
            raise LocalError("--at takes finite numbers")

    def next_points(self, known: Mapping[int, float]) -> list[int]:
        return sorted({int(point) for point in self._asked()} - known.keys())

    def conclude(self, known: Mapping[int, float]) -> Estimate:
        points = [int(point) for point in self._asked()]
        return Curve([self._line(point) for point in points], [known[point] for point in points])

    def reference(self, holdings: Holdings) -> Estimate:
        """At the very points that were asked for."""
        values = np.sort(self.raw(holdings))
        shares = np.searchsorted(values, self.at, side="right") / holdings.rows
        return Curve(list(self.at), shares.tolist())

    def deviations(self, noise_variance: float, records: int) -> Column:
        deviation = np.sqrt(self.tree.count_variance(noise_variance)) / records
        return np.full(len(self.at), deviation)

    def _asked(self) -> Points:
        """The line at or next above each value that was asked for."""
        return self._points(np.array(self.at))


@dataclass(frozen=True)
class QuantileSearch(OfQuantiles, OnDemand):
    """Quantiles by S0's Algorithm 1 on the stored tree: up to 32 questions, one ε."""

    name: ClassVar[str] = "quantile-search"
    way_of: ClassVar[str] = "quantile-search"  # the study, which is asked as this over fss

    def next_points(self, known: Mapping[int, float]) -> list[int]:
        searches = (self._search(quantile, known) for quantile in self.quantile)
        return sorted({middle for low, middle, high in searches if low < high})

    def conclude(self, known: Mapping[int, float]) -> Estimate:
        found = [self._line(self._search(each, known)[0]) for each in self.quantile]
        return at_quantiles(self.quantile, found)

    def interval(
        self, released: Vector, records: int, noise_variance: float, width: float
    ) -> Interval:
        """Between the nearest points that were asked and surely lie on either side of the quantile:
        at least 95 %."""
        half = width * np.sqrt(self.tree.count_variance(noise_variance)) / records
        known: dict[int, float] = {}
        values = iter((signed(released) / records).tolist())
        while points := self.next_points(known):
            known |= {point: next(values) for point in points}
        ends = []
        for quantile in self.quantile:
            below = [point for point, share in known.items() if share + half < quantile]
            above = [point for point, share in known.items() if share - half >= quantile]
            last = self.fine_grid.last
            ends.append((min(max(below, default=-1) + 1, last), min(above, default=last)))
        found = shape_of(self.conclude(known)).values()
        low, high = (np.array([self._line(at) for at in side]) for side in zip(*ends, strict=True))
        return Interval(np.abs(high - low) / (2 * width), low, high).holding(found)

    def _search(self, quantile: float, known: Mapping[int, float]) -> tuple[int, int, int]:
        """How far the binary search has come: its interval, and the middle to ask next."""
        low, high = 0, self.fine_grid.last
        quantile = max(quantile, LEAST_QUANTILE)
        while low < high:
            middle = (low + high) // 2
            if middle not in known:
                return low, middle, high
            low, high = (middle + 1, high) if known[middle] < quantile else (low, middle)
        return low, low, high
