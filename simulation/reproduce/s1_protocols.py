"""S1 §7: how S1's two protocols for AUC in the local model scale with the number of bins.

The generic protocol (S1 Algorithm 1) is randomized response among the d bins, and the specialised
one is that of S1's Fig. 3, hierarchical histograms. Labels are public in both, as in S1 §6. The
appendix with S1's own comparison could not be had, so the claim is the sentence that sums it up in
§7, and the set-up is that of Fig. 3: scores of Diabetes in d bins, and the error is relative to the
AUC of the uncut scores.

The same runs show which protocol errs less at its best d: that is no claim of S1, and `ours`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.local import RandomizedResponse
from tallyroom.protocols.local.auc import AucResponse
from tallyroom.simulation.reproduce.confidence import Mean
from tallyroom.simulation.reproduce.contract import Figure, Number, Outcome, Scale, write_table
from tallyroom.simulation.reproduce.drawing import (
    COLOURS,
    MARKERS,
    legend_below,
    log_axis,
    panels,
    save,
)
from tallyroom.simulation.reproduce.s1_auc import Reals, Scored, estimate, held_out_scores

SEED = 7
GENERIC, HIERARCHICAL = "randomized response", "hierarchical histograms"
MUCH = 2.0
"""What "much better" means: how many times the generic protocol's error must grow for each time
that the specialised one's grows."""
JUDGED = 2.0
"""Where S1 speaks of high privacy (ε ≤ 2)."""
FEWEST = 16
"""The least number of bins that is judged: with fewer, most of the error is that of cutting scores
into bins, which both protocols share."""


@dataclass(frozen=True)
class Sizes:
    """S1 has 20 runs of each; there are as many here."""

    runs: int
    depths: tuple[int, ...]
    epsilons: tuple[str, ...]


SIZES = {
    Scale.PAPER: Sizes(20, (2, 4, 6, 8, 10, 12), ("0.5", "1", "2", "4", "8")),
    Scale.SMALL: Sizes(3, (4, 7), ("1", "4")),
}


def in_bins(data: Scored, depth: int) -> NDArray[np.int64]:
    """Bins of equal width, like those of Fig. 3."""
    bins: NDArray[np.int64] = (
        np.floor(data.scores * 2**depth).astype(np.int64).clip(0, 2**depth - 1)
    )
    return bins


def generic(data: Scored, depth: int, epsilon: Fraction, rng: np.random.Generator) -> float:
    """S1 Algorithm 1 for one run: the counts of reports, unbiased, then AUC of the histograms."""
    randomizer = RandomizedResponse.spending(epsilon, 2**depth)
    words = rng.integers(0, 2**64, (len(data.labels), 1), dtype=np.uint64)
    reports = randomizer.randomize(in_bins(data, depth), words)
    histograms: list[Reals] = []
    for label in (0, 1):
        own = reports[data.labels == label]
        counts = np.bincount(own, minlength=2**depth) / len(own)
        histograms.append((counts - randomizer.q) / (randomizer.p - randomizer.q))
    negative, positive = histograms
    below = np.cumsum(negative) - negative
    return float(positive @ (below + negative / 2))


def hierarchical(data: Scored, depth: int, epsilon: Fraction, rng: np.random.Generator) -> float:
    randomizer = AucResponse.spending(epsilon, depth, private_labels=False)
    return estimate(randomizer, 2 * in_bins(data, depth) + data.labels, rng)


WAYS = {GENERIC: generic, HIERARCHICAL: hierarchical}


def measure(data: Scored, sizes: Sizes) -> list[dict[str, Number]]:
    rows: list[dict[str, Number]] = []
    for way, protocol in WAYS.items():
        for epsilon in sizes.epsilons:
            for depth in sizes.depths:
                rng = np.random.default_rng([SEED, depth, int(8 * float(epsilon))])
                errors = [
                    abs(protocol(data, depth, Fraction(epsilon), rng) - data.auc)
                    for _ in range(sizes.runs)
                ]
                mean = Mean.of(errors)
                rows.append(
                    {
                        "protocol": way,
                        "epsilon": float(epsilon),
                        "d": 2**depth,
                        "error": mean.value,
                        "error_lower": mean.lower,
                        "error_upper": mean.upper,
                    }
                )
    return rows


def _growth(rows: Sequence[dict[str, Number]], way: str, epsilon: float) -> float:
    own = [row for row in rows if row["protocol"] == way and row["epsilon"] == epsilon]
    by = {int(row["d"]): float(row["error"]) for row in own if int(row["d"]) >= FEWEST}
    return by[max(by)] / by[min(by)]


def judge(rows: Sequence[dict[str, Number]]) -> dict[str, bool]:
    epsilons = sorted({float(row["epsilon"]) for row in rows if float(row["epsilon"]) <= JUDGED})
    return {
        'S1: the hierarchical structure scales "much better with the number of bins": from '
        f"{FEWEST} bins to the most, the generic protocol's error grows at least {MUCH:g} times as "
        f"much, at every ε ≤ {JUDGED:g}": bool(epsilons)
        and all(
            _growth(rows, GENERIC, each) >= MUCH * _growth(rows, HIERARCHICAL, each)
            for each in epsilons
        ),
    }


def judge_ours(rows: Sequence[dict[str, Number]]) -> dict[str, bool]:
    found = {}
    for epsilon in sorted({float(row["epsilon"]) for row in rows}):
        least = {
            way: min(
                float(row["error"])
                for row in rows
                if row["protocol"] == way and row["epsilon"] == epsilon
            )
            for way in WAYS
        }
        words = f"at ε = {epsilon:g} the generic protocol errs less, each at its best d"
        found[words] = least[GENERIC] < least[HIERARCHICAL]
    return found


def run(folder: Path, scale: Scale) -> Outcome:
    data = held_out_scores(np.random.default_rng(SEED))
    rows = measure(data, SIZES[scale])
    return Outcome(
        judge(rows),
        {"data": data.source, "auc": data.auc, "runs": SIZES[scale].runs, "rows": rows},
        [
            write_table(folder / "s1-protocols.csv", rows),
            _draw(folder / "s1-protocols.png", rows, data),
        ],
        ours=judge_ours(rows),
        why="Which of S1's two protocols to take, each with as many bins as suit it: S1 makes no "
        "claim about it.",
    )


def _draw(path: Path, rows: Sequence[dict[str, Number]], data: Scored) -> Path:
    title = f"S1's protocols for AUC by the number of bins, {len(data.labels):,} scores"
    canvas, axes = panels(title, list(WAYS))
    epsilons = sorted({float(row["epsilon"]) for row in rows})
    hues = (*COLOURS, "#7b6d8d")
    shapes = (*MARKERS, "v")
    for each, way in zip(axes, WAYS, strict=True):
        for epsilon, colour, marker in zip(epsilons, hues, shapes, strict=False):
            own = [row for row in rows if row["protocol"] == way and row["epsilon"] == epsilon]
            each.plot(
                [int(row["d"]) for row in own],
                [float(row["error"]) for row in own],
                color=colour,
                marker=marker,
                ms=4,
                lw=1.2,
                label=f"ε = {epsilon:g}",
            )
        each.set_xscale("log", base=2)
        each.set_xlabel("bins d")
        log_axis(each, "y", "mean absolute error", (1.0, 2.0, 5.0))
    legend_below(canvas, [axes[0]], len(epsilons))
    return save(canvas, path)


FIGURE = Figure(
    "s1-protocols",
    "S1 §7: by hierarchical histograms the protocol for AUC scales much better with the number of "
    "bins than randomized response does.",
    run,
)
