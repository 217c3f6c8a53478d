"""Synthetic records as an estimate: rows of attribute values, drawn by their marginals."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tallyroom.protocols.privacy.laplace import Integers
from tallyroom.protocols.records import Column
from tallyroom.protocols.statistics.drawing import PRIVATE, QUIET, Beside
from tallyroom.protocols.statistics.estimates import Cells, Error, Estimate, Heads, Shape, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_DRAWN = 12
MOST_ROWS = 2
"""The most synthetic records for each real one."""


@dataclass(frozen=True)
class SyntheticRows(Shape):
    """`codes` has a row for each cell, `counts` how many records it stands for; `labels` tell what
    a column's codes mean."""

    columns: list[str]
    labels: list[list[float | str]]
    codes: Integers
    counts: Integers

    @property
    def records(self) -> int:
        return int(self.counts.sum())

    def at_most(self, records: int) -> "SyntheticRows":
        """The rows as they are, or at most so many in the same proportions: n is public, and at a
        tiny ε noise alone can make millions of rows."""
        if self.records <= records:
            return self
        shares = self.counts / float(self.records) * records
        counts = np.floor(shares).astype(np.int64)
        rest = np.argsort(counts - shares, kind="stable")[: records - int(counts.sum())]
        counts[rest] += 1
        held = counts > 0
        return SyntheticRows(self.columns, self.labels, self.codes[held], counts[held])

    def values(self) -> Column:
        """The shares of all values, one column after another."""
        return np.concatenate([self.marginal(name) for name in self.columns])

    def marginal(self, column: str) -> Column:
        """The share of each value."""
        at = self.columns.index(column)
        sums = np.bincount(self.codes[:, at], self.counts, len(self.labels[at]))
        return sums / max(self.records, 1)

    def as_json(self) -> object:
        return plain(
            {
                "columns": self.columns,
                "records": self.records,
                "cells": len(self.counts),
                "marginals": {
                    name: {"values": self.labels[at], "shares": self.marginal(name).tolist()}
                    for at, name in enumerate(self.columns)
                },
            }
        )

    def table(self) -> tuple[Heads, Cells]:
        """The rows, one for each synthetic record."""
        told = [[self.labels[at][code] for at, code in enumerate(row)] for row in self.codes]
        rows = [row for row, count in zip(told, self.counts, strict=True) for _ in range(count)]
        return list(self.columns), rows

    def error(self, truth: Estimate) -> Error:
        """The error of the shares of values, over the columns that both have."""
        if not isinstance(truth, SyntheticRows):
            raise ValueError("the truth has no rows of attributes")
        shared = [name for name in self.columns if name in truth.columns]
        apart = np.concatenate([self.marginal(name) - truth.marginal(name) for name in shared])
        return {"rmse": math.sqrt(float((apart**2).mean())), "max": float(np.abs(apart).max())}

    def draw(self, axes: "Axes", truth: Estimate | None, beside: Beside) -> None:
        """A panel for each column: the shares of its values."""
        axes.set_axis_off()
        true = truth if isinstance(truth, SyntheticRows) else None
        shown = self.columns[:MOST_DRAWN]
        across = min(len(shown), 4 if len(shown) > 6 else 3)
        down = -(-len(shown) // across)
        if true is not None:
            axes.bar([0], [0], color=QUIET, label="raw records")
        axes.plot([], [], "o", color=PRIVATE, ms=4, label=f"synthetic ({beside.label})")
        for at, name in enumerate(shown):
            left, top = (at % across) / across, 0.86 * (1 - at // across / down)
            size = (0.86 / across, 0.64 if down == 1 else 0.5 / down)
            panel = axes.inset_axes((left + 0.07 / across, top - 0.74 / down, *size))
            panel.spines[["top", "right"]].set_visible(False)
            panel.set_title(name, fontsize=8, loc="left")
            labels = [_short(each) for each in self.labels[at]]
            places = np.arange(len(labels))
            if true is not None and name in true.columns:
                panel.bar(places, true.marginal(name), color=QUIET)
            panel.plot(places, self.marginal(name), "o", color=PRIVATE, ms=3.5)
            few = len(labels) <= 8
            panel.set_xticks(places if few else [], labels if few else [], rotation=40, fontsize=6)
            panel.tick_params(axis="y", labelsize=6)
            panel.set_ylim(0, None)

    def __str__(self) -> str:
        names = ", ".join(self.columns)
        return f"{self.records} synthetic records in {len(self.counts)} cells of {names}"


def _short(label: float | str) -> str:
    text = label if isinstance(label, str) else f"{label:.4g}"
    return text if len(text) <= 10 else f"{text[:9]}…"
