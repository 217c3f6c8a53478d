"""S0 Fig. 4: errors of the private curve and of its inverse by binary search (Algorithm 1)."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from tallyroom.protocols.privacy.smoothing import smooth
from tallyroom.protocols.privacy.tree import Tree
from tallyroom.protocols.statistics.ecdf import inverse
from tallyroom.simulation.reproduce.by_epsilon import Sizes, draw_lines, row_of
from tallyroom.simulation.reproduce.confidence import Mean
from tallyroom.simulation.reproduce.contract import Figure, Outcome, Scale, write_table
from tallyroom.simulation.reproduce.drawing import legend_below, log_axis, panels, save
from tallyroom.simulation.reproduce.poisson import SEED, tree_releases

RATE = 3.0
QUESTIONS = 1000
# Below this range, the noise of F̂ exceeds the curve's whole range, which an inverse cannot leave;
# above it, an inverse is as accurate as the grid of N points allows.
JUDGED = (0.1, 10.0)
ORDER = 10.0
ERRORS = {
    "forward": "F̂, at a threshold",
    "inverse": "inverse of F̂, unsmoothed",
    "inverse_smoothed": "inverse of F̃, 2-norm, no box",
    "inverse_smoothed_box": "inverse of F̃, 2-norm, box",
}


SIZES = {
    Scale.PAPER: Sizes(
        1024, 100, ("0.01", "0.02", "0.05", "0.1", "0.2", "0.5", "1", "2", "5", "10", "20")
    ),
    Scale.SMALL: Sizes(64, 6, ("0.1", "1", "5")),
}


@dataclass(frozen=True)
class Errors:
    """Mean squared errors at one ε, by the names of `ERRORS`; positions are shares of the range."""

    epsilon: float
    means: dict[str, Mean]

    @property
    def spread(self) -> float:
        """The largest error divided by the smallest."""
        values = [mean.value for mean in self.means.values()]
        return max(values) / min(values) if min(values) else float("inf")


def measure(points: int, runs: int, epsilon: Fraction) -> Errors:
    """S0 asks at "points x uniformly distributed over the relevant domains"."""
    levels = Tree(points).levels
    rng = np.random.default_rng(SEED)
    squares: dict[str, list[float]] = {name: [] for name in ERRORS}
    for release in tree_releases(points, RATE, epsilon, runs):
        thresholds = rng.integers(points, size=QUESTIONS)
        quantiles = rng.random(QUESTIONS)
        forward = (release.noisy - release.truth)[thresholds]
        squares["forward"].append(float(np.mean(forward**2)))
        exact = inverse(release.truth, quantiles)
        curves = {
            "inverse": release.noisy,
            "inverse_smoothed": smooth(release.noisy, p=2, levels=levels, box=False).curve,
            "inverse_smoothed_box": smooth(release.noisy, p=2, levels=levels, box=True).curve,
        }
        for name, curve in curves.items():
            difference = (inverse(curve, quantiles) - exact) / points
            squares[name].append(float(np.mean(difference**2)))
    return Errors(float(epsilon), {name: Mean.of(values) for name, values in squares.items()})


def judge_as_printed(measured: Sequence[Errors]) -> dict[str, bool]:
    """§6.4 makes the claim about the whole figure."""
    return {
        f"forward and inverse errors within a factor of {ORDER:g} at every ε": bool(measured)
        and all(each.spread <= ORDER for each in measured)
    }


def judge(measured: Sequence[Errors]) -> dict[str, bool]:
    """Our criteria, over the range in which noise and grid allow a comparison."""
    low, high = JUDGED
    judged = [each for each in measured if low <= each.epsilon <= high]
    unsmoothed = [
        each.means["inverse"].value
        <= ORDER * min(each.means[name].value for name in list(ERRORS)[2:])
        for each in measured
    ]
    return {
        f"forward and inverse errors within a factor of {ORDER:g} at every ε from {low:g} to "
        f"{high:g}": bool(judged) and all(each.spread <= ORDER for each in judged),
        f"binary search errs on F̂ at most {ORDER:g} times as much as on F̃ at every ε": all(
            unsmoothed
        ),
    }


def run(folder: Path, scale: Scale) -> Outcome:
    sizes = SIZES[scale]
    measured = [measure(sizes.points, sizes.runs, Fraction(epsilon)) for epsilon in sizes.epsilons]
    worst = max(measured, key=lambda each: each.spread)
    return Outcome(
        judge_as_printed(measured),
        {
            "thresholds": sizes.points,
            "runs": sizes.runs,
            "rate": RATE,
            "largest_over_smallest": {f"{m.epsilon:g}": round(m.spread, 3) for m in measured},
            "worst_epsilon": worst.epsilon,
            **{
                f"mse_{name}": {f"{m.epsilon:g}": m.means[name].value for m in measured}
                for name in ERRORS
            },
        },
        [
            write_table(
                folder / "s0-fig4.csv", [row_of(each.epsilon, each.means) for each in measured]
            ),
            _draw(folder / "s0-fig4.png", measured, sizes),
        ],
        judge(measured),
        f"only for ε from {JUDGED[0]:g} to {JUDGED[1]:g}: below, the noise exceeds the curve's "
        "range, which an inverse cannot leave; above, the grid limits the inverse",
        {"largest error over the smallest": f"{worst.spread:.3g} at ε = {worst.epsilon:g}"},
    )


def _draw(path: Path, measured: Sequence[Errors], sizes: Sizes) -> Path:
    title = f"S0 Fig. 4: a private curve and its inverse, λ = {RATE:g}, N = {sizes.points}"
    canvas, (axes,) = panels(title, [""])
    canvas.set_size_inches(6.6, 4.6)
    lines = {label: [each.means[name].value for each in measured] for name, label in ERRORS.items()}
    draw_lines(axes, [each.epsilon for each in measured], lines)
    log_axis(axes, "x", "ε")
    log_axis(axes, "y", "mean squared error")
    legend_below(canvas, [axes], 2)
    return save(canvas, path)


FIGURE = Figure(
    "s0-fig4",
    "S0 §6.4, Fig. 4: the mean squared errors of the private curve and of the inverses of its "
    "smoothed and unsmoothed versions are of the same order of magnitude.",
    run,
)
