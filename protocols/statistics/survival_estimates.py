"""The shape of a survival curve and of a cumulative hazard, with the number at risk."""

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from tallyroom.protocols.records import Column
from tallyroom.protocols.statistics.drawing import PRIVATE, QUIET, SEVERAL, TRUTH, Beside
from tallyroom.protocols.statistics.estimates import (
    Cells,
    Error,
    Estimate,
    Heads,
    Shape,
    plain,
)
from tallyroom.protocols.statistics.life_table import PRODUCT_LIMIT, LifeTable, falls_to

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_AT_RISK = 6
"""How many numbers at risk are written below a curve."""
MOST_LETTERS = 12
ROW = 0.06
"""The height of a row of numbers, as a share of that of the axes."""
LOOKED_AT = 1000


@dataclass(frozen=True)
class TimeCurve(Shape):
    """A curve over time from a life table, told at its thresholds. `whole` is that of the truth,
    with all times."""

    table_of: LifeTable
    whole: LifeTable | None = None

    up: ClassVar[str]
    begins: ClassVar[float]

    @staticmethod
    @abstractmethod
    def curve(table: LifeTable) -> Column:
        """The curve at the thresholds of a life table."""

    def values(self) -> Column:
        return self.curve(self.table_of)

    @property
    def x(self) -> Column:
        return self.table_of.ends

    def at(self, times: Column) -> Column:
        """The curve at any times: constant between those of a product limit, straight between
        thresholds else, and as at the last one beyond it."""
        found = self.whole or self.table_of
        x, y = np.append(found.start, found.ends), np.append(self.begins, self.curve(found))
        if found.method == PRODUCT_LIMIT:
            return y[np.searchsorted(found.ends, times, side="right")]
        between: Column = np.interp(times, x, y)
        return between

    def beside(self, estimate: Estimate) -> Self:
        """The truth at the thresholds of the estimate that it is compared with."""
        if not isinstance(estimate, TimeCurve) or (whole := self.whole) is None:
            return self
        ends = estimate.table_of.ends
        return replace(self, table_of=_coarser(whole, estimate.table_of.start, ends))

    def as_json(self) -> object:
        table = self.table_of
        return plain(
            {
                "x": table.ends.tolist(),
                "y": self.values().tolist(),
                "at_risk": table.at_risk[:-1].tolist(),
                "events": table.events.tolist(),
                "censored": table.censored.tolist(),
                "followed_beyond": float(table.beyond),
            }
        )

    def table(self) -> tuple[Heads, Cells]:
        table = self.table_of
        columns = (table.ends, self.values(), table.at_risk, table.events, table.censored)
        rows = zip(*(each.tolist() for each in columns), strict=False)
        return ["time", self.up, "at risk", "events", "censored"], [list(row) for row in rows]

    def in_rows(self, numbers: Column) -> dict[str, Column]:
        return {self.up: numbers} if len(numbers) == len(self.values()) else {}

    def error(self, truth: Estimate) -> Error:
        """The error at the thresholds, and over all times up to the last of them: `over_time`."""
        if type(truth) is not type(self) or not isinstance(truth, TimeCurve):
            raise ValueError("the truth is a curve of another kind")
        found = super().error(truth)
        table = self.table_of
        last = table.ends[-1] if truth.whole is None else min(table.ends[-1], truth.whole.ends[-1])
        times = np.linspace(table.start, max(last, table.start), LOOKED_AT + 1)
        apart = self.at(times) - truth.at(times)
        return {**found, "over_time": float(np.sqrt(np.mean(apart**2)))}

    overlaid: ClassVar[bool] = True

    def draw(self, axes: "Axes", truth: Estimate | None, beside: Beside) -> None:
        if isinstance(truth, TimeCurve):
            self._line(axes, truth.whole or truth.table_of, TRUTH, 2.0, "-", "truth")
        self._band(axes, beside, PRIVATE, beside.bar_words)
        self._line(axes, self.table_of, PRIVATE, 1.4, "-", beside.label)
        self._frame(axes, beside)
        self._numbers_at_risk(axes, 0, "at risk", TRUTH)

    def draw_over(
        self,
        axes: "Axes",
        name: str,
        place: int,
        truth: Estimate | None,
        beside: Beside,
    ) -> None:
        colour = SEVERAL[place % len(SEVERAL)]
        self._band(axes, beside, colour, "")
        if isinstance(truth, TimeCurve):
            self._line(axes, truth.whole or truth.table_of, colour, 1.0, "--", f"{name}, truth")
        self._line(axes, self.table_of, colour, 1.6, "-", name)
        self._frame(axes, beside)
        short = name if len(name) <= MOST_LETTERS else f"{name[: MOST_LETTERS - 1]}…"
        if place == 0:
            self._left(axes, 0, "at risk", QUIET)
        self._numbers_at_risk(axes, place + 1, short, colour)

    def _frame(self, axes: "Axes", beside: Beside) -> None:
        axes.set_xlabel(beside.style.across)
        axes.set_ylabel(self.up)
        axes.set_ylim(bottom=0.0)
        axes.set_xlim(self.table_of.start, self.x[-1])

    def _line(
        self, axes: "Axes", table: LifeTable, colour: str, width: float, dashes: str, label: str
    ) -> None:
        x = np.append(table.start, table.ends)
        y = np.append(self.begins, self.curve(table))
        if table.method == PRODUCT_LIMIT:
            axes.step(x, y, where="post", color=colour, lw=width, ls=dashes, label=label)
        else:
            axes.plot(x, y, color=colour, lw=width, ls=dashes, marker="o", ms=3, label=label)

    def _band(self, axes: "Axes", beside: Beside, colour: str, label: str) -> None:
        interval = beside.interval
        if interval is None or interval.low.shape != self.x.shape:
            return
        x = np.append(self.table_of.start, self.x)
        low, high = (np.append(self.begins, end) for end in (interval.low, interval.high))
        step = "post" if self.table_of.method == PRODUCT_LIMIT else None
        axes.fill_between(
            x,
            np.nan_to_num(low, nan=0.0),
            np.nan_to_num(high, nan=0.0),
            step=step,  # type: ignore[arg-type]  # matplotlib takes None
            color=colour,
            alpha=0.18,
            lw=0,
            label=label,
        )

    def _numbers_at_risk(self, axes: "Axes", row: int, name: str, colour: str) -> None:
        """Writes them at some thresholds, below the axis of time."""
        table = self.table_of
        places = np.append(table.start, table.ends)
        chosen = np.unique(np.linspace(0, len(places) - 1, MOST_AT_RISK).astype(int))
        for at in chosen:
            axes.text(
                float(places[at]),
                -0.2 - ROW * row,
                f"{max(round(float(table.at_risk[at])), 0)}",
                transform=axes.get_xaxis_transform(),
                ha="center",
                fontsize=8,
                color=colour,
            )
        self._left(axes, row, name, QUIET if row == 0 else colour)

    @staticmethod
    def _left(axes: "Axes", row: int, words: str, colour: str) -> None:
        axes.text(
            -0.045,
            -0.2 - ROW * row,
            words,
            transform=axes.transAxes,
            ha="right",
            fontsize=8,
            color=colour,
        )

    def __str__(self) -> str:
        every = max(len(self.x) // 6, 1)
        y = self.values()
        shown = [f"{self.x[at]:g}: {y[at]:.4g}" for at in range(every - 1, len(y), every)]
        return f"{self.up} at " + ", ".join(shown)


@dataclass(frozen=True)
class SurvivalCurve(TimeCurve):
    """The share that survives each time, with the median; `ends_of_median` is its interval, where
    there is noise."""

    ends_of_median: tuple[float, float] | None = None

    up: ClassVar[str] = "share that survives"
    begins: ClassVar[float] = 1.0

    @staticmethod
    def curve(table: LifeTable) -> Column:
        return table.survival

    @property
    def median(self) -> float:
        """When half have had the event; infinity if fewer do."""
        table = self.whole or self.table_of
        return falls_to(0.5, table.start, table.ends, table.survival, table.method)

    def as_json(self) -> object:
        found = super().as_json()
        assert isinstance(found, dict)
        found["median"] = plain(self.median)
        if self.ends_of_median is not None:
            found["median_interval"] = plain(list(self.ends_of_median))
        return found

    def __str__(self) -> str:
        told = "not reached" if math.isinf(self.median) else f"{self.median:.6g}"
        if self.ends_of_median is not None:
            low, high = ("beyond" if math.isinf(e) else f"{e:.4g}" for e in self.ends_of_median)
            told += f" (95 %: {low} to {high})"
        return f"{super().__str__()}; median {told}"


@dataclass(frozen=True)
class HazardCurve(TimeCurve):
    """The cumulative hazard at each time."""

    up: ClassVar[str] = "cumulative hazard"
    begins: ClassVar[float] = 0.0

    @staticmethod
    def curve(table: LifeTable) -> Column:
        return table.hazard


def _coarser(whole: LifeTable, start: float, ends: Column) -> LifeTable:
    """The counts of all times in the intervals of thresholds, with curves that are those of all
    times there: the shares are what the curves say."""
    return _AtThresholds.of(whole, start, ends)


@dataclass(frozen=True)
class _AtThresholds(LifeTable):
    """Counts between thresholds, of a life table that knows all times: the curves are its own."""

    known: LifeTable | None = None

    @classmethod
    def of(cls, whole: LifeTable, start: float, ends: Column) -> Self:
        cells = np.searchsorted(ends, whole.ends, side="left")
        events, censored = (
            np.bincount(cells, weights=each, minlength=len(ends) + 1)
            for each in (whole.events, whole.censored)
        )
        beyond = float(events[-1] + censored[-1])
        inside = events[:-1].astype(np.float64), censored[:-1].astype(np.float64)
        return cls(start, ends, *inside, beyond, whole.method, known=whole)

    def _read(self, curve: Column, first: float) -> Column:
        assert self.known is not None
        places = np.searchsorted(self.known.ends, self.ends, side="right")
        found: Column = np.append(first, curve)[places]
        return found

    @property
    def survival(self) -> Column:
        assert self.known is not None
        return self._read(self.known.survival, 1.0)

    @property
    def hazard(self) -> Column:
        assert self.known is not None
        return self._read(self.known.hazard, 0.0)
