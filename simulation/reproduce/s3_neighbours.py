"""S3 Fig. 1: ROC curves of two neighbouring sets, and how far one record can move their area.

S3 prints the class sizes and both areas, but not the scores. Normal scores are drawn until a set
has the first area and some change of one negative gives the second. What the figure shows, a curve
that one record moves, is then held to S3's local sensitivity over every change of one record.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tallyroom.simulation.reproduce.classified import SEED
from tallyroom.simulation.reproduce.contract import Figure, Number, Outcome, Scale, write_table
from tallyroom.simulation.reproduce.drawing import COLOURS, panels, save

Labels = NDArray[np.bool]
"""Whether each record is positive, the least score first. Scores are distinct."""

POSITIVES, NEGATIVES = 15, 15
PRINTED = (0.796, 0.772)
ATTEMPTS = 20_000


def area(labels: Labels) -> Fraction:
    below = np.cumsum(~labels)
    pairs = int(labels.sum()) * int((~labels).sum())
    return Fraction(int(below[labels].sum()), pairs)


def neighbours(labels: Labels) -> Iterator[tuple[bool, Labels]]:
    """Every set that differs in one record, and whether a negative became a positive in it."""
    for place in range(len(labels)):
        others = np.delete(labels, place)
        for score in range(len(labels)):
            for label in (False, True):
                yield bool(label and not labels[place]), np.insert(others, score, label)


@dataclass(frozen=True)
class Pair:
    """Two neighbouring sets with the printed areas, and the most that any change of one record
    moves the area of the first."""

    one: Labels
    other: Labels
    most: Fraction


def search() -> Pair | None:
    """None if no draw has the printed areas."""
    rng = np.random.default_rng(SEED)
    positive = np.arange(POSITIVES + NEGATIVES) < POSITIVES
    for _ in range(ATTEMPTS):
        labels = positive[np.argsort(rng.normal(1.2 * positive))]
        if round(float(area(labels)), 3) != PRINTED[0]:
            continue
        near = [(turned, other, area(other)) for turned, other in neighbours(labels)]
        most = max(abs(each - area(labels)) for _, _, each in near)
        for turned, other, each in near:
            if turned and round(float(each), 3) == PRINTED[1]:
                return Pair(labels, other, most)
    return None


def judge(found: Pair | None) -> dict[str, bool]:
    bound = Fraction(1, min(POSITIVES, NEGATIVES))
    return {
        'S3: "AUC for D and D′ is 0.796 and 0.772": there are neighbouring sets with these areas, '
        "of 15 and 15 and of 16 and 14 records": found is not None,
        "S3 §3.2: the local sensitivity of AUC is 1/min(n, m): no change of one record moves the "
        f"area of D by more than {float(bound):.4f}": found is not None and found.most <= bound,
    }


def run(folder: Path, scale: Scale) -> Outcome:
    found = search()
    drawn = [] if found is None else [("D", found.one), ("D′", found.other)]
    rows = [row for name, labels in drawn for row in _points(name, labels)]
    return Outcome(
        judge(found),
        {
            "positives": POSITIVES,
            "negatives": NEGATIVES,
            "most_moved": float(found.most) if found else "none found",
            "scores": "drawn by us: S3 does not print its own",
        },
        [
            write_table(folder / "s3-fig1.csv", rows or _points("none", np.array([True, False]))),
            _draw(folder / "s3-fig1.png", drawn),
        ],
    )


def rates(labels: Labels) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """False and true positive rates, from the highest threshold to the lowest."""
    falling = labels[::-1]
    true = np.concatenate([[0.0], np.cumsum(falling) / falling.sum()])
    false = np.concatenate([[0.0], np.cumsum(~falling) / (~falling).sum()])
    return false, true


def _points(name: str, labels: Labels) -> list[dict[str, Number]]:
    false, true = rates(labels)
    return [
        {"curve": name, "false_positive_rate": float(x), "true_positive_rate": float(y)}
        for x, y in zip(false, true, strict=True)
    ]


def _draw(path: Path, drawn: list[tuple[str, Labels]]) -> Path:
    canvas, (axes,) = panels("S3 Fig. 1: two neighbouring databases", [""])
    canvas.set_size_inches(5.6, 5.4)
    for (name, labels), colour, style in zip(drawn, COLOURS, ("-", "--"), strict=False):
        label = f"{name}: AUC {float(area(labels)):.3f}"
        axes.plot(*rates(labels), color=colour, ls=style, label=label)
    axes.set_aspect("equal")
    axes.set_xlim(-0.01, 1.01)
    axes.set_ylim(-0.01, 1.01)
    axes.set_xlabel("false positive rate")
    axes.set_ylabel("true positive rate")
    if drawn:
        axes.legend(frameon=False, fontsize=8, loc="lower right")
    return save(canvas, path)


FIGURE = Figure(
    "s3-fig1",
    "S3 §3, Fig. 1: a negative that becomes a positive with another score moves the ROC curve of "
    "15 positives and 15 negatives, and its AUC from 0.796 to 0.772.",
    run,
)
