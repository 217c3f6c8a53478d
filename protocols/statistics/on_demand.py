"""Points asked one at a time from one stored tree of noise over the whole fine grid.

The tree has 2^32 leaves and nobody ever holds it: servers draw the noise of a node when an answer
first touches it, and the same again afterwards. Any number of points costs ε once (S0 Theorem 1),
so quantiles are found by binary search (S0 Algorithm 1) without the whole curve.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import ClassVar

import numpy as np

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.contract import Encoding, Integers
from tallyroom.protocols.plans.contract import Points as PointsPlan
from tallyroom.protocols.plans.encodings import clipped, sum_by_party
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.interval import Interval
from tallyroom.protocols.plans.measurement import Line, Measurement
from tallyroom.protocols.plans.thresholds import (
    LEAST_QUANTILE,
    RESOLUTION_BITS,
    FineGrid,
    Points,
)
from tallyroom.protocols.privacy.curves import TreeStrategy
from tallyroom.protocols.privacy.noise_law import Sensitivity
from tallyroom.protocols.privacy.tree import Tree
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.cumulative import Cumulative, OfQuantiles, at_quantiles
from tallyroom.protocols.statistics.drawing import Style
from tallyroom.protocols.statistics.estimates import Curve, Estimate
from tallyroom.protocols.statistics.option import DISTRIBUTIONS, option, renamed
from tallyroom.protocols.statistics.release import Answer, Noise, Release


@dataclass(frozen=True)
class FinePoint(Encoding):
    """A column within public bounds, on a fine grid that knows nothing of what will be asked."""

    column: str
    grid: FineGrid

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def length(self) -> int:
        """Parties submit keys: nobody holds a vector of all points."""
        return 1

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity.of_number(self.grid.last)

    @property
    def measurement(self) -> Measurement:
        return Line(self.grid.last + 1)

    def points(self, values: Column) -> Points:
        """The line at or next above each value."""
        return self.grid.points(clipped(values, self.grid.lower, self.grid.upper))

    def measured(self, holdings: Holdings) -> Integers:
        return self.points(holdings.column(self.column)).astype(np.int64)

    def encode(self, holdings: Holdings) -> Vector:
        """The sum of all points' numbers, of which nothing is released."""
        return sum_by_party(self.measured(holdings).view(np.uint64)[:, None], holdings)

    @property
    def grid_step(self) -> float:
        return self.grid.step

    @property
    def grid_words(self) -> str:
        return (
            "values count up to the next grid line above a point: less than "
            f"{self.grid.resolution} above it, exactly where a point is on a line"
        )


@dataclass(frozen=True)
class TouchedTree(TreeStrategy):
    """A tree whose noises are drawn as questions touch them."""

    @property
    def noises(self) -> int:
        return 1

    @property
    def released(self) -> int:
        return 1

    @property
    def noisy(self) -> str:
        return f"touched nodes of {self.shape.levels} levels"


OF_CURVES = ("thresholds", "smooth", "box", "solver", "randomizer")
"""Options that say nothing of points by themselves."""


@dataclass(frozen=True)
class OnDemand(Cumulative):
    """A statistic that decides from the answers so far which points to ask next."""

    strategy: str = renamed("tree", "mechanism")  # only a tree can be asked point by point
    smooth: str = "none"  # single points are not smoothed

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.strategy != "tree":
            raise LocalError("points on demand come from a tree: leave --strategy out")
        for each in fields(self):
            if each.name in OF_CURVES and getattr(self, each.name) != each.default:
                raise LocalError(f"points on demand are no curve: leave --{each.name} out")

    @abstractmethod
    def next_points(self, known: Mapping[int, float]) -> list[int]:
        """Points to ask next, given the curve where it is known; none when it is enough."""

    @cached_property
    def fine(self) -> FinePoint:
        return FinePoint(self.value, FineGrid(*self.bounds, self.spacing))

    def plan(self, facts: Facts) -> PointsPlan:
        tree = TouchedTree(1 << RESOLUTION_BITS)
        return PointsPlan(self.fine, tree, reusable=True, tree=tree.shape, next=self.next_points)

    def known(self, release: Release) -> dict[int, float]:
        """The curve at all points, which were released in the order in which they were asked."""
        known: dict[int, float] = {}
        values = iter((release.integers / release.records).tolist())
        while points := self.next_points(known):
            known |= {point: next(values) for point in points}
        return known

    def line(self, point: int) -> float:
        return float(self.fine.grid.lines(np.array([point], dtype=np.uint64))[0])


