"""Plots of one run."""

from dataclasses import replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from tallyroom.protocols.statistics.drawing import QUIET, SEVERAL, Beside
from tallyroom.protocols.statistics.estimates import Counts, Curve
from tallyroom.simulation.result import Result


def new_figure(title: str, width: float = 7.0, height: float = 4.0) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def estimate_figure(result: Result) -> Figure:
    names = len(result.estimate.names) if isinstance(result.estimate, Counts) else 0
    figure, axes = new_figure(_title(result), height=max(4.0, 0.3 * min(names, 60)))
    draw_estimate(result, axes)
    figure.text(0.005, 0.005, " · ".join(result.origin()), fontsize=6, color=QUIET, va="bottom")
    figure.get_layout_engine().set(rect=(0, 0.03, 1, 0.97))  # type: ignore[union-attr,call-arg]
    return figure


def _title(result: Result) -> str:
    return f"{result.statistic}{_of(result)}, {result.privacy.cost}"


def _of(result: Result) -> str:
    return f" of {result.column}" if result.column else ""


def draw_estimate(result: Result, axes: Axes) -> None:
    """Draws on axes that the caller provides; they carry the column's name."""
    style = result.style
    if result.column:
        across = result.column if style.across == "value" else style.across
        up = result.column if style.up == "value" else style.up
        style = replace(style, across=across, up=up)
    beside = Beside(
        f"{result.statistic}{_of(result)}",
        style,
        result.interval,
        result.privacy.loss.bounded,
        result.unsmoothed if isinstance(result.unsmoothed, Curve) else None,
    )
    result.shape.draw(axes, result.truth, beside)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(frameon=False, fontsize=9, loc=style.legend)


def communication_figure(result: Result) -> Figure:
    """Bytes by link, stacked by phase."""
    figure, axes = new_figure("Bytes by link and phase", height=2.8)
    sizes: dict[str, dict[str, int]] = {}
    for link, account in sorted(result.bill.accounts.items()):
        by_link = sizes.setdefault(link.phase.label, {})
        by_link[link.label] = by_link.get(link.label, 0) + int(account.bytes.sum())
    labels = list(result.bill.by_link())
    left = np.zeros(len(labels))
    for place, (phase, by_link) in enumerate(sizes.items()):
        widths = np.array([by_link.get(label, 0) for label in labels], dtype=float)
        colour = SEVERAL[place % len(SEVERAL)]
        axes.barh(labels, widths, left=left, label=phase, height=0.6, color=colour)
        left += widths
    axes.set_xlabel("bytes")
    axes.locator_params(axis="x", nbins=6)
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    if sizes:
        figure.legend(
            loc="outside right upper", frameon=False, fontsize=8, title="phase", title_fontsize=8
        )
    return figure
