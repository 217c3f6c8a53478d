"""Means of a kernel over pairs of records: which pairs are drawn, and what their total tells. In
the local model, records are quantized and reported instead."""

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.garbling.laplace_circuit import OFFSET
from tallyroom.protocols.kernels.contract import MAX_BITS, Grid, Kernel
from tallyroom.protocols.kernels.estimator import (
    Zetas,
    best_matchings,
    enough_matchings,
    means_of_totals,
)
from tallyroom.protocols.kernels.matchings import rounds
from tallyroom.protocols.kernels.ordered_grid import OrderedGrid
from tallyroom.protocols.local import AUTO
from tallyroom.protocols.local.pairs import FIXED_POINT, mean_over_pairs
from tallyroom.protocols.local.pairs_by_oracle import PAIR_RANDOMIZERS
from tallyroom.protocols.names import look_up
from tallyroom.protocols.offers import Offer, Offers
from tallyroom.protocols.plans.contract import Plan
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.interval import Interval
from tallyroom.protocols.plans.local_pairs import (
    MAX_CELLS,
    FromReports,
    QuantizedRecords,
    Randomized,
)
from tallyroom.protocols.plans.pairs import KernelColumn, PairSample, PairwiseMean, kernel_rows
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.bounded import Bounded
from tallyroom.protocols.statistics.contract import Bounds, Statistic
from tallyroom.protocols.statistics.estimates import Estimate
from tallyroom.protocols.statistics.labels import listed
from tallyroom.protocols.statistics.option import option
from tallyroom.protocols.statistics.pilots import Piloted
from tallyroom.protocols.statistics.release import Answer, Noise, Release

ROUNDINGS = ("simple", "randomized")
MAX_BINS = 1 << 24
SEED_BYTES = 16
SAMPLED = "which pairs were drawn"
MOST_PILOT = 2000
MOST_AUTOMATIC = 4
"""Pairs of a record that `auto` asks for at most, under noise on the total: past that, each one
costs its bytes and adds little."""
ANYWHERE: Bounds = (-math.inf, math.inf)


