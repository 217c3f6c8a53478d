"""Empirical distribution functions (S0 §3), their inverse (§4.3) and their histogram (§7)."""

import math
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import Vector, signed
from tallyroom.protocols.offers import Offers
from tallyroom.protocols.plans.interval import Interval
from tallyroom.protocols.plans.thresholds import LEAST_QUANTILE
from tallyroom.protocols.privacy.curves import MECHANISMS, CurveMechanism
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.contract import Statistic
from tallyroom.protocols.statistics.cumulative import SMOOTHINGS, Cumulative
from tallyroom.protocols.statistics.drawing import Style
from tallyroom.protocols.statistics.estimates import Bins, Curve, Estimate, shape_of
from tallyroom.protocols.statistics.option import option
from tallyroom.protocols.statistics.quantiles import QuantilesAmongThresholds, at_quantiles


@dataclass(frozen=True)
class Ecdf(Cumulative):
    """The share of values that are at most each threshold."""

    name: ClassVar[str] = "ecdf"
    style: ClassVar[Style] = Style("steps", "value", "share of records at most the value")

    def before_smoothing(self) -> Self | None:
        return None if self.smooth == "none" else replace(self, smooth="none")

    def decode(self, released: Vector, records: int, exact: bool = False) -> Estimate:
        return Curve(self.x.tolist(), self.curve(released, records, exact).tolist())

    def reference(self, holdings: Holdings) -> Estimate:
        return Curve(self.x.tolist(), self.true_curve(holdings).tolist())

    def between_thresholds(self, truth: Estimate) -> float | None:
        """Somebody who reads it halfway between two may be off by half of the step there."""
        steps = np.diff(shape_of(truth).values(), prepend=0.0)
        return float(np.sqrt(np.mean(steps**2) / 12))

    def interval(
        self, released: Vector, records: int, noise_variance: float, width: float
    ) -> Interval:
        """Of the curve before it was smoothed, widened where the smoothed one has left it."""
        low, high = self.band(released, records, noise_variance, width)
        found = Interval(
            self.deviations(noise_variance, records), np.clip(low, 0, 1), np.clip(high, 0, 1)
        )
        return found.holding(self.curve(released, records, exact=False))


@dataclass(frozen=True)
class Quantile(QuantilesAmongThresholds):
    """The least threshold where the distribution function reaches each quantile.

    All quantiles come from one release: many of them cost one ε.
    """

    thresholds: int = option(1024, "Points of the curve that quantiles are read from.")
    mechanism: str = option(
        "hierarchy",
        "Which mechanism adds the noise; max adds it to scores and tells the quantile alone.",
        choices=(*MECHANISMS, "max"),
    )

    name: ClassVar[str] = "quantile"

    def __post_init__(self) -> None:
        if self.mechanism == "max":
            _ = self._by_max  # it checks what it takes
            return
        super().__post_init__()

    def asked_of(self, offers: Offers) -> Statistic:
        return self._by_max if self.mechanism == "max" else self

    @property
    def _by_max(self) -> Statistic:
        from tallyroom.protocols.statistics.choices import QuantileByMax

        known = {f.name for f in fields(QuantileByMax)} - {"mechanism"}
        given = {f.name: getattr(self, f.name) for f in fields(self) if f.name in known}
        return QuantileByMax(**given)

    def decode(self, released: Vector, records: int, exact: bool = False) -> Estimate:
        wanted = np.maximum(self.quantile, LEAST_QUANTILE)
        found = inverse(self.curve(released, records, exact), wanted)
        return at_quantiles(self.quantile, self.x[found].tolist())

    def interval(
        self, released: Vector, records: int, noise_variance: float, width: float
    ) -> Interval:
        """By inverting the band: its upper side reaches the quantile first, its lower side last.

        Only so many points of it are looked at that it rises by about `FINE` deviations from one to
        the next: among more, noise alone reaches the quantile early. A threshold is held if the
        band holds the quantile halfway up the step there, so that ends are not one-sided; but half
        a step is taken for `FINE` deviations at most, or steep steps would be missed.
        """
        sides = self.band(released, records, noise_variance, width)
        deviation = float(np.median(sides[1] - sides[0])) / (2 * width)
        stride = max(1, int(FINE * deviation * self.thresholds))
        points = np.arange(self.thresholds - 1, -1, -stride)[::-1]
        wanted = np.maximum(self.quantile, LEAST_QUANTILE)
        low, high = (crossing(points, side[points], wanted) for side in reversed(sides))
        half = np.minimum(0.5, FINE * np.abs(high - low) / (2 * width))
        first, last = (
            self.x[np.clip(np.ceil(each), 0, self.thresholds - 1).astype(np.intp)]
            for each in (low + half, high - half)
        )
        first, last = np.minimum(first, last), np.maximum(first, last)
        found = shape_of(self.decode(released, records)).values()
        return Interval((last - first) / (2 * width), first, last).holding(found)


