"""S2 Fig. 4(a): the smallest difference in AUC that PriROC can distinguish, by n·ε.

S2 varies the product n·ε alone; here n varies and ε = 1. Judged is S2's own PriROC (`s2_priroc`);
beside it is this project's, and PriROC-fix of both. A data set of AUC a has half its records
positive; g_i positives rank below the i-th negative, Σ g = (1 − a)(n/2)² (S2 prints n/2), and
scores are the ranks, evenly spaced in [0, 1].
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from tallyroom.protocols.privacy.priroc import depth_for, priroc
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.statistics.classifier_estimates import Judgement
from tallyroom.simulation.reproduce.classified import SEED
from tallyroom.simulation.reproduce.contract import Figure, Number, Outcome, Scale, write_table
from tallyroom.simulation.reproduce.drawing import COLOURS, MARKERS, panels, save
from tallyroom.simulation.reproduce.s2_priroc import s2_priroc

Labels = NDArray[np.bool]
PAPER = {200: 0.1, 500: 0.05, 1000: 0.025, 2000: 0.025}
"""n·ε, and the smallest difference that S2 distinguishes there."""
LEVEL = 0.05
STEP = 0.025
METHODS = {
    "priroc": ("S2", False),
    "priroc_fix": ("S2", True),
    "our_priroc": ("ours", False),
    "our_priroc_fix": ("ours", True),
}
EPSILON = Fraction(1)


@dataclass(frozen=True)
class Sizes:
    products: tuple[int, ...]
    repeats: int
    areas: tuple[float, ...]


SIZES = {
    Scale.PAPER: Sizes(tuple(PAPER), 20, tuple(round(0.7 + STEP * each, 3) for each in range(11))),
    Scale.SMALL: Sizes((200, 500, 1000), 4, (0.7, 0.75)),
}


def ladder(records: int, area: float) -> Labels:
    """Labels by increasing score whose AUC is `area`, to within a pair.

    g falls as (1 − u)^k with the mean 1 − a, k = a/(1 − a): a curve without corners.
    """
    half = records // 2
    wanted = round((1 - area) * half * half)
    places = (np.arange(half) + 0.5) / half
    g = half * (1 - places) ** (area / (1 - area))
    whole = np.floor(g).astype(np.int64)
    # The largest remainders are rounded up; g stays non-increasing after sorting.
    missing = wanted - int(whole.sum())
    order = np.argsort(whole - g, kind="stable")
    for at in range(abs(missing)):
        whole[order[at % half]] += np.sign(missing)
    whole = np.sort(np.clip(whole, 0, half))[::-1]
    labels = []
    seen = 0
    for below in whole:  # from the best score down
        labels += [True] * (half - int(below) - seen) + [False]
        seen = half - int(below)
    labels += [True] * (half - seen)
    return np.array(labels[::-1])


def noisy_areas(
    labels: Labels, mechanism: str, fixed: bool, repeats: int, name: str
) -> list[float]:
    """AUC of the private curve, with fresh noise each time. Every record has a cell of its own."""
    found = []
    negatives, positives = (~labels).astype(np.int64), labels.astype(np.int64)
    for repeat in range(repeats):
        source = Randomness.from_seed(SEED, f"{name} {repeat}")
        if mechanism == "S2":
            release = s2_priroc(negatives, positives, EPSILON, source, fixed).curve
        else:
            depth = depth_for(len(labels), EPSILON)
            release = priroc(negatives, positives, depth, EPSILON, source, fixed=fixed)
        ends = np.append(release.thresholds, len(labels)) / len(labels)
        found.append(Judgement.of(release.distributions, ends, "youden").auc)
    return found


def power(areas: Mapping[float, list[float]]) -> tuple[float, float]:
    """The least difference, in steps, at which every pair is distinguished, and the largest p-value
    there; NaN if there is none."""
    ladder_of = sorted(areas)
    for steps in range(1, len(ladder_of)):
        values = [
            float(stats.ttest_ind(areas[low], areas[high]).pvalue)
            for low, high in zip(ladder_of, ladder_of[steps:], strict=False)
        ]
        if max(values) < LEVEL:
            return round(steps * STEP, 3), max(values)
    return float("nan"), float("nan")


def measure(sizes: Sizes) -> list[dict[str, Number]]:
    rows: list[dict[str, Number]] = []
    for product in sizes.products:
        row: dict[str, Number] = {"n_epsilon": product, "paper": PAPER[product]}
        for method, (mechanism, fixed) in METHODS.items():
            areas = {
                area: noisy_areas(
                    ladder(product, area),
                    mechanism,
                    fixed,
                    sizes.repeats,
                    f"{method} {product} {area}",
                )
                for area in sizes.areas
            }
            difference, largest = power(areas)
            # Numbers in tables must be finite: "none found" is worse than all that was tried.
            tried = round(sizes.areas[-1] - sizes.areas[0] + STEP, 3)
            row[method] = tried if np.isnan(difference) else difference
            row[f"{method}_p"] = 1.0 if np.isnan(largest) else largest
            row[f"{method}_error"] = float(
                np.mean([np.abs(np.array(each) - area).mean() for area, each in areas.items()])
            )
        rows.append(row)
    return rows


def judge(rows: list[dict[str, Number]], method: str) -> dict[str, bool]:
    found = [float(row[method]) for row in rows]
    told = {
        f"S2 Fig. 4(a), n·ε = {row['n_epsilon']}: PriROC tells apart AUC that differ by "
        f"{row['paper']:g} (two-sample t-test of 20 and 20, p < {LEVEL:g}, for every pair)": float(
            row[method]
        )
        <= float(row["paper"])
        for row in rows
    }
    return told | {
        'S2: "larger n·ε products allow us to discriminate between ROC curves with smaller '
        'differences in AUC": it never grows with n·ε': all(a >= b for a, b in pairwise(found))
    }


def run(folder: Path, scale: Scale) -> Outcome:
    sizes = SIZES[scale]
    rows = measure(sizes)
    return Outcome(
        judge(rows, "priroc"),
        {"repeats": sizes.repeats, "power": [dict(row) for row in rows]},
        [write_table(folder / "s2-fig4.csv", rows), _draw(folder / "s2-fig4.png", rows)],
        ours=judge(rows, "our_priroc"),
        why="The same claims about this project's PriROC, with fewer bins and HB.",
    )


def _draw(path: Path, rows: list[dict[str, Number]]) -> Path:
    canvas, (axes,) = panels("S2 Fig. 4(a): the least difference in AUC that is told apart", [""])
    canvas.set_size_inches(6.6, 4.2)
    labels = {
        "paper": "as S2 prints it",
        "priroc": "S2's PriROC",
        "priroc_fix": "S2's PriROC-fix",
        "our_priroc": "our PriROC",
    }
    for name, colour, marker in zip(labels, COLOURS, MARKERS, strict=True):
        axes.plot(
            [float(row["n_epsilon"]) for row in rows],
            [float(row[name]) for row in rows],
            color=colour,
            marker=marker,
            label=labels[name],
        )
    axes.set_xlabel("n·ε")
    axes.set_ylabel("difference in AUC")
    axes.set_ylim(0, None)
    axes.legend(frameon=False)
    return save(canvas, path)


FIGURE = Figure(
    "s2-fig4",
    "S2 §3.3.4, Fig. 4(a): at n·ε = 200, 500, 1000 and 2000 PriROC tells apart classifiers whose "
    "AUC differ by 0.1, 0.05, 0.025 and 0.025.",
    run,
)
