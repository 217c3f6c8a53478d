"""Scores and labels that the experiments on classifiers run on."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from parties.models import scored

SEED = 20211


@dataclass(frozen=True)
class Scores:
    """`source` says what data it is."""

    score: NDArray[np.float64]
    positive: NDArray[np.bool]
    source: str

    def sample(self, positives: int, negatives: int, rng: np.random.Generator) -> "Scores":
        """So many of each class, without replacement."""
        chosen = np.concatenate(
            [
                rng.choice(np.flatnonzero(self.positive), positives, replace=False),
                rng.choice(np.flatnonzero(~self.positive), negatives, replace=False),
            ]
        )
        return Scores(self.score[chosen], self.positive[chosen], self.source)


FILES = {
    "bank": ("bank_full.csv.gz", "label=y", (45211, 0.117, 1.9)),
    "adult": ("adult.csv.gz", "label=income&positive=>50K", (48842, 0.239, 1.9)),
    "heart": ("framingham.csv.gz", "label=TenYearCHD", (4240, 0.152, 0.9)),
}
"""The file, what it predicts, and what is made up where it is not there: records, prevalence and
how far the classes lie apart."""


def data_folder() -> Path:
    """`TALLY_DATA`, or the folder `shared/data` beside the project."""
    beside = Path(__file__).parents[3] / "shared" / "data"
    return Path(os.environ.get("TALLY_DATA", beside))


def classified(name: str, whole: bool = False) -> Scores:
    """A logistic regression's scores of the half it was not trained on, or of the whole file."""
    file, query, shape = FILES[name]
    path = data_folder() / file
    if not path.exists():
        return made_up(*shape)
    found = scored(f"{path}?{query}", "logistic", whole=whole)
    return Scores(
        found.columns["score"],
        found.columns["label"] == 1.0,
        f"logistic regression on {file}, {'all' if whole else 'held-out'} records",
    )


def made_up(records: int, prevalence: float, apart: float) -> Scores:
    rng = np.random.default_rng(SEED)
    positive = rng.random(records) < prevalence
    score = 1 / (1 + np.exp(1.5 - rng.normal(apart * positive)))
    return Scores(score, positive, f"{records} made-up scores")
