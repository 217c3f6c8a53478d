"""The plot of a sweep: the mean over trials, with its standard error."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tallyroom.protocols.statistics.drawing import SEVERAL
from tallyroom.simulation.sweep.journal import Row
from tallyroom.simulation.sweep.specification import Plot

NAMES = {"party_bytes": "bytes per party"}
"""Axis labels of result columns whose names need explaining."""
MARKERS = ("o", "s", "^", "D", "v", "P")

Lines = dict[str, list[tuple[object, float, float]]]


def lines_of(rows: Sequence[Row], plot: Plot) -> Lines:
    """Returns x, the mean of y over trials and its standard error, for each value of `by`. Runs
    that failed or have no such number are left out."""
    found: dict[str, dict[object, list[float]]] = {}
    for row in rows:
        plain = {name.replace("-", "_"): value for name, value in row.items()}
        x, y = plain.get(plot.x), plain.get(plot.y)
        if x is None or y is None:
            continue
        line = found.setdefault(str(plain.get(plot.by, "")) if plot.by else "", {})
        line.setdefault(_number(x), []).append(float(y))
    return {
        name: [
            (x, float(np.mean(ys)), float(np.std(ys, ddof=1)) / math.sqrt(len(ys)) if ys[1:] else 0)
            for x, ys in line.items()
        ]
        for name, line in found.items()
    }


def _number(value: object) -> object:
    try:
        number = float(value)  # type: ignore[arg-type]  # ValueError if it is not a number
    except (TypeError, ValueError):
        return value
    return number if math.isfinite(number) else str(value)


def _words(name: str) -> str:
    return NAMES.get(name) or name.replace("_", " ")


def draw(rows: Sequence[Row], plot: Plot, folder: Path) -> Path | None:
    """Writes `plot.png`; returns None if no run has both numbers."""
    from matplotlib.figure import Figure

    lines = lines_of(rows, plot)
    if not lines:
        return None
    figure = Figure(figsize=(7, 4.5), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    texts = any(isinstance(x, str) for line in lines.values() for x, _, _ in line)
    for place, (name, line) in enumerate(lines.items()):
        points = line if texts else sorted(line, key=lambda point: float(str(point[0])))
        xs = [str(x) if texts else float(str(x)) for x, _, _ in points]
        ys, errors = [y for _, y, _ in points], [error for _, _, error in points]
        colour, marker = SEVERAL[place % len(SEVERAL)], MARKERS[place % len(MARKERS)]
        look: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 4}
        axes.errorbar(xs, ys, yerr=errors, capsize=2, label=name, **look)
    if (
        "x" in plot.log
        and not texts
        and all(float(str(x)) > 0 for v in lines.values() for x, _, _ in v)
    ):
        axes.set_xscale("log")
    if "y" in plot.log and all(y > 0 for line in lines.values() for _, y, _ in line):
        axes.set_yscale("log")
    axes.set_xlabel(_words(plot.x))
    axes.set_ylabel(_words(plot.y))
    if plot.by:
        axes.legend(title=plot.by.replace("_", " "), frameon=False)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    path = folder / "plot.png"
    figure.savefig(path)
    return path
