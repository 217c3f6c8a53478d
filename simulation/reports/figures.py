"""Plots of one run. Colours are told apart by lightness too."""

from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from protocols.records import Column
from protocols.statistics import Curve
from simulation.result import Result

TRUTH, PRIVATE, SMOOTHED, QUIET = "#1b2a41", "#e07a1f", "#2a9d8f", "#9aa5b1"


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
        draw = CURVES.get(result.statistic, _histogram)
        draw(axes, result, result.estimate, truth)
    else:
        _number(axes, result)
    rising = result.statistic in CURVES
    axes.legend(frameon=False, fontsize=9, loc="upper left" if rising else "best")
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


def _distribution(axes: Axes, result: Result, estimate: Curve, truth: Curve | None) -> None:
    """Truth, private curve with its theoretical band, and the smoothed curve if there is one."""
    private = result.unsmoothed or estimate
    x = np.array(estimate.x)
    bars = _bars(result.deviations)
    if bars is not None:
        axes.fill_between(
            x,
            np.array(private.y) - bars,
            np.array(private.y) + bars,
            step="post",
            color=PRIVATE,
            alpha=0.18,
            lw=0,
            label="±1.96 σ of the noise",
        )
    noisy = result.privacy.epsilon is not None
    if truth is not None:
        axes.step(x, truth.y, where="post", color=TRUTH, lw=2.4, label="truth")
    axes.step(
        x,
        private.y,
        where="post",
        color=PRIVATE,
        lw=1.2,
        label="private" if noisy else "without noise",
    )
    if result.unsmoothed is not None:
        axes.step(x, estimate.y, where="post", color=SMOOTHED, lw=1.6, label="smoothed")
    if _geometric(x):
        axes.set_xscale("log")
    axes.set_xlabel("value")
    axes.set_ylabel("share of records at most the value")


def _quantiles(axes: Axes, result: Result, estimate: Curve, truth: Curve | None) -> None:
    """One place on the axis for each quantile that was asked, in increasing order."""
    order = np.argsort(estimate.x, kind="stable")
    places = np.arange(len(order))
    if truth is not None:
        true = np.array(truth.y)[order]
        axes.plot(places, true, "_", ms=26, mew=2.4, color=TRUTH, label="truth")
    label = "without noise" if result.privacy.epsilon is None else "private"
    axes.plot(places, np.array(estimate.y)[order], "o", ms=6, color=PRIVATE, label=label)
    axes.set_xticks(places, [f"{estimate.x[i]:g}" for i in order])
    axes.set_xlim(-0.6, len(order) - 0.4)
    axes.margins(y=0.15)
    axes.set_xlabel("quantile")
    axes.set_ylabel("value")


def _histogram(axes: Axes, result: Result, estimate: Curve, truth: Curve | None) -> None:
    x = np.array(estimate.x)
    logarithmic = _geometric(x[1:])
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
    bars = _bars(result.deviations)
    plain = "without noise" if result.privacy.epsilon is None else "private"
    axes.errorbar(
        centres,
        estimate.y,
        yerr=None if bars is None else np.broadcast_to(bars, x.shape),
        fmt="o",
        ms=3,
        color=PRIVATE,
        label=plain if bars is None else "private, ±1.96 σ of the noise",
    )
    axes.set_xlabel("value")
    axes.set_ylabel("records")


def _bars(deviations: Column) -> Column | None:
    """Half widths of the 95 % band; None where there is no noise, or its effect is not known."""
    if np.isnan(deviations).any() or not deviations.any():
        return None
    return 1.96 * deviations


def _geometric(x: Column) -> bool:
    """Whether points lie on a logarithmic grid, of which three say enough."""
    if len(x) < 3 or x[0] <= 0:
        return False
    ratios, steps = x[1:] / x[:-1], np.diff(x)
    return bool(np.ptp(ratios) < 1e-6 * ratios[0] and np.ptp(steps) > 1e-6 * steps[0])


def _number(axes: Axes, result: Result) -> None:
    estimate, truth = result.estimate, result.truth
    if not np.isfinite(float(estimate)):  # type: ignore[arg-type]
        axes.set_axis_off()
        axes.plot([], [], "o", color=PRIVATE, label=f"estimate {estimate:.6g}")
        return
    if truth is not None and np.isfinite(float(truth)):  # type: ignore[arg-type]
        axes.axvline(float(truth), color=TRUTH, label=f"truth {truth:.6g}")  # type: ignore[arg-type]
    bars = _bars(result.deviations)
    axes.errorbar(
        [float(estimate)],  # type: ignore[arg-type]
        [0],
        xerr=None if bars is None else bars[:1],
        fmt="o",
        color=PRIVATE,
        capsize=4,
        label=f"estimate {estimate:.6g}" + ("" if bars is None else " ±1.96 σ of the noise"),
    )
    axes.set_yticks([])
    axes.set_xlabel(result.statistic)


# Curves that rise, and how they are drawn; any other is a histogram.
def _running(axes: Axes, result: Result, estimate: Curve, truth: Curve | None) -> None:
    _distribution(axes, result, estimate, truth)
    axes.set_xlabel("time")
    axes.set_ylabel("sum up to the time")


CURVES: dict[str, Callable[[Axes, Result, Curve, Curve | None], None]] = {
    "ecdf": _distribution,
    "quantile": _quantiles,
    "quantile-search": _quantiles,
    "running-sum": _running,
}
