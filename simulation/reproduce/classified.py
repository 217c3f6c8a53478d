"""Scores and labels for the experiments on classifiers."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tallyroom.parties.models import scored
from tallyroom.parties.tables import read_table

SEED = 20211


@dataclass(frozen=True)
class Scores:
    """`source` names the data."""

    score: NDArray[np.float64]
    positive: NDArray[np.bool]
    source: str

    def sample(self, positives: int, negatives: int, rng: np.random.Generator) -> "Scores":
        """Draws so many records of each class, without replacement."""
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
    "heart": ("framingham.csv.gz", "label=TenYearCHD&missing=mean", (4240, 0.152, 0.9)),
    "diabetes": ("diabetes130.csv.xz", "label=readmitted&positive=NO", (101766, 0.539, 0.5)),
}
"""The file, the column to predict, and what to make up if the file is missing: the number of
records, the prevalence and the distance between the classes."""
TURNED = ("diabetes",)
"""Sets in which every label but the named one is positive: readmission, early or late."""


def data_folder() -> Path:
    """`TALLY_DATA`, or the folder `shared/data` beside the project."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    return Path(os.environ.get("TALLY_DATA", beside))


def classified(name: str, whole: bool = False) -> Scores:
    """Scores by a logistic regression of the half that it was not trained on, or of the whole
    file."""
    file, query, shape = FILES[name]
    path = data_folder() / file
    if not path.exists():
        return made_up(*shape)
    found = scored(f"{path}?{query}", "logistic", whole=whole)
    score, positive = found.columns["score"], found.columns["label"] == 1.0
    return Scores(
        1 - score if name in TURNED else score,
        ~positive if name in TURNED else positive,
        f"logistic regression on {file}, {'all' if whole else 'held-out'} records",
    )


def messages() -> Scores:
    """S2's SMS: a logistic regression on the words of a message, without stop words, scores the
    tenth that it was not trained on; ham is positive. S2's own model is private, this one is
    not."""
    path = data_folder() / "sms_spam.csv.gz"
    if not path.exists():
        return made_up(558, 0.862, 4.0)
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression

    table = read_table(path, delimiter=None)
    label, text = (table.header.index(name) for name in ("label", "text"))
    positive = np.array([row[label] == "ham" for row in table.rows])
    order = np.random.default_rng(SEED).permutation(len(positive))
    kept, trained = order[: len(order) // 10 + 1], order[len(order) // 10 + 1 :]
    words = CountVectorizer(binary=True, stop_words="english")
    seen = words.fit_transform([table.rows[place][text] for place in trained])
    fitted = LogisticRegression(max_iter=1000).fit(seen, positive[trained])
    held = words.transform([table.rows[place][text] for place in kept])
    return Scores(
        fitted.predict_proba(held)[:, 1],
        positive[kept],
        "logistic regression on sms_spam.csv.gz, a held-out tenth",
    )


def tweets() -> Scores:
    """Made-up scores with the class sizes of S2's TWITTER, which is not available."""
    rng = np.random.default_rng(SEED)
    positive = np.arange(684) < 385
    score = 1 / (1 + np.exp(0.6 - rng.normal(1.2 * positive)))
    return Scores(score, positive, "684 made-up scores, 385 positive")


def made_up(records: int, prevalence: float, apart: float) -> Scores:
    rng = np.random.default_rng(SEED)
    positive = rng.random(records) < prevalence
    score = 1 / (1 + np.exp(1.5 - rng.normal(apart * positive)))
    return Scores(score, positive, f"{records} made-up scores")
