"""Plots of one run. Colours are told apart by lightness too."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from protocols.records import Column
from protocols.statistics import Curve
from simulation.result import Result

TRUTH, PRIVATE, QUIET = "#1b2a41", "#e07a1f", "#9aa5b1"


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
    if isinstance(result.estimate, Curve):
        truth = result.truth if isinstance(result.truth, Curve) else None
        _histogram(axes, result.estimate, truth, result.deviations)
    else:
        _number(axes, result)
    axes.legend(frameon=False, fontsize=9)
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


def _histogram(axes: Axes, estimate: Curve, truth: Curve | None, deviations: Column) -> None:
    x = np.array(estimate.x)
    width = x[1] - x[0] if len(x) > 1 else 1.0
    if truth is not None:
        axes.bar(x, truth.y, width=width, align="edge", color=QUIET, label="truth")
    centres = x + width / 2
    bars = 1.96 * float(deviations[0])
    axes.errorbar(
        centres,
        estimate.y,
        yerr=bars if bars else None,
        fmt="o",
        ms=3,
        color=PRIVATE,
        label="private, ±1.96 σ of the noise" if bars else "without noise",
    )
    axes.set_xlabel("value")
    axes.set_ylabel("records")


def _number(axes: Axes, result: Result) -> None:
    estimate, truth = result.estimate, result.truth
    if truth is not None:
        axes.axvline(float(truth), color=TRUTH, label=f"truth {truth:.6g}")  # type: ignore[arg-type]
    bars = 1.96 * float(result.deviations[0])
    axes.errorbar(
        [float(estimate)],  # type: ignore[arg-type]
        [0],
        xerr=[bars] if bars else None,
        fmt="o",
        color=PRIVATE,
        capsize=4,
        label=f"estimate {estimate:.6g}" + (" ±1.96 σ of the noise" if bars else ""),
    )
    axes.set_yticks([])
    axes.set_xlabel(result.statistic)
