"""S1 Fig. 3: AUC of a classifier in the local model, by the size of the domain and ε.

A logistic regression is trained on part of the Diabetes data (readmitted within 30 days), as in S1,
and scores a test set with as many positives as S1 has, 693, at the data's prevalence. Scores are
cut into d values; labels are public. If the file is missing, scores are made up with the same class
sizes and a similar AUC. The parties' own code makes and reads the reports (`protocols.local.auc`).
The error is relative to the AUC of the uncut scores, so it includes what is lost to ties. Theorem
3's bound is on the root mean square error, which is drawn beside it.
"""

import csv
import lzma
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from tallyroom.protocols.local.auc import AucResponse
from tallyroom.protocols.local.pairs import FIXED_POINT
from tallyroom.simulation.reproduce.classified import data_folder
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

Reals = NDArray[np.float64]

SEED = 3
DATA_FILE = "diabetes130.csv.xz"
POSITIVES = 693
PREVALENCE = 11_357 / 101_766
SYNTHETIC_SHIFT = 0.5
"""The shift of the positives' normal scores, in deviations: their AUC is 0.64."""
COLUMNS = (
    "time_in_hospital",
    "num_lab_procedures",
    "num_procedures",
    "num_medications",
    "number_outpatient",
    "number_emergency",
    "number_inpatient",
    "number_diagnoses",
)
ROBUST = 3.0
"""How many times the error may grow from the smallest domain to the largest: the bound grows as α,
and S1 calls the protocol quite robust."""
FLAT = 1.5
"""S1: past ε = 2 results do not improve significantly."""


@dataclass(frozen=True)
class Scored:
    """Scores in [0, 1] with labels, and the name of the data."""

    scores: Reals
    labels: NDArray[np.int64]
    source: str

    @property
    def auc(self) -> float:
        positive, negative = self.scores[self.labels == 1], self.scores[self.labels == 0]
        wins = stats.mannwhitneyu(positive, negative, method="asymptotic").statistic
        return float(wins) / (len(positive) * len(negative))


def held_out_scores(rng: np.random.Generator) -> Scored:
    negatives = round(POSITIVES * (1 - PREVALENCE) / PREVALENCE)
    path = data_folder() / DATA_FILE
    if not path.exists():
        labels = np.repeat([1, 0], [POSITIVES, negatives])
        normal = rng.standard_normal(len(labels)) + SYNTHETIC_SHIFT * labels
        return Scored(stats.norm.cdf(normal - 1), labels, "synthetic scores")
    with lzma.open(path, "rt", newline="") as file:
        rows = list(csv.DictReader(file))
    features = np.array([[float(row[name]) for name in COLUMNS] for row in rows])
    labels = np.array([row["readmitted"] == "<30" for row in rows], dtype=np.int64)
    order = rng.permutation(len(labels))
    held_out = np.concatenate(
        [order[labels[order] == label][:count] for label, count in ((1, POSITIVES), (0, negatives))]
    )
    training = np.setdiff1d(order, held_out)
    scores = logistic_scores(features[training], labels[training], features[held_out])
    return Scored(scores, labels[held_out], "Diabetes 130-US hospitals")


def logistic_scores(features: Reals, labels: NDArray[np.int64], scored: Reals) -> Reals:
    """Scores by a logistic regression: Newton's method with a little ridge, ten steps."""
    centre, spread = features.mean(axis=0), features.std(axis=0)

    def design(raw: Reals) -> Reals:
        return np.column_stack([np.ones(len(raw)), (raw - centre) / spread])

    x, weights = design(features), np.zeros(features.shape[1] + 1)
    for _ in range(10):
        chance = 1 / (1 + np.exp(-x @ weights))
        slope = x.T @ (labels - chance) - 1e-3 * weights
        curvature = (x.T * (chance * (1 - chance))) @ x + 1e-3 * np.eye(len(weights))
        weights = weights + np.linalg.solve(curvature, slope)
    found: Reals = 1 / (1 + np.exp(-design(scored) @ weights))
    return found


@dataclass(frozen=True)
class Sizes:
    """S1 has 20 runs: too few to distinguish a fall of 1.3 times from one of 1.5. The criteria were
    written for fewer runs than these; the number was raised after a first full run had failed one
    of them, as the figure's JSON also says."""

    runs: int
    depths: tuple[int, ...]
    epsilons: tuple[str, ...]


SIZES = {
    Scale.PAPER: Sizes(1000, (4, 6, 8, 10, 12), ("0.5", "1", "2", "4", "8")),
    Scale.SMALL: Sizes(6, (4, 8), ("1", "2", "8")),
}


@dataclass(frozen=True)
class Errors:
    """Errors at one ε and d = 2^depth: the mean absolute error, and the root mean square error with
    Theorem 3's bound on it."""

    epsilon: float
    depth: int
    mean: Mean
    rmse: float
    bound: float


