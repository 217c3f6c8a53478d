"""S3 Fig. 5: the error that privacy adds to AUC and average precision, beside that of sampling.

S3's panels show its diabetes data, which is not available: Adult takes its place. The noise has the
tighter constants of `protocols.privacy.smooth_sensitivity`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.privacy.smooth_sensitivity import (
    GRID,
    SmoothNoise,
    auc,
    average_precision,
    smooth_auc,
    smooth_average_precision,
)
from tallyroom.protocols.randomness import Randomness
from tallyroom.simulation.reproduce.classified import SEED, Scores, classified, made_up
from tallyroom.simulation.reproduce.contract import Figure, Number, Outcome, Scale, write_table
from tallyroom.simulation.reproduce.drawing import COLOURS, level, log_axis, panels, save

Vector = NDArray[np.float64]
Metric = tuple[Callable[[Vector, Vector], Fraction], Callable[[int, int, float], float]]
METRICS: dict[str, Metric] = {
    "AUC": (auc, smooth_auc),
    "AP": (average_precision, smooth_average_precision),
}
SIMILAR = 1.5
"""A DP error up to this many times the estimation error is "similar or smaller"."""
MUCH = 2.0
"""The least factor that counts as "much higher"."""
JUDGED_EPSILON = 1.0


@dataclass(frozen=True)
class Sizes:
    positives: tuple[int, ...]
    epsilons: tuple[str, ...]
    deltas: tuple[float, ...]
    runs: int


SIZES = {
    Scale.PAPER: Sizes(
        (100, 250, 500, 1000), ("0.1", "0.2", "0.5", "1", "2"), (0.0, 1e-4, 0.01), 100
    ),
    Scale.SMALL: Sizes((20, 100), ("0.5", "1"), (0.0, 0.01), 6),
}


def measure(data: Scores, sizes: Sizes) -> list[dict[str, Number]]:
    """Mean absolute errors: of a private value, and of the sample's value from the population's."""
    rows: list[dict[str, Number]] = []
    for name, (exact, smooth) in METRICS.items():
        for size in sizes.positives:
            rng = np.random.default_rng([SEED, size])
            # Prevalence changes AP, so the population has equally many of each class too.
            most = min(int(data.positive.sum()), int((~data.positive).sum()), 5000)
            whole = data.sample(most, most, np.random.default_rng(SEED))
            population = float(exact(whole.score[whole.positive], whole.score[~whole.positive]))
            samples = [data.sample(size, size, rng) for _ in range(sizes.runs)]
            values = [exact(s.score[s.positive], s.score[~s.positive]) for s in samples]
            sampling = float(np.mean([abs(float(value) - population) for value in values]))
            for delta in sizes.deltas:
                for epsilon in sizes.epsilons:
                    noise = SmoothNoise(Fraction(epsilon), delta)
                    bound = smooth(size, size, noise.beta)
                    randomness = Randomness.from_seed(SEED, f"{name} {size} {delta} {epsilon}")
                    private = [noise.release(value, bound, GRID, randomness) for value in values]
                    clipped = [min(max(float(each), 0.0), 1.0) for each in private]
                    error = np.mean(
                        [abs(one - float(two)) for one, two in zip(clipped, values, strict=True)]
                    )
                    rows.append(
                        {
                            "metric": name,
                            "positives": size,
                            "delta": delta,
                            "epsilon": float(epsilon),
                            "dp_error": float(error),
                            "estimation_error": sampling,
                        }
                    )
    return rows


def judge(rows: Sequence[dict[str, Number]]) -> dict[str, bool]:
    def errors(metric: str, private: bool) -> list[tuple[int, float, float]]:
        return [
            (int(row["positives"]), float(row["dp_error"]), float(row["estimation_error"]))
            for row in rows
            if row["metric"] == metric
            and (float(row["delta"]) > 0) is private
            and float(row["epsilon"]) == JUDGED_EPSILON
        ]

    laplace, cauchy = errors("AUC", True), errors("AUC", False)
    average = errors("AP", True)
    sizes = sorted({size for size, _, _ in laplace})
    ratios = {
        size: float(np.mean([dp / sampling for at, dp, sampling in laplace if at == size]))
        for size in sizes
    }
    at = f"at ε = {JUDGED_EPSILON:g}"
    return {
        f'S3: "with (ε, δ)-differential privacy the DP error is similar or smaller than the '
        f'estimation error": AUC, δ > 0, {at}, at most {SIMILAR:g} times at every size': all(
            dp <= SIMILAR * sampling for _, dp, sampling in laplace
        ),
        f'S3, where its text has the two swapped: "the Cauchy noise when δ = 0 causes" the DP '
        f"error to be larger than the estimation error: AUC, δ = 0, {at}, at every size": all(
            dp > sampling for _, dp, sampling in cauchy
        ),
        'S3: "as dataset size increases, not only does the DP error decrease, but it decreases '
        f'relative to the estimation error": AUC, δ > 0, {at}, largest against smallest size': (
            ratios[sizes[-1]] < ratios[sizes[0]]
        ),
        f'S3: AP\'s "DP error is much higher than the estimation error": δ > 0, {at}, at least '
        f"{MUCH:g} times at every size": all(dp >= MUCH * each for _, dp, each in average),
    }


def run(folder: Path, scale: Scale) -> Outcome:
    sizes = SIZES[scale]
    data = classified("adult") if scale is Scale.PAPER else made_up(4000, 0.5, 1.5)
    rows = measure(data, sizes)
    return Outcome(
        judge(rows),
        {"data": data.source, "runs": sizes.runs, "errors": [dict(row) for row in rows]},
        [write_table(folder / "s3-fig5.csv", rows), _draw(folder / "s3-fig5.png", rows, sizes)],
    )


def _draw(path: Path, rows: Sequence[dict[str, Number]], sizes: Sizes) -> Path:
    names = [f"{metric}, n = m = {size}" for metric in METRICS for size in sizes.positives]
    canvas, axes = panels("S3 Fig. 5: what privacy adds to the error", names, height=3.8)
    canvas.set_size_inches(2.4 * len(names) + 1, 3.8)
    for each, name in zip(axes, names, strict=True):
        metric, size = name.split(", n = m = ")
        own = [row for row in rows if row["metric"] == metric and row["positives"] == int(size)]
        for delta, colour in zip(sizes.deltas, COLOURS, strict=False):
            chosen = [row for row in own if row["delta"] == delta]
            each.plot(
                [float(row["epsilon"]) for row in chosen],
                [float(row["dp_error"]) for row in chosen],
                color=colour,
                marker="o",
                ms=3,
                label=f"δ = {delta:g}",
            )
        level(each, float(own[0]["estimation_error"]), "estimation error")
        log_axis(each, "x", "ε")
        log_axis(each, "y", "mean absolute error" if each is axes[0] else "")
    axes[0].legend(frameon=False, fontsize=8)
    return save(canvas, path)


FIGURE = Figure(
    "s3-fig5",
    "S3 §4, Fig. 5: with δ > 0 the DP error of AUC is similar to or smaller than the error of "
    "sampling and falls faster with size; that of average precision is much higher.",
    run,
)
