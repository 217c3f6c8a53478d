"""Times until an event, or until a record was no longer followed: how they are counted.

A record has a time and a mark that says whether the event happened then. It is in one of the cells
that thresholds τ_1 < … < τ_N make of the time, among the censored or among the events. The cell
beyond τ_N holds those that were followed past the last threshold: they are censored there, whatever
happened later.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.cells import places
from tallyroom.protocols.plans.contract import Encoding, Integers
from tallyroom.protocols.plans.measurement import Measurement, OneHot, Step
from tallyroom.protocols.plans.thresholds import threshold_values
from tallyroom.protocols.privacy.noise_law import Sensitivity
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.labels import is_positive


@dataclass(frozen=True)
class TimeGrid:
    """`points` thresholds after `lower`, evenly spaced, or those in `at`; `upper` is the last."""

    lower: float
    upper: float
    points: int
    at: tuple[float, ...] = ()

    @cached_property
    def x(self) -> Column:
        """τ_1 < … < τ_N."""
        if self.at:
            return np.array([*self.at, self.upper])
        return threshold_values(self.lower, self.upper, self.points, "linear")

    @property
    def cells(self) -> int:
        """One that each threshold ends, and one beyond."""
        return self.points + 1

    def places(self, times: Column) -> Integers:
        """The cell of each time. A time that is no number counts as the lower bound."""
        known = np.where(np.isnan(times), self.lower, times)
        return np.searchsorted(self.x, known, side="left").astype(np.int64)

    @property
    def step(self) -> float:
        return float(np.diff(self.x, prepend=self.lower).max())

    @property
    def words(self) -> str:
        return f"times are compared with {self.points} thresholds"


@dataclass(frozen=True)
class EventTimes(Encoding):
    """Counts in the cells 1..i of a row: those of the censored, then those of the events."""

    time: str
    event: str
    positive: float
    grid: TimeGrid

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.time, self.event)

    @property
    def length(self) -> int:
        return 2 * self.grid.cells

    @property
    def sensitivity(self) -> Sensitivity:
        """From the first cell to the last that events reach, which is not the one beyond."""
        return Sensitivity.of_counts(2 * self.grid.points)

    @property
    def measurement(self) -> Measurement:
        return Step(self.length)

    def measured(self, holdings: Holdings) -> Integers:
        return event_cells(holdings, self.time, self.event, self.positive, self.grid)

    def encode(self, holdings: Holdings) -> Vector:
        cells = holdings.count_by_party(self.measured(holdings), self.length)
        return np.cumsum(cells, axis=1)

    @property
    def grid_step(self) -> float:
        return self.grid.step

    @property
    def grid_words(self) -> str:
        return self.grid.words


def event_cells(
    holdings: Holdings, time: str, event: str, positive: float, grid: TimeGrid
) -> Integers:
    """The place of each record in a row of the censored and then the events. Beyond the last
    threshold, and where the time is missing, nobody saw an event."""
    times = holdings.column(time)
    cells = grid.places(times)
    happened = is_positive(holdings.column(event), positive) & ~np.isnan(times)
    return cells + grid.cells * (happened & (cells < grid.points))


@dataclass(frozen=True)
class EventTimesByGroup(Encoding):
    """Counts in the cells of each group's row, as `EventTimes` has them, and a last count of the
    records of all other groups."""

    time: str
    event: str
    positive: float
    grid: TimeGrid
    group: str
    names: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.time, self.event, self.group)

    @property
    def length(self) -> int:
        return 2 * self.grid.cells * len(self.names) + 1

    @property
    def sensitivity(self) -> Sensitivity:
        """A replaced record leaves one cell and enters another."""
        return Sensitivity.of_counts(2)

    @property
    def measurement(self) -> Measurement:
        return OneHot(self.length)

    def measured(self, holdings: Holdings) -> Integers:
        cells = event_cells(holdings, self.time, self.event, self.positive, self.grid)
        group = places(holdings.column(self.group), self.names)
        width = 2 * self.grid.cells
        return np.where(group < len(self.names), group * width + cells, self.length - 1)

    def encode(self, holdings: Holdings) -> Vector:
        return holdings.count_by_party(self.measured(holdings), self.length)

    @property
    def grid_step(self) -> float:
        return self.grid.step

    @property
    def grid_words(self) -> str:
        return self.grid.words
