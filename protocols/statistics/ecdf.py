"""Empirical distribution functions (S0 §3), their inverse (§4.3) and their histogram (§7)."""

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import signed
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.joint.choice import Choice, Moved, units_of_epsilon
from tallyroom.protocols.plans.contract import NoisyChoice, NoisySum, Plan
from tallyroom.protocols.plans.encodings import UpToThresholds
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.interval import Interval
from tallyroom.protocols.plans.thresholds import (
    LEAST_IN_PARTS,
    LEAST_QUANTILE,
    ThresholdGrid,
    as_written,
)
from tallyroom.protocols.privacy.curves import MECHANISMS, CurveMechanism
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.choices import (
    MAX_CANDIDATES,
    MAX_CHOSEN,
    UNSURE,
)
from tallyroom.protocols.statistics.cumulative import SMOOTHINGS, Cumulative
from tallyroom.protocols.statistics.drawing import Style
from tallyroom.protocols.statistics.estimates import Bins, Curve, Estimate, shape_of
from tallyroom.protocols.statistics.option import option
from tallyroom.protocols.statistics.quantiles import OfQuantiles, at_quantiles
from tallyroom.protocols.statistics.release import ANYWHERE, Answer, Release


@dataclass(frozen=True)
class Ecdf(Cumulative):
    """The share of values that are at most each threshold."""

    name: ClassVar[str] = "ecdf"
    style: ClassVar[Style] = Style("steps", "value", "share of records at most the value")

    def read(self, release: Release) -> Answer:
        """The interval is that of the curve before it was smoothed, widened where the smoothed one
        has left it."""
        curve = self.curve(release)
        if (noise := release.noise) is None:
            return Answer(self._told(curve), None, release.records, foretold=True)
        band = self.band(release, noise)
        within = Interval(band.errors, np.clip(band.low, 0, 1), np.clip(band.high, 0, 1))
        before = None if self.smooth == "none" else self._told(self.unsmoothed(release))
        return Answer(
            self._told(curve),
            within.holding(curve),
            release.records,
            unsmoothed=before,
            foretold=noise.law_is_public,
        )

    def reference(self, holdings: Holdings) -> Estimate:
        return self._told(self.true_curve(holdings))

    def _told(self, curve: Column) -> Curve:
        return Curve(self.x.tolist(), curve.tolist())

    def between_thresholds(self, truth: Estimate) -> float | None:
        """Somebody who reads it halfway between two may be off by half of the step there."""
        steps = np.diff(shape_of(truth).values(), prepend=0.0)
        return float(np.sqrt(np.mean(steps**2) / 12))


