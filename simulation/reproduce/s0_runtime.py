"""S0 Fig. 7: the time of smoothing, as the paper solves it (CVXOPT, §6.7) and as Tallyroom does.

Eq. 3 as printed, with its box. CVXOPT gets sparse matrices; dense ones reach only N = 2^10.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from tallyroom.protocols.privacy.smoothing import Smoothed, smooth
from tallyroom.protocols.privacy.tree import Tree
from tallyroom.simulation.reproduce.contract import Figure, Number, Outcome, Scale, write_table
from tallyroom.simulation.reproduce.drawing import (
    COLOURS,
    MARKERS,
    legend_below,
    log_axis,
    panels,
    save,
)
from tallyroom.simulation.reproduce.poisson import tree_releases

RATE = 3.0
EPSILON = Fraction(1)
SOLVERS = {
    "cvxopt_lp": "CVXOPT, linear program (p = 1)",
    "cvxopt_qp": "CVXOPT, quadratic program (p = 2)",
    "ours_1": "Tallyroom, p = 1",
    "ours_2": "Tallyroom, p = 2",
}


@dataclass(frozen=True)
class Sizes:
    points: tuple[int, ...]
    runs: int


SIZES = {
    Scale.PAPER: Sizes(tuple(2**k for k in range(4, 14)), 7),
    Scale.SMALL: Sizes((16, 32, 64), 2),
}


@dataclass(frozen=True)
class Times:
    """Seconds of every run at one N, by the names of `SOLVERS`; run i is the same curve for all."""

    points: int
    seconds: dict[str, tuple[float, ...]]

    def median(self, solver: str) -> float:
        return float(np.median(self.seconds[solver]))


def measure(points: int, runs: int) -> Times:
    """Solvers take turns on each curve, so that a busy machine slows all of them alike."""
    from tallyroom.protocols.privacy.smoothing.reference import (
        smooth_by_cvxopt,  # an optional dependency
    )

    levels = Tree(points).levels
    solvers: dict[str, tuple[Callable[..., Smoothed], int]] = {
        "cvxopt_lp": (smooth_by_cvxopt, 1),
        "cvxopt_qp": (smooth_by_cvxopt, 2),
        "ours_1": (smooth, 1),
        "ours_2": (smooth, 2),
    }
    seconds: dict[str, list[float]] = {name: [] for name in solvers}
    for run, release in enumerate(tree_releases(points, RATE, EPSILON, runs + 1)):
        for name, (solve, p) in solvers.items():
            start = time.perf_counter()
            solve(release.noisy, p=p, levels=levels, box=True)
            if run:  # the first run warms up
                seconds[name].append(time.perf_counter() - start)
    return Times(points, {name: tuple(values) for name, values in seconds.items()})


def judge(measured: Sequence[Times]) -> dict[str, bool]:
    return {
        "CVXOPT's median time is less for the QP than for the LP at every N": bool(measured)
        and all(each.median("cvxopt_qp") < each.median("cvxopt_lp") for each in measured)
    }


def exponent(measured: Sequence[Times], solver: str) -> float:
    """The exponent k if time grows as N^k, fitted to the upper half of the sizes."""
    upper = measured[len(measured) // 2 :]
    slope, _ = np.polyfit(
        np.log([each.points for each in upper]),
        np.log([each.median(solver) for each in upper]),
        1,
    )
    return float(slope)


def run(folder: Path, scale: Scale) -> Outcome:
    sizes = SIZES[scale]
    measured = [measure(points, sizes.runs) for points in sizes.points]
    last = measured[-1]
    return Outcome(
        judge(measured),
        {
            "runs": sizes.runs,
            "largest_thresholds": last.points,
            "lp_over_qp": {
                str(each.points): round(each.median("cvxopt_lp") / each.median("cvxopt_qp"), 3)
                for each in measured
            },
            "cvxopt_over_ours_at_largest": {
                "p = 1": round(last.median("cvxopt_lp") / last.median("ours_1"), 2),
                "p = 2": round(last.median("cvxopt_qp") / last.median("ours_2"), 2),
            },
            "exponent_of_n": {name: round(exponent(measured, name), 3) for name in SOLVERS},
            "seconds_at_largest": {name: last.median(name) for name in SOLVERS},
        },
        [
            write_table(folder / "s0-fig7.csv", [_row(each) for each in measured]),
            _draw(folder / "s0-fig7.png", measured),
        ],
    )


def _row(each: Times) -> dict[str, Number]:
    row: dict[str, Number] = {"thresholds": each.points, "runs": len(each.seconds["ours_1"])}
    for name, values in each.seconds.items():
        row |= {
            f"{name}_seconds": each.median(name),
            f"{name}_least": min(values),
            f"{name}_most": max(values),
        }
    return row


def _draw(path: Path, measured: Sequence[Times]) -> Path:
    canvas, (axes,) = panels("S0 Fig. 7: seconds to smooth one curve", [""])
    canvas.set_size_inches(6.8, 4.8)
    points = [each.points for each in measured]
    for (name, label), colour, marker in zip(SOLVERS.items(), COLOURS, MARKERS, strict=True):
        axes.plot(
            points,
            [each.median(name) for each in measured],
            color=colour,
            marker=marker,
            ms=4,
            lw=1.3,
            label=label,
        )
        axes.fill_between(
            points,
            [min(each.seconds[name]) for each in measured],
            [max(each.seconds[name]) for each in measured],
            color=colour,
            alpha=0.15,
            lw=0,
        )
    log_axis(axes, "x", "thresholds N")
    log_axis(axes, "y", "seconds, median and range")
    legend_below(canvas, [axes], 2)
    return save(canvas, path)


FIGURE = Figure(
    "s0-fig7",
    "S0 §6.7, Fig. 7: with CVXOPT the quadratic program of 2-norm smoothing is solved more quickly "
    "than the linear program of 1-norm smoothing.",
    run,
    package="cvxopt",
)
