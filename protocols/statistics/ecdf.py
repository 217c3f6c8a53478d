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
from tallyroom.protocols.plans.groups import Groups
from tallyroom.protocols.plans.interval import (
    NORMAL,
    POPULATION,
    Interval,
    count_deviations,
)
from tallyroom.protocols.plans.thresholds import (
    LEAST_IN_PARTS,
    LEAST_QUANTILE,
    ThresholdGrid,
    as_written,
)
from tallyroom.protocols.privacy.curves import AUTO, CURVES, CurveStrategy
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.choices import (
    MAX_CANDIDATES,
    MAX_CHOSEN,
    UNSURE,
)
from tallyroom.protocols.statistics.cumulative import (
    SMOOTHINGS,
    CurveOfGroups,
    OfQuantiles,
    at_quantiles,
    curve_option,
)
from tallyroom.protocols.statistics.drawing import Style
from tallyroom.protocols.statistics.estimates import Bins, Curve, Estimate, shape_of
from tallyroom.protocols.statistics.option import DISTRIBUTIONS, option
from tallyroom.protocols.statistics.release import ANYWHERE, Answer, Release


@dataclass(frozen=True)
class Ecdf(CurveOfGroups):
    """The share of values that are at most each threshold."""

    name: ClassVar[str] = "ecdf"
    topic: ClassVar[str] = DISTRIBUTIONS
    style: ClassVar[Style] = Style("steps", "value", "share of records at most the value")

    def read(self, release: Release) -> Answer:
        """The interval is that of the curve before it was smoothed, widened where the smoothed one
        has left it."""
        curve = self.curve(release)
        if (noise := release.noise) is None:
            sampled = self._sampled(curve, None, release.records)
            return Answer(
                self._told(curve), None, release.records, foretold=True, population=sampled
            )
        band = self.band(release, noise)
        within = Interval(band.errors, np.clip(band.low, 0, 1), np.clip(band.high, 0, 1))
        before = None if self.smooth == "none" else self._told(self.unsmoothed(release))
        return Answer(
            self._told(curve),
            within.holding(curve),
            release.records,
            unsmoothed=before,
            foretold=noise.law_is_public,
            population=self._sampled(curve, within.holding(curve), release.records),
        )

    def _sampled(self, curve: Column, noise: Interval | None, records: int) -> Interval:
        deviations = count_deviations(curve * records, records) / records
        return Interval.sampled(curve, noise, deviations, (0.0, 1.0))

    def reference(self, holdings: Holdings) -> Estimate:
        return self._told(self.true_curve(holdings))

    def _told(self, curve: Column) -> Curve:
        return Curve(self.x.tolist(), curve.tolist())

    def between_thresholds(self, truth: Estimate) -> float | None:
        """Somebody who reads the curve halfway between two thresholds may be off by half of the
        step."""
        steps = np.diff(shape_of(truth).values(), prepend=0.0)
        return float(np.sqrt(np.mean(steps**2) / 12))