@dataclass(frozen=True)
class Quantile(OfQuantiles, Cumulative):
    """The least threshold where the distribution function reaches each quantile.

    All quantiles come from one release: many of them cost one ε.

    By `max`, two servers choose the cell between two thresholds whose records' ranks come nearest,
    and tell its middle (report noisy max). Thresholds may lie closer `within` a part of the range,
    or be `fanned` out from it (`ThresholdGrid`).
    """

    thresholds: int = option(1024, "Points of the curve that quantiles are read from.")
    mechanism: str = option(
        "hierarchy",
        "Which mechanism adds the noise; max adds it to scores and tells the quantile alone.",
        choices=(*MECHANISMS, "max"),
    )
    within: tuple[float, ...] = ()
    fanned: bool = False

    name: ClassVar[str] = "quantile"
    mechanisms: ClassVar[tuple[str, ...]] = (*MECHANISMS, "max")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.within and (len(self.within) != 2 or self.thresholds < LEAST_IN_PARTS):
            raise LocalError(f"a part of the range has two ends, and {LEAST_IN_PARTS} thresholds")
        if self.fanned and not self.within:
            raise LocalError("thresholds are fanned out from a part of the range: there is none")
        if self.within and None not in (self.lower, self.upper):
            _ = self.x
        if self.by_max and len(self.quantile) > MAX_CHOSEN:
            raise LocalError(f"--mechanism max takes 1 to {MAX_CHOSEN} quantiles")
        if self.by_max and not 2 <= self.thresholds <= MAX_CANDIDATES:
            raise LocalError(
                f"--mechanism max takes 2 to {MAX_CANDIDATES} thresholds, not {self.thresholds}"
            )

    def _check_smoothing(self) -> None:
        if not self.by_max:
            super()._check_smoothing()
        elif self.smooth in ("1", "2"):
            raise LocalError("--mechanism max tells no curve: there is nothing to --smooth")

    @property
    def by_max(self) -> bool:
        return self.mechanism == "max"

    @cached_property
    def grid(self) -> ThresholdGrid:
        within = tuple(map(float, self.within))
        return ThresholdGrid(*self.bounds, self.thresholds, self.spacing, within, self.fanned)

    def plan(self, facts: Facts) -> Plan:
        if self.by_max:
            return self._choice(facts)
        step = self.grid.step
        words = f"quantiles are thresholds, up to {step:.3g} apart"
        encoding = replace(self.encoding, grid_step=step, grid_words=words)
        return NoisySum(encoding, self.strategy, reusable=True)

    def _choice(self, facts: Facts) -> NoisyChoice:
        """A replaced record moves every score by at most one. Each quantile is a contest of its
        own."""
        ranks = (max(1, math.ceil(as_written(q) * facts.records)) for q in self.quantile)
        off = self.grid.step / 2
        words = f"a quantile is told by the middle of its cell, up to {off:.3g} off"
        if self.within:
            left, right = self.within
            fine = np.diff(self.x[(self.x >= left) & (self.x <= right)]).max() / 2
            words += f", and {fine:.3g} within [{left:g}, {right:g}]"
        return NoisyChoice(
            UpToThresholds(self.value, self.grid, grid_step=off, grid_words=words),
            Choice(self.thresholds, facts.records, ranks=tuple(ranks)),
            len(self.quantile) * UNITS_OF_A_RANK,
        )

    def read(self, release: Release) -> Answer:
        if isinstance(release.plan, NoisyChoice):
            told = self.grid.middles[release.chosen(self.thresholds)].tolist()
            return release.without_errors(at_quantiles(self.quantile, told), UNSURE)
        wanted = np.maximum(self.quantile, LEAST_QUANTILE)
        found = self.x[inverse(self.curve(release), wanted)]
        estimate = at_quantiles(self.quantile, found.tolist())
        if (noise := release.noise) is None:
            return Answer(estimate, None, release.records, foretold=True)
        width = noise.width(self.strategy.noises_in_count)
        interval = self._inverted(self.band(release, noise), width).holding(found)
        return Answer(estimate, interval, release.records)

    def _inverted(self, band: Interval, width: float) -> Interval:
        """The band's upper side reaches the quantile first, its lower side last.

        Only so many points of it are looked at that it rises by about `FINE` deviations from one to
        the next: among more, noise alone reaches the quantile early. A threshold is held if the
        band holds the quantile halfway up the step there, so that ends are not one-sided; but half
        a step is taken for `FINE` deviations at most, or steep steps would be missed.
        """
        wanted = np.maximum(self.quantile, LEAST_QUANTILE)
        deviation = float(np.median(band.high - band.low)) / (2 * width)
        if not math.isfinite(deviation):
            return Interval(*np.full((3, len(wanted)), np.nan))
        stride = max(1, int(FINE * deviation * self.thresholds))
        points = np.arange(self.thresholds - 1, -1, -stride)[::-1]
        low, high = (crossing(points, side[points], wanted) for side in (band.high, band.low))
        half = np.minimum(0.5, FINE * np.abs(high - low) / (2 * width))
        first, last = (
            self.x[np.clip(np.ceil(each), 0, self.thresholds - 1).astype(np.intp)]
            for each in (low + half, high - half)
        )
        first, last = np.minimum(first, last), np.maximum(first, last)
        return Interval((last - first) / (2 * width), first, last)

    def between_thresholds(self, truth: Estimate) -> float | None:
        """As far as a quantile that lies anywhere within a step."""
        return self.grid.step / math.sqrt(3)


UNITS_OF_A_RANK = units_of_epsilon(1, Moved.ANYHOW)
"""ε·s of the choice of one quantile, under noise of scale s."""


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

    def read(self, release: Release) -> Answer:
        """The interval is around the counts before they were smoothed, and holds those that are
        told. In each is the noise of the bin itself, nearly all, and some of others. Differences of
        the unbiased curve are linear in the noise: their deviation is measured on noise."""
        records = release.records
        estimate = self._bins(self.curve(release) * records)
        if (noise := release.noise) is None:
            return Answer(estimate, None, records, foretold=True)
        counts = np.rint(np.diff(self.unsmoothed(release) * records, prepend=0.0))
        errors = bin_deviations(self.strategy) * math.sqrt(noise.variance)
        span = ANYWHERE if self.smooth == "none" else (0.0, math.inf)
        interval = Interval.around(counts, errors, noise.width(), span).holding(estimate.values())
        return Answer(estimate, interval, records, foretold=noise.law_is_public)

    def reference(self, holdings: Holdings) -> Estimate:
        """Of the raw records: those outside the range are in no bin."""
        values = np.sort(self.raw(holdings))
        counts = np.searchsorted(values, self.x, side="right").astype(np.float64)
        return self._bins(counts - np.searchsorted(values, self.bounds[0], side="left"))

    def _bins(self, counts: Column) -> Bins:
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
