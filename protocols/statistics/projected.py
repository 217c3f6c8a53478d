"""What a projected histogram is made of (S4): which attribute to add next, and counts of cells.

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
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import Vector, signed
from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.joint.choice import Choice, Moved, units_of_epsilon
from tallyroom.protocols.joint.discerned import squares_in
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.interval import Interval
from tallyroom.protocols.plans.measurement import Measurement, OneHot
from tallyroom.protocols.privacy.laplace import Integers
from tallyroom.protocols.privacy.selection import Exponential
from tallyroom.protocols.privacy.thresholded import Space, ThresholdedHistogram, threshold_for
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.attributes import Attribute
from tallyroom.protocols.statistics.by_curator import ByCurator
from tallyroom.protocols.statistics.choices import Chosen
from tallyroom.protocols.statistics.estimates import Counts, Estimate
from tallyroom.protocols.statistics.of_schema import Projected
from tallyroom.protocols.statistics.synthetic_rows import MOST_ROWS

MAX_CELLS = 500_000
"""Of all tables or cells that a party sends: a vector of them fits a message."""
MAX_THRESHOLD = 1 << 40
MAX_SQUARES = 1 << 14
"""Of counts, that two servers compute in one question: some 10 kB each for 50,000 records."""


@dataclass(frozen=True)
class OfCounts(Projected):
    """From counts of cells, which add up over parties."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.length <= MAX_CELLS:
            raise LocalError(
                f"{self.length} counts are too many to send, {MAX_CELLS} at most: take fewer "
                "attributes (--k), or fewer --bins or names of one"
            )

    def cells_of(self, attributes: list[Attribute], holdings: Holdings) -> Integers:
        return self.space_of(attributes).encode(self.codes_of(attributes, holdings))


@dataclass(frozen=True)
class NextAttribute(OfCounts):
    """How many pairs of records of different classes each further attribute discerns."""

    name: ClassVar[str] = "next-attribute"

    @cached_property
    def _held(self) -> int:
        return math.prod(each.size(self.bins) for each in self.projected)

    @cached_property
    def candidates(self) -> list[Attribute]:
        """Those that are not chosen, and whose table is not too large for all of them to be sent:
        the public schema decides."""
        predictors, _ = self.schema
        most = MAX_CELLS // len(predictors) // self._held
        left = [each for each in predictors if each.name not in self.chosen]
        return [each for each in left if each.size(self.bins) <= most]

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many counts the table of each candidate has."""
        return tuple(each.size(self.bins) * self._held for each in self.candidates)

    @property
    def can_be_squared(self) -> bool:
        """Whether two servers could choose among the candidates (`NextByMax`)."""
        squares = squares_in(self.sizes, self.schema[1].size(self.bins))
        return len(self.candidates) > 1 and squares <= MAX_SQUARES

    @property
    def length(self) -> int:
        return sum(self.sizes)

    @property
    def sensitivity(self) -> int:
        return 2 * len(self.candidates)

    def encode(self, holdings: Holdings) -> Vector:
        tables = [
            holdings.count_by_party(self.cells_of([each, *self.projected], holdings), size)
            for each, size in zip(self.candidates, self.sizes, strict=True)
        ]
        return np.concatenate(tables, axis=1)

    def scores(self, total: Vector) -> list[int]:
        """For each candidate, the pairs that stay together, below 0.

        Products of two counts, each with a noise of its own: noise does not bias them.
        """
        classes = self.schema[1].size(self.bins)
        ends = np.cumsum(self.sizes)[:-1]
        found = []
        for table in np.split(signed(total), ends):
            parts = table.reshape(-1, classes).astype(object)  # whole numbers of any size
            apart = (parts.sum(axis=1) ** 2).sum() - (parts**2).sum()
            found.append(-int(apart) // 2)
        return found

    def decode(self, released: Vector, records: int, exact: bool = False) -> Estimate:
        return self._told([float(each) for each in self.scores(released)])

    def _told(self, scores: list[float]) -> Estimate:
        return Counts([each.name for each in self.candidates], scores)

    def reference(self, holdings: Holdings) -> Estimate:
        return self.noiseless(holdings)

    def deviations(self, noise_variance: float, records: int) -> Column:
        return np.full(len(self.candidates), np.nan)


@dataclass(frozen=True)
class CuratedNextAttribute(ByCurator, NextAttribute):
    """The same, picked by a curator: one step of S4's PrivateKD. 1 for the attribute that is."""

    name: ClassVar[str] = "next-attribute-curated"

    @property
    def sensitivity(self) -> int:
        """In no metric: the exponential mechanism has its own. Above 0, so that there is noise."""
        return 1

    @property
    def tables(self) -> tuple[int, ...]:
        return self.sizes

    @property
    def released(self) -> int:
        return 1

    def published(
        self, total: Vector, epsilon: Fraction, delta: float, randomness: Randomness
    ) -> Vector:
        """Replacing a record changes pairs with it alone, at most n − 1 of them."""
        records = int(signed(total)[: self.sizes[0]].sum())
        chooser = Exponential.spending(epsilon, max(1, records - 1))
        return np.array([chooser.choose(self.scores(total), randomness)], dtype=np.uint64)

    def published_words(self, epsilon: Fraction, delta: float) -> str:
        return "exponential mechanism on the pairs of records that each attribute discerns"

    def decode(self, released: Vector, records: int, exact: bool = False) -> Estimate:
        if exact:
            return super().decode(released, records, exact)
        picked = int(signed(released)[0])
        if not 0 <= picked < len(self.candidates):
            raise RunFailed("the curator picked an attribute that is not there")
        return self._told([float(at == picked) for at in range(len(self.candidates))])