@dataclass(frozen=True)
class Pairs(Piloted, Bounded):
    """The mean of a kernel over pairs of records.

    A record is in `pairs_per_party` pairs: a number, `all`, or `auto`, the number with the least
    error by what is known before any data is seen: nothing, or how the kernel varies on public
    `pilot` data (its ζ1 and ζ2).
    """

    pairs_per_party: str = option(
        "auto", "How many pairs each record is in: a number, all or auto."
    )
    bits: int = option(MAX_BITS, "How many bits a column's values are rounded to.")
    meet: str = option(
        "parties",
        "Who computes pairs: the parties two by two, or two servers on shares of the records.",
        choices=("parties", "servers"),
    )
    bins: str = option("auto", "In the local model: how many bins a column has, a number or auto.")
    rounding: str = option(
        "simple", "In the local model: how values are put into bins.", choices=ROUNDINGS
    )
    randomizer: str = option(
        AUTO,
        "In the local model: what randomizes reports; auto takes the least variance.",
        choices=(AUTO, *PAIR_RANDOMIZERS),
    )
    pilot: tuple[float, ...] = ()

    linear: ClassVar[bool] = True
    """Whether the statistic is a multiple of the mean of its one output."""
    span: ClassVar[Bounds] = ANYWHERE
    """Where an estimate can lie."""

    def __post_init__(self) -> None:
        super().__post_init__()
        wanted = self.pairs_per_party
        if wanted not in ("all", "auto") and not (wanted.isdecimal() and 1 <= int(wanted) < 10**6):
            raise LocalError(f"--pairs-per-party is a number, all or auto, not {wanted!r}")
        if not 1 <= self.bits <= MAX_BITS:
            raise LocalError(f"--bits is 1 to {MAX_BITS}, not {self.bits}")
        look_up("rounding", self.rounding, dict.fromkeys(ROUNDINGS))
        look_up("randomizer", self.randomizer, dict.fromkeys((AUTO, *PAIR_RANDOMIZERS)))
        if self.bins != "auto" and not (self.bins.isdecimal() and 2 <= int(self.bins) <= MAX_BINS):
            raise LocalError(f"--bins is a number from 2 to {MAX_BINS}, or auto, not {self.bins!r}")
        if self.meet not in ("parties", "servers"):
            raise LocalError(f"--meet is parties or servers, not {self.meet!r}")
        if self.pilot and (len(self.pilot) != 2 or not all(map(math.isfinite, self.pilot))):
            raise LocalError("a pilot gives two finite numbers, ζ1 and ζ2")
        if self.pilot:
            Zetas(*self.pilot)

    # --- the kernel ---

    @abstractmethod
    def build_kernel(self) -> Kernel:
        """The kernel, whose columns are those of `columns` in order."""

    @cached_property
    def kernel(self) -> Kernel:
        return self.build_kernel()

    @property
    def grid(self) -> Grid:
        """Of a column whose values count: it needs public bounds."""
        return Grid.reals(*self.bounds, self.bits)

    @property
    def inputs(self) -> tuple[KernelColumn, ...]:
        """The columns as the kernel takes them."""
        return tuple(KernelColumn(name) for name in self.columns)

    @property
    def compared_within(self) -> Bounds | None:
        """As `PairwiseMean.compared_within`."""
        return None

    # --- the plan ---

    def plan(self, facts: Facts) -> Plan:
        """In the local model records are quantized and reported; elsewhere they meet."""
        if facts.records < 2:
            raise LocalError(f"{self.name} needs at least two records")
        if Offer.RANDOMIZE in facts.offers:
            return Randomized(self._quantized(facts), FromReports(len(self.kernel.outputs)))
        matchings = min(self._matchings(facts), rounds(facts.records))
        met = min(matchings, facts.records - 1)
        return PairwiseMean(
            self.kernel,
            self.inputs,
            PairSample(matchings, met, facts.seed[:SEED_BYTES]),
            facts.max_records_per_party,
            facts.inside,
            self.meet == "servers",
            self.compared_within,
        )

    def _matchings(self, facts: Facts) -> int:
        if self.pairs_per_party == "all":
            return rounds(facts.records)
        if self.pairs_per_party != "auto":
            return int(self.pairs_per_party)
        output, sensitivity = self.kernel.outputs[0], float(self.kernel.sensitivity)
        zetas = Zetas.worst(float(output.high - output.low))
        if self.pilot:
            zetas = Zetas(*self.pilot)
        budget = 1e9 if facts.epsilon is None else float(facts.epsilon)
        if facts.inside:
            return best_matchings(facts.records, zetas, sensitivity, budget)
        return min(enough_matchings(facts.records, zetas, sensitivity, budget), MOST_AUTOMATIC)

    def bin_bounds(self) -> Bounds:
        """Raises `LocalError` where there are none: a statistic of order alone does without them
        elsewhere, bins do not."""
        if self.lower is None or self.upper is None:
            raise LocalError(
                f"{self.name} is quantized in the local model: give --lower and --upper "
                "(bounds taken from the data would not be private)"
            )
        return float(self.lower), float(self.upper)

    def _quantized(self, facts: Facts) -> QuantizedRecords:
        labels = {each.name: each.positive for each in self.inputs if each.name not in self.valued}
        positive = {name: 1.0 if value is None else value for name, value in labels.items()}
        return QuantizedRecords(
            *(self.kernel, tuple(KernelColumn(name, positive.get(name)) for name in self.columns)),
            *self.bin_bounds(),
            self._bins(facts),
            self.rounding == "randomized",
            self.randomizer,
        )

    def _bins(self, facts: Facts) -> int:
        """`auto` is Corollary 1's k = n^¼·√(Lε) with L = 1, of all columns together."""
        if self.bins != "auto":
            return int(self.bins)
        valued = max(1, len(self.valued))
        labels = 1 << (len(self.columns) - len(self.valued))
        k = corollary_1(facts.records, 1.0 if facts.epsilon is None else float(facts.epsilon))
        most, wanted = ((cells ** (1 / valued)) for cells in (MAX_CELLS / labels, k))
        return max(2, min(round(float(wanted)), math.floor(float(most) + 1e-9)))

    def planned_by(self, pilot: Holdings, bounds: Mapping[str, Bounds]) -> Self:
        """With ζ1 and ζ2 of the kernel, estimated on the first 2,000 of the public records."""
        bounded = self.with_bounds(bounds)
        rows = kernel_rows(bounded.kernel, bounded.inputs, pilot)
        zetas = Zetas.of_pilot(bounded.kernel, rows[:MOST_PILOT])
        return replace(self, pilot=(zetas.one, zetas.two))

    @property
    def open_to_pilot(self) -> bool:
        return False

    # --- the answer ---

    def read(self, release: Release) -> Answer:
        if isinstance(release.plan, PairwiseMean):
            return self._read_pairs(release, release.plan)
        return self._read_reports(release)

    def _read_pairs(self, release: Release, plan: PairwiseMean) -> Answer:
        """`records` of the release counts pairs."""
        kernel, pairs, noise = plan.kernel, release.records, release.noise
        means = means_of_totals(plan.measure(release.values).view(np.int64), pairs)
        if noise is None:
            return Answer(kernel.decode(means, exact=True), None, pairs, foretold=True)
        if plan.inside:
            means += float(OFFSET)
        estimate = kernel.decode(means)
        interval = self._interval(plan, means, noise, pairs).holding(np.array([estimate]))
        foretold = self._is_multiple(kernel) and noise.law_is_public
        return Answer(estimate, interval, pairs, foretold=foretold)

    def _is_multiple(self, kernel: Kernel) -> bool:
        return self.linear and len(kernel.outputs) == 1

    def _interval(self, plan: PairwiseMean, means: Column, noise: Noise, pairs: int) -> Interval:
        """Of the noise alone; which pairs were drawn varies the estimate as well. Of one output,
        what the ends of its mean's interval decode to; of several, by the delta method."""
        kernel, matchings = plan.kernel, plan.sample.matchings
        drawn = "" if matchings >= 2 * pairs / matchings - 1 else SAMPLED
        # One noise on each total, or one of every pair. A total is an integer; what circuits draw
        # is half an integer off.
        in_value = float(pairs) if plan.inside else 1.0
        width = noise.width(in_value, whole=len(means) == 1 and not plan.inside)
        each = math.sqrt(noise.variance / pairs if plan.inside else noise.variance / pairs**2)
        if len(means) == 1:
            reach = width * each * (1 + 1e-12)  # an end that is an integer may come out a hair less
            ends = [kernel.decode(means + side * reach) for side in (-1, 1)]
            low, high = np.array([min(ends)]), np.array([max(ends)])
            error = (high - low) / (2 * max(width, 1e-300))
            if self._is_multiple(kernel):
                error = np.array([_unit(kernel) * each])
            return Interval(error, low, high, without=drawn)
        slopes = []
        for place in range(len(means)):
            step = np.zeros(len(means))
            step[place] = each
            above, below = (kernel.decode(means + s * step, exact=True) for s in (1, -1))
            slopes.append((above - below) / 2)
        centre = np.array([kernel.decode(means, exact=True)])
        around = Interval.around(centre, np.array([math.hypot(*slopes)]), width, self.span)
        return replace(around, without=drawn)

    def _read_reports(self, release: Release) -> Answer:
        """Errors are unknown where the statistic is not linear in one output."""
        assert isinstance(release.plan, Randomized)
        records = release.plan.encoding
        assert isinstance(records, QuantizedRecords)
        kernel = records.kernel
        if (noise := release.noise) is None:
            means = mean_over_pairs(records.kernels, release.integers)
            return Answer(kernel.decode(means, exact=True), None, release.records, foretold=True)
        estimate = kernel.decode(release.integers / FIXED_POINT * np.array(records.ranges))
        error = np.full(1, np.nan)
        if self._is_multiple(kernel):
            error = _unit(kernel) * records.ranges[0] / FIXED_POINT * noise.deviations(1)
        return estimated(release, noise, estimate, error, ANYWHERE)

    # --- the truth ---

    def check_labels(self, holdings: Holdings) -> None:
        """Raises `LocalError` for a label that is neither 0 nor 1: for truths of simulations, never
        at a party, which would tell of its records without noise."""
        for name in set(self.columns) - set(self.valued):
            labels = holdings.column(name)
            if not np.isin(labels, (0.0, 1.0)).all():
                raise LocalError(f"labels are 0 or 1: column {name!r} has {listed(labels)}")

    def reference(self, holdings: Holdings) -> Estimate:
        """Over all pairs of the raw records."""
        if holdings.rows < 2:
            raise LocalError(f"{self.name} needs at least two records")
        self.check_labels(holdings)
        return self.kernel.truth([holdings.column(name) for name in self.columns])


