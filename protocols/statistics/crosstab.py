"""Two columns of names against each other: the table with its margins, and whether they depend on
each other.

A record counts in one cell, by both its names; a name that is not listed counts as `other`. The
test is Pearson's, of the listed names alone. Noise of variance ω² in each cell makes that
Σ (O − E)²/(E + ω²), whose law is found by drawing independent tables with the same margins, with
noise of the law that was drawn.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.categories import OTHER, parse_categories
from tallyroom.protocols.cells import places
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.contract import Encoding, Integers, NoisySum, PlainSum, Plan
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.measurement import Measurement, OneHot
from tallyroom.protocols.privacy.noise_law import Sensitivity
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.contract import ReadsNames, Statistic
from tallyroom.protocols.statistics.drawing import Beside, draw_table
from tallyroom.protocols.statistics.estimates import Cells, Estimate, Heads, Shape, plain
from tallyroom.protocols.statistics.mean_tests import told_p
from tallyroom.protocols.statistics.noise_draws import drawn_noise, generator_of
from tallyroom.protocols.statistics.option import TESTS, option, role
from tallyroom.protocols.statistics.release import Answer, Noise, Release

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_CELLS = 1 << 14
DRAWS = 2000
TOTAL = "all"


@dataclass(frozen=True)
class PairsOfNames(Encoding):
    """One cell for each pair of names, those of the other names last."""

    down: str
    across: str
    down_names: tuple[str, ...]
    across_names: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.down, self.across)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.down_names) + 1, len(self.across_names) + 1

    @property
    def length(self) -> int:
        return math.prod(self.shape)

    @property
    def sensitivity(self) -> Sensitivity:
        """A replaced record leaves one cell and enters another."""
        return Sensitivity.of_counts(2)

    @property
    def measurement(self) -> Measurement:
        return OneHot(self.length)

    def measured(self, holdings: Holdings) -> Integers:
        down = places(holdings.column(self.down), self.down_names)
        across = places(holdings.column(self.across), self.across_names)
        return down * self.shape[1] + across

    def encode(self, holdings: Holdings) -> Vector:
        return holdings.count_by_party(self.measured(holdings), self.length)

    @property
    def grid_step(self) -> float:
        return 0.0

    @property
    def grid_words(self) -> str:
        return "names count exactly"


@dataclass(frozen=True)
class TwoWayTable(Shape):
    """Counts by two names, those of other names in the last row and column, with Pearson's test of
    the listed ones."""

    down: tuple[str, ...]
    across: tuple[str, ...]
    cells: Column
    statistic: float
    freedom: int
    p_value: float
    tested: bool = False
    """Whether the test alone was asked."""

    def values(self) -> Column:
        return np.array([self.statistic]) if self.tested else self.cells.ravel()

    @cached_property
    def strength(self) -> float:
        """Cramér's V of the listed names; at most 1."""
        listed = float(self.cells[:-1, :-1].sum())
        least = min(len(self.down), len(self.across)) - 1
        if listed <= 0 or math.isnan(self.statistic):
            return math.nan
        return min(math.sqrt(self.statistic / (listed * least)), 1.0)

    def as_json(self) -> object:
        told = {
            "chi_square": self.statistic,
            "freedom": self.freedom,
            "p_value": self.p_value,
            "cramers_v": self.strength,
        }
        rows, columns = [*self.down, OTHER], [*self.across, OTHER]
        whole = {"rows": rows, "columns": columns, "cells": self.cells.tolist()}
        sums = {"down": self.cells.sum(axis=1).tolist(), "across": self.cells.sum(axis=0).tolist()}
        return plain({**whole, "margins": sums, **told})

    def table(self) -> tuple[Heads, Cells]:
        """With the margins, and without what the other names have where that is nothing."""
        whole = np.column_stack([self.cells, self.cells.sum(axis=1)])
        whole = np.vstack([whole, whole.sum(axis=0)])
        names = [*self.down, OTHER, TOTAL]
        rows: Cells = [[name, *row.tolist()] for name, row in zip(names, whole, strict=True)]
        return ["", *self.across, OTHER, TOTAL], rows

    def in_rows(self, numbers: Column) -> dict[str, Column]:
        return {}

    def draw(self, axes: "Axes", truth: Estimate | None, beside: Beside) -> None:
        heads, rows = self.table()
        draw_table(axes, heads, [[_cell(each) for each in row] for row in rows])
        axes.plot([], [], " ", label=self._test_words)

    @property
    def _test_words(self) -> str:
        return f"χ² {self.statistic:.4g} with {self.freedom} df, p {told_p(self.p_value)}"

    def __str__(self) -> str:
        return f"{self._test_words}, Cramér's V {self.strength:.3g}"


def _cell(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.6g}"