@dataclass(frozen=True)
class Quantile(OfQuantiles, CurveOfGroups):
    """The least threshold where the distribution function reaches each quantile.

    All quantiles come from one release: many of them cost one ε.

    By `max`, two servers choose the cell between two thresholds whose records' ranks come nearest,
    and tell its middle (report noisy max). By `auto` that is done where it can be and is predicted
    to err less (`protocols.studies.quantile_zoom`); elsewhere it is a hierarchy. Thresholds may lie
    closer `within` a part of the range, or be `fanned` out from it (`ThresholdGrid`).
    """

    thresholds: int = option(1024, "Points of the curve that quantiles are read from.")
    strategy: str = curve_option(
        "Which counts get noise, auto those of least variance; by max it is in scores, and two "
        "servers choose the quantile. auto is max for a few quantiles where two servers can.",
        "max",
    )
    within: tuple[float, ...] = ()
    fanned: bool = False

    name: ClassVar[str] = "quantile"
    topic: ClassVar[str] = DISTRIBUTIONS
    strategies: ClassVar[tuple[str, ...]] = (AUTO, *CURVES, "max")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.within and (len(self.within) != 2 or self.thresholds < LEAST_IN_PARTS):
            raise LocalError(f"`within` takes two ends, and at least {LEAST_IN_PARTS} thresholds")
        if self.fanned and not self.within:
            raise LocalError("`fanned` needs a part of the range: give `within`")
        if self.within and None not in (self.lower, self.upper):
            _ = self.x
        if self.by_max and len(self.quantile) > MAX_CHOSEN:
            raise LocalError(f"--strategy max takes 1 to {MAX_CHOSEN} quantiles")
        if self.by_max and not 2 <= self.thresholds <= MAX_CANDIDATES:
            raise LocalError(
                f"--strategy max takes 2 to {MAX_CANDIDATES} thresholds, not {self.thresholds}"
            )

    def _check_smoothing(self) -> None:
        if not self.by_max:
            super()._check_smoothing()
        elif self.smooth in ("1", "2"):
            raise LocalError("--strategy max releases no curve: leave --smooth out")

    @property
    def by_max(self) -> bool:
        return self.strategy == "max"

    @property
    def may_be_chosen(self) -> bool:
        """Whether nothing that was asked for is of curves alone."""
        possible = LEAST_IN_PARTS <= self.thresholds <= MAX_CANDIDATES
        auto = self.strategy == AUTO and (self.smooth, self.randomizer) == ("monotone", AUTO)
        return possible and (self.by_max or auto)

    @cached_property
    def grid(self) -> ThresholdGrid:
        within = tuple(map(float, self.within))
        return ThresholdGrid(*self.bounds, self.thresholds, self.spacing, within, self.fanned)

    def plan(self, facts: Facts) -> Plan:
        if self.by_max:
            return self._choice(facts)
        step = self.grid.step
        words = f"quantiles are thresholds, up to {step:.3g} apart"
        strategy = self.strategy_by(facts)
        encoding = replace(self.encoding_for(strategy), grid_step=step, grid_words=words)
        return NoisySum(encoding, strategy, reusable=True)

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

    def plan_of(self, facts: Facts, groups: Groups) -> NoisySum:
        if self.by_max:
            raise LocalError(
                "--strategy max counts ranks among all records: with --where or --by take "
                "--strategy hierarchy"
            )
        return super().plan_of(facts, groups)

    def read(self, release: Release) -> Answer:
        if isinstance(release.plan, NoisyChoice):
            told = self.grid.middles[release.chosen(self.thresholds)].tolist()
            return release.without_errors(at_quantiles(self.quantile, told), UNSURE)
        if release.exact and not release.records:
            nobody = at_quantiles(self.quantile, [math.nan] * len(self.quantile))
            return Answer(nobody, None, 0, foretold=True)
        wanted = np.maximum(self.quantile, LEAST_QUANTILE)
        found = self.x[inverse(self.curve(release), wanted)]
        estimate = at_quantiles(self.quantile, found.tolist())
        if (noise := release.noise) is None:
            return Answer(estimate, None, release.records, foretold=True)
        counts = self.unsmoothed(release) * release.records
        errors = self.errors_of_counts(release, noise)
        drawn = noise.width(self.strategy_of(release).noises_in_count) * errors
        if not np.isfinite(drawn).all():
            return release.without_errors(estimate, UNKNOWN_LAW)
        return Answer(
            estimate,
            self._within(counts, drawn, release.records).holding(found),
            release.records,
            population=self._of_population(counts, drawn, release.records).holding(found),
        )

    def _within(self, counts: Column, drawn: Column, records: int) -> Interval:
        """The cells that the quantile of these records may lie in, each as a whole: wherever in
        its cell it lies, an atom or a gap, the interval holds it."""
        ranks = [max(1, math.ceil(as_written(q) * records)) for q in self.quantile]
        return self._cells([cells_of(counts, drawn, rank - 1, rank) for rank in ranks])

    def _of_population(self, counts: Column, drawn: Column, records: int) -> Interval:
        """The same of the population's quantile q: of n records drawn from it, as many as a
        binomial law of n and q says lie up to there."""
        if min(min(q, 1 - q) for q in self.quantile) * records < LEAST_BEYOND:
            return Interval.none(len(self.quantile), TOO_FAR_OUT, POPULATION)
        found = []
        for q in self.quantile:
            half = np.hypot(drawn, NORMAL * math.sqrt(records * q * (1 - q)))
            found.append(cells_of(counts, half, records * q, records * q))
        return replace(self._cells(found), covers=POPULATION)

    def _cells(self, cells: list[tuple[int, int]]) -> Interval:
        """From where the first of some cells begins to where the last ends, for each quantile."""
        first, last = np.array(cells).T
        low, high = np.append(self.bounds[0], self.x)[first], self.x[last]
        return Interval((high - low) / (2 * NORMAL), low, high)

    def between_thresholds(self, truth: Estimate) -> float | None:
        """The error of a quantile that lies anywhere within a step."""
        return self.grid.step / math.sqrt(3)