def point_error(noise: Noise, records: int) -> float:
    """The standard error of the curve at a point."""
    tree = Tree(1 << RESOLUTION_BITS)
    return math.sqrt(tree.count_variance(noise.variance)) / records


def point_width(noise: Noise) -> float:
    """How many standard errors to either side of a point hold 95 %."""
    return noise.width(Tree(1 << RESOLUTION_BITS).count_variance(1.0))


@dataclass(frozen=True)
class EcdfPoints(OnDemand):
    """The distribution function at any values that you ask for (`--at`)."""

    at: tuple[float, ...] = option((), "A value to ask about; repeat it for more.")

    name: ClassVar[str] = "ecdf-points"
    topic: ClassVar[str] = DISTRIBUTIONS
    style: ClassVar[Style] = Style("marks", "value", "share of records at most the value")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.at:
            raise LocalError("say where: --at VALUE, as often as you like")
        if not np.isfinite(self.at).all():
            raise LocalError("--at takes finite numbers")

    def next_points(self, known: Mapping[int, float]) -> list[int]:
        return sorted({int(point) for point in self._asked()} - known.keys())

    def read(self, release: Release) -> Answer:
        known, points = self.known(release), self._asked().tolist()
        shares = [known[point] for point in points]
        estimate = Curve([self.line(point) for point in points], shares)
        if (noise := release.noise) is None:
            return Answer(estimate, None, release.records, foretold=True)
        errors = np.full(len(shares), point_error(noise, release.records))
        interval = Interval.around(np.array(shares), errors, point_width(noise), (0.0, 1.0))
        return Answer(estimate, interval, release.records, foretold=noise.law_is_public)

    def reference(self, holdings: Holdings) -> Estimate:
        """The true curve at the very points that were asked for."""
        values = np.sort(self.raw(holdings))
        shares = np.searchsorted(values, self.at, side="right") / holdings.rows
        return Curve(list(self.at), shares.tolist())

    def _asked(self) -> Points:
        """The line at or next above each value that was asked for."""
        return self.fine.points(np.array(self.at))


@dataclass(frozen=True)
class QuantileSearch(OfQuantiles, OnDemand):
    """Quantiles by S0's Algorithm 1 on the stored tree: up to 32 questions, one ε."""

    name: ClassVar[str] = "quantile-search"
    part_of: ClassVar[str] = "quantile-search"  # the study, which is asked as this over fss

    def next_points(self, known: Mapping[int, float]) -> list[int]:
        searches = (self._search(quantile, known) for quantile in self.quantile)
        return sorted({middle for low, middle, high in searches if low < high})

    def read(self, release: Release) -> Answer:
        known = self.known(release)
        found = [self.line(self._search(each, known)[0]) for each in self.quantile]
        estimate = at_quantiles(self.quantile, found)
        if (noise := release.noise) is None:
            return Answer(estimate, None, release.records, foretold=True)
        interval = self._between(known, point_error(noise, release.records), point_width(noise))
        return Answer(estimate, interval.holding(np.array(found)), release.records)

    def _between(self, known: Mapping[int, float], error: float, width: float) -> Interval:
        """An interval of at least 95 %: it ends at the nearest points asked that surely lie on
        either side of the quantile."""
        half, last = width * error, self.fine.grid.last
        ends = []
        for quantile in self.quantile:
            below = [point for point, share in known.items() if share + half < quantile]
            above = [point for point, share in known.items() if share - half >= quantile]
            ends.append((min(max(below, default=-1) + 1, last), min(above, default=last)))
        low, high = (np.array([self.line(at) for at in side]) for side in zip(*ends, strict=True))
        return Interval(np.abs(high - low) / (2 * width), low, high)

    def _search(self, quantile: float, known: Mapping[int, float]) -> tuple[int, int, int]:
        """The state of the binary search: its interval, and the middle to ask next."""
        low, high = 0, self.fine.grid.last
        quantile = max(quantile, LEAST_QUANTILE)
        while low < high:
            middle = (low + high) // 2
            if middle not in known:
                return low, middle, high
            low, high = (middle + 1, high) if known[middle] < quantile else (low, middle)
        return low, low, high
