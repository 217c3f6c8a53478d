"""The questions of a projected histogram (S4): which attribute to add next, and counts of cells.

The pairs of records of different classes that agree in all chosen attributes are those that a
projection fails to discern. They follow from contingency tables of the chosen attributes, one more,
and the class, which add up over parties. A curator picks by the exponential mechanism on the exact
tables (S4's PrivateKD). Without one the tables of all candidates are released under noise, and the
best noisy score is taken: a record is in one cell of each table, so replacing it moves two counts
of each, and the noise grows with the number of candidates: the price of having no curator. Or two
servers square the counts that they share inside a circuit, and open which candidate has the best
score under noise, and nothing else (report noisy max): a curator's accuracy without one.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np

from tallyroom.protocols.algebra.ring import Vector, signed
from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.joint.choice import Choice, Moved, units_of_epsilon
from tallyroom.protocols.joint.discerned import squares_in, twice_together
from tallyroom.protocols.plans.contract import (
    Curated,
    CuratorMechanism,
    Integers,
    NoisyChoice,
    NoisySum,
    PlainSum,
    Plan,
    pooled,
)
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.gathered import GatheredRows, RecordWords
from tallyroom.protocols.plans.tables import CountedCells, Tables
from tallyroom.protocols.privacy.selection import Exponential
from tallyroom.protocols.privacy.thresholded import Space, ThresholdedHistogram, threshold_for
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.statistics.attributes import Attribute, OfSchema, check_bins
from tallyroom.protocols.statistics.estimates import Counts, Estimate
from tallyroom.protocols.statistics.release import Answer, Release
from tallyroom.protocols.statistics.synthetic_rows import MOST_ROWS, SyntheticRows

MAX_CELLS = 500_000
"""The most counts that a party sends: a vector of them fits a message."""
MAX_THRESHOLD = 1 << 40
MAX_SQUARES = 1 << 14
"""The most squares of counts in one question of two servers: some 10 kB each for 50,000 records."""
UNSURE = "how sure a pick is depends on how far apart the scores are, which nobody sees"


@dataclass(frozen=True)
class Codes(RecordWords):
    """A record as the codes of its attributes, of which numbers are counted in `bins`."""

    attributes: tuple[Attribute, ...]
    bins: int

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.attributes)

    @property
    def width(self) -> int:
        return len(self.attributes)

    @property
    def grid_step(self) -> float:
        return 0.0

    @cached_property
    def space(self) -> Space:
        """All cells of the attributes. Raises `LocalError` past 2^60."""
        return Space(tuple(each.size(self.bins) for each in self.attributes))

    def words_of(self, holdings: Holdings) -> Integers:
        return np.stack([each.codes(holdings, self.bins) for each in self.attributes], axis=1)

    def cells_of(self, holdings: Holdings) -> Integers:
        return self.space.encode(self.words_of(holdings))

    def taken(self, total: Vector, max_records: int) -> Integers:
        """The codes that parties sent; an invalid code counts as the nearest valid one."""
        sizes = np.array([each.size(self.bins) for each in self.attributes])
        rows = GatheredRows(self, max_records).rows_of(total)
        found: Integers = np.clip(rows, 0, sizes - 1)
        return found

    def rows_with(self, cells: Integers, counts: Integers) -> SyntheticRows:
        """Synthetic rows, by the numbers of cells."""
        labels = [each.labels(self.bins) for each in self.attributes]
        return SyntheticRows(list(self.columns), labels, self.space.decode(cells), counts)


@dataclass(frozen=True)
class Projected(OfSchema):
    """A question about the `chosen` attributes and the target; numbers are counted in `bins`."""

    chosen: tuple[str, ...] = ()
    bins: int = 2

    part_of: ClassVar[str] = "projected-histogram"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bins(self.bins)
        known = {each.name for each in self.schema[0]}
        if set(self.chosen) - known or len(set(self.chosen)) < len(self.chosen):
            raise LocalError("chosen attributes are those of the schema, each once")

    @cached_property
    def codes(self) -> Codes:
        """The chosen attributes, and the target."""
        predictors, target = self.schema
        by_name = {each.name: each for each in predictors}
        return Codes((*(by_name[name] for name in self.chosen), target), self.bins)

    def further(self, most: int) -> tuple[Attribute, ...]:
        """The attributes that are not chosen, of at most so many values."""
        left = (each for each in self.schema[0] if each.name not in self.chosen)
        return tuple(each for each in left if each.size(self.bins) <= most)


@dataclass(frozen=True)
class AttributeTables(Tables):
    """A table for each of the `further` attributes, over it and the projected ones; where there are
    None, the table of those alone."""

    projected: tuple[Attribute, ...]
    bins: int
    further: tuple[Attribute, ...] | None = None

    @cached_property
    def _every(self) -> Codes:
        return Codes((*(self.further or ()), *self.projected), self.bins)

    @property
    def columns(self) -> tuple[str, ...]:
        return self._every.columns

    @cached_property
    def tables(self) -> list[Codes]:
        if self.further is None:
            return [self._every]
        return [Codes((each, *self.projected), self.bins) for each in self.further]

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        return tuple(each.space.size for each in self.tables)

    @property
    def classes(self) -> int:
        """The number of values of the target."""
        return self.projected[-1].size(self.bins)

    def cells_of(self, holdings: Holdings) -> list[Integers]:
        return [each.cells_of(holdings) for each in self.tables]

    def check_size(self) -> None:
        """Raises `LocalError` for more counts than fit a message."""
        if not 1 <= self.length <= MAX_CELLS:
            raise LocalError(
                f"{self.length} counts are too many to send, {MAX_CELLS} at most: take fewer "
                "attributes (--k), or fewer --bins or names of one"
            )


# --- which attribute to add next ---


def pairs_together(total: Vector, sizes: tuple[int, ...], classes: int) -> list[int]:
    """Minus the number of pairs of different classes that stay together, for each table.

    It sums products of two counts, each with a noise of its own, so noise does not bias it."""
    together = twice_together(signed(total).astype(object), sizes, classes)  # of any size
    return [-int(each) // 2 for each in together]


class Pick(CuratorMechanism):
    """One step of S4's PrivateKD: the exponential mechanism on pairs that stay together."""

    @abstractmethod
    def scores(self, total: Vector) -> list[int]:
        """Minus the number of pairs that stay together, for each candidate."""

    @abstractmethod
    def records(self, total: Vector) -> int:
        """The number of records."""

    @property
    def released(self) -> int:
        return 1

    def publish(
        self, total: Vector, epsilon: Fraction, delta: float, randomness: Randomness
    ) -> Vector:
        """Replacing a record changes pairs with it alone, at most n − 1 of them."""
        chooser = Exponential.spending(epsilon, max(1, self.records(total) - 1))
        return np.array([chooser.choose(self.scores(total), randomness)], dtype=np.uint64)

    def words(self, epsilon: Fraction, delta: float) -> str:
        return "exponential mechanism on the pairs of records that each attribute discerns"

    def numeric_delta(self, delta: float) -> float:
        return 0.0