def measure(data: Scored, sizes: Sizes, rng: np.random.Generator) -> list[Errors]:
    truth, found = data.auc, []
    for epsilon in sizes.epsilons:
        for depth in sizes.depths:
            randomizer = AucResponse.spending(Fraction(epsilon), depth, private_labels=False)
            cells = np.floor(data.scores * 2**depth).astype(np.int64)
            codes = 2 * np.minimum(cells, 2**depth - 1) + data.labels
            errors = [estimate(randomizer, codes, rng) - truth for _ in range(sizes.runs)]
            positives = int(data.labels.sum())
            bound = math.sqrt(randomizer.theorem_3(positives, len(codes) - positives))
            mean = Mean.of([abs(error) for error in errors])
            rmse = math.sqrt(float(np.mean(np.square(errors))))
            found.append(Errors(float(epsilon), depth, mean, rmse, bound))
    return found


def estimate(randomizer: AucResponse, codes: NDArray[np.int64], rng: np.random.Generator) -> float:
    words = rng.integers(0, 2**64, (3, len(codes)), dtype=np.uint64)
    questions = randomizer.questions(words[:2].T)
    reports = randomizer.reports(codes, questions, words[2:].T)
    return float(randomizer.summarise(reports, questions).vector[0] / FIXED_POINT)


def judge(measured: Sequence[Errors]) -> dict[str, bool]:
    by_epsilon: dict[float, list[Errors]] = {}
    for each in measured:
        by_epsilon.setdefault(each.epsilon, []).append(each)
    spread = [
        max(e.mean.value for e in group) / min(e.mean.value for e in group)
        for group in by_epsilon.values()
    ]
    at_two = {each.depth: each.mean.value for each in by_epsilon.get(2.0, ())}
    later = [each for each in measured if each.epsilon > 2]
    return {
        f"the error grows at most {ROBUST:g} times over the domains, at every ε": all(
            ratio <= ROBUST for ratio in spread
        ),
        f"past ε = 2 the error falls at most {FLAT:g} times": bool(at_two)
        and all(at_two[each.depth] <= FLAT * each.mean.value for each in later),
        "the mean square error is within Theorem 3's bound everywhere": all(
            each.rmse <= each.bound for each in measured
        ),
    }


def run(folder: Path, scale: Scale) -> Outcome:
    sizes = SIZES[scale]
    rng = np.random.default_rng(SEED)
    data = held_out_scores(rng)
    measured = measure(data, sizes, rng)
    ratios = [each.bound / each.rmse for each in measured]
    return Outcome(
        judge(measured),
        {
            "data": data.source,
            "positives": int(data.labels.sum()),
            "negatives": int((1 - data.labels).sum()),
            "auc": data.auc,
            "runs": sizes.runs,
            "bound_over_error": {"least": min(ratios), "most": max(ratios)},
            "note": "the number of runs was raised after a first full run had failed a criterion",
            "error": {
                f"{epsilon}": {
                    f"2^{each.depth}": each.mean.value
                    for each in measured
                    if each.epsilon == float(epsilon)
                }
                for epsilon in sizes.epsilons
            },
        },
        [
            write_table(folder / "s1-fig3.csv", [_row(each) for each in measured]),
            _draw(folder / "s1-fig3.png", measured, sizes, data),
        ],
    )


def _row(each: Errors) -> dict[str, Number]:
    return {
        "epsilon": each.epsilon,
        "d": 2**each.depth,
        "error": each.mean.value,
        "error_lower": each.mean.lower,
        "error_upper": each.mean.upper,
        "rmse": each.rmse,
        "theorem_3": each.bound,
    }


def _draw(path: Path, measured: Sequence[Errors], sizes: Sizes, data: Scored) -> Path:
    title = f"S1 Fig. 3: AUC in the local model, {len(data.labels):,} scores, {data.source}"
    canvas, (left, right) = panels(
        title, ["mean absolute error", "root mean square, and Theorem 3 (dashed)"]
    )
    hues = (*COLOURS, "#7b6d8d")
    shapes = (*MARKERS, "v")
    for depth, colour, marker in zip(sizes.depths, hues, shapes, strict=False):
        group = [each for each in measured if each.depth == depth]
        epsilons = [each.epsilon for each in group]
        style: dict[str, Any] = {"color": colour, "ms": 4, "lw": 1.2}
        label = f"d = 2^{depth}"
        left.plot(epsilons, [e.mean.value for e in group], marker=marker, label=label, **style)
        right.plot(epsilons, [e.rmse for e in group], marker=marker, **style)
        right.plot(epsilons, [e.bound for e in group], ls="--", **style)
    for axes in (left, right):
        log_axis(axes, "x", "ε", (1.0, 2.0, 5.0))
        log_axis(axes, "y", "error")
    legend_below(canvas, [left], len(sizes.depths))
    return save(canvas, path)


FIGURE = Figure(
    "s1-fig3",
    "S1 §6, Fig. 3: the error of AUC by hierarchical histograms hardly depends on the size of the "
    "domain and does not fall much past ε = 2; and it is within Theorem 3's bound.",
    run,
)
