"""S0 Fig. 6 and 10: the error of a private Hosmer–Lemeshow statistic by ε, on Bank and Diabetes.

S0's method is Algorithm 2 with its slips corrected (`protocols.studies.hosmer_lemeshow`): with a
tree of L levels, (L + 1)/(L + 5) of ε for the quantiles and the rest for the counts. S0 does not
say what happens to a predicted count that noise makes 0 or less: here it counts as one record. The
project's own method is drawn beside it: the hierarchy, 0.3 of ε for quantiles, and predicted counts
not below the deviation of their noise. The noise is that of one server.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.plans.thresholds import quantiles
from tallyroom.protocols.privacy.curves import STRATEGIES
from tallyroom.protocols.privacy.mechanisms import DiscreteLaplace
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.statistics.calibration import (
    FIXED_POINT,
    SENSITIVITY,
    Calibration,
    grouped,
)
from tallyroom.protocols.statistics.ecdf import inverse
from tallyroom.protocols.studies.hosmer_lemeshow import between
from tallyroom.simulation.reproduce.by_epsilon import Sizes, draw_lines
from tallyroom.simulation.reproduce.classified import SEED, Scores, classified, made_up
from tallyroom.simulation.reproduce.confidence import Mean
from tallyroom.simulation.reproduce.contract import Figure, Number, Outcome, Scale, write_table
from tallyroom.simulation.reproduce.drawing import legend_below, log_axis, panels, save

Vector = NDArray[np.float64]
GROUPS = 10
WANTED = tuple(each / GROUPS for each in range(1, GROUPS))
WAYS = {
    "s0": ("tree", "S0's tree, counts of at least 1"),
    "project": ("hierarchy", "the hierarchy, counts of at least their noise"),
}
OWN_SHARE = Fraction(3, 10)
ONE_RECORD = 1.0
MAY = (0.5, 2.0)
"""S0 says "may": in the middle of its range of ε."""

SIZES = {
    Scale.PAPER: Sizes(1024, 100, ("0.05", "0.1", "0.2", "0.5", "1", "2", "5", "10")),
    Scale.SMALL: Sizes(64, 5, ("0.5", "2", "8")),
}
DATA = {"s0-fig6": ("bank", "diabetes"), "s0-fig10": ("diabetes", "bank")}
"""The data of the figure, and the data that S0 compares it with."""


class Calibrated:
    """One data set, evaluated privately again and again."""

    def __init__(self, data: Scores, points: int) -> None:
        self.data = data
        self.x = np.arange(1, points + 1) / points
        cells = np.bincount(np.searchsorted(self.x, data.score), minlength=points)
        self.counts = np.cumsum(cells).astype(np.uint64)
        at = between(quantiles(data.score, WANTED))
        self.truth = Calibration([*at, 1.0], grouped(data.score, data.positive, at))

    def private(self, way: str, epsilon: Fraction, run: int) -> tuple[Calibration, Calibration]:
        """The private groups; and the same ones without noise in the predicted positives of the
        lowest group."""
        curve = STRATEGIES[WAYS[way][0]](len(self.x))
        share = OWN_SHARE
        if way == "s0":
            share = Fraction(curve.sensitivity.l1, curve.sensitivity.l1 + 4)
        source = Randomness.from_seed(SEED, f"calibration {way} {epsilon} {run}")
        noise = DiscreteLaplace.spending(share * epsilon, curve.sensitivity.l1)
        drawn = noise.draw(curve.noises, source).view(np.uint64)
        released = (curve.measure(self.counts) + curve.place(drawn)).view(np.int64)
        found = curve.estimate(released.astype(np.float64), len(self.data.score))
        at = between(self.x[inverse(found, np.array(WANTED))].tolist())
        exact = grouped(self.data.score, self.data.positive, at)
        second = DiscreteLaplace.spending((1 - share) * epsilon, SENSITIVITY)
        error = second.draw(exact.size, source).reshape(exact.shape) / FIXED_POINT
        deviation = float(np.sqrt(second.variance)) / FIXED_POINT
        floor = ONE_RECORD if way == "s0" else deviation
        spared = error.copy()
        spared[0, 0] = 0.0
        upper = [*at, 1.0]
        return Calibration(upper, exact + error, floor), Calibration(upper, exact + spared, floor)


@dataclass(frozen=True)
class Errors:
    """Errors of the private statistic, relative to the true one, at one ε.

    `squared` is the mean squared error; `spread` the deviation of the squared error over the runs;
    `statistic` the deviation of the statistic itself; `spared` is the mean squared error of the
    same runs without noise in the predicted positives of the lowest group.
    """

    data: str
    way: str
    epsilon: float
    squared: Mean
    spread: float
    statistic: float
    spared: float


def measure(name: str, data: Scores, sizes: Sizes) -> list[Errors]:
    found = []
    judged = Calibrated(data, sizes.points)
    true = judged.truth.statistic
    for way in WAYS:
        for epsilon in sizes.epsilons:
            runs = [judged.private(way, Fraction(epsilon), run) for run in range(sizes.runs)]
            relative = np.array([each.statistic for each, _ in runs]) / true
            squares = (relative - 1) ** 2
            spared = np.array([without.statistic for _, without in runs]) / true
            found.append(
                Errors(
                    name,
                    way,
                    float(epsilon),
                    Mean.of(squares.tolist()),
                    float(np.std(squares, ddof=1)),
                    float(np.std(relative, ddof=1)),
                    float(np.mean((spared - 1) ** 2)),
                )
            )
    return found


def judge(name: str, measured: Sequence[Errors]) -> dict[str, bool]:
    """Judges S0's method alone."""
    own, other = DATA[name]
    by = {
        data: [each for each in measured if (each.data, each.way) == (data, "s0")]
        for data in DATA[name]
    }
    varied = {data: [each.statistic for each in by[data]] for data in by}
    if name == "s0-fig6":
        return {
            'S0: "we observe a quite large variance over the several runs": the squared error\'s '
            "deviation over the runs exceeds its mean at every ε": all(
                each.spread > each.squared.value for each in by[own]
            ),
            'S0: "especially for the Bank dataset": the statistic, relative to the true one, '
            "varies more than on Diabetes at every ε": all(
                one > two for one, two in zip(varied[own], varied[other], strict=True)
            ),
            'S0: "a small error in the small number E (the predicted number of positives in the '
            'first group) … may cause a large error": without noise in that number, more than '
            f"half of the mean squared error vanishes at ε from {MAY[0]:g} to {MAY[1]:g}": all(
                each.spared < each.squared.value / 2
                for each in by[own]
                if MAY[0] <= each.epsilon <= MAY[1]
            ),
        }
    return {
        'S0: a direct approach may be preferable "especially if ε is small": the mean squared '
        "error falls from each ε to the next": all(
            later.squared.value < earlier.squared.value for earlier, later in pairwise(by[own])
        ),
        'S0: a large variance "especially for the Bank dataset": on Diabetes the statistic, '
        "relative to the true one, varies less at every ε": all(
            one < two for one, two in zip(varied[own], varied[other], strict=True)
        ),
    }