@dataclass(frozen=True)
class NextByMax(Chosen, NextAttribute):
    """The same, picked by two servers on counts that they share. 1 for the attribute that is.

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

    @property
    def sensitivity(self) -> int:
        """In units of what a record moves a score by."""
        return units_of_epsilon(1, Moved.ANYHOW)

    def choice(self, records: int) -> Choice:
        return Choice(
            len(self.candidates), records, tables=self.sizes, classes=self.schema[1].size(self.bins)
        )

    def decode(self, released: Vector, records: int, exact: bool = False) -> Estimate:
        [picked] = self._indices(released, len(self.candidates)).tolist()
        return self._told([float(at == picked) for at in range(len(self.candidates))])

    def deviations(self, noise_variance: float, records: int) -> Column:
        return NextAttribute.deviations(self, noise_variance, records)

    def interval(
        self, released: Vector, records: int, noise_variance: float, width: float
    ) -> Interval:
        why = "how sure a pick is depends on how far apart the scores are, which nobody sees"
        return Interval.none(len(self.candidates), why)


@dataclass(frozen=True)
class ProjectedCells(OfCounts):
    """Counts of the cells of the chosen attributes and the target, above a threshold.

    `threshold` is for the coordinator to fill in, by public numbers (`thresholded.threshold_for`).
    Privacy does not depend on it: whoever sets another one changes which counts are kept.
    """

    threshold: int = 0

    name: ClassVar[str] = "projected-cells"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.threshold <= MAX_THRESHOLD:
            raise LocalError(f"a threshold is from 0 to {MAX_THRESHOLD}, not {self.threshold}")

    @cached_property
    def space(self) -> Space:
        return self.space_of(self.projected)

    @property
    def length(self) -> int:
        return self.space.size

    @property
    def sensitivity(self) -> int:
        return 2

    @property
    def measurement(self) -> Measurement | None:
        return OneHot(self.length)

    def measured(self, holdings: Holdings) -> NDArray[np.int64]:
        return self.cells_of(self.projected, holdings)

    def encode(self, holdings: Holdings) -> Vector:
        return holdings.count_by_party(self.measured(holdings), self.length)

    def prepared(self, known: Facts) -> Self:
        if known.record_epsilon is None:
            return replace(self, threshold=0)
        # Parts of a noise count as a whole one: less noise passes less often.
        noises = math.ceil(known.noises)
        above = threshold_for(self.length, known.records, known.record_epsilon, noises)
        return replace(self, threshold=min(above, MAX_THRESHOLD))

    def decode(self, released: Vector, records: int, exact: bool = False) -> Estimate:
        counts = signed(released)
        held = np.flatnonzero(counts > (0 if exact else self.threshold))
        return self.rows_with(held, counts[held]).at_most(MOST_ROWS * records)

    def reference(self, holdings: Holdings) -> Estimate:
        return self.rows_with(*np.unique(self.measured(holdings), return_counts=True))

    def deviations(self, noise_variance: float, records: int) -> Column:
        """Not known: which cells pass depends on the noise."""
        return np.full(sum(self.space.sizes), np.nan)

    def mechanism_words(self, scale: float) -> str:
        return (
            f"discrete Laplace of scale {scale:.6g} on {self.length} cells, those above "
            f"{self.threshold} kept"
        )


@dataclass(frozen=True)
class CuratedProjectedCells(ByCurator, ProjectedCells):
    """The same by a curator, who draws the empty cells that pass without looking at each."""

    name: ClassVar[str] = "projected-cells-curated"

    def published(
        self, total: Vector, epsilon: Fraction, delta: float, randomness: Randomness
    ) -> Vector:
        held = np.flatnonzero(total)
        cells = np.repeat(held, signed(total)[held])
        mechanism = ThresholdedHistogram.spending(epsilon, self.threshold)
        sampled = mechanism.sample(cells, self.length, randomness)
        found = np.zeros(self.length, dtype=np.uint64)
        found[sampled.cells] = sampled.counts.astype(np.uint64)
        return found

    def published_words(self, epsilon: Fraction, delta: float) -> str:
        return (
            f"discrete Laplace of scale {2 / float(epsilon):.6g} on {self.length} cells, those "
            f"above {self.threshold} kept"
        )
