"""AUC in the local model (S1 §4): two hierarchical histograms, one bit per record.

The question is a uniform level l of the binary tree over d = 2^α scores and a uniform row of its
Hadamard matrix; a record answers about its prefix of l bits. With public labels that is all, and
each class has its own estimates ĥ, of variance v = n·α·gain². With private labels, which goes
beyond the paper, the record's class is one more bit of the prefix and level 0 asks for it alone:
α + 1 levels for all records together.

`TreeResponse` is the common base of this and of answers about all levels at once
(`protocols.local.every_level`); the server's walk is in `protocols.local.walk`.
"""

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.local.contract import (
    Bodies,
    Integers,
    LocalRandomizer,
    Reals,
    Summary,
    Words,
)
from tallyroom.protocols.local.one_level import OneLevel
from tallyroom.protocols.local.pairs import FIXED_POINT
from tallyroom.protocols.local.response import RandomizedResponse
from tallyroom.protocols.local.walk import BLOCK, TreeReports, WalkAnswers

MAX_DEPTH = 24


@dataclass(frozen=True)
class TreeResponse(LocalRandomizer):
    """Inputs are 2·score + label for a score below 2^`depth`. The estimates are the AUC, in units
    of 1/`FIXED_POINT`, and the number of positive records. `response` answers about one level."""

    depth: int
    private_labels: bool
    response: RandomizedResponse

    def __post_init__(self) -> None:
        if not 1 <= self.depth <= MAX_DEPTH:
            raise LocalError(
                f"scores have 1 to {MAX_DEPTH} bits in the local model, not {self.depth}"
            )

    @property
    def name(self) -> str:
        labels = "the label included" if self.private_labels else "beside a public label"
        return (
            f"hierarchical histograms over 2^{self.depth} scores, Hadamard response, "
            f"{self.asked}, {labels}"
        )

    @property
    @abstractmethod
    def asked(self) -> str:
        """How many bits a record answers about how many levels."""

    @property
    def levels(self) -> int:
        """Level l has the prefixes of l + 1 bits, or with private labels the class and l bits."""
        return self.depth + self.private_labels

    @property
    @abstractmethod
    def variance(self) -> float:
        """The most that a record adds to the variance of a node."""

    @abstractmethod
    def answers(self, level: int, reports: Bodies, questions: Bodies) -> WalkAnswers:
        """The answers of possible reports about a level."""

    @abstractmethod
    def labels(self, reports: Bodies) -> Bodies:
        """The labels in reports, if labels are public."""

    def largest(self, records: int) -> float:
        return float(FIXED_POINT) * 16 * self.gain**2

    def places(self, level: Integers | int, inputs: Integers) -> Integers:
        """Each record's node at a level. With private labels, its first bit is the class."""
        scores, labels = inputs >> 1, inputs & 1
        if self.private_labels:
            return np.asarray((labels << level) | (scores >> (self.depth - level)))
        return np.asarray(scores >> (self.depth - 1 - level))

    def tally(self, reports: Bodies, questions: Bodies) -> Integers:
        raise LocalError("a tree of scores is walked, not tallied")

    def estimate(self, counts: Integers) -> Reals:
        raise LocalError("a tree of scores is walked, not tallied")

    def summarise(self, reports: Bodies, questions: Bodies) -> Summary:
        """The AUC and the number of positive records. Impossible reports are counted and left out;
        only then are the others copied."""
        refused = 0
        for part in _parts(len(reports)):
            possible = self.possible(reports[part], questions[part])
            refused += len(possible) - int(np.count_nonzero(possible))
        if refused:
            possible = self.possible(reports, questions)
            reports, questions = reports[possible], questions[possible]
        stream = _Stream(self, reports, questions)
        sizes = stream.sizes()
        a = best_a(sizes[1], sizes[0], self.constant(sizes[1], sizes[0]))
        found = np.array([stream.area(sizes, a) * FIXED_POINT, sizes[1]])
        return Summary(found, len(reports), refused)

    def variances(self, estimates: Reals, reports: int) -> Reals:
        """Theorem 3's bound on the error of the AUC, at the known or estimated class sizes."""
        positives = float(np.clip(estimates[-1], 1, max(reports - 1, 1)))
        bound = self.theorem_3(positives, max(reports - positives, 1.0))
        return np.array([bound * FIXED_POINT**2])

    def constant(self, positives: float, negatives: float) -> float:
        """C, where the variance is v = C·n·α for a class of n records."""
        c = self.variance / self.depth
        if not self.private_labels:
            return c
        return c * (positives + negatives) / min(positives, negatives)

    def theorem_3(self, positives: float, negatives: float) -> float:
        """The bound on the mean square error of the AUC."""
        c = self.constant(positives, negatives)
        a = best_a(positives, negatives, c)
        brackets = _brackets(positives, negatives, c, a)
        return c * self.depth**2 * brackets / (positives * negatives)


