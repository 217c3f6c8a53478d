"""A projected histogram over spaces too large for a vector of all cells: with a curator alone.

Parties send the codes of their records, not counts. The curator picks attributes from those (S4's
PrivateKD, O(d·n) a pick), and draws the cells that pass without looking at the empty ones, in up to
2^60 cells. S4's threshold lets a share n^(−¼)/2 of all empty cells pass, which is more than anybody
can hold in such a space; `thresholded.threshold_for` raises it.
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from tallyroom.protocols.algebra.ring import Vector, signed
from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.privacy.laplace import Integers
from tallyroom.protocols.privacy.projected import refined, together
from tallyroom.protocols.privacy.selection import Exponential
from tallyroom.protocols.privacy.thresholded import (
    MAX_OUTPUT,
    Space,
    ThresholdedHistogram,
    passing_chance,
    threshold_for,
)
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.attributes import Attribute
from tallyroom.protocols.statistics.estimates import Counts, Estimate
from tallyroom.protocols.statistics.gathered import Gathered
from tallyroom.protocols.statistics.of_schema import Projected
from tallyroom.protocols.statistics.projected import MAX_THRESHOLD
from tallyroom.protocols.statistics.synthetic_rows import MOST_ROWS


@dataclass(frozen=True)
class OfRecords(Gathered, Projected):
    """About the codes of all attributes of every record."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.space  # noqa: B018  # raises past 2^60

    @cached_property
    def space(self) -> Space:
        return self.space_of(self.projected)

    def taken(self, attributes: list[Attribute], total: Vector) -> Integers:
        """The codes that parties sent; what is no code of its attribute counts as the nearest."""
        sizes = np.array([each.size(self.bins) for each in attributes])
        found: Integers = np.clip(self.rows_of(total), 0, sizes - 1)
        return found


@dataclass(frozen=True)
class SparseNextAttribute(OfRecords):
    """The attribute that is picked next, by its place among those that are left."""

    name: ClassVar[str] = "next-attribute-sparse"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.candidates:
            raise LocalError("no further attribute fits into 2^60 cells")

    @cached_property
    def candidates(self) -> list[Attribute]:
        """Those that are not chosen, and with which the space has at most 2^60 cells."""
        most = (1 << 60) // self.space.size
        left = [each for each in self.schema[0] if each.name not in self.chosen]
        return [each for each in left if each.size(self.bins) <= most]

    @property
    def _every(self) -> list[Attribute]:
        return [*self.candidates, *self.projected]

    @property
    def width(self) -> int:
        return len(self._every)

    @property
    def released(self) -> int:
        return 1

    def words_of(self, holdings: Holdings) -> Integers:
        return self.codes_of(self._every, holdings)

    def scores(self, total: Vector) -> list[int]:
        """For each candidate, the pairs of different classes that stay together, below 0."""
        codes = self.taken(self._every, total)
        parts = np.zeros(len(codes), dtype=np.int64)
        for column in codes.T[len(self.candidates) : -1]:
            parts = refined(parts, column)
        return [-together(refined(parts, codes[:, at]), codes[:, -1]) for at in self._places]

    @property
    def _places(self) -> range:
        return range(len(self.candidates))

    def published(
        self, total: Vector, epsilon: Fraction, delta: float, randomness: Randomness
    ) -> Vector:
        """Replacing a record changes pairs with it alone, at most n − 1 of them."""
        chooser = Exponential.spending(epsilon, max(1, len(self.rows_of(total)) - 1))
        return np.array([chooser.choose(self.scores(total), randomness)], dtype=np.uint64)

    def published_exactly(self, total: Vector) -> Vector:
        return np.array([int(np.argmax(self.scores(total)))], dtype=np.uint64)

    def published_words(self, epsilon: Fraction, delta: float) -> str:
        return "exponential mechanism on the pairs of records that each attribute discerns"

    def decode(self, released: Vector, records: int, exact: bool = False) -> Estimate:
        picked = int(signed(released)[0])
        if picked not in self._places:
            raise RunFailed("the curator picked an attribute that is not there")
        told = [float(at == picked) for at in self._places]
        return Counts([each.name for each in self.candidates], told)

    def reference(self, holdings: Holdings) -> Estimate:
        return self.noiseless(holdings)

    def deviations(self, noise_variance: float, records: int) -> Column:
        return np.full(len(self.candidates), np.nan)


