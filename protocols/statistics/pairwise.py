"""Means of a kernel over pairs of records: how pairs are drawn, and how the mean is read off their
total. In the local model, records are quantized and reported instead."""

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
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
from tallyroom.protocols.offers import Offer
from tallyroom.protocols.plans.contract import PlainSum, Plan
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.interval import Interval
from tallyroom.protocols.plans.local_pairs import (
    MAX_CELLS,
    MOST_EXACT,
    ExactPairs,
    ExactRecords,
    FromReports,
    QuantizedRecords,
    Randomized,
)
from tallyroom.protocols.plans.pairs import KernelColumn, PairSample, PairwiseMean, kernel_rows
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.registry import look_up
from tallyroom.protocols.statistics.bounded import Bounded, format_range, parse_ranges
from tallyroom.protocols.statistics.contract import Bounds, Piloted
from tallyroom.protocols.statistics.estimates import Estimate
from tallyroom.protocols.statistics.labels import listed
from tallyroom.protocols.statistics.option import option
from tallyroom.protocols.statistics.pair_intervals import (
    PairError,
    of_one_output,
    of_several_outputs,
)
from tallyroom.protocols.statistics.release import Answer, Noise, Release

ROUNDINGS = ("simple", "randomized")
OUTPUTS = ("auto", "bounded", "weighed")
MEETINGS = ("auto", "few", "all")
MAX_BINS = 1 << 24
SEED_BYTES = 16
MOST_PILOT = 2000
MOST_AUTOMATIC = 4
"""The most pairs of a record that `auto` asks parties for, under noise on the total: each is a
conversation between two of them. What the drawing of pairs leaves open is in the interval."""
MOST_MEETINGS = 210
"""Meetings of two parties that `auto` asks for, if they are more than each party needs. The first
batch of a meeting costs some 15 ms of CPU, however few pairs it has."""
MOST_ANDS_OF_PARTIES = 1 << 20
"""The most ANDs that `auto` asks for where parties meet few others, for as many more pairs."""
MOST_ANDS = 1 << 22
"""The most ANDs that `auto` asks two servers for, where more pairs than `MOST_AUTOMATIC` bring the
drawing of pairs below a tenth of the noise: 128 MB between them, and some seconds."""
FEW_MEETINGS = (
    "each party met few others: the interval holds where no more than a twentieth of the "
    "variance of any function of a record lies between parties; --meetings all needs no such "
    "assumption"
)
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
    meetings: str = option(
        "auto",
        "Whom a party meets: few others, for several pairs each, or any of all; auto is few where "
        "that saves much, which takes parties whose records are not too different.",
        choices=MEETINGS,
    )
    outputs: str = option(
        "auto",
        "How outputs reach the servers: bounded, so that nobody who garbles can weigh them, or "
        "weighed, as shares of integers; auto is bounded where there are at most two servers and "
        "noise is on the total.",
        choices=OUTPUTS,
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
    """The range that estimates lie in."""

    def __post_init__(self) -> None:
        super().__post_init__()
        wanted = self.pairs_per_party
        if wanted not in ("all", "auto") and not (wanted.isdecimal() and 1 <= int(wanted) < 10**6):
            raise LocalError(f"--pairs-per-party is a number, all or auto, not {wanted!r}")
        if not 1 <= self.bits <= MAX_BITS:
            raise LocalError(f"--bits is 1 to {MAX_BITS}, not {self.bits}")
        look_up("outputs", self.outputs, dict.fromkeys(OUTPUTS))
        look_up("meetings", self.meetings, dict.fromkeys(MEETINGS))
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
        """The grid of a column whose values matter, which needs public bounds."""
        return Grid.reals(*self.bounds, self.bits)

    def grid_of(self, column: str) -> Grid:
        """The grid of one of several columns."""
        return self.grid

    @property
    def inputs(self) -> tuple[KernelColumn, ...]:
        """The columns in the form that the kernel takes."""
        return tuple(KernelColumn(name) for name in self.columns)

    @property
    def compared_within(self) -> tuple[Bounds, ...] | None:
        """See `PairwiseMean.compared_within`."""
        return None

    # --- the plan ---

    def plan(self, facts: Facts) -> Plan:
        """Plans reports of quantized records in the local model, and pairs of records elsewhere."""
        if facts.records < 2:
            raise LocalError(f"{self.name} needs at least two records")
        if Offer.RANDOMIZE in facts.offers:
            if (exact := self.exact_pairs(facts)) is not None:
                return exact
            return Randomized(self._quantized(facts), FromReports(len(self.kernel.outputs)))
        matchings = min(self._matchings(facts), rounds(facts.records))
        met = min(matchings, facts.records - 1)
        return PairwiseMean(
            self.kernel,
            self.inputs,
            PairSample(matchings, met, facts.seed[:SEED_BYTES], self._runs(facts, matchings)),
            facts.max_records_per_party,
            facts.inside,
            self.meet == "servers",
            self.compared_within,
            self._bounded(facts),
        )

    def exact_pairs(self, facts: Facts) -> ExactPairs | None:
        """In the local model without ε: all records as they are, unless bins are asked for or
        records are too many."""
        as_left = (self.bins, self.rounding) == ("auto", "simple")
        if facts.epsilon is not None or not as_left:
            return None
        known = self.column_bounds
        bounds = tuple(known.get(each.name) for each in self.inputs)
        most = facts.max_records_per_party
        exact = ExactRecords(self.kernel, self.inputs, bounds, facts.parties, most)
        return ExactPairs(exact, PlainSum.of(exact)) if exact.length <= MOST_EXACT else None

    def _bounded(self, facts: Facts) -> bool:
        possible = not facts.inside and facts.servers <= 2
        if self.outputs == "bounded" and not possible:
            raise LocalError(
                "--outputs bounded takes one server or two, and noise on the total: "
                "leave it out, or ask for --servers 2 without --noise per-pair"
            )
        return possible and self.outputs != "weighed"

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
        enough = enough_matchings(facts.records, zetas, sensitivity, budget)
        return min(enough, self._most_automatic(facts))

    def most_by_servers(self, records: int) -> int:
        """The most pairs of a record that `auto` asks two servers for."""
        return max(MOST_AUTOMATIC, MOST_ANDS // (_ands(self.kernel) * max(1, records // 2)))

    def _most_automatic(self, facts: Facts) -> int:
        of_one_matching = _ands(self.kernel) * (facts.records // 2)
        if self.meet == "servers":
            return self.most_by_servers(facts.records)
        if not self._meets_few(facts, MOST_AUTOMATIC):
            return MOST_AUTOMATIC
        # As many as leave a party with two others to meet, or three.
        beside = facts.records * 3 // (facts.parties * 4) + 1
        return max(MOST_AUTOMATIC, min(beside, MOST_ANDS_OF_PARTIES // of_one_matching))

    def _meets_few(self, facts: Facts, matchings: int) -> bool:
        if self.meet == "servers" or self.meetings == "all" or matchings >= rounds(facts.records):
            return False
        pairs, parties = matchings * facts.records // 2, math.comb(facts.parties, 2)
        return self.meetings == "few" or min(pairs, parties) > MOST_MEETINGS

    def _runs(self, facts: Facts, matchings: int) -> int:
        """K parties of r records have K(1 + (L − 1)/2r) meetings in a run of L turns."""
        if not self._meets_few(facts, matchings):
            return 0
        again = facts.parties / (2 * facts.records)
        wanted = MOST_MEETINGS / facts.parties - matchings * again
        return min(matchings, max(1, math.floor(wanted / (1 - again))))

    def bin_bounds(self) -> Bounds:
        """The bounds of the local model's bins. Raises `LocalError` if they are not known:
        elsewhere, a statistic that only compares values needs no bounds."""
        known = self.column_bounds
        if any(name not in known for name in self.valued):
            raise LocalError(
                f"{self.name} is quantized in the local model: give --lower and --upper "
                "(bounds taken from the data would not be private)"
            )
        lower, upper = known[self.valued[0]] if self.valued else (0.0, 1.0)
        return float(lower), float(upper)

    def _quantized(self, facts: Facts) -> QuantizedRecords:
        labels = {each.name: each.positive for each in self.inputs if each.name not in self.valued}
        positive = {name: 1.0 if value is None else value for name, value in labels.items()}
        any_column = self.bin_bounds()
        bounds = [self.column_bounds.get(name, any_column) for name in self.columns]
        return QuantizedRecords(
            *(self.kernel, tuple(KernelColumn(name, positive.get(name)) for name in self.columns)),
            tuple((float(lower), float(upper)) for lower, upper in bounds),
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
        """Plans by ζ1 and ζ2 of the kernel, estimated on the first 2,000 of the public records."""
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
        if plan.inside and noise is not None:
            means += float(OFFSET)
        estimate = kernel.decode(means, exact=noise is None)
        error = PairError.of(plan, noise, pairs)
        if noise is None and not error.drawing:
            return Answer(estimate, None, pairs, foretold=True)
        remarks = (FEW_MEETINGS,) if plan.sample.runs and plan.max_records_per_party > 1 else ()
        interval = (
            of_one_output(error, float(means[0]), exact=noise is None)
            if len(means) == 1
            else of_several_outputs(error, means, self.span)
        ).holding(np.array([estimate]))
        if self._is_multiple(kernel):
            deviation = error.deviation(means, np.ones(1))
            interval = replace(interval, errors=np.array([_unit(kernel) * deviation]))
        # What the drawing of pairs adds follows from the means that were released.
        public = noise is not None and noise.law_is_public and not error.drawing
        foretold = self._is_multiple(kernel) and public
        return Answer(estimate, interval, pairs, remarks, foretold=foretold)

    def _is_multiple(self, kernel: Kernel) -> bool:
        return self.linear and len(kernel.outputs) == 1

    def _read_reports(self, release: Release) -> Answer:
        """Errors are unknown where the statistic is not linear in one output."""
        assert isinstance(release.plan, Randomized)
        records = release.plan.encoding
        if isinstance(records, ExactRecords):
            exactly = records.statistic(release.values)
            return Answer(exactly, None, release.records, foretold=True)
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
        """Raises `LocalError` for a label that is neither 0 nor 1. Use it for the truths of
        simulations, never at a party, which would reveal something about its records without
        noise."""
        for name in set(self.columns) - set(self.valued):
            labels = holdings.column(name)
            if not np.isin(labels, (0.0, 1.0)).all():
                raise LocalError(f"labels are 0 or 1: column {name!r} has {listed(labels)}")

    def reference(self, holdings: Holdings) -> Estimate:
        """The statistic over all pairs of the raw records."""
        if holdings.rows < 2:
            raise LocalError(f"{self.name} needs at least two records")
        self.check_labels(holdings)
        return self.kernel.truth([holdings.column(name) for name in self.columns])


@lru_cache(maxsize=64)
def _ands(kernel: Kernel) -> int:
    """Of one pair. Every party of a simulation makes the same plan."""
    return max(1, kernel.circuit().ands)


def _unit(kernel: Kernel) -> float:
    """How much the statistic changes when the mean of its one output changes by 1."""
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
    def compared_within(self) -> tuple[Bounds, ...]:
        known = [self.column_bounds.get(name, ANYWHERE) for name in self.columns]
        return tuple((float(lower), float(upper)) for lower, upper in known)

    def with_bin_bounds(self, published: Mapping[str, Bounds]) -> Self:
        """The statistic with bounds that a data set publishes, for the bins of the local model."""
        found = {published.get(name) for name in self.valued}
        if self.column_bounds or len(found) != 1 or (bounds := found.pop()) is None:
            return self
        return replace(self, lower=bounds[0], upper=bounds[1])


@dataclass(frozen=True)
class OwnRanges(Pairs):
    """A statistic of several columns, each of which may have a public range of its own."""

    ranges: tuple[str, ...] = option(
        (),
        "Public bounds of one column, as COLUMN=LOWER:UPPER, in place of --lower and --upper; "
        "repeat.",
        flag="--range",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self._own:
            if name not in self.valued:
                raise LocalError(f"--range {name}: {self.name} is not about that column")

    @cached_property
    def _own(self) -> Mapping[str, Bounds]:
        return parse_ranges(self.ranges)

    def grid_of(self, column: str) -> Grid:
        own = self._own.get(column)
        return self.grid if own is None else Grid.reals(*own, self.bits)

    @property
    def column_bounds(self) -> Mapping[str, Bounds]:
        if not self._own:
            return super().column_bounds
        known = {**super().column_bounds, **self._own}
        return {name: known[name] for name in self.valued if name in known}

    def check_bounds(self) -> None:
        missing = [name for name in self.bounded if name not in self.column_bounds]
        if missing and self._own:
            raise LocalError(
                f"{self.name} needs public bounds of column {missing[0]!r}: give --range "
                f"{missing[0]}=LOWER:UPPER (bounds taken from the data would not be private)"
            )
        if missing:
            super().check_bounds()

    def with_bounds(self, published: Mapping[str, Bounds]) -> Self:
        """One range for all columns where that is published, else each column's own."""
        found = super().with_bounds(published) if not self._own else self
        return found.with_ranges(published) if self.bounded else found

    def with_ranges(self, published: Mapping[str, Bounds]) -> Self:
        """Each column that has no bounds gets those that are published."""
        missing = [name for name in self.valued if name not in self.column_bounds]
        if self.lower is not None or self.upper is not None:
            return self
        found = [format_range(name, published[name]) for name in missing if name in published]
        return replace(self, ranges=(*self.ranges, *found)) if found else self
