"""Estimates of several groups, side by side."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from tallyroom.protocols.records import Column
from tallyroom.protocols.statistics import drawing
from tallyroom.protocols.statistics.drawing import Beside
from tallyroom.protocols.statistics.estimates import (
    MOST_SHOWN,
    Bins,
    Cells,
    Counts,
    Curve,
    Curves,
    Error,
    Estimate,
    Heads,
    Number,
    Shape,
    plain,
    shape_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_DRAWN = 24
"""Groups whose curves are drawn."""


@dataclass(frozen=True)
class OfEachGroup(Shape):
    """An estimate for each group, all of one shape. It has a name in each of the columns `by`."""

    by: tuple[str, ...]
    groups: list[tuple[str, ...]]
    estimates: list[Estimate]

    @property
    def shapes(self) -> list[Shape]:
        return [shape_of(each) for each in self.estimates]

    @property
    def names(self) -> list[str]:
        return [", ".join(group) for group in self.groups]

    def values(self) -> Column:
        return np.concatenate([np.empty(0), *(each.values() for each in self.shapes)])

    def as_json(self) -> object:
        return {
            "by": list(self.by),
            "groups": [list(group) for group in self.groups],
            "estimates": [plain(each) for each in self.estimates],
        }

    def table(self) -> tuple[Heads, Cells]:
        heads = ["estimate" if head == "value" else head for head in self.shapes[0].table()[0]]
        rows: Cells = [
            [*group, *row]
            for group, each in zip(self.groups, self.shapes, strict=True)
            for row in each.table()[1]
        ]
        return [*self.by, *heads], rows

    def in_rows(self, numbers: Column) -> dict[str, Column]:
        sizes = [len(each.values()) for each in self.shapes]
        if sum(sizes) != len(numbers):
            return {}
        parts = np.split(numbers, np.cumsum(sizes)[:-1])
        found = [each.in_rows(part) for each, part in zip(self.shapes, parts, strict=True)]
        return {name: np.concatenate([each[name] for each in found]) for name in found[0]}

    def error(self, truth: "Estimate") -> Error:
        """Of the groups that have records: of others there is nothing to be told."""
        if not isinstance(truth, OfEachGroup) or truth.groups != self.groups:
            raise ValueError("the truth has other groups")
        pairs = zip(self.estimates, truth.estimates, strict=True)
        told = [(one, two) for one, two in pairs if not np.isnan(shape_of(two).values()).all()]
        ours, theirs = (replace(self, estimates=[pair[side] for pair in told]) for side in (0, 1))
        return Shape.error(ours, theirs)

    def beside(self, estimate: "Estimate") -> Self:
        if not isinstance(estimate, OfEachGroup) or estimate.groups != self.groups:
            return self
        pairs = zip(self.estimates, estimate.estimates, strict=True)
        told = [one.beside(other) if isinstance(one, Shape) else one for one, other in pairs]
        return replace(self, estimates=told)

    def draw(self, axes: "Axes", truth: "Estimate | None", beside: Beside) -> None:
        """Numbers stand below one another; curves are drawn over one another."""
        true = truth if isinstance(truth, OfEachGroup) else None
        if all(isinstance(each, Number) for each in self.shapes):
            told = None if true is None else Counts(self.names, true.values().tolist())
            counts = Counts(self.names, self.values().tolist())
            drawing.draw_counts(axes, counts, told, beside)
            axes.set_xlabel(beside.name)
        elif (curves := self._curves()) is not None:
            drawing.draw_curves(axes, curves, None if true is None else true._curves(), beside)
        elif all(each.overlaid for each in self.shapes):
            self._draw_over_one_another(axes, true, beside)
        else:
            heads, rows = self.table()
            texts = [[c if isinstance(c, str) else f"{c:.6g}" for c in row] for row in rows]
            drawing.draw_table(axes, heads, texts)

    def _draw_over_one_another(
        self, axes: "Axes", truth: "OfEachGroup | None", beside: Beside
    ) -> None:
        ends = np.cumsum([len(each.values()) for each in self.shapes])
        for place, (name, each) in enumerate(
            zip(self.names[:MOST_DRAWN], self.shapes, strict=False)
        ):
            part = slice(ends[place] - len(each.values()), ends[place])
            interval = None if beside.interval is None else beside.interval.part(part)
            true = None if truth is None else truth.estimates[place]
            each.draw_over(axes, name, place, true, replace(beside, interval=interval))

    def _curves(self) -> Curves | None:
        found = {}
        for name, each in list(zip(self.names, self.shapes, strict=True))[:MOST_DRAWN]:
            if not isinstance(each, Curve):
                return None
            x = np.array([*each.x, each.end]) if isinstance(each, Bins) else np.array(each.x)
            if isinstance(each, Bins):
                x = (x[:-1] + x[1:]) / 2
            found[name] = Curve(x.tolist(), each.y)
        return Curves(found)

    def __str__(self) -> str:
        told = [f"{name}: {each}" for name, each in zip(self.names, self.shapes, strict=True)]
        more = f"; … ({len(told)} groups)" if len(told) > MOST_SHOWN else ""
        return "; ".join(told[:MOST_SHOWN]) + more
