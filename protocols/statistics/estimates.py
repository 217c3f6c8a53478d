"""The shapes of estimates: a number, a curve, several curves, a table, a grid of cells, rows.

Each knows its error against a truth of the same shape, its JSON, its rows as a table and how it is
drawn. A plain float is a number (`shape_of`).
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from tallyroom.protocols.records import Column
from tallyroom.protocols.statistics import drawing
from tallyroom.protocols.statistics.drawing import Beside

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Error = dict[str, float]
Heads = list[str]
Cells = list[list[float | str]]

MOST_SHOWN = 8


class Shape(ABC):
    """The shape of an estimate."""

    scalar = False
    """Whether the estimate is one number, which is shown beside its truth."""

    @abstractmethod
    def values(self) -> Column:
        """All its numbers that contain noise, in order."""

    @abstractmethod
    def as_json(self) -> object:
        """The estimate as `--json` prints it; numbers that are not finite are written `inf` or
        `nan`."""

    @abstractmethod
    def table(self) -> tuple[Heads, Cells]:
        """The estimate as a table: the heads of its columns, and its rows."""

    def in_rows(self, numbers: Column) -> dict[str, Column]:
        """Assigns numbers that belong to `values` to the rows of the table, under the name of their
        column; the name is empty where a row has one value. Returns nothing if the numbers do not
        fit."""
        whole = len(self.values()) == len(numbers) == len(self.table()[1])
        return {"": numbers} if whole else {}

    @abstractmethod
    def draw(self, axes: "Axes", truth: "Estimate | None", beside: Beside) -> None:
        """Draws the estimate, and the truth if it is known and has the same shape."""

    overlaid: ClassVar[bool] = False
    """Whether those of several groups are drawn over one another, by `draw_over`."""

    def draw_over(
        self,
        axes: "Axes",
        name: str,
        place: int,
        truth: "Estimate | None",
        beside: Beside,
    ) -> None:
        """Draws it as one of several, with its name and in the colour of its place; its truth is
        dashed."""
        raise NotImplementedError

    def beside(self, estimate: "Estimate") -> Self:
        """The truth as it is told beside an estimate."""
        return self

    def error(self, truth: "Estimate") -> Error:
        """Root mean square and largest difference. Raises ValueError for another shape."""
        return _distance(self.values(), shape_of(truth).values())

    def __str__(self) -> str:
        values = self.values()
        shown = ", ".join(f"{value:.6g}" for value in values[:MOST_SHOWN])
        return f"{shown}, … ({len(values)} values)" if len(values) > MOST_SHOWN else shown


@dataclass(frozen=True)
class Number(Shape):
    value: float

    scalar = True

    def values(self) -> Column:
        return np.array([self.value])

    def as_json(self) -> object:
        return plain(self.value)

    def table(self) -> tuple[Heads, Cells]:
        return ["value"], [[self.value]]

    def draw(self, axes: "Axes", truth: "Estimate | None", beside: Beside) -> None:
        true = None if truth is None else float(shape_of(truth).values()[0])
        drawing.draw_number(axes, self.value, true, beside)

    def __str__(self) -> str:
        return f"{self.value:.8g}"


@dataclass(frozen=True)
class Curve(Shape):
    x: list[float]
    y: list[float]

    def values(self) -> Column:
        return np.asarray(self.y, dtype=np.float64)

    def as_json(self) -> object:
        return {"x": plain(self.x), "y": plain(self.y)}

    def table(self) -> tuple[Heads, Cells]:
        return ["x", "y"], [[x, y] for x, y in zip(self.x, self.y, strict=True)]

    def draw(self, axes: "Axes", truth: "Estimate | None", beside: Beside) -> None:
        true = truth if isinstance(truth, Curve) else None
        drawing.draw_curve(axes, self, true, beside)


@dataclass(frozen=True)
class Bins(Curve):
    """Counts in bins by their left edges; the last one ends at `end`."""

    end: float = math.nan

    @property
    def right(self) -> list[float]:
        return [*self.x[1:], self.end]

    def table(self) -> tuple[Heads, Cells]:
        rows = zip(self.x, self.right, self.y, strict=True)
        return ["from", "to", "count"], [list(row) for row in rows]


@dataclass(frozen=True)
class Counts(Shape):
    """Counts by name."""

    names: list[str]
    y: list[float]

    def values(self) -> Column:
        return np.asarray(self.y, dtype=np.float64)

    def as_json(self) -> object:
        return {"x": self.names, "y": plain(self.y)}

    def table(self) -> tuple[Heads, Cells]:
        return ["name", "count"], [[name, y] for name, y in zip(self.names, self.y, strict=True)]

    def draw(self, axes: "Axes", truth: "Estimate | None", beside: Beside) -> None:
        drawing.draw_counts(axes, self, truth if isinstance(truth, Counts) else None, beside)

    def __str__(self) -> str:
        pairs = list(zip(self.names, self.y, strict=True))
        shown = ", ".join(f"{name} {y:.6g}" for name, y in pairs[:MOST_SHOWN])
        return f"{shown}, … ({len(pairs)} names)" if len(pairs) > MOST_SHOWN else shown


@dataclass(frozen=True)
class Curves(Shape):
    """Several curves by name; the truth has the same names."""

    named: dict[str, Curve]

    def values(self) -> Column:
        return np.concatenate([np.empty(0), *(curve.values() for curve in self.named.values())])

    def as_json(self) -> object:
        return {name: curve.as_json() for name, curve in self.named.items()}

    def table(self) -> tuple[Heads, Cells]:
        rows: Cells = [
            [name, x, y]
            for name, curve in self.named.items()
            for x, y in zip(curve.x, curve.y, strict=True)
        ]
        return ["curve", "x", "y"], rows

    def error(self, truth: "Estimate") -> Error:
        if not isinstance(truth, Curves) or truth.named.keys() != self.named.keys():
            raise ValueError("the truth has curves of other names")
        ordered = Curves({name: truth.named[name] for name in self.named})
        return _distance(self.values(), ordered.values())

    def draw(self, axes: "Axes", truth: "Estimate | None", beside: Beside) -> None:
        drawing.draw_curves(axes, self, truth if isinstance(truth, Curves) else None, beside)


@dataclass(frozen=True)
class Table(Shape):
    """Numbers by the names of their row and column."""

    rows: list[str]
    columns: list[str]
    cells: list[list[float]]

    def values(self) -> Column:
        return np.array(self.cells, dtype=np.float64).ravel()

    def as_json(self) -> object:
        return {"rows": self.rows, "columns": self.columns, "cells": plain(self.cells)}

    def table(self) -> tuple[Heads, Cells]:
        rows: Cells = [[name, *cells] for name, cells in zip(self.rows, self.cells, strict=True)]
        return ["", *self.columns], rows

    def draw(self, axes: "Axes", truth: "Estimate | None", beside: Beside) -> None:
        drawing.draw_table(axes, *_text(self.table()))


@dataclass(frozen=True)
class CellGrid(Shape):
    """Numbers in cells between the edges `x` and `y`; one list of cells for each step of y."""

    x: list[float]
    y: list[float]
    cells: list[list[float]]

    def values(self) -> Column:
        return np.array(self.cells, dtype=np.float64).ravel()

    def as_json(self) -> object:
        return {"x": plain(self.x), "y": plain(self.y), "cells": plain(self.cells)}

    def table(self) -> tuple[Heads, Cells]:
        """One row for each cell, by its lower edges."""
        rows: Cells = [
            [x, y, cell]
            for y, cells in zip(self.y, self.cells, strict=False)
            for x, cell in zip(self.x, cells, strict=False)
        ]
        return ["x", "y", "cell"], rows

    def draw(self, axes: "Axes", truth: "Estimate | None", beside: Beside) -> None:
        drawing.draw_grid(axes, self, beside)


@dataclass(frozen=True)
class Rows(Shape):
    """Rows as they were found; their number and their keys are part of the answer.

    The first `key` columns say what a row is about; the others are numbers. A row that only the
    estimate or only the truth has counts as a difference of all its numbers."""

    columns: list[str]
    rows: Cells
    key: int = 1

    def values(self) -> Column:
        return np.array([float(cell) for row in self.rows for cell in row[self.key :]])

    def as_json(self) -> object:
        return {"columns": self.columns, "rows": plain(self.rows)}

    def table(self) -> tuple[Heads, Cells]:
        return self.columns, self.rows

    def error(self, truth: "Estimate") -> Error:
        if not isinstance(truth, Rows) or truth.columns != self.columns or truth.key != self.key:
            raise ValueError("the truth has rows of other columns")
        ours, theirs = self._by_key(), truth._by_key()
        none = np.zeros(len(self.columns) - self.key)
        keys = sorted({*ours, *theirs}, key=repr)
        one, two = ([side.get(key, none) for key in keys] for side in (ours, theirs))
        return _distance(np.array(one).ravel(), np.array(two).ravel())

    def _by_key(self) -> dict[tuple[float | str, ...], Column]:
        return {
            tuple(row[: self.key]): np.array([float(cell) for cell in row[self.key :]])
            for row in self.rows
        }

    def draw(self, axes: "Axes", truth: "Estimate | None", beside: Beside) -> None:
        drawing.draw_table(axes, *_text(self.table()))

    def __str__(self) -> str:
        shown = "; ".join(" ".join(row) for row in _text(self.table())[1][:MOST_SHOWN])
        return f"{shown}; … ({len(self.rows)} rows)" if len(self.rows) > MOST_SHOWN else shown


Estimate = float | Shape


def shape_of(estimate: Estimate) -> Shape:
    """Wraps a plain number as a shape; returns any other estimate as it is."""
    return estimate if isinstance(estimate, Shape) else Number(float(estimate))


def error_of(estimate: Estimate, truth: Estimate | None) -> Error | None:
    """The error against the truth; None if the truth is not known."""
    return None if truth is None else shape_of(estimate).error(truth)


def plain(value: object) -> object:
    """The value as JSON: numbers that are not finite are written `inf`, `-inf` or `nan`."""
    match value:
        case Shape():
            return value.as_json()
        case dict():
            return {key: plain(each) for key, each in value.items()}
        case list():
            return [plain(each) for each in value]
        case float() if not math.isfinite(value):
            return str(value)
    return value


def _distance(one: Column, two: Column) -> Error:
    if one.shape != two.shape:
        raise ValueError(f"{one.size} values against {two.size}")
    if not one.size:
        return {"rmse": 0.0, "max": 0.0}
    with np.errstate(invalid="ignore"):  # two infinite entropies agree
        difference = np.where(one == two, 0.0, np.abs(one - two))
    return {"rmse": math.sqrt(float(np.mean(difference**2))), "max": float(difference.max())}


def _text(table: tuple[Heads, Cells]) -> tuple[Heads, list[list[str]]]:
    heads, rows = table
    return heads, [
        [cell if isinstance(cell, str) else f"{cell:.6g}" for cell in row] for row in rows
    ]
