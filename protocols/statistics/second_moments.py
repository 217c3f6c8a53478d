"""Covariances and correlations of several columns, from one release of the sums that a linear
regression takes (`linear_regression.Products`).

Noise (e, E) of variance s² on the sums of z and of zzᵀ moves n times a covariance by
E_ij − m_j·e_i − m_i·e_j − e_i·e_j/n, where m are the means. Intervals of covariances follow from
that, those of correlations on Fisher's scale atanh(r), to first order. Sampling adds
(S_ii·S_jj + S_ij²)/(n − 1) to the variance of a covariance, and 1/(n − 3) to that of atanh(r), as
it does where columns are as good as normal.

The p-value of a correlation is the share of drawn releases of uncorrelated columns, with the noise
that was drawn, whose covariance is at least as far from 0.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.contract import NoisySum, PlainSum
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.interval import NORMAL, Interval
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.bounded import MAX_COLUMNS, Ranged, finite_column
from tallyroom.protocols.statistics.drawing import Beside, draw_table
from tallyroom.protocols.statistics.estimates import Cells, Estimate, Heads, Shape, plain
from tallyroom.protocols.statistics.linear_regression import MAX_RECORDS, STEPS, Products
from tallyroom.protocols.statistics.mean_tests import told_p
from tallyroom.protocols.statistics.noise_draws import drawn_noise, generator_of
from tallyroom.protocols.statistics.option import RELATIONS, role
from tallyroom.protocols.statistics.release import ANYWHERE, Answer, Noise, Release

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Matrix = NDArray[np.float64]

DRAWS = 2000
SURE = 1 - 1e-9
"""Fisher's scale ends before a correlation of 1."""
CONSTANT = 1e-15
"""Without noise, a smaller variance of columns scaled to [−1, 1] is rounding."""


@dataclass(frozen=True)
class OfPairsOfColumns(Shape):
    """A symmetric table of columns by columns. Of covariances the diagonal is part of the answer;
    of correlations, which are 1 there, `p_values` are known."""

    names: tuple[str, ...]
    cells: Matrix
    p_values: Matrix | None = None

    @property
    def _pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        rows, columns = np.triu_indices(len(self.names), 0 if self.p_values is None else 1)
        return rows, columns

    def values(self) -> Column:
        found: Column = self.cells[self._pairs]
        return found

    def as_json(self) -> object:
        told: dict[str, object] = {"columns": list(self.names), "cells": self.cells.tolist()}
        if self.p_values is not None:
            told["p_values"] = self.p_values.tolist()
        return plain(told)

    def table(self) -> tuple[Heads, Cells]:
        """A row for each pair of columns."""
        rows: Cells = []
        for one, two in zip(*self._pairs, strict=True):
            row: list[float | str] = [self.names[one], self.names[two], float(self.cells[one, two])]
            rows.append(row if self.p_values is None else [*row, float(self.p_values[one, two])])
        heads = ["column", "with", "covariance" if self.p_values is None else "correlation"]
        return (heads if self.p_values is None else [*heads, "p"]), rows

    def draw(self, axes: "Axes", truth: Estimate | None, beside: Beside) -> None:
        """The table as colours, with its numbers."""
        if not np.isfinite(self.cells).all():
            heads, rows = self.table()
            draw_table(axes, heads, [[_cell(each) for each in row] for row in rows])
            return
        scale = np.sqrt(np.maximum(np.diag(self.cells), 1e-300))
        colours = np.clip(self.cells / np.outer(scale, scale), -1.0, 1.0)
        axes.imshow(colours, cmap="RdBu_r", vmin=-1.0, vmax=1.0)
        at = range(len(self.names))
        axes.set_xticks(at, list(self.names), rotation=30, ha="right")
        axes.set_yticks(at, list(self.names))
        axes.grid(False)
        for (row, column), cell in np.ndenumerate(self.cells):
            dark = abs(colours[row, column]) > 0.6
            axes.text(
                column, row, f"{cell:.3g}", ha="center", va="center", color="w" if dark else "k"
            )

    def __str__(self) -> str:
        told = []
        for row in self.table()[1][:8]:
            end = "" if self.p_values is None else f" (p {told_p(float(row[3]))})"
            told.append(f"{row[0]}, {row[1]}: {row[2]:.6g}{end}")
        more = "; …" if len(self.table()[1]) > 8 else ""
        return "; ".join(told) + more


def _cell(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.6g}"