AUTO_STRATEGY = "hierarchy"
"""Which counts get noise where nobody says."""
UNITS_OF_A_RANK = units_of_epsilon(1, Moved.ANYHOW)
"""ε·s of the choice of one quantile, under noise of scale s."""


@dataclass(frozen=True)
class CumulativeHistogram(CurveOfGroups):
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
    topic: ClassVar[str] = DISTRIBUTIONS

    def read(self, release: Release) -> Answer:
        """The interval is around the counts before they were smoothed, and holds those that are
        told. In each is the noise of the bin itself, nearly all, and some of others. Differences of
        the unbiased curve are linear in the noise: their deviation is measured on noise."""
        records = release.records
        estimate = self._bins(self.curve(release) * records if records else 0.0 * self.x)
        span = ANYWHERE if self.smooth == "none" else (0.0, math.inf)
        if (noise := release.noise) is None:
            sampled = Interval.of_expected_counts(estimate.values(), None, records, span)
            return Answer(estimate, None, records, foretold=True, population=sampled)
        counts = np.rint(np.diff(self.unsmoothed(release) * records, prepend=0.0))
        strategy = self.strategy_of(release)
        errors = bin_deviations(strategy) * math.sqrt(noise.variance)
        if release.size_variance and (shape := strategy.hierarchy) is not None:
            size = math.sqrt(release.size_variance * noise.variance)
            errors = np.hypot(errors, size * np.diff(shape.total_shares, prepend=0.0))
        interval = Interval.around(counts, errors, noise.width(), span).holding(estimate.values())
        sampled = Interval.of_expected_counts(estimate.values(), interval, records, span)
        return Answer(estimate, interval, records, foretold=noise.law_is_public, population=sampled)

    def reference(self, holdings: Holdings) -> Estimate:
        """The counts of the raw records; values outside the range are in no bin."""
        values = np.sort(self.raw(holdings))
        counts = np.searchsorted(values, self.x, side="right").astype(np.float64)
        return self._bins(counts - np.searchsorted(values, self.bounds[0], side="left"))

    def _bins(self, counts: Column) -> Bins:
        left = np.concatenate([[self.bounds[0]], self.x[:-1]])
        return Bins(left.tolist(), np.rint(np.diff(counts, prepend=0.0)).tolist(), self.bounds[1])


PROBES = 256
MOST_PROBED = 1 << 21


@lru_cache(maxsize=8)
def bin_deviations(strategy: CurveStrategy) -> Column:
    """The deviation of each bin, per unit of the noise's. It comes from draws of noise with a fixed
    seed; 256 draws have a relative error of 4 %."""
    generator = np.random.default_rng(0)
    probes = max(16, min(PROBES, MOST_PROBED // max(1, strategy.noises)))
    squares = np.zeros(strategy.points)
    for _ in range(probes):
        noise = np.rint(generator.normal(scale=PROBED, size=strategy.noises)).astype(np.int64)
        placed = signed(strategy.place(noise.view(np.uint64))).astype(np.float64)
        squares += np.diff(strategy.estimate(placed, 1), prepend=0.0) ** 2
    deviations: Column = np.sqrt(squares / probes) / PROBED
    return deviations


PROBED = 1e6
"""The deviation of a probe's noise: so large that rounding and the probe's one record do not
matter."""


LEAST_BEYOND = 10
"""Records beyond a quantile, on average, for which a binomial law is as good as normal."""
TOO_FAR_OUT = (
    f"fewer than {LEAST_BEYOND} records lie beyond the quantile, too few to tell how sampling "
    "moves it; ask for one nearer to the middle"
)
UNKNOWN_LAW = "the noise of each count is not known; --aggregator additive tells it"


def cells_of(counts: Column, half: Column, before: float, upto: float) -> tuple[int, int]:
    """The first and the last cell that may be the one in which the true counts pass from `before`
    or less to `upto` or more, where each count is off by `half` at most with 97.5 % to each side.

    It is missed only if the noise of the count at its own end, or at its beginning, is larger:
    in 5 % of runs at most, whatever the values are. Noise at other thresholds can only widen the
    range, so where many of them stand close together it holds more than 95 %.
    """
    reached = np.append((counts >= upto - half)[:-1], True)  # all records lie up to the last
    begun = np.append(True, (counts <= before + half)[:-1])
    first, last = int(np.argmax(reached)), len(counts) - 1 - int(np.argmax(begun[::-1]))
    return min(first, last), max(first, last)


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
