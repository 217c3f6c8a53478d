"""S0 §6.6: a Hosmer–Lemeshow statistic that is computed exactly and gets one noise, on Bank.

S0 has no experiment and names no sensitivity. Scores are clipped to [c, 1 − c] here, and records
ranked by score are cut into Q groups whose sizes follow from n alone. With D = O − E, a group of
size g adds D²·g/(E(g − E)) to the statistic, and c·g ≤ E ≤ (1 − c)g. Replacing one record moves it
past the groups between its old and its new rank, each of which loses one record and gains one: E
moves by at most 1 − 2c, O by at most 1. So a group's term moves by at most the largest slope
within that reach times the way (`moved`).

Noise in proportion to the worst case over all data sets is what S0's words say. Beside it is noise
in proportion to a smooth bound (`protocols.privacy.smooth_sensitivity`): after k replacements D and
E are within k + 1 such steps of the data's, so that the worst case within that reach, times e^−βk,
is β-smooth. Both are ε-private, and need a trusted curator or secure computation between servers,
which is not built for this statistic. The error is relative to the statistic of unclipped scores;
medians are compared too, because Cauchy noise has no mean squared error.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.privacy.mechanisms import DiscreteLaplace
from tallyroom.protocols.privacy.smooth_sensitivity import SmoothNoise
from tallyroom.protocols.randomness import Randomness
from tallyroom.simulation.reproduce.by_epsilon import Sizes
from tallyroom.simulation.reproduce.classified import SEED
from tallyroom.simulation.reproduce.contract import Figure, Number, Outcome, Scale, write_table
from tallyroom.simulation.reproduce.drawing import (
    COLOURS,
    MARKERS,
    legend_below,
    log_axis,
    panels,
    save,
)
from tallyroom.simulation.reproduce.s0_calibration import GROUPS, SIZES, Calibrated, data_of

Vector = NDArray[np.float64]
CLIPPED = 0.01
"""c: a probability below it, or above 1 − c, counts as c or 1 − c."""
UNIT = Fraction(1, 1 << 20)
SMALL_EPSILON = 0.2
"""S0: "especially if ε is small"."""
REACH = 60
"""How many times 1/β replacements are looked at; beyond them the worst case is taken."""
INDIRECT, WORST, SMOOTH = "Algorithm 2", "direct, worst case", "direct, smooth bound"


@dataclass(frozen=True)
class Groups:
    """The size of each group, and its predicted and observed positives."""

    sizes: Vector
    predicted: Vector
    observed: Vector

    @classmethod
    def of(cls, score: Vector, positive: NDArray[np.bool], groups: int = GROUPS) -> "Groups":
        order = np.lexsort((positive, score))
        clipped = np.clip(score[order], CLIPPED, 1 - CLIPPED)
        ends = len(score) * np.arange(groups + 1) // groups
        return cls(
            np.diff(ends).astype(np.float64),
            np.add.reduceat(clipped, ends[:-1]),
            np.add.reduceat(positive[order].astype(np.float64), ends[:-1]),
        )

    @property
    def statistic(self) -> float:
        difference, rest = self.observed - self.predicted, self.sizes - self.predicted
        return float(np.sum(difference**2 * self.sizes / (self.predicted * rest)))

    def moved(self, replaced: Vector) -> Vector:
        """The most that one more replacement can move the statistic after so many others."""
        g, steps = self.sizes, np.asarray(replaced, dtype=np.float64)[:, None] + 1
        low, high = CLIPPED * g, (1 - CLIPPED) * g
        way = 1 - 2 * CLIPPED
        least = np.clip(self.predicted - steps * way, low, high)
        most = np.clip(self.predicted + steps * way, low, high)
        apart = np.minimum(np.abs(self.observed - self.predicted) + steps * (1 + way), high)
        # E(g - E) is concave: its least value within a range is at one of the ends.
        product = np.minimum(least * (g - least), most * (g - most))
        of_difference = 2 * apart * g / product
        of_predicted = apart**2 * g * np.maximum(np.abs(g - 2 * least), np.abs(g - 2 * most))
        found: Vector = np.sum(of_difference * (1 + way) + of_predicted / product**2 * way, axis=1)
        return found

    @property
    def worst(self) -> float:
        """A bound for all data sets of these sizes."""
        return float(self.moved(self.sizes.sum(keepdims=True))[0])

    def smooth(self, beta: float) -> float:
        """A β-smooth bound: the largest of e^−βk times what moves after k replacements."""
        most = min(int(self.sizes.sum()), int(REACH / beta))
        replaced = np.arange(most + 1, dtype=np.float64)
        within = float(np.max(np.exp(-beta * replaced) * self.moved(replaced)))
        return max(within, float(np.exp(-beta * (most + 1))) * self.worst)


def direct(groups: Groups, way: str, epsilon: Fraction, randomness: Randomness) -> float:
    value = Fraction(groups.statistic).limit_denominator(1 << 30)
    if way == WORST:
        units = round(groups.worst / float(UNIT)) + 1
        noise = DiscreteLaplace.spending(epsilon, units).draw(1, randomness)
        return float(value + int(noise[0]) * UNIT)
    noisy = SmoothNoise(epsilon)
    return float(noisy.release(value, groups.smooth(noisy.beta), UNIT, randomness))


def measure(calibrated: Calibrated, sizes: Sizes) -> list[dict[str, Number]]:
    data, true = calibrated.data, calibrated.truth.statistic
    groups = Groups.of(data.score, data.positive)
    rows: list[dict[str, Number]] = []
    for epsilon in sizes.epsilons:
        for way in (INDIRECT, WORST, SMOOTH):
            squares = []
            for run in range(sizes.runs):
                if way == INDIRECT:
                    found = calibrated.private("s0", Fraction(epsilon), run)[0].statistic
                else:
                    source = Randomness.from_seed(SEED, f"{way} {epsilon} {run}")
                    found = direct(groups, way, Fraction(epsilon), source)
                squares.append((found / true - 1) ** 2)
            rows.append(
                {
                    "protocol": way,
                    "epsilon": float(epsilon),
                    "relative_mse": float(np.mean(squares)),
                    "median_square": float(np.median(squares)),
                }
            )
    return rows


def _errors(rows: Sequence[Mapping[str, Number]], way: str, of: str) -> dict[float, float]:
    return {float(row["epsilon"]): float(row[of]) for row in rows if row["protocol"] == way}


def judge(rows: Sequence[Mapping[str, Number]]) -> dict[str, bool]:
    by, other = (_errors(rows, way, "relative_mse") for way in (WORST, INDIRECT))
    small = [each for each in by if each <= SMALL_EPSILON]
    return {
        'S0: "especially if ε is small … a direct approach may be preferable where one … adds '
        'noise at the end proportional to the sensitivity of (only) the HL statistic": the mean '
        f"squared error is below Algorithm 2's at every ε ≤ {SMALL_EPSILON:g}": bool(small)
        and all(by[each] < other[each] for each in small)
    }


def judge_ours(rows: Sequence[Mapping[str, Number]]) -> dict[str, bool]:
    by, other = (_errors(rows, way, "median_square") for way in (SMOOTH, INDIRECT))
    small = [each for each in by if each <= SMALL_EPSILON]
    return {
        f"the median squared error is below Algorithm 2's at every ε ≤ {SMALL_EPSILON:g}": bool(
            small
        )
        and all(by[each] < other[each] for each in small)
    }


def run(folder: Path, scale: Scale) -> Outcome:
    sizes, data = SIZES[scale], data_of(scale)["bank"]
    calibrated = Calibrated(data, sizes.points)
    rows, groups = measure(calibrated, sizes), Groups.of(data.score, data.positive)
    local = float(groups.moved(np.zeros(1))[0])
    return Outcome(
        judge(rows),
        {
            "data": data.source,
            "records": len(data.score),
            "runs": sizes.runs,
            "statistic": calibrated.truth.statistic,
            "statistic_of_clipped_scores": groups.statistic,
            "sensitivity_at_most": groups.worst,
            "moved_here_at_most": local,
            "rows": rows,
        },
        [
            write_table(folder / "s0-direct.csv", rows),
            _draw(folder / "s0-direct.png", rows, sizes),
        ],
        ours=judge_ours(rows),
        why="Noise in proportion to a smooth bound of the sensitivity at the data, where S0 names "
        "the sensitivity alone; compared by medians.",
    )


def _draw(path: Path, rows: Sequence[Mapping[str, Number]], sizes: Sizes) -> Path:
    canvas, (axes,) = panels("S0 §6.6: the Hosmer–Lemeshow statistic directly, Bank", [""])
    canvas.set_size_inches(6.6, 4.6)
    lines = (
        (INDIRECT, "relative_mse", "mean"),
        (INDIRECT, "median_square", "median"),
        (WORST, "relative_mse", "mean"),
        (SMOOTH, "median_square", "median"),
    )
    for (way, of, said), colour, marker in zip(lines, COLOURS, MARKERS, strict=True):
        found = _errors(rows, way, of)
        label = f"{way}, {said}"
        style = f"{marker}-"
        axes.plot(list(found), list(found.values()), style, color=colour, ms=4, lw=1.2, label=label)
    log_axis(axes, "x", "ε", (1.0, 2.0, 5.0))
    log_axis(axes, "y", "squared error, relative")
    legend_below(canvas, [axes], 2)
    return save(canvas, path)


FIGURE = Figure(
    "s0-direct",
    "S0 §6.6: where ε is small, it may be preferable to compute the Hosmer–Lemeshow statistic "
    "securely and to add noise to it alone.",
    run,
)