def data_of(scale: Scale) -> dict[str, Scores]:
    if scale is Scale.PAPER:
        return {name: classified(name, whole=True) for name in ("bank", "diabetes")}
    return {"bank": made_up(3000, 0.1, 1.5), "diabetes": made_up(6000, 0.45, 0.5)}


def row_of(each: Errors) -> dict[str, Number]:
    return {
        "data": each.data,
        "way": each.way,
        "epsilon": each.epsilon,
        "relative_mse": each.squared.value,
        "lower": each.squared.lower,
        "upper": each.squared.upper,
        "deviation_of_squares": each.spread,
        "deviation_of_statistic": each.statistic,
        "relative_mse_without_that_noise": each.spared,
    }


def run(name: str, folder: Path, scale: Scale) -> Outcome:
    sizes, data = SIZES[scale], data_of(scale)
    measured = [each for of, scores in data.items() for each in measure(of, scores, sizes)]
    own = [each for each in measured if each.data == DATA[name][0]]
    return Outcome(
        judge(name, measured),
        {
            "data": data[DATA[name][0]].source,
            "records": len(data[DATA[name][0]].score),
            "runs": sizes.runs,
            "thresholds": sizes.points,
            "statistic": Calibrated(data[DATA[name][0]], sizes.points).truth.statistic,
            **{
                f"relative_mse_{way}": {
                    f"{each.epsilon:g}": each.squared.value for each in own if each.way == way
                }
                for way in WAYS
            },
        },
        [
            write_table(folder / f"{name}.csv", [row_of(each) for each in measured]),
            _draw(folder / f"{name}.png", name, own, sizes),
        ],
    )


def _draw(path: Path, name: str, own: Sequence[Errors], sizes: Sizes) -> Path:
    which = name[3:].replace("fig", "Fig. ")
    title = f"S0 {which}: a private Hosmer–Lemeshow statistic, {DATA[name][0].capitalize()}"
    canvas, (axes,) = panels(title, [""])
    canvas.set_size_inches(6.6, 4.6)
    epsilons = [float(each) for each in sizes.epsilons]
    lines = {
        label: [each.squared.value for each in own if each.way == way]
        for way, (_, label) in WAYS.items()
    }
    draw_lines(axes, epsilons, lines)
    log_axis(axes, "x", "ε", (1.0, 2.0, 5.0))
    log_axis(axes, "y", "mean squared error, relative")
    legend_below(canvas, [axes], 2)
    return save(canvas, path)


FIGURES = (
    Figure(
        "s0-fig6",
        "S0 §6.6, Fig. 6: on Bank the error of a private Hosmer–Lemeshow statistic varies much "
        "over the runs, by the few positives of the lowest group.",
        lambda folder, scale: run("s0-fig6", folder, scale),
    ),
    Figure(
        "s0-fig10",
        "S0 §6.6, Fig. 10: on Diabetes, with balanced classes, the error falls with ε and varies "
        "less than on Bank.",
        lambda folder, scale: run("s0-fig10", folder, scale),
    ),
)