@dataclass(frozen=True)
class PickOfTables(Pick):
    """A pick by exact tables of so many counts, in so many classes."""

    sizes: tuple[int, ...]
    classes: int

    def scores(self, total: Vector) -> list[int]:
        return pairs_together(total, self.sizes, self.classes)

    def records(self, total: Vector) -> int:
        return int(signed(total)[: self.sizes[0]].sum())


def picked(candidates: tuple[Attribute, ...], index: int) -> Counts:
    """A 1 for the attribute at that index, 0 for all others. Raises `RunFailed` if the index is out
    of range."""
    if not 0 <= index < len(candidates):
        raise RunFailed("the curator picked an attribute that is not there")
    marks = [float(at == index) for at in range(len(candidates))]
    return Counts([each.name for each in candidates], marks)


@dataclass(frozen=True)
class NextAttribute(Projected):
    """How many pairs of records of different classes each further attribute discerns."""

    name: ClassVar[str] = "next-attribute"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.tables.check_size()

    @cached_property
    def candidates(self) -> tuple[Attribute, ...]:
        """The attributes that are not chosen yet and whose tables are small enough for all of them
        to be sent; the public schema decides."""
        held = math.prod(each.size(self.bins) for each in self.codes.attributes)
        return self.further(MAX_CELLS // len(self.schema[0]) // held)

    @cached_property
    def tables(self) -> AttributeTables:
        return AttributeTables(self.codes.attributes, self.bins, self.candidates)

    @property
    def can_be_squared(self) -> bool:
        """Whether two servers could choose among the candidates (`NextByMax`)."""
        squares = squares_in(self.tables.sizes, self.tables.classes)
        return len(self.candidates) > 1 and squares <= MAX_SQUARES

    def plan(self, facts: Facts) -> Plan:
        return NoisySum(self.tables, PlainSum.of(self.tables))

    def read(self, release: Release) -> Answer:
        match release.plan:
            case NoisyChoice(rule=rule):
                [index] = release.chosen(rule.candidates).tolist()
                return release.without_errors(picked(self.candidates, index), UNSURE)
            case Curated() if not release.exact:
                [index] = release.integers.tolist()
                return release.without_errors(picked(self.candidates, index))
        return release.without_errors(self._scored(release.values))

    def _scored(self, total: Vector) -> Counts:
        scores = pairs_together(total, self.tables.sizes, self.tables.classes)
        return Counts([each.name for each in self.candidates], list(map(float, scores)))

    def reference(self, holdings: Holdings) -> Estimate:
        return self._scored(self.tables.encode(pooled(holdings))[0])


@dataclass(frozen=True)
class CuratedNextAttribute(NextAttribute):
    """The next attribute, picked by a curator in one step of S4's PrivateKD; it is marked by a
    1."""

    name: ClassVar[str] = "next-attribute-curated"

    def plan(self, facts: Facts) -> Plan:
        return Curated(self.tables, PickOfTables(self.tables.sizes, self.tables.classes))


@dataclass(frozen=True)
class NextByMax(NextAttribute):
    """The next attribute, picked by two servers on counts that they share; it is marked by a 1.

    Replacing a record changes pairs with it alone, at most n − 1 of them, of each candidate; n is
    the most that parties can hold (`Query.choice`), whatever the coordinator says.
    """

    name: ClassVar[str] = "next-attribute-by-max"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.can_be_squared:
            raise LocalError(
                "two servers choose among two attributes or more, whose tables take up to "
                f"{MAX_SQUARES} squares of counts"
            )

    def plan(self, facts: Facts) -> Plan:
        """Noise is in units of the distance that one record moves a score."""
        sizes, classes = self.tables.sizes, self.tables.classes
        rule = Choice(len(sizes), facts.records, tables=sizes, classes=classes)
        return NoisyChoice(self.tables, rule, units_of_epsilon(1, Moved.ANYHOW))

    def reference(self, holdings: Holdings) -> Estimate:
        scores = self._scored(self.tables.encode(pooled(holdings))[0]).values()
        return picked(self.candidates, int(np.argmax(scores)))


# --- counts of cells ---


@dataclass(frozen=True)
class CellsAbove(CuratorMechanism):
    """Noisy counts of so many cells, those above a threshold: the empty ones that pass are drawn
    without looking at each."""

    cells: int
    threshold: int

    @property
    def released(self) -> int:
        return self.cells

    def publish(
        self, total: Vector, epsilon: Fraction, delta: float, randomness: Randomness
    ) -> Vector:
        held = np.flatnonzero(total)
        cells = np.repeat(held, signed(total)[held])
        mechanism = ThresholdedHistogram.spending(epsilon, self.threshold)
        sampled = mechanism.sample(cells, self.cells, randomness)
        found = np.zeros(self.cells, dtype=np.uint64)
        found[sampled.cells] = sampled.counts.astype(np.uint64)
        return found

    def words(self, epsilon: Fraction, delta: float) -> str:
        scale, kept = 2 / float(epsilon), cells_kept(self.threshold)
        return f"discrete Laplace of scale {scale:.6g} on {self.cells} {kept}"

    def numeric_delta(self, delta: float) -> float:
        return 0.0


def cells_kept(threshold: int) -> str:
    return f"cells, those above {threshold} kept"


@dataclass(frozen=True)
class ProjectedCells(Projected):
    """Counts of the cells of the chosen attributes and the target, above a threshold.

    That follows from public numbers (`thresholded.threshold_for`), and decides which counts are
    kept: privacy does not depend on it.
    """

    name: ClassVar[str] = "projected-cells"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.table.check_size()

    @cached_property
    def table(self) -> AttributeTables:
        return AttributeTables(self.codes.attributes, self.bins)

    def plan(self, facts: Facts) -> Plan:
        above = self._threshold(facts)
        table, kept = self.table, cells_kept(above)
        strategy = CountedCells.of(table, threshold=above, counted=kept)
        return NoisySum(table, strategy)

    def _threshold(self, facts: Facts) -> int:
        if facts.record_epsilon is None:
            return 0
        # Parts of a noise count as a whole one: less noise passes less often.
        noises = math.ceil(facts.noises)
        above = threshold_for(self.table.length, facts.records, facts.record_epsilon, noises)
        return min(above, MAX_THRESHOLD)

    def read(self, release: Release) -> Answer:
        """Errors are not known: which cells pass depends on the noise."""
        match release.plan:
            case (
                NoisySum(strategy=CountedCells(threshold=above))
                | Curated(mechanism=CellsAbove(threshold=above))
            ):
                held = np.flatnonzero(release.integers > (0 if release.exact else above))
            case _:
                raise LocalError(f"{self.name} cannot be read off this plan")
        rows = self.codes.rows_with(held, release.integers[held])
        return release.without_errors(rows.at_most(MOST_ROWS * release.records))

    def reference(self, holdings: Holdings) -> Estimate:
        return self.codes.rows_with(*np.unique(self.table.measured(holdings), return_counts=True))


@dataclass(frozen=True)
class CuratedProjectedCells(ProjectedCells):
    """Cells counted by a curator, who draws the empty cells that pass without looking at each."""

    name: ClassVar[str] = "projected-cells-curated"

    def plan(self, facts: Facts) -> Plan:
        return Curated(self.table, CellsAbove(self.table.length, self._threshold(facts)))
