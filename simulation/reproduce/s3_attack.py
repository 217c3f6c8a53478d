"""S3 Fig. 2: an adversary who knows all but one label recovers that label from an exact AUC.

S3's caption speaks of "a dataset containing half positives and half negatives". Labels are drawn
by a fair coin here. In a set with exactly n/2 of each, whoever knows all labels but one can count:
the missing one is of the class that is short by one, without any AUC, however it is rounded.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tallyroom.simulation.reproduce.classified import SEED, Scores, classified, made_up
from tallyroom.simulation.reproduce.contract import Figure, Number, Outcome, Scale, write_table
from tallyroom.simulation.reproduce.drawing import level, panels, save

HIGH = 0.9
"""What "high probability" means, at the smallest size and most digits."""


@dataclass(frozen=True)
class Sizes:
    records: tuple[int, ...]
    digits: tuple[int, ...]
    runs: int


SIZES = {
    Scale.PAPER: Sizes((50, 100, 200, 500, 1000, 1500, 2000, 2500), (2, 3, 4, 5, 6, 7), 400),
    Scale.SMALL: Sizes((20, 60), (2, 7), 60),
}


def guess_label(ranking: NDArray[np.bool], released: float) -> bool:
    """The adversary: `ranking` has the labels of all other records, best score last. It tries the
    target at every place with either label, and guesses the label whose AUC comes nearest to the
    released one; on a tie, the more frequent label among those that tie."""
    positives = np.concatenate([[0], np.cumsum(ranking)])
    negatives = np.arange(len(ranking) + 1) - positives
    n, m = int(positives[-1]), int(negatives[-1])
    pairs = int(negatives[:-1][ranking].sum())
    as_positive = (pairs + negatives) / ((n + 1) * m)
    as_negative = (pairs + n - positives) / (n * (m + 1))
    distances = [np.abs(each - released) for each in (as_negative, as_positive)]
    nearest = min(float(each.min()) for each in distances)
    ties = [int((each <= nearest + 1e-12).sum()) for each in distances]
    return ties[1] > ties[0] if ties[0] and ties[1] else bool(ties[1])


def attack(data: Scores, digits: int, target: int) -> bool:
    """Whether the target's label is guessed right from an AUC rounded to `digits` digits."""
    order = np.argsort(data.score, kind="stable")
    ranked = data.positive[order]
    below = np.cumsum(~ranked)
    area = float(below[ranked].sum()) / (int(ranked.sum()) * int((~ranked).sum()))
    others = ranked[order != target]
    return guess_label(others, round(area, digits)) == bool(data.positive[target])


def measure(sizes: Sizes, paper: bool) -> tuple[list[dict[str, Number]], str]:
    data = classified("adult") if paper else made_up(2000, 0.5, 1.5)
    rows: list[dict[str, Number]] = []
    for records in sizes.records:
        rng = np.random.default_rng([SEED, records])
        right = dict.fromkeys(sizes.digits, 0)
        for _ in range(sizes.runs):
            positives = int(rng.binomial(records, 0.5))
            drawn = data.sample(positives, records - positives, rng)
            target = int(rng.integers(len(drawn.score)))
            for digits in sizes.digits:
                right[digits] += attack(drawn, digits, target)
        for digits, count in right.items():
            rows.append({"records": records, "digits": digits, "success": count / sizes.runs})
    return rows, data.source


def judge(rows: Sequence[dict[str, Number]], sizes: Sizes) -> dict[str, bool]:
    rate = {(row["records"], row["digits"]): float(row["success"]) for row in rows}
    most, least = max(sizes.digits), min(sizes.digits)
    first, last = min(sizes.records), max(sizes.records)
    mean = {d: float(np.mean([rate[n, d] for n in sizes.records])) for d in sizes.digits}
    return {
        f'S3: "given to a high number of decimal places, the adversary is able to recover the '
        f'class value with high probability": at least {HIGH:g} at {most} digits and {first} '
        "records": rate[first, most] >= HIGH,
        f'S3: "this ability falls as the number of data points increases": at {most} digits lower '
        f"at {last} records than at {first}": rate[last, most] < rate[first, most],
        f'S3: "rounding … does reduce the adversary\'s success": mean over the sizes at {least} '
        f"digits below that at {most}": mean[least] < mean[most],
    }


def run(folder: Path, scale: Scale) -> Outcome:
    sizes = SIZES[scale]
    rows, source = measure(sizes, scale is Scale.PAPER)
    return Outcome(
        judge(rows, sizes),
        {"data": source, "runs": sizes.runs, "success": [dict(row) for row in rows]},
        [write_table(folder / "s3-fig2.csv", rows), _draw(folder / "s3-fig2.png", rows, sizes)],
    )


def _draw(path: Path, rows: Sequence[dict[str, Number]], sizes: Sizes) -> Path:
    canvas, (axes,) = panels("S3 Fig. 2: a label recovered from an exact AUC", [""])
    canvas.set_size_inches(6.6, 4.4)
    for place, digits in enumerate(sizes.digits):
        own = [row for row in rows if row["digits"] == digits]
        shade = str(0.75 * (1 - place / max(1, len(sizes.digits) - 1)))
        axes.plot(
            [float(row["records"]) for row in own],
            [float(row["success"]) for row in own],
            color=shade,
            marker="o",
            ms=3,
            label=f"{digits} digits",
        )
    level(axes, 0.5, "guessing")
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("records, each positive with probability ½")
    axes.set_ylabel("label recovered")
    axes.legend(frameon=False, fontsize=8)
    return save(canvas, path)


FIGURE = Figure(
    "s3-fig2",
    "S3 §3.1, Fig. 2: given an AUC to many decimal places, an adversary who lacks one label "
    "recovers it with high probability, less so in larger data and from fewer digits.",
    run,
)
