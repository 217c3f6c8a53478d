"""Statistics of pairs in the local model: each record is quantized, randomized and reported, and
the reports tell of all pairs (S1 §3 and §4)."""

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.cells import numbers
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.kernels.contract import Kernel
from tallyroom.protocols.local import AUTO, LocalBudget, LocalRandomizer
from tallyroom.protocols.local.auc_by_response import ScoreResponse
from tallyroom.protocols.local.every_level import auc_response
from tallyroom.protocols.local.pairs import Rounding
from tallyroom.protocols.local.pairs_by_oracle import pair_randomizer
from tallyroom.protocols.offers import Offer
from tallyroom.protocols.plans.contract import Encoding, Integers, NoisySum, Strategy
from tallyroom.protocols.plans.measurement import Measurement
from tallyroom.protocols.plans.pairs import KernelColumn
from tallyroom.protocols.privacy.noise_law import NoiseLaw, Sensitivity
from tallyroom.protocols.records import Column, Holdings

MAX_CELLS = 1 << 10
"""Of all columns together: the kernel is a matrix over them."""
FINE_BITS = 20
EXACT_DEPTH = 16
"""Without ε, vectors of counts are added up, which are no longer than this many bits of a score."""


@dataclass(frozen=True)
class FromReports(Strategy):
    """So many values are estimated from randomized reports, each of which is private by itself."""

    values: int

    @property
    def sensitivity(self) -> Sensitivity:
        """Of the counts of cells."""
        return Sensitivity.of_counts(2)

    @property
    def noises(self) -> int:
        return self.values

    @property
    def released(self) -> int:
        return self.values

    @property
    def any_law(self) -> bool:
        return False

    def measure(self, total: Vector) -> Vector:
        raise LocalError("it is estimated from reports, not from a noisy sum")

    def place(self, noise: Vector) -> Vector:
        return noise

    def words(self, law: NoiseLaw) -> str:
        raise LocalError("reports are randomized one by one: their randomizer has a name")


@dataclass(frozen=True)
class Randomized(NoisySum):
    """Every record is randomized and reported by itself. Without ε, counts of cells are added up
    instead."""

    needs: ClassVar[Offer | None] = Offer.RANDOMIZE


class ReportedCells(Encoding):
    """Records in cells; without ε, they count where `exact_cells` says."""

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity.of_counts(2)

    @abstractmethod
    def exact_cells(self, holdings: Holdings) -> Integers:
        """Where each record counts if nothing is randomized."""

    def encode(self, holdings: Holdings) -> Vector:
        return holdings.count_by_party(self.exact_cells(holdings), self.length)

    @property
    def grid_step(self) -> float:
        return 0.0


def part_of_range(values: Column, lower: float, upper: float) -> Column:
    """Values as a part of their range, from 0 to 1; 0 for what is no number."""
    clipped = np.clip(numbers(values, lower), lower, upper)
    return np.asarray((clipped - lower) / (upper - lower))