@dataclass(frozen=True)
class Moments:
    """Covariances of scaled columns, of so many records, with `noise` of that variance in each sum
    of products; `hidden` are the columns whose spread noise hides."""

    records: int
    means: Column
    covariances: Matrix
    noise: float
    hidden: tuple[int, ...]

    @classmethod
    def of(cls, gram: Matrix, noise: float) -> "Moments":
        """From the sums of products of (1, z). A column varies at least as much as noise alone
        would show."""
        records = gram[0, 0]
        means = np.clip(gram[0, 1:] / records, -1.0, 1.0)
        centred = gram[1:, 1:] - np.outer(gram[0, 1:], gram[0, 1:]) / records
        centred = centred + noise / records * np.eye(len(means))
        squares, least = np.diag(centred).copy(), 2 * math.sqrt(noise)
        hidden = tuple(np.flatnonzero(squares < least).tolist())
        np.fill_diagonal(centred, np.maximum(squares, least))
        return cls(round(records), means, centred / max(records - 1, 1.0), noise, hidden)

    def noise_covariance(self, one: tuple[int, int], two: tuple[int, int]) -> float:
        """The covariance, by the noise, of two covariances times n − 1, to first order."""
        (i, j), (k, m) = one, two
        shared = 1.0 if {i, j} == {k, m} and len({i, j}) == len({k, m}) else 0.0
        weights = np.zeros((2, len(self.means)))
        for row, (a, b) in enumerate((one, two)):
            weights[row, a] += self.means[b]
            weights[row, b] += self.means[a]
        return self.noise * (shared + float(weights[0] @ weights[1]))


@dataclass(frozen=True)
class Covariance(Ranged):
    """Covariances of every two of several columns, and their variances."""

    column: tuple[str, ...] = role(("x", "y"), "A column; repeat it for more.", bounded=True)

    name: ClassVar[str] = "covariance"
    topic: ClassVar[str] = RELATIONS

    def __post_init__(self) -> None:
        if not self.column or len(set(self.column)) != len(self.column):
            raise LocalError("--column names one column or more, each once")
        if len(self.column) > MAX_COLUMNS:
            raise LocalError(f"{self.name} takes at most {MAX_COLUMNS} columns")
        super().__post_init__()

    @property
    def columns(self) -> tuple[str, ...]:
        return self.column

    @cached_property
    def _half(self) -> Column:
        return self.scaling[1]

    def plan(self, facts: Facts) -> NoisySum:
        if facts.records > MAX_RECORDS:
            raise LocalError(f"{self.name} takes up to {MAX_RECORDS} records, not {facts.records}")
        products = Products(self.scaled)
        sums = "columns within [-1, 1] and of their products"
        return NoisySum(products, PlainSum.of(products, unit=STEPS**-2, summed=sums), reusable=True)

    def moments(self, release: Release) -> Moments:
        gram = np.zeros((len(self.column) + 1,) * 2)
        gram[Products(self.scaled).pairs] = release.integers / STEPS**2
        gram = gram + np.triu(gram, 1).T
        gram[0, 0] = release.records
        variance = 0.0 if release.noise is None else release.noise.variance / STEPS**4
        return Moments.of(gram, variance)

    def read(self, release: Release) -> Answer:
        moments, records = self.moments(release), release.records
        in_units = np.outer(self._half, self._half)
        estimate = self.told(moments.covariances * in_units)
        values, rows = estimate.values(), estimate._pairs
        squares = np.diag(moments.covariances)
        sampled = (np.outer(squares, squares) + moments.covariances**2) / max(records - 1, 1)
        sampling = (np.sqrt(sampled) * in_units)[rows]
        span = ANYWHERE
        if (noise := release.noise) is None:
            population = Interval.sampled(values, None, sampling, span)
            return Answer(estimate, None, records, foretold=True, population=population)
        errors = [
            math.sqrt(moments.noise_covariance(pair, pair) + self._squared(moments, pair))
            for pair in zip(*(each.tolist() for each in rows), strict=True)
        ]
        drawn = np.array(errors) / max(records - 1, 1) * in_units[rows]
        interval = Interval.around(values, drawn, noise.width(), span)
        population = Interval.sampled(values, interval, sampling, span)
        return Answer(estimate, interval, records, self._remarks(moments), population=population)

    def _squared(self, moments: Moments, pair: tuple[int, int]) -> float:
        """The variance of e_i·e_j/n."""
        return (1 + (pair[0] == pair[1])) * (moments.noise / max(moments.records, 1)) ** 2

    def _remarks(self, moments: Moments) -> tuple[str, ...]:
        return tuple(
            f"noise hides how much column {self.column[each]!r} varies: correlations with it are "
            "told closer to 0 than they are"
            for each in moments.hidden
        )

    def told(self, covariances: Matrix) -> OfPairsOfColumns:
        return OfPairsOfColumns(self.column, covariances)

    def reference(self, holdings: Holdings) -> Estimate:
        raw = np.stack([finite_column(holdings, name) for name in self.column])
        with np.errstate(all="ignore"):
            return self.of_raw(raw)

    def of_raw(self, raw: Matrix) -> Estimate:
        """A row for each column, as numpy has it."""
        freedom = max(raw.shape[1] - 1, 1)
        apart = raw - raw.mean(axis=1, keepdims=True)
        return self.told(apart @ apart.T / freedom)


