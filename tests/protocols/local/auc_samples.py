"""Scored records, what many runs estimate of them, and their AUC by scipy."""

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from tallyroom.protocols.local.contract import LocalRandomizer
from tallyroom.protocols.randomness import Randomness

Codes = NDArray[np.int64]


def some_records(n: int, depth: int, seed: int = 1) -> Codes:
    rng = np.random.default_rng(seed)
    labels = rng.random(n) < 0.4
    scores = np.clip(rng.normal(0.4 + 0.25 * labels, 0.2), 0, 1 - 1e-9)
    codes: Codes = 2 * np.floor(scores * 2**depth).astype(np.int64) + labels
    return codes


def plain_auc(codes: Codes) -> float:
    """By scipy, which counts ties a half."""
    positive, negative = codes[codes & 1 == 1] >> 1, codes[codes & 1 == 0] >> 1
    found = stats.mannwhitneyu(positive, negative, method="asymptotic").statistic
    return float(found) / (len(positive) * len(negative))


def estimates(randomizer: LocalRandomizer, codes: Codes, runs: int) -> NDArray[np.float64]:
    source = Randomness(bytes(16))
    found = []
    for _ in range(runs):
        asked = source.words(randomizer.question_words * len(codes))
        questions = randomizer.questions(asked.reshape(len(codes), -1))
        words = source.words(randomizer.words * len(codes)).reshape(len(codes), -1)
        reports = randomizer.reports(codes, questions, words)
        assert randomizer.possible(reports, questions).all()
        found.append(randomizer.summarise(reports, questions).vector)
    return np.array(found)