@dataclass(frozen=True)
class SparseCells(OfRecords):
    """The cells of the chosen attributes and the target that pass, by their numbers.

    `threshold` and `capacity`, how many cells are published at most, are for the coordinator.
    """

    threshold: int = 0
    capacity: int = 1

    name: ClassVar[str] = "projected-cells-sparse"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.threshold <= MAX_THRESHOLD:
            raise LocalError(f"a threshold is from 0 to {MAX_THRESHOLD}, not {self.threshold}")
        if not 1 <= self.capacity <= MAX_OUTPUT:
            raise LocalError(f"{self.capacity} cells are published, {MAX_OUTPUT} at most")

    def prepared(self, known: Facts) -> Self:
        """Twelve standard deviations of the empty cells that pass have room: so many come up less
        than once in 10^30 runs, and the smallest would be left out then."""
        whole = super().prepared(known)
        if known.epsilon is None:
            return replace(whole, threshold=0, capacity=min(known.records, MAX_OUTPUT))
        above = min(threshold_for(self.space.size, known.records, known.epsilon), MAX_THRESHOLD)
        expected = float(self.space.size * passing_chance(above, 2 / known.epsilon))
        room = math.ceil(known.records + expected + 12 * math.sqrt(expected) + 40)
        return replace(whole, threshold=above, capacity=min(room, MAX_OUTPUT))

    @property
    def width(self) -> int:
        return len(self.projected)

    @property
    def released(self) -> int:
        """How many cells there are, and for each its number and its count."""
        return 1 + 2 * self.capacity

    def words_of(self, holdings: Holdings) -> Integers:
        return self.codes_of(self.projected, holdings)

    def _cells(self, total: Vector) -> Integers:
        return self.space.encode(self.taken(self.projected, total))

    def published(
        self, total: Vector, epsilon: Fraction, delta: float, randomness: Randomness
    ) -> Vector:
        mechanism = ThresholdedHistogram.spending(epsilon, self.threshold)
        found = mechanism.sample(self._cells(total), self.space.size, randomness)
        return self._listed(found.cells, found.counts)

    def published_exactly(self, total: Vector) -> Vector:
        return self._listed(*np.unique(self._cells(total), return_counts=True))

    def _listed(self, cells: Integers, counts: Integers) -> Vector:
        """Those with the largest counts, if there are too many; post-processing."""
        if len(cells) > self.capacity:
            kept = np.sort(np.argsort(-counts, kind="stable")[: self.capacity])
            cells, counts = cells[kept], counts[kept]
        found = np.zeros(self.released, dtype=np.uint64)
        found[0] = len(cells)
        found[1 : 1 + len(cells)] = cells
        found[1 + self.capacity : 1 + self.capacity + len(cells)] = counts
        return found

    def decode(self, released: Vector, records: int, exact: bool = False) -> Estimate:
        """Raises `RunFailed` for what no curator publishes."""
        words = signed(released)
        size = int(words[0])
        if not 0 <= size <= self.capacity:
            raise RunFailed("the curator published more cells than there is room for")
        cells = words[1 : 1 + size]
        counts = words[1 + self.capacity : 1 + self.capacity + size]
        inside = ((cells >= 0) & (cells < self.space.size)).all()
        least = 0 if exact else self.threshold
        if not (inside and (np.diff(cells) > 0).all() and (counts > least).all()):
            raise RunFailed("the curator published cells that cannot be")
        return self.rows_with(cells, counts).at_most(MOST_ROWS * records)

    def reference(self, holdings: Holdings) -> Estimate:
        cells = self.space.encode(self.words_of(holdings))
        return self.rows_with(*np.unique(cells, return_counts=True))

    def deviations(self, noise_variance: float, records: int) -> Column:
        """Not known: which cells pass depends on the noise."""
        return np.full(sum(self.space.sizes), np.nan)

    def published_words(self, epsilon: Fraction, delta: float) -> str:
        return (
            f"discrete Laplace of scale {2 / float(epsilon):.6g} on {self.space.size:.6g} cells, "
            f"those above {self.threshold} kept"
        )
