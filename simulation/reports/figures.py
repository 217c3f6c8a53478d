"""Plots of one run."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from protocols.statistics.drawing import Beside
from protocols.statistics.estimates import Curve
from simulation.result import Result


def new_figure(title: str, width: float = 7.0, height: float = 4.0) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def estimate_figure(result: Result) -> Figure:
    epsilon = "no noise" if result.privacy.epsilon is None else f"ε = {result.privacy.epsilon:g}"
    figure, axes = new_figure(f"{result.statistic}, {epsilon}")
    beside = Beside(
        result.statistic,
        result.style,
        result.deviations,
        result.privacy.epsilon is not None,
        result.unsmoothed if isinstance(result.unsmoothed, Curve) else None,
    )
    result.shape.draw(axes, result.truth, beside)
    axes.legend(frameon=False, fontsize=9, loc=result.style.legend)
    return figure


def communication_figure(result: Result) -> Figure:
    """Bytes by link, stacked by phase."""
    figure, axes = new_figure("Bytes by link and phase", height=2.8)
    sizes: dict[str, dict[str, int]] = {}
    for link, account in sorted(result.bill.accounts.items()):
        by_link = sizes.setdefault(link.phase.label, {})
        by_link[link.label] = by_link.get(link.label, 0) + int(account.bytes.sum())
    labels = list(result.bill.by_link())
    left = np.zeros(len(labels))
    for phase, by_link in sizes.items():
        widths = np.array([by_link.get(label, 0) for label in labels], dtype=float)
        axes.barh(labels, widths, left=left, label=phase, height=0.6)
        left += widths
    axes.set_xlabel("bytes")
    axes.legend(frameon=False, fontsize=8, title="phase", title_fontsize=8)
    return figure
