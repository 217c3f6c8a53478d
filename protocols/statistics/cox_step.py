"""Sums over risk sets at public coefficients: what a Newton step of Cox's regression needs.

Terms are scaled to z within [−1, 1]. At coefficients β a record weighs u = e^(zβ − ‖β‖₁), which is
1 at most. It adds u, uz and the upper triangle of uzzᵀ to the cell of its time, among the censored
or among the events; an event adds 1 there as well, and z to a sum over all events. A risk set is
all cells from a time on, so its sums are those of a record's own cell added up: a record is in one
cell, however many times there are.

**Sensitivity.** With p terms a cell gets T = 1 + p + p(p + 1)/2 numbers, each within ±1. A replaced
record takes them from one cell and adds others to another, or the same: 2T in the 1-norm, and
2 + 2p for two events. In squares of the 2-norm a number moves by 4 at most.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.contract import Encoding, NoisySum, PlainSum
from tallyroom.protocols.plans.encodings import sum_by_party
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.scaled import ScaledColumn, columns_of
from tallyroom.protocols.privacy.noise_law import Sensitivity
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.statistics.estimates import Estimate, Table
from tallyroom.protocols.statistics.event_times import TimeGrid, event_cells
from tallyroom.protocols.statistics.release import Answer, Release
from tallyroom.protocols.statistics.terms import OfTerms

Matrix = NDArray[np.float64]

STEPS = 1 << 20
"""Steps of the grid in 1."""
MAX_COEFFICIENT = 10.0
"""The largest coefficient of a scaled term: with a larger one, hazards differ by over e^20."""
MAX_POINTS = 1000


@dataclass(frozen=True)
class RiskSums(Encoding):
    """A row of `width` numbers for each cell of time: sums of the censored, of the events, and the
    number of events. A last row has the sums of z of all events."""

    scaled: tuple[ScaledColumn, ...]
    time: str
    event: str
    positive: float
    grid: TimeGrid
    at: tuple[float, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return (*columns_of(self.scaled), self.time, self.event)

    @cached_property
    def pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        rows, columns = np.triu_indices(len(self.scaled))
        return rows, columns

    @property
    def weighed(self) -> int:
        """T."""
        return 1 + len(self.scaled) + len(self.pairs[0])

    @property
    def width(self) -> int:
        return 2 * self.weighed + 1

    @property
    def length(self) -> int:
        return self.grid.cells * self.width + len(self.scaled)

    @property
    def sensitivity(self) -> Sensitivity:
        numbers = self.weighed + 1 + len(self.scaled)
        return Sensitivity(2 * numbers * STEPS, 4 * numbers * STEPS**2)

    def real(self, holdings: Holdings) -> tuple[NDArray[np.int64], Matrix, Matrix]:
        """The cell of time of each record; its row there, and its z if it is an event."""
        place = event_cells(holdings, self.time, self.event, self.positive, self.grid)
        happened = place >= self.grid.cells
        z = np.stack([each.of(holdings) for each in self.scaled], axis=1)
        # A sum over each row by itself: a product of matrices rounds by how many rows there are.
        score = (z * np.array(self.at)).sum(axis=1) - float(np.abs(self.at).sum())
        weight = np.minimum(np.exp(score), 1.0)[:, None]
        rows, columns = self.pairs
        sums = np.concatenate([weight, weight * z, weight * z[:, rows] * z[:, columns]], axis=1)
        mark = happened[:, None]
        whole = np.concatenate([np.where(mark, 0.0, sums), sums * mark, mark], axis=1)
        return place % self.grid.cells, whole, z * mark

    def encode(self, holdings: Holdings) -> Vector:
        place, numbers, of_events = self.real(holdings)
        parties = len(holdings.ids)
        found = np.zeros((parties, self.grid.cells, self.width), dtype=np.int64)
        party = np.repeat(np.arange(parties), holdings.counts)
        np.add.at(found, (party, place), np.rint(numbers * STEPS).astype(np.int64))
        last = np.rint(of_events * STEPS).astype(np.int64).view(np.uint64)
        cells = found.reshape(parties, -1).view(np.uint64)
        return np.concatenate([cells, sum_by_party(last, holdings)], axis=1)

    @property
    def measurement(self) -> None:
        return None

    @property
    def grid_step(self) -> float:
        return 1 / STEPS

    @property
    def grid_words(self) -> str:
        return f"{self.grid.words}; values are rounded to multiples of {self.grid_step:.3g}"


@dataclass(frozen=True)
class CoxStep(OfTerms):
    """Sums over risk sets at public coefficients of scaled terms."""

    x: tuple[str, ...] = ("x",)
    time: str = "time"
    event: str = "event"
    positive: float | None = None
    upper: float = 1.0
    thresholds: int = 8
    at: tuple[float, ...] = (0.0,)

    name: ClassVar[str] = "cox-step"
    part_of: ClassVar[str] = "cox"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_terms()
        if self.event in (self.time, *self.predicting):
            raise LocalError("--time, --event and the terms are of different columns")
        if not 0 < self.upper < float("inf"):
            raise LocalError(f"--upper is a public last time above 0, not {self.upper:g}")
        if not 1 <= self.thresholds <= MAX_POINTS:
            raise LocalError(f"--thresholds is from 1 to {MAX_POINTS}, not {self.thresholds}")
        if not all(abs(each) <= MAX_COEFFICIENT for each in self.at):
            raise LocalError(f"coefficients are from {-MAX_COEFFICIENT:g} to {MAX_COEFFICIENT:g}")

    @property
    def target(self) -> str:
        return self.time

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.predicting, self.time, self.event)

    @property
    def sums(self) -> RiskSums:
        at, grid = tuple(map(float, self.at)), TimeGrid(0.0, float(self.upper), self.thresholds)
        if len(at) != len(self.design):
            raise LocalError(f"{len(self.design)} terms have as many coefficients, not {len(at)}")
        mark = 1.0 if self.positive is None else float(self.positive)
        return RiskSums(self.design, self.time, self.event, mark, grid, at)

    def plan(self, facts: Facts) -> NoisySum:
        sums = self.sums
        return NoisySum(sums, PlainSum.of(sums, unit=1 / STEPS, summed="risk sets by time"))

    def read(self, release: Release) -> Answer:
        return release.table(self._table(release.integers / STEPS), 1 / STEPS)

    def _table(self, sums: Matrix) -> Table:
        shape = self.sums.grid.cells + 1, self.sums.width
        rows = [*(f"{end:g}" for end in (*self.sums.grid.x, float("inf"))), "events"]
        names = [str(each) for each in range(shape[1])]
        whole = np.append(sums, np.zeros(shape[0] * shape[1] - len(sums)))
        return Table(rows, names, whole.reshape(shape).tolist())

    def reference(self, holdings: Holdings) -> Estimate:
        place, numbers, of_events = self.sums.real(holdings)
        found = np.zeros((self.sums.grid.cells, self.sums.width))
        np.add.at(found, place, numbers)
        return self._table(np.append(found, of_events.sum(axis=0)))
