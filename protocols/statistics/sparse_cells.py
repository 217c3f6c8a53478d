"""A projected histogram over spaces too large for a vector of all cells: with a curator alone.

Parties send the codes of their records, not counts. The curator picks attributes from those (S4's
PrivateKD, O(d·n) a pick), and draws the cells that pass without looking at the empty ones, in up to
2^60 cells. S4's threshold lets a share n^(−¼)/2 of all empty cells pass, which is more than anybody
can hold in such a space; `thresholded.threshold_for` raises it.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.plans.contract import Curated, CuratorMechanism, Integers
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.gathered import GatheredRows
from tallyroom.protocols.privacy.projected import refined, together
from tallyroom.protocols.privacy.thresholded import (
    MAX_OUTPUT,
    MAX_SPACE,
    ThresholdedHistogram,
    passing_chance,
    threshold_for,
)
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.statistics.attributes import Attribute
from tallyroom.protocols.statistics.estimates import Estimate
from tallyroom.protocols.statistics.projected import (
    MAX_THRESHOLD,
    Codes,
    Pick,
    Projected,
    cells_kept,
    picked,
)
from tallyroom.protocols.statistics.release import Answer, Release
from tallyroom.protocols.statistics.synthetic_rows import MOST_ROWS

SECRET = "what noise did to it depends on the records, so it is secret"


# --- which attribute to add next ---


def pairs_left(codes: Integers, candidates: int) -> list[int]:
    """Minus the number of pairs of different classes that stay together, for each candidate. A row
    has the codes of the candidates, of the chosen attributes, and of the target."""
    parts = np.zeros(len(codes), dtype=np.int64)
    for column in codes.T[candidates:-1]:
        parts = refined(parts, column)
    return [-together(refined(parts, codes[:, at]), codes[:, -1]) for at in range(candidates)]


@dataclass(frozen=True)
class PickOfCodes(Pick):
    """A pick by the codes of all records."""

    codes: Codes
    max_records: int
    candidates: int

    def scores(self, total: Vector) -> list[int]:
        return pairs_left(self.codes.taken(total, self.max_records), self.candidates)

    def records(self, total: Vector) -> int:
        return len(self.codes.taken(total, self.max_records))

    def publish_exactly(self, total: Vector) -> Vector:
        return np.array([int(np.argmax(self.scores(total)))], dtype=np.uint64)


@dataclass(frozen=True)
class SparseNextAttribute(Projected):
    """The attribute that is picked next, by its index among those that are left."""

    name: ClassVar[str] = "next-attribute-sparse"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.candidates:
            raise LocalError("no further attribute fits into 2^60 cells")

    @cached_property
    def candidates(self) -> tuple[Attribute, ...]:
        """The attributes that are not chosen yet and with which the space has at most 2^60
        cells."""
        return self.further(MAX_SPACE // self.codes.space.size)

    @cached_property
    def every(self) -> Codes:
        return Codes((*self.candidates, *self.codes.attributes), self.bins)

    def plan(self, facts: Facts) -> Curated:
        held = self.every, facts.max_records_per_party
        pick = PickOfCodes(*held, len(self.candidates))
        return Curated(GatheredRows(*held), pick, gathered=True)

    def read(self, release: Release) -> Answer:
        [index] = release.integers.tolist()
        return release.without_errors(picked(self.candidates, index), SECRET)

    def reference(self, holdings: Holdings) -> Estimate:
        scores = pairs_left(self.every.words_of(holdings), len(self.candidates))
        return picked(self.candidates, int(np.argmax(scores)))


# --- counts of cells ---


@dataclass(frozen=True)
class ListedCells(CuratorMechanism):
    """The cells that pass a threshold, by their indices, at most so many."""

    codes: Codes
    max_records: int
    threshold: int
    capacity: int

    @property
    def released(self) -> int:
        """The number of cells, and the index and count of each."""
        return 1 + 2 * self.capacity

    def _cells(self, total: Vector) -> Integers:
        return self.codes.space.encode(self.codes.taken(total, self.max_records))

    def publish(
        self, total: Vector, epsilon: Fraction, delta: float, randomness: Randomness
    ) -> Vector:
        mechanism = ThresholdedHistogram.spending(epsilon, self.threshold)
        found = mechanism.sample(self._cells(total), self.codes.space.size, randomness)
        return self._listed(found.cells, found.counts)

    def publish_exactly(self, total: Vector) -> Vector:
        return self._listed(*np.unique(self._cells(total), return_counts=True))

    def _listed(self, cells: Integers, counts: Integers) -> Vector:
        """The cells with the largest counts, if there are too many; post-processing."""
        if len(cells) > self.capacity:
            kept = np.sort(np.argsort(-counts, kind="stable")[: self.capacity])
            cells, counts = cells[kept], counts[kept]
        found = np.zeros(self.released, dtype=np.uint64)
        found[0] = len(cells)
        found[1 : 1 + len(cells)] = cells
        found[1 + self.capacity : 1 + self.capacity + len(cells)] = counts
        return found

    def cells_in(self, words: Integers, least: int) -> tuple[Integers, Integers]:
        """The cells of such a list, and their counts, which are above `least`. Raises `RunFailed`
        for what no curator publishes."""
        size = int(words[0])
        if not 0 <= size <= self.capacity:
            raise RunFailed("the curator published more cells than there is room for")
        cells = words[1 : 1 + size]
        counts = words[1 + self.capacity : 1 + self.capacity + size]
        inside = ((cells >= 0) & (cells < self.codes.space.size)).all()
        if not (inside and (np.diff(cells) > 0).all() and (counts > least).all()):
            raise RunFailed("the curator published impossible cells")
        return cells, counts

    def words(self, epsilon: Fraction, delta: float) -> str:
        scale, kept = 2 / float(epsilon), cells_kept(self.threshold)
        return f"discrete Laplace of scale {scale:.6g} on {self.codes.space.size:.6g} {kept}"

    def numeric_delta(self, delta: float) -> float:
        return 0.0


@dataclass(frozen=True)
class SparseCells(Projected):
    """The cells of the chosen attributes and the target that pass, by their indices."""

    name: ClassVar[str] = "projected-cells-sparse"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.codes.space  # noqa: B018  # raises past 2^60

    def plan(self, facts: Facts) -> Curated:
        held = self.codes, facts.max_records_per_party
        listed = ListedCells(*held, *self._limits(facts))
        return Curated(GatheredRows(*held), listed, gathered=True)

    def _limits(self, facts: Facts) -> tuple[int, int]:
        """The threshold, and how many cells are published at most. Twelve standard deviations of
        the empty cells that pass have room: so many come up less than once in 10^30 runs, and the
        smallest would be left out then."""
        if facts.epsilon is None:
            return 0, min(facts.records, MAX_OUTPUT)
        above = threshold_for(self.codes.space.size, facts.records, facts.epsilon)
        above = min(above, MAX_THRESHOLD)
        expected = float(self.codes.space.size * passing_chance(above, 2 / facts.epsilon))
        room = math.ceil(facts.records + expected + 12 * math.sqrt(expected) + 40)
        return above, min(room, MAX_OUTPUT)

    def read(self, release: Release) -> Answer:
        match release.plan:
            case Curated(mechanism=ListedCells() as listed):
                least = 0 if release.exact else listed.threshold
                rows = self.codes.rows_with(*listed.cells_in(release.integers, least))
                return release.without_errors(rows.at_most(MOST_ROWS * release.records), SECRET)
        raise LocalError(f"{self.name} cannot be read off this plan")

    def reference(self, holdings: Holdings) -> Estimate:
        cells = self.codes.cells_of(holdings)
        return self.codes.rows_with(*np.unique(cells, return_counts=True))
