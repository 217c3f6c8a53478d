"""Shared parts of the drawn figures."""

import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from tallyroom.protocols.statistics.drawing import QUIET

# Dark to light, so that colours can be told apart in grey too; markers help further.
COLOURS = ("#1b2a41", "#c8553d", "#2a9d8f", "#e9a23b")
MARKERS = ("o", "s", "^", "D")


def panels(title: str, names: Sequence[str], height: float = 4.2) -> tuple[Canvas, list[Axes]]:
    """Makes panels side by side that share their vertical axis."""
    canvas = Canvas(figsize=(4.2 * len(names) + 0.6, height), dpi=150, layout="constrained")
    FigureCanvasAgg(canvas)
    canvas.suptitle(title, x=0.01, ha="left", fontsize=11)
    axes: list[Axes] = []
    for place, name in enumerate(names, 1):
        each = canvas.add_subplot(1, len(names), place, sharey=axes[0] if axes else None)
        each.set_title(name, loc="left", fontsize=9.5)
        each.spines[["top", "right"]].set_visible(False)
        axes.append(each)
    return canvas, axes


def log_axis(axes: Axes, which: str, label: str, subs: Sequence[float] = (1.0,)) -> None:
    """Makes an axis logarithmic with plain numbers at its decades, or at those times `subs`."""
    axis: Axis
    if which == "x":
        axes.set_xscale("log")
        axes.set_xlabel(label)
        axis = axes.xaxis
    else:
        axes.set_yscale("log")
        axes.set_ylabel(label)
        axis = axes.yaxis
    axis.set_major_locator(LogLocator(base=10, subs=subs, numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _plain(value)))
    axis.set_minor_formatter(NullFormatter())


def level(axes: Axes, at: float, text: str) -> None:
    """Draws a quiet horizontal line, named above its right end."""
    axes.axhline(at, color=QUIET, lw=1, zorder=0)
    axes.annotate(
        text,
        (1.0, at),
        xycoords=("axes fraction", "data"),
        xytext=(-2, 3),
        textcoords="offset points",
        ha="right",
        fontsize=8,
        color="#5f6b78",
    )


def legend_below(canvas: Canvas, axes: Sequence[Axes], columns: int) -> None:
    """Draws one legend below all panels, where it cannot cover a curve."""
    named: dict[str, Artist] = {}
    for each in axes:
        handles, labels = each.get_legend_handles_labels()
        named |= dict(zip(labels, handles, strict=True))
    canvas.legend(
        list(named.values()),
        list(named),
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize=8.5,
    )


def save(canvas: Canvas, path: Path) -> Path:
    canvas.savefig(path)
    return path


def _plain(value: float) -> str:
    if 1e-3 <= value < 1e5:
        return f"{value:g}"
    return f"$10^{{{round(math.log10(value))}}}$"