@dataclass(frozen=True)
class QuantizedRecords(ReportedCells):
    """Records of a kernel in cells (S1's Algorithm 1). A column within public bounds has `bins` of
    equal width, or as many points that values are rounded to at random; a label is 0 or 1."""

    kernel: Kernel
    inputs: tuple[KernelColumn, ...]
    bounds: tuple[tuple[float, float], ...]
    """Of each input; those of labels do not count."""
    bins: int
    at_random: bool = False
    randomizer: str = AUTO

    def __post_init__(self) -> None:
        if not (self.bins >= 2 and self.length <= MAX_CELLS):
            raise LocalError(
                f"{self.bins} bins a column make {self.length} cells; there must be 2 to "
                f"{MAX_CELLS} cells, and 2 bins at least: with one, all records are alike"
            )

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.inputs)

    @property
    def column_bins(self) -> tuple[int, ...]:
        """Labels are what they are; all other columns have as many bins."""
        return tuple(self.bins if each.positive is None else 2 for each in self.inputs)

    @property
    def length(self) -> int:
        return math.prod(self.column_bins)

    @property
    def rounding(self) -> Rounding:
        bins = self.column_bins
        if not self.at_random:
            return Rounding(bins, (1,) * len(bins))
        room = 60 - sum(each.bit_length() for each in bins)
        fine = 1 << max(1, min(FINE_BITS, room // len(bins)))
        return Rounding(bins, tuple(fine if each.positive is None else 1 for each in self.inputs))

    def measured(self, holdings: Holdings) -> Integers:
        """Bins of equal width under simple rounding; places between points under randomized."""
        rounding = self.rounding
        codes = np.zeros(holdings.rows, dtype=np.int64)
        for place, column in enumerate(self.inputs):
            bins, fine = rounding.bins[place], rounding.fine[place]
            values = column.values(holdings)
            if column.positive is not None:
                digits = values.astype(np.int64)
            elif fine > 1:
                parts = part_of_range(values, *self.bounds[place])
                digits = np.rint(parts * ((bins - 1) * fine)).astype(np.int64)
            else:
                cut = np.floor(part_of_range(values, *self.bounds[place]) * bins)
                digits = np.minimum(cut.astype(np.int64), bins - 1)
            codes = codes * rounding.radix(place) + digits
        return codes

    def exact_cells(self, holdings: Holdings) -> Integers:
        none = np.zeros((holdings.rows, 0), dtype=np.uint64)
        return self.rounding.cells(self.measured(holdings), none)

    @cached_property
    def kernels(self) -> NDArray[np.float64]:
        """A of each output, at the middle of bins or at points, on the kernel's own grid."""
        axes = []
        for column, bins, grid, (lower, upper) in zip(
            self.inputs, self.column_bins, self.kernel.grids, self.bounds, strict=True
        ):
            if column.positive is not None:
                axes.append(np.arange(bins))
                continue
            middles = (np.arange(bins) + 0.5) / bins
            points = np.arange(bins) / (bins - 1)
            parts = points if self.at_random else middles
            axes.append(grid.encode(lower + (upper - lower) * parts))
        rows = np.stack([each.ravel() for each in np.meshgrid(*axes, indexing="ij")], axis=1)
        k = len(rows)
        values = self.kernel.reference(np.repeat(rows, k, axis=0), np.tile(rows, (k, 1)))
        return np.ascontiguousarray(values.T.reshape(-1, k, k).astype(np.float64))

    @property
    def ranges(self) -> tuple[float, ...]:
        return tuple(float(each.high - each.low) for each in self.kernel.outputs)

    @property
    def measurement(self) -> Measurement:
        return QuantizedPairs(self.length, self)

    @property
    def grid_words(self) -> str:
        how = "randomized" if self.at_random else "simple"
        bins = " × ".join(map(str, self.column_bins))
        return f"values are quantized by {how} rounding; bins: {bins}"


@dataclass(frozen=True)
class QuantizedPairs(Measurement):
    """A record is in one of k cells; what is asked is the mean of a kernel over pairs of cells."""

    records: QuantizedRecords | None = None

    def randomizer(self, budget: LocalBudget) -> LocalRandomizer | None:
        if (of := self.records) is None:
            return None
        return pair_randomizer(of.randomizer, budget, of.rounding, of.kernels, of.ranges)


@dataclass(frozen=True)
class LabelledScores(ReportedCells):
    """A score within public bounds, cut into `domain` values, and a label. The scores are the
    leaves of a binary tree, and fill the first of them (S1 §4); or with `by_response`, a record
    responds among them (S1's Algorithm 1)."""

    score: str
    label: KernelColumn
    lower: float
    upper: float
    domain: int
    private_labels: bool = True
    levels: str = AUTO
    by_response: bool = False
    automatic: bool = field(default=False, repr=False, compare=False)
    """Whether nobody chose the domain: that is said, and changes nothing."""

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.score, self.label.name)

    @property
    def depth(self) -> int:
        return (self.domain - 1).bit_length()

    @property
    def measurement(self) -> Measurement:
        values = self.domain if self.by_response else 0
        return ScoresAndLabels(None, self.depth, self.private_labels, self.levels, values)

    def measured(self, holdings: Holdings) -> Integers:
        parts = part_of_range(holdings.column(self.score), self.lower, self.upper)
        cells = np.minimum(np.floor(parts * self.domain).astype(np.int64), self.domain - 1)
        return 2 * cells + self.label.values(holdings).astype(np.int64)

    @property
    def _dropped(self) -> int:
        return max(0, self.depth - EXACT_DEPTH)

    def exact_cells(self, holdings: Holdings) -> Integers:
        codes = self.measured(holdings)
        return 2 * (codes >> 1 >> self._dropped) + (codes & 1)

    @property
    def length(self) -> int:
        return 2 << (self.depth - self._dropped)

    @property
    def grid_words(self) -> str:
        if self.by_response:
            return f"scores are cut into {self.domain} values; equal ones count ½"
        many = f"2^{self.depth}" if self.automatic else str(self.domain)
        padded = f", padded to 2^{self.depth}" if self.domain != 1 << self.depth else ""
        return f"scores are cut into {many} values{padded}; equal ones count ½"


@dataclass(frozen=True)
class ScoresAndLabels(Measurement):
    """A record is a score of `depth` bits and a label. `asked` is what a report tells of
    (`protocols.local.every_level`); or with `values`, it responds among so many scores."""

    depth: int = 1
    private_labels: bool = True
    asked: str = AUTO
    values: int = 0

    @property
    def alike(self) -> bool:
        """A public label is in the report: a record hides among those of its own label only."""
        return self.private_labels

    def randomizer(self, budget: LocalBudget) -> LocalRandomizer | None:
        if self.values:
            return ScoreResponse.spending(budget(2 * self.values), self.values, self.private_labels)
        return self.randomizer_by_itself(budget(None), Fraction(0))

    def randomizer_by_itself(self, epsilon: Fraction, delta: Fraction) -> LocalRandomizer | None:
        if self.values:
            return self.randomizer(lambda _: epsilon)
        return auc_response(self.asked, epsilon, delta, self.depth, self.private_labels)


MOST_EXACT = 1 << 14
"""Elements that parties send in the clear at most, so that all records are told exactly."""


@dataclass(frozen=True)
class ExactRecords(Encoding):
    """All records as they are, each in a place of its own among those of `parties` parties with at
    most `most` records: that it is there, and its columns, clipped to `bounds` where there are
    some. It hides nothing, so it is planned where nothing is to be hidden."""

    kernel: Kernel
    inputs: tuple[KernelColumn, ...]
    bounds: tuple[tuple[float, float] | None, ...]
    parties: int
    most: int

    grid_step: ClassVar[float] = 0.0
    grid_words: ClassVar[str] = "values count exactly, over all pairs"
    measurement: ClassVar[None] = None

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.inputs)

    @property
    def width(self) -> int:
        """Elements of one record."""
        return len(self.inputs) + 1

    @property
    def length(self) -> int:
        return self.parties * self.most * self.width

    @property
    def sensitivity(self) -> Sensitivity:
        """An element may become any other."""
        return Sensitivity.of_number(self.width << 64)

    def places(self, holdings: Holdings) -> tuple[NDArray[np.intp], Vector]:
        """The place of each record, and its elements. Raises `LocalError` where parties are not
        numbered from 0, or have more records than was said."""
        if holdings.ids.max() >= self.parties or holdings.counts.max() > self.most:
            raise LocalError("parties are not those that places are for")
        within = np.arange(holdings.rows) - np.repeat(holdings.starts, holdings.counts)
        places = np.repeat(holdings.ids.astype(np.intp) * self.most, holdings.counts) + within
        columns = [np.ones(holdings.rows)]
        for column, bounds in zip(self.inputs, self.bounds, strict=True):
            values = np.asarray(column.values(holdings), dtype=np.float64)
            columns.append(values if bounds is None else np.clip(values, *bounds))
        return places, np.ascontiguousarray(np.stack(columns, axis=1)).view(np.uint64)

    def encode(self, holdings: Holdings) -> Vector:
        vectors = np.zeros((len(holdings.ids), self.parties * self.most, self.width), np.uint64)
        places, elements = self.places(holdings)
        vectors[np.repeat(np.arange(len(holdings.ids)), holdings.counts), places] = elements
        return vectors.reshape(len(holdings.ids), -1)

    def statistic(self, total: Vector) -> float:
        """The statistic of all records that were sent, read off the sum of all vectors."""
        rows = total.view(np.uint64).reshape(-1, self.width).view(np.float64)
        present = rows[rows[:, 0] == 1]
        return self.kernel.truth([np.ascontiguousarray(each) for each in present[:, 1:].T])


@dataclass(frozen=True)
class ExactPairs(Randomized):
    """Every record is sent as it is, because nothing is to be hidden."""

    encoding: ExactRecords

    def without_noise(self, holdings: Holdings) -> Vector:
        total = np.zeros((self.length // self.encoding.width, self.encoding.width), np.uint64)
        places, elements = self.encoding.places(holdings)
        total[places] = elements
        return total.reshape(-1)