@dataclass(frozen=True)
class Correlation(Covariance):
    """Pearson's correlation of every two of several columns, with p-values."""

    name: ClassVar[str] = "correlation"

    def __post_init__(self) -> None:
        if len(self.column) < 2:
            raise LocalError("--column names two columns or more")
        super().__post_init__()

    def read(self, release: Release) -> Answer:
        moments, records = self.moments(release), release.records
        if (noise := release.noise) is None:
            covariances = moments.covariances
            flat = np.diag(covariances) < CONSTANT
            covariances[flat] = covariances[:, flat] = math.nan
            estimate = self._of(covariances, records)
            interval = None
        else:
            correlations = _correlations(moments.covariances)
            p_values = self._p_values(release, noise, moments)
            estimate = OfPairsOfColumns(self.column, correlations, p_values)
            interval = self._interval(estimate, moments, noise)
        values = estimate.values()
        population = _on_fishers_scale(values, interval, records)
        remarks = () if noise is None else self._remarks(moments)
        return Answer(
            estimate, interval, records, remarks, foretold=noise is None, population=population
        )

    def _interval(self, estimate: OfPairsOfColumns, moments: Moments, noise: Noise) -> Interval:
        """Noise moves r by Δ_ij/√(S_ii·S_jj) − r/2·(Δ_ii/S_ii + Δ_jj/S_jj), to first order."""
        records = max(moments.records - 1, 1)
        squares, errors = np.diag(moments.covariances) * records, []
        for i, j in zip(*(each.tolist() for each in estimate._pairs), strict=True):
            r, scale = float(estimate.cells[i, j]), math.sqrt(squares[i] * squares[j])
            moved = [
                ((i, j), 1 / scale),
                ((i, i), -r / 2 / squares[i]),
                ((j, j), -r / 2 / squares[j]),
            ]
            variance = sum(
                a * b * moments.noise_covariance(one, two) for one, a in moved for two, b in moved
            )
            errors.append(math.sqrt(variance + self._squared(moments, (i, j)) / scale**2))
        values = estimate.values()
        deviations = np.array(errors)
        bend = np.maximum(1 - values**2, 1e-9)
        reach = noise.width() * deviations / bend
        ends = np.arctanh(np.clip(values, -SURE, SURE))
        return Interval(deviations, np.tanh(ends - reach), np.tanh(ends + reach)).holding(values)

    def _p_values(self, release: Release, noise: Noise, moments: Moments) -> Matrix:
        records, generator = release.records, generator_of(release.values)
        size = len(self.column)
        squares = np.diag(moments.covariances)
        found = np.zeros((size, size))
        in_sums = np.zeros((DRAWS, size + 1, size + 1))
        rows, columns = Products(self.scaled).pairs
        drawn = drawn_noise(noise, (DRAWS, len(release.values)), generator) / STEPS**2
        in_sums[:, rows, columns] = drawn
        single = in_sums[:, 0, 1:]
        for i, j in zip(*np.triu_indices(size, 1), strict=True):
            by_chance = generator.normal(size=DRAWS) * np.sqrt(squares[i] * squares[j] * records)
            null = by_chance + in_sums[:, i + 1, j + 1]
            null -= moments.means[j] * single[:, i] + moments.means[i] * single[:, j]
            null -= single[:, i] * single[:, j] / max(records, 1)
            own = abs(moments.covariances[i, j]) * (records - 1)
            share = (1 + np.count_nonzero(np.abs(null) >= own)) / (1 + DRAWS)
            found[i, j] = found[j, i] = share
        return found

    def _of(self, covariances: Matrix, records: int) -> OfPairsOfColumns:
        """Without noise: p-values by Student's law."""
        from scipy.stats import t as student  # slow to load

        correlations, freedom = _correlations(covariances), records - 2
        p_values = np.full(correlations.shape, math.nan)
        if freedom > 0:
            with np.errstate(divide="ignore"):
                scaled = np.abs(correlations) * np.sqrt(freedom / (1 - correlations**2))
            p_values = np.asarray(2 * student.sf(scaled, freedom))
        np.fill_diagonal(p_values, 0.0)
        return OfPairsOfColumns(self.column, correlations, p_values)

    def of_raw(self, raw: Matrix) -> Estimate:
        apart = raw - raw.mean(axis=1, keepdims=True)
        apart[np.ptp(raw, axis=1) == 0] = math.nan
        return self._of(apart @ apart.T, raw.shape[1])


def _correlations(covariances: Matrix) -> Matrix:
    scale = np.sqrt(np.diag(covariances))
    found: Matrix = np.clip(covariances / np.outer(scale, scale), -1.0, 1.0)
    np.fill_diagonal(found, np.where(np.isnan(scale), math.nan, 1.0))
    return found


def _on_fishers_scale(values: Column, noise: Interval | None, records: int) -> Interval:
    """The interval of the noise, widened by sampling."""
    sampling = 1 / math.sqrt(max(records - 3, 1e-9))
    place = np.arctanh(np.clip(values, -SURE, SURE))
    low, high = (place, place) if noise is None else map(_bounded_place, (noise.low, noise.high))
    errors = np.zeros(len(values)) if noise is None else noise.errors
    return Interval(
        np.hypot(errors, np.minimum((1 - values**2) * sampling, 1.0)),
        np.tanh(place - np.hypot(place - low, NORMAL * sampling)),
        np.tanh(place + np.hypot(high - place, NORMAL * sampling)),
        covers="population",
    )


def _bounded_place(ends: Column) -> Column:
    found: Column = np.arctanh(np.clip(ends, -SURE, SURE))
    return found