@dataclass(frozen=True)
class CumulativeHistogram(Cumulative):
    """Counts in bins, as differences of the private distribution function.

    Bins hold their right ends, (τ_{i−1}, τ_i], and the first one its left end too.
    Its noise moves records between neighbouring bins rather than in and out of each.
    """

    thresholds: int = option(64, "Bins of the histogram.")
    smooth: str = option(
        "none",
        "Make no count negative: those of empty bins are then too high on average.",
        choices=SMOOTHINGS,
    )

    name: ClassVar[str] = "cumulative-histogram"

    def decode(self, released: Vector, records: int, exact: bool = False) -> Estimate:
        return self._bins(self.curve(released, records, exact) * records)

    def reference(self, holdings: Holdings) -> Estimate:
        """Of the raw records: those outside the range are in no bin."""
        values = np.sort(self.raw(holdings))
        counts = np.searchsorted(values, self.x, side="right").astype(np.float64)
        return self._bins(counts - np.searchsorted(values, self.bounds[0], side="left"))

    def deviations(self, noise_variance: float, records: int) -> Column:
        """Of differences of the unbiased curve, which is linear in the noise: measured on noise."""
        return bin_deviations(self.curve_mechanism) * math.sqrt(noise_variance)

    def noises_in_value(self, records: int) -> float:
        """The noise of the bin itself, nearly all, and some of others."""
        return 1.0

    def interval(
        self, released: Vector, records: int, noise_variance: float, width: float
    ) -> Interval:
        """Around the counts before they were smoothed."""
        counts = np.diff(self.unsmoothed(released, records) * records, prepend=0.0)
        span = self.span if self.smooth == "none" else (0.0, math.inf)
        found = Interval.around(
            np.rint(counts), self.deviations(noise_variance, records), width, span
        )
        return found.holding(shape_of(self.decode(released, records)).values())

    def _bins(self, counts: Column) -> Estimate:
        left = np.concatenate([[self.bounds[0]], self.x[:-1]])
        return Bins(left.tolist(), np.rint(np.diff(counts, prepend=0.0)).tolist(), self.bounds[1])


PROBES = 256
MOST_PROBED = 1 << 21


@lru_cache(maxsize=8)
def bin_deviations(mechanism: CurveMechanism) -> Column:
    """Of each bin, per unit of the noise's: from draws of noise with a fixed seed, which has a
    relative error of 4 % with 256 of them."""
    generator = np.random.default_rng(0)
    probes = max(16, min(PROBES, MOST_PROBED // max(1, mechanism.noises)))
    squares = np.zeros(mechanism.points)
    for _ in range(probes):
        noise = np.rint(generator.normal(scale=PROBED, size=mechanism.noises)).astype(np.int64)
        placed = signed(mechanism.place(noise.view(np.uint64))).astype(np.float64)
        squares += np.diff(mechanism.estimate(placed, 1), prepend=0.0) ** 2
    deviations: Column = np.sqrt(squares / probes) / PROBED
    return deviations


PROBED = 1e6
"""So large that the one record of a probe and rounding do not matter."""


FINE = 0.3


def crossing(points: NDArray[np.intp], curve: Column, quantiles: Column) -> Column:
    """Where a curve that is straight between its points reaches each quantile."""
    after = inverse(curve, quantiles)
    before = np.maximum(after - 1, 0)
    rise = np.maximum(curve[after] - curve[before], 1e-300)
    share = np.where(after > before, np.clip((quantiles - curve[before]) / rise, 0.0, 1.0), 0.0)
    found: Column = points[before] + share * (points[after] - points[before])
    return found


def inverse(curve: Column, quantiles: Column) -> NDArray[np.intp]:
    """S0 Algorithm 1 on the points of a curve: for each quantile the first index that reaches it.

    A binary search for every quantile at once. On a curve that is not monotone it still ends at
    a crossing, which need not be the first.
    """
    low = np.zeros(len(quantiles), dtype=np.intp)
    high = np.full(len(quantiles), len(curve) - 1, dtype=np.intp)
    while (low < high).any():
        middle = (low + high) // 2
        below = curve[middle] < quantiles
        low = np.where(below & (low < high), middle + 1, low)
        high = np.where(below, high, np.minimum(high, middle))
    return low