def _unit(kernel: Kernel) -> float:
    """By how much the statistic differs where the mean of its one output differs by 1."""
    unit, zero = (kernel.decode(np.array([at]), exact=True) for at in (1.0, 0.0))
    return abs(unit - zero)


def estimated(
    release: Release, noise: Noise, estimate: float, error: Column, span: Bounds
) -> Answer:
    """An estimate from reports, with its standard error."""
    interval = Interval.around(np.array([estimate]), error, noise.width(), span)
    foretold = noise.law_is_public and bool(np.isfinite(error).all())
    return Answer(estimate, interval, release.records, foretold=foretold)


def corollary_1(records: int, epsilon: float, lipschitz: float = 1.0) -> float:
    """k = n^¼·√(Lε), which balances the errors of quantization and of randomized response."""
    return float(records**0.25 * math.sqrt(lipschitz * epsilon))


@dataclass(frozen=True)
class Ordered(Pairs):
    """A statistic of order and equality alone: without bounds, all numbers are in range."""

    @property
    def bounded(self) -> tuple[str, ...]:
        return ()

    @property
    def grid(self) -> Grid:
        if self.lower is None or self.upper is None:
            return OrderedGrid()
        return Grid.reals(self.lower, self.upper, self.bits)

    @property
    def compared_within(self) -> Bounds:
        if self.lower is None or self.upper is None:
            return ANYWHERE
        return float(self.lower), float(self.upper)

    def with_bin_bounds(self, published: Mapping[str, Bounds]) -> Self:
        """With bounds that a data set publishes, which the bins of the local model need."""
        found = {published.get(name) for name in self.valued}
        if self.column_bounds or len(found) != 1 or (bounds := found.pop()) is None:
            return self
        return replace(self, lower=bounds[0], upper=bounds[1])


def with_published_bounds(
    statistic: Statistic, published: Mapping[str, Bounds], offers: Offers
) -> Statistic:
    """The statistic with bounds that a data set publishes, where it has none of its own and is put
    to an aggregator that offers that. Raises `LocalError` where it needs some that are not known.
    """
    bounded = statistic.with_bounds(published)
    bounded.check_bounds()
    if isinstance(bounded, Ordered) and Offer.RANDOMIZE in offers:
        bounded = bounded.with_bin_bounds(published)
        bounded.bin_bounds()
    return bounded