@dataclass(frozen=True)
class AucResponse(OneLevel, TreeResponse):
    """Answers one bit about one level, which is ε-private for any question."""

    @classmethod
    def spending(cls, epsilon: Fraction, depth: int, private_labels: bool) -> "AucResponse":
        return cls(depth, private_labels, RandomizedResponse.spending(epsilon, 2))

    @property
    def asked(self) -> str:
        return f"one bit about one of {self.levels} level{'s' * (self.levels > 1)}"

    @property
    def report_bits(self) -> int:
        """The bit, and the label if labels are public."""
        return 1 if self.private_labels else 2

    @property
    def orders(self) -> Integers:
        return np.int64(2) << np.arange(self.levels)

    @property
    def variance(self) -> float:
        return self.levels * self.response.gain**2

    def reports(self, inputs: Integers, questions: Bodies, words: Words) -> Bodies:
        places = self.places(questions[:, 0].astype(np.int64), inputs)
        bits = self.answered(places, questions, words)
        said = bits if self.private_labels else 2 * (inputs & 1) + bits
        return said.astype(np.uint8)[:, None]

    def answers(self, level: int, reports: Bodies, questions: Bodies) -> WalkAnswers:
        here = np.flatnonzero(questions[:, 0] == level)
        said = reports[here, 0]
        rows = np.ascontiguousarray(questions[here, 1:]).view("<u4")[:, 0]
        return WalkAnswers(rows, said & np.uint8(1), said >> np.uint8(1))

    def labels(self, reports: Bodies) -> Bodies:
        return reports[:, 0] >> np.uint8(1)


class _Stream(TreeReports):
    """Reports in memory, read in blocks."""

    def __init__(self, randomizer: TreeResponse, reports: Bodies, questions: Bodies) -> None:
        self._randomizer, self._reports, self._questions = randomizer, reports, questions
        self.depth, self.private_labels = randomizer.depth, randomizer.private_labels
        self.gain, self.variance = randomizer.gain, randomizer.variance
        self.records = len(reports)

    def about(self, bits: int) -> Iterator[WalkAnswers]:
        level = bits if self.private_labels else bits - 1
        for part in _parts(self.records):
            yield self._randomizer.answers(level, self._reports[part], self._questions[part])

    def public_positives(self) -> int:
        return sum(
            int(np.count_nonzero(self._randomizer.labels(self._reports[part])))
            for part in _parts(self.records)
        )


def _parts(records: int) -> Iterator[slice]:
    return (slice(start, start + BLOCK) for start in range(0, records, BLOCK))


def _brackets(positives: float, negatives: float, c: float, a: float) -> float:
    n = positives + negatives
    tail = 21 * math.sqrt(2 * n * c * a) / (math.sqrt(a) - 1)
    return 2 * n + (4 * a + 1) * min(positives, negatives) + tail


def best_a(positives: float, negatives: float, c: float) -> float:
    """The a > 1 for which Theorem 3's bound is least, to the nearest twentieth."""
    choices = 1 + np.arange(1, 400) / 20
    return float(min(choices, key=lambda a: _brackets(positives, negatives, c, float(a))))