@dataclass(frozen=True)
class Crosstab(ReadsNames, Statistic):
    """A table of two columns of names with its margins, and Pearson's test of independence."""

    down: str = role("down", "The column whose names are the rows.")
    across: str = role("across", "The column whose names are the columns.")
    down_names: str = option("", "The names of the rows, as A,B,C; public.")
    across_names: str = option("", "The names of the columns, as A,B,C; public.")

    name: ClassVar[str] = "crosstab"
    topic: ClassVar[str] = TESTS
    test_alone: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.down == self.across:
            raise LocalError(f"column {self.down!r} cannot be both --down and --across")
        for text in (self.down_names, self.across_names):
            if text:
                parse_categories(text)

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.down, self.across)

    @property
    def named_columns(self) -> tuple[str, ...]:
        return self.columns

    @cached_property
    def counts(self) -> PairsOfNames:
        names = []
        for flag, text in (
            ("--down-names", self.down_names),
            ("--across-names", self.across_names),
        ):
            if not text:
                raise LocalError(f"{self.name} needs public names: {flag} A,B,C")
            names.append(parse_categories(text))
            if len(names[-1]) < 2:
                raise LocalError(f"{flag} lists two names or more")
        found = PairsOfNames(self.down, self.across, *names)
        if found.length > MAX_CELLS:
            raise LocalError(f"the table has {found.length} cells; at most {MAX_CELLS} are allowed")
        return found

    def plan(self, facts: Facts) -> Plan:
        return NoisySum(self.counts, PlainSum.of(self.counts), reusable=True)

    def _table(self, cells: Column, statistic: float, p_value: float) -> TwoWayTable:
        down, across = self.counts.down_names, self.counts.across_names
        freedom = (len(down) - 1) * (len(across) - 1)
        return TwoWayTable(down, across, cells, statistic, freedom, p_value, self.test_alone)

    def read(self, release: Release) -> Answer:
        cells = release.integers.astype(np.float64).reshape(self.counts.shape)
        if (noise := release.noise) is None:
            table = self._exact(cells)
            return release.without_errors(table) if self.test_alone else release.counts(table)
        table = self._table(cells, *_with_noise(cells, release, noise))
        if self.test_alone:
            return release.without_errors(table, "the p-value includes the noise")
        return release.counts(table)

    def _exact(self, cells: Column) -> TwoWayTable:
        """Pearson's test without noise; rows and columns that are empty do not count."""
        from scipy.stats import chi2  # slow to load

        listed = cells[:-1, :-1]
        down, across = listed.any(axis=1).sum(), listed.any(axis=0).sum()
        freedom = int((down - 1) * (across - 1))
        if freedom < 1:
            return self._table(cells, math.nan, math.nan)
        statistic = float(pearson(listed, 0.0))
        found = self._table(cells, statistic, float(chi2.sf(statistic, freedom)))
        return replace(found, freedom=freedom)

    def reference(self, holdings: Holdings) -> Estimate:
        cells = self.counts.measured(holdings)
        counted = np.bincount(cells, minlength=self.counts.length).astype(np.float64)
        return self._exact(counted.reshape(self.counts.shape))


@dataclass(frozen=True)
class ChiSquare(Crosstab):
    """Whether two columns of names depend on each other: Pearson's test."""

    name: ClassVar[str] = "chi-square"
    test_alone: ClassVar[bool] = True


def expected(cells: Column) -> Column:
    """Of independent names with these margins; cells are the last two axes."""
    down = np.maximum(cells.sum(axis=-1, keepdims=True), 0.0)
    across = np.maximum(cells.sum(axis=-2, keepdims=True), 0.0)
    whole = np.maximum(down.sum(axis=-2, keepdims=True), 1e-9)
    other = np.maximum(across.sum(axis=-1, keepdims=True), 1e-9)
    found: Column = down * across / np.sqrt(whole * other)
    return found


def pearson(cells: Column, variance: float) -> Column:
    """Σ (O − E)²/(E + ω²)."""
    due = expected(cells)
    whole = due + variance
    parts = np.divide((cells - due) ** 2, whole, out=np.zeros_like(due), where=whole > 0)
    found: Column = parts.sum(axis=(-1, -2))
    return found


def _with_noise(cells: Column, release: Release, noise: Noise) -> tuple[float, float]:
    """The statistic, and the share of draws of independent tables whose statistic is as large."""
    generator, listed = generator_of(release.values), cells[:-1, :-1]
    variance = float(np.mean(noise.deviations(cells.size) ** 2))
    due = expected(listed)
    whole = max(round(float(due.sum())), 0)
    if whole == 0:
        return math.nan, math.nan
    chances = (due / due.sum()).ravel()
    drawn = generator.multinomial(whole, chances, size=DRAWS).reshape(DRAWS, *listed.shape)
    added = drawn_noise(noise, (DRAWS, *cells.shape), generator, last=2)[:, :-1, :-1]
    null = pearson(drawn + added, variance)
    statistic = float(pearson(listed, variance))
    return statistic, float((1 + np.count_nonzero(null >= statistic)) / (1 + DRAWS))
