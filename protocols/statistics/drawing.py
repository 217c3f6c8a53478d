"""Draws estimates on matplotlib's axes, which the caller brings. Colours differ in lightness
too."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from tallyroom.protocols.plans.interval import COVERED, NOISE, WIDEST, Interval
from tallyroom.protocols.records import Column

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from tallyroom.protocols.statistics.estimates import CellGrid, Counts, Curve, Curves

TRUTH, PRIVATE, SMOOTHED, QUIET = "#1b2a41", "#e07a1f", "#2a9d8f", "#9aa5b1"
SEVERAL = ("#1b2a41", "#e07a1f", "#2a9d8f", "#9aa5b1", "#6d597a", "#b56576")


@dataclass(frozen=True)
class Style:
    """The way a statistic's curve is drawn, and the labels of its axes.

    `steps` is a curve with its band, and `falls` one that falls; `marks` is one place for each
    point, `bars` a histogram whose points are the left ends of bins.
    """

    kind: Literal["steps", "falls", "marks", "bars"] = "bars"
    across: str = "value"
    up: str = "records"

    @property
    def legend(self) -> Literal["best", "upper left", "lower left"]:
        """The place of the legend: rising curves leave their upper left free, falling ones their
        lower left."""
        if self.kind == "falls":
            return "lower left"
        return "best" if self.kind == "bars" else "upper left"


@dataclass(frozen=True)
class Beside:
    """Things drawn with an estimate: its `interval`, whether the estimate is
    `noisy`, the `unsmoothed` curve, and the `name` of the statistic."""

    name: str = ""
    style: Style = field(default_factory=Style)
    interval: Interval | None = None
    noisy: bool = True
    unsmoothed: "Curve | None" = None

    @property
    def label(self) -> str:
        return "private" if self.noisy else "without noise"

    @property
    def bar_words(self) -> str:
        """What the error bars and the band show."""
        covers = NOISE if self.interval is None else self.interval.covers
        return f"95 % interval of {COVERED[covers]}"

    @property
    def band(self) -> Column | None:
        """Half widths of at least 95 %, as for a single noise; None if there is no noise, or if its
        effect is not known."""
        if self.interval is None or not np.isfinite(self.interval.errors).all():
            return None
        return WIDEST * self.interval.errors

    def bars(self, values: Column) -> Column | None:
        """How far the interval reaches below and above the estimate; None if there is no
        interval."""
        if self.interval is None or self.interval.unknown:
            return None
        if self.interval.low.shape != values.shape:
            return None
        low, high = self.interval.low, self.interval.high
        return np.stack([np.maximum(values - low, 0.0), np.maximum(high - values, 0.0)])


def draw_number(axes: "Axes", value: float, truth: float | None, beside: Beside) -> None:
    if not np.isfinite(value):
        axes.set_axis_off()
        axes.plot([], [], "o", color=PRIVATE, label=f"estimate {value:.6g}")
        return
    if truth is not None and np.isfinite(truth):
        axes.axvline(truth, color=TRUTH, label=f"truth {truth:.6g}")
    band = beside.bars(np.array([value]))
    axes.errorbar(
        [value],
        [0],
        xerr=band,
        fmt="o",
        color=PRIVATE,
        capsize=4,
        label=f"estimate {value:.6g}" + ("" if band is None else f", {beside.bar_words}"),
    )
    axes.set_yticks([])
    low, high = axes.get_xlim()
    if high - low < 1e-6 * max(abs(value), 1e-300):  # everything lies in one place
        room = abs(value) / 20 or 1.0
        axes.set_xlim(value - room, value + room)
        axes.ticklabel_format(useOffset=False)
    axes.set_xlabel(beside.name)


def draw_curve(axes: "Axes", curve: "Curve", truth: "Curve | None", beside: Beside) -> None:
    draw = {"steps": _steps, "falls": _steps, "marks": _marks, "bars": _bars}[beside.style.kind]
    draw(axes, curve, truth, beside)
    axes.set_xlabel(beside.style.across)
    axes.set_ylabel(beside.style.up)


def _steps(axes: "Axes", curve: "Curve", truth: "Curve | None", beside: Beside) -> None:
    """Truth, private curve with its theoretical band, and the smoothed curve if there is one."""
    private = beside.unsmoothed or curve
    x, y = np.array(curve.x), np.array(private.y)
    if (band := beside.interval) is not None and band.low.shape == x.shape:
        axes.fill_between(
            x,
            band.low,
            band.high,
            step="post",
            color=PRIVATE,
            alpha=0.18,
            lw=0,
            label=beside.bar_words,
        )
    if truth is not None:
        axes.step(x, truth.y, where="post", color=TRUTH, lw=2.4, label="truth")
    axes.step(x, y, where="post", color=PRIVATE, lw=1.2, label=beside.label)
    if beside.unsmoothed is not None:
        axes.step(x, curve.y, where="post", color=SMOOTHED, lw=1.6, label="smoothed")
    if geometric(x):
        axes.set_xscale("log")


def _marks(axes: "Axes", curve: "Curve", truth: "Curve | None", beside: Beside) -> None:
    """One place on the axis for each point that was asked, in increasing order."""
    order = np.argsort(curve.x, kind="stable")
    places = np.arange(len(order))
    if truth is not None:
        true = np.array(truth.y)[order]
        axes.plot(places, true, "_", ms=26, mew=2.4, color=TRUTH, label="truth")
    band = beside.bars(np.array(curve.y))
    axes.errorbar(
        places,
        np.array(curve.y)[order],
        yerr=None if band is None else band[:, order],
        fmt="o",
        ms=6,
        capsize=4,
        color=PRIVATE,
        label=beside.label if band is None else f"private, {beside.bar_words}",
    )
    axes.set_xticks(places, [f"{curve.x[i]:g}" for i in order])
    axes.set_xlim(-0.6, len(order) - 0.4)
    axes.margins(y=0.15)


def _bars(axes: "Axes", curve: "Curve", truth: "Curve | None", beside: Beside) -> None:
    x = np.array(curve.x)
    logarithmic = geometric(x[1:])
    widths = np.diff(x)
    last = widths[-1] if len(widths) else 1.0
    if logarithmic and len(widths) > 1:
        last *= widths[-1] / widths[-2]
    widths = np.append(widths, last)
    if truth is not None:
        axes.bar(x, truth.y, width=widths, align="edge", color=QUIET, label="truth")
    if logarithmic:
        axes.set_xscale("log")
    centres = np.sqrt(x * (x + widths)) if logarithmic else x + widths / 2
    band = beside.bars(np.array(curve.y))
    axes.errorbar(
        centres,
        curve.y,
        yerr=band,
        fmt="o",
        ms=3,
        color=PRIVATE,
        label=beside.label if band is None else f"private, {beside.bar_words}",
    )


def draw_counts(axes: "Axes", counts: "Counts", truth: "Counts | None", beside: Beside) -> None:
    """A bar for each name, one below the other, so that names can be read."""
    at = np.arange(len(counts.names))
    if truth is not None:
        axes.barh(at, truth.y, color=QUIET, label="truth")
    band = beside.bars(np.array(counts.y))
    axes.errorbar(
        counts.y,
        at,
        xerr=band,
        fmt="o",
        ms=3,
        color=PRIVATE,
        label=beside.label if band is None else f"private, {beside.bar_words}",
    )
    axes.set_yticks(at, [name if len(name) <= 24 else f"{name[:23]}…" for name in counts.names])
    axes.invert_yaxis()
    axes.set_xlabel(beside.style.up)


def draw_curves(axes: "Axes", curves: "Curves", truth: "Curves | None", beside: Beside) -> None:
    """Draws each curve in its colour, and its truth dashed."""
    for place, (name, curve) in enumerate(curves.named.items()):
        colour = SEVERAL[place % len(SEVERAL)]
        axes.plot(curve.x, curve.y, color=colour, lw=1.4, label=name)
        if truth is not None and name in truth.named:
            true = truth.named[name]
            axes.plot(true.x, true.y, color=colour, lw=1.0, ls="--", label=f"{name}, truth")
    axes.set_xlabel(beside.style.across)
    axes.set_ylabel(beside.style.up)


def draw_grid(axes: "Axes", grid: "CellGrid", beside: Beside) -> None:
    """Draws cells with larger counts darker."""
    axes.pcolormesh(grid.x, grid.y, np.array(grid.cells), cmap="Greys")
    axes.plot([], [], "s", color=QUIET, label=beside.label)
    axes.set_xlabel(beside.style.across)
    axes.set_ylabel(beside.style.up)


def draw_table(axes: "Axes", heads: list[str], rows: list[list[str]]) -> None:
    """Prints the first rows."""
    axes.set_axis_off()
    if rows:
        axes.table(cellText=rows[:MOST_ROWS], colLabels=heads, loc="upper center")


MOST_ROWS = 12


def geometric(x: Column) -> bool:
    """Whether points lie on a logarithmic grid; three points are enough to tell."""
    if len(x) < 3 or x[0] <= 0:
        return False
    ratios, steps = x[1:] / x[:-1], np.diff(x)
    return bool(np.ptp(ratios) < 1e-6 * ratios[0] and np.ptp(steps) > 1e-6 * steps[0])
