"""A residual plot as an estimate: counts of cells, drawn beside the usual plot."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np

from tallyroom.protocols.privacy.laplace import Integers
from tallyroom.protocols.privacy.prirp import PlotGrid, TruePlot
from tallyroom.protocols.records import Column
from tallyroom.protocols.statistics.drawing import PRIVATE, QUIET, TRUTH, Beside
from tallyroom.protocols.statistics.estimates import Cells, Error, Estimate, Heads, Shape, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FEWEST = 0.01
"""The part of all records that a column of cells must hold for its mean to be drawn."""


@dataclass(frozen=True)
class ResidualCounts(Shape):
    """Counts by residual (rows) and fitted value, and of what lies outside. `noisy` are the cells
    that they were made of, in Hilbert's order. The truth of a simulation also has its points."""

    grid: PlotGrid
    counts: Integers
    outside: int
    noisy: Column
    truth: TruePlot | None = None

    @classmethod
    def of(cls, grid: PlotGrid, cells: Column, records: int) -> Self:
        """The plot from cells as they were released."""
        counts = grid.grid(cells, records)
        return cls(grid, counts, records - int(counts.sum()), cells)

    def merged(self, scale: float) -> "ResidualCounts":
        """The plot with neighbouring cells averaged where Laplace noise of that scale explains
        their difference, and outer columns emptied where it explains their counts
        (`PlotGrid.mended`)."""
        records = int(self.counts.sum()) + self.outside
        return ResidualCounts.of(self.grid, self.grid.mended(self.noisy, scale), records)

    @cached_property
    def points(self) -> tuple[Column, Column]:
        """S2's last step: sampled anywhere in their cells, by a public generator. It spends
        nothing."""
        if self.truth is not None:
            return self.truth.fitted, self.truth.residuals
        return self.grid.sampled(self.counts, np.random.default_rng(0))

    def values(self) -> Column:
        return self.counts.ravel().astype(np.float64)

    def as_json(self) -> object:
        across, up = self.grid.edges
        return plain(
            {
                "fitted": across.tolist(),
                "residual": up.tolist(),
                "cells": self.counts.tolist(),
                "outside": self.outside,
            }
        )

    def table(self) -> tuple[Heads, Cells]:
        """One row a cell, by its lower edges."""
        across, up = self.grid.edges
        rows: Cells = [
            [float(across[column]), float(up[row]), float(count)]
            for (row, column), count in np.ndenumerate(self.counts)
        ]
        return ["fitted from", "residual from", "count"], rows

    def error(self, truth: Estimate) -> Error:
        """S2's similarity, and the differences of the parts of points in its 100 cells. None of
        them is known where the other plot has no points: ε is spent by then, and the plot stands.
        """
        if not isinstance(truth, ResidualCounts):
            raise ValueError("no plot")
        if not len(truth.points[0]):
            return dict.fromkeys(("rmse", "max", "similarity"), math.nan)
        true = truth.truth or TruePlot(*truth.points)
        apart = np.abs(true.own_shares - true.shares(*self.points))
        return {
            "rmse": math.sqrt(float((apart**2).mean())),
            "max": float(apart.max()),
            "similarity": true.similarity(*self.points),
        }

    def trend(self) -> tuple[Column, Column, Column]:
        """The middle of each column of cells that has enough records, and the mean and standard
        deviation of its residuals, both from counts of cells alone."""
        across, up = (edges[:-1] + np.diff(edges) / 2 for edges in self.grid.edges)
        sums = self.counts.sum(axis=0)
        held = sums > max(FEWEST * sums.sum(), 0)
        shares = self.counts[:, held] / sums[held]
        means = up @ shares
        return across[held], means, np.sqrt(np.maximum(up**2 @ shares - means**2, 0.0))

    def draw(self, axes: "Axes", truth: Estimate | None, beside: Beside) -> None:
        """Points on the left, cells on the right. Where nobody knows the true points they are
        sampled from the cells."""
        axes.set_axis_off()
        true = truth.truth if isinstance(truth, ResidualCounts) else None
        points = self.points if true is None else (true.fitted, true.residuals)
        left, right = (axes.inset_axes((at, 0.02, 0.44, 0.82)) for at in (0.05, 0.56))
        name, colour = ("sampled points", PRIVATE) if true is None else ("raw records", TRUTH)
        left.plot(*points, ".", ms=2.5, alpha=0.4, mew=0, color=colour)
        left.set_title(name, fontsize=9, loc="left")
        shades = np.sqrt(self.counts)  # a few full cells must not hide the others
        right.pcolormesh(*self.grid.edges, shades, cmap="Greys", rasterized=True)
        right.set_title(f"{beside.label}: counts of cells", fontsize=9, loc="left")
        middles, means, spread = self.trend()
        right.plot(middles, means, color=PRIVATE, lw=1.6)
        for side in (-1, 1):
            right.plot(middles, means + side * spread, color=PRIVATE, lw=0.9, ls="--")
        axes.plot([], [], color=PRIVATE, label="mean residual of cells; dashed: ± its deviation")
        for each in (left, right):
            each.axhline(0.0, color=QUIET, lw=0.8)
            each.set_xlabel("fitted value", fontsize=9)
            each.set_xlim(*self._shown())
            each.set_ylim(-self.grid.residual_reach, self.grid.residual_reach)
            each.tick_params(labelsize=8)
            each.locator_params(axis="x", nbins=6)  # more would run into each other
        left.set_ylabel("residual", fontsize=9)
        right.tick_params(labelleft=False)  # the same as on the left

    def _shown(self) -> tuple[float, float]:
        """The columns of cells that hold 98 % of the points, and one more on either side."""
        across, _ = self.grid.edges
        upto = np.cumsum(self.counts.sum(axis=0))
        if not upto[-1]:
            return float(across[0]), float(across[-1])
        first, last = np.searchsorted(upto, [0.01 * upto[-1], 0.99 * upto[-1]])
        return float(across[max(first - 1, 0)]), float(across[min(last + 2, self.grid.side)])

    def __str__(self) -> str:
        side = self.grid.side
        lower, upper = self.grid.fitted
        return (
            f"{int(self.counts.sum())} points in {side} × {side} cells, fitted values within "
            f"[{lower:g}, {upper:g}], residuals within ±{self.grid.residual_reach:g}"
        )


def plot_of(fitted: Column, residuals: Column, grid: PlotGrid) -> ResidualCounts:
    """The plot of raw records."""
    cells = grid.counts(fitted, residuals).astype(np.float64)
    counted = ResidualCounts.of(grid, cells, len(fitted))
    return replace(counted, truth=TruePlot(fitted, residuals))
