"""comparison.png and comparison.html: aggregators side by side."""

import html
import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from tallyroom.protocols.statistics.drawing import PRIVATE, QUIET, SMOOTHED, TRUTH
from tallyroom.simulation.comparison import (
    HEADS,
    LEGEND,
    TIME_HEADS,
    TIME_LEGEND,
    AggregatorComparison,
)
from tallyroom.simulation.reports.page import image, page, pairs

LOGARITHMIC_FROM = 20.0
"""From this ratio of the largest to the smallest value on, small bars could not be seen."""


def comparison_figure(comparison: AggregatorComparison) -> Figure:
    """Error, bytes per party and CPU of the servers, one bar per aggregator."""
    rows = comparison.everything
    names = [row.aggregator for row in rows]
    figure = Figure(figsize=(10.0, 1.5 + 0.42 * len(rows)), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(comparison.title, x=0.01, ha="left", fontsize=11)
    error, size, cpu = figure.subplots(1, 3, sharey=True)
    expected = [row.expected_rmse or 0.0 for row in rows]
    found = [row.rmse if math.isfinite(row.rmse) else 0.0 for row in rows]
    _bars(error, "error (rmse)", names, found, PRIVATE, expected)
    if any(expected):
        error.set_xlabel("bar: this run; mark: expected of the noise", fontsize=8, loc="left")
    _bars(size, "bytes per party", names, [row.party_bytes for row in rows], QUIET)
    seconds = [row.server_cpu_seconds for row in rows]
    _bars(cpu, "CPU of the servers, s", names, seconds, SMOOTHED)
    error.invert_yaxis()
    return figure


def _bars(
    axes: Axes,
    title: str,
    names: list[str],
    values: Sequence[float],
    colour: str,
    marks: Sequence[float] | None = None,
) -> None:
    axes.barh(names, values, height=0.6, color=colour)
    marks = marks or [0.0] * len(values)
    for place, mark in enumerate(marks):
        if mark:
            axes.plot([mark, mark], [place - 0.38, place + 0.38], color=TRUTH, lw=2)
    axes.set_title(title, loc="left", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=9)
    every = [*values, *filter(None, marks)]
    least, most = min(every), max(every)
    if least > 0 and most > LOGARITHMIC_FROM * least:
        axes.set_xscale("log")
        axes.set_xlim(least / 3, most * (most / least) ** (0.6 if any(marks) else 0.3))
        axes.set_title(f"{title}, logarithmic", loc="left", fontsize=10)
    else:
        axes.margins(x=0.5 if any(marks) else 0.2)
        axes.set_xlim(left=0, right=None if most else 1)
        axes.locator_params(axis="x", nbins=5)
    for place, (value, mark) in enumerate(zip(values, marks, strict=True)):
        axes.annotate(
            f"{_short(value)}, expected {_short(mark)}" if mark else _short(value),
            (max(value, mark), place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _table(heads: Sequence[str], found: Sequence[Sequence[str]], legend: str) -> str:
    head = "".join(f"<th>{name}</th>" for name in heads)
    rows = "".join(
        f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in cells)}</tr>" for cells in found
    )
    table = f'<div class="wide"><table><tr>{head}</tr>{rows}</table></div>'
    return f"{table}\n<p>{html.escape(legend)}</p>\n"


def comparison_page(comparison: AggregatorComparison, plot: Path) -> str:
    """A single page that contains the plot."""
    notes = "".join(f'<p class="loud">{html.escape(note)}</p>' for note in comparison.notes())
    body = f"{notes}\n{image(plot)}\n"
    body += _table(HEADS, [row.cells() for row in comparison.everything], LEGEND)
    body += _table(TIME_HEADS, [row.time_cells() for row in comparison.rows], TIME_LEGEND)
    models = ((row.aggregator, row.behaviour) for row in comparison.everything)
    body += f"<h2>Threat models</h2>{pairs(models)}\n"
    if comparison.unable:
        body += f"<h2>Could not answer</h2>{pairs(comparison.unable)}\n"
    return page(f"Aggregators compared: {comparison.title}", body)
