"""Hierarchical histograms in the local model, with any frequency oracle at each level.

The question is a uniform level and a question of that level's randomizer; a record answers about
its node there. With h levels, a node's count is h times the estimate from the reports of its level.
`protocols.local.levels` has Hadamard response, where all nodes have the same variance. Other
randomizers vary less at nodes that hold few records and more at those that hold many, so we state
the variance of the worst node, and choose by it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.local import AUTO
from tallyroom.protocols.local.choice import RANDOMIZERS, LocalBudget
from tallyroom.protocols.local.contract import (
    Bodies,
    Flags,
    FrequencyOracle,
    Integers,
    LocalRandomizer,
    Reals,
    Words,
)
from tallyroom.protocols.local.levels import LevelResponse
from tallyroom.protocols.local.response import RandomizedResponse
from tallyroom.protocols.privacy.hierarchy import Hierarchy
from tallyroom.protocols.registry import look_up


@dataclass(frozen=True)
class OracleLevels(LocalRandomizer):
    """Inputs are cells of `shape`; the estimates are the counts of all its nodes. `oracles` has one
    randomizer per level, from the top; `kind` is their name."""

    shape: Hierarchy
    kind: str
    oracles: tuple[FrequencyOracle, ...]

    def __post_init__(self) -> None:
        if not 1 <= self.shape.height <= 255 or len(self.oracles) != self.shape.height:
            raise LocalError("a hierarchy needs 1 to 255 levels, and a randomizer for each")

    @property
    def name(self) -> str:
        levels = self.shape.height
        return f"{self.kind} about one of {levels} level{'s' * (levels > 1)}"

    @property
    def words(self) -> int:
        return max(oracle.words for oracle in self.oracles)

    @property
    def report_bits(self) -> int:
        return max(oracle.report_bits for oracle in self.oracles)

    @property
    def report_bytes(self) -> int:
        return max(oracle.report_bytes for oracle in self.oracles)

    @property
    def question_words(self) -> int:
        return 1 + max(oracle.question_words for oracle in self.oracles)

    @property
    def question_bytes(self) -> int:
        """A byte for the level, and that level's question."""
        return 1 + max(oracle.question_bytes for oracle in self.oracles)

    @property
    def answers_alike(self) -> bool:
        return False

    @property
    def gain(self) -> float:
        return self.shape.height * max(oracle.gain for oracle in self.oracles)

    def _levels(self, questions: Bodies) -> Iterator[tuple[int, FrequencyOracle, Integers, Bodies]]:
        """Each level, with its randomizer, the places of its reports and their questions."""
        for level, oracle in enumerate(self.oracles):
            here = np.flatnonzero(questions[:, 0] == level)
            yield level, oracle, here, questions[here, 1 : 1 + oracle.question_bytes]

    def questions(self, words: Words) -> Bodies:
        """A level, which is a word modulo h and uniform up to 2^-56, and that level's question."""
        questions = np.zeros((len(words), self.question_bytes), dtype=np.uint8)
        questions[:, 0] = (words[:, 0] % np.uint64(self.shape.height)).astype(np.uint8)
        for _, oracle, here, _ in self._levels(questions):
            asked = oracle.questions(words[here, 1 : 1 + oracle.question_words])
            questions[here, 1 : 1 + oracle.question_bytes] = asked
        return questions

    def reports(self, inputs: Integers, questions: Bodies, words: Words) -> Bodies:
        reports = np.zeros((len(inputs), self.report_bytes), dtype=np.uint8)
        for level, oracle, here, asked in self._levels(questions):
            nodes = inputs[here] // self.shape.widths[level]
            said = oracle.reports(nodes, asked, words[here, : oracle.words])
            reports[here, : oracle.report_bytes] = said
        return reports

    def possible(self, reports: Bodies, questions: Bodies) -> Flags:
        """A report is possible if its level's randomizer can make it, and both it and its question
        are padded with zeros."""
        possible = np.zeros(len(reports), dtype=np.bool)
        for _, oracle, here, asked in self._levels(questions):
            said, rest = np.split(reports[here], [oracle.report_bytes], axis=1)
            behind = questions[here, 1 + oracle.question_bytes :]
            padded = (rest == 0).all(axis=1) & (behind == 0).all(axis=1)
            possible[here] = padded & oracle.possible(said, asked)
        return possible

    def tally(self, reports: Bodies, questions: Bodies) -> Integers:
        """The tallies of all levels, one after another."""
        return np.concatenate(
            [
                oracle.tally(reports[here, : oracle.report_bytes], asked)
                for _, oracle, here, asked in self._levels(questions)
            ]
        )

    def estimate(self, counts: Integers) -> Reals:
        ends = np.cumsum([_tally_length(oracle) for oracle in self.oracles])[:-1]
        levels = zip(self.oracles, np.split(counts, ends), strict=True)
        estimates = [oracle.estimate(part) for oracle, part in levels]
        return np.concatenate(estimates) * self.shape.height

    def variances(self, estimates: Reals, reports: int) -> Reals:
        """One bound for all nodes: the variance of the worst, which may hold all records."""
        return np.array([reports * self.worst])

    @property
    def worst(self) -> float:
        """The most that a record adds to the variance of a node. It answers about the node's level
        with probability 1/h, and its answer counts h-fold: that makes h times the variance there,
        plus h - 1 for the node that it is in."""
        height = self.shape.height
        return height * max(map(_spread, self.oracles)) + height - 1


def _spread(oracle: FrequencyOracle) -> float:
    """The largest eigenvalue of the covariance of one record's estimates. For randomized response,
    whose estimates are correlated, it is gain² times that of a multinomial with one p and k - 1
    times q."""
    if isinstance(oracle, RandomizedResponse):
        p, k = oracle.p, oracle.values
        return oracle.gain**2 * max(oracle.q, p * (1 - p) * k / (k - 1))
    return max(float(oracle.variances(np.ones(1), 1)[0]), oracle.empty_variance)


def _tally_length(oracle: FrequencyOracle) -> int:
    """How many numbers its tally has."""
    none = np.zeros((0, oracle.report_bytes), dtype=np.uint8)
    return len(oracle.tally(none, np.zeros((0, oracle.question_bytes), dtype=np.uint8)))


WORTH = 0.99
"""Longer reports are taken only if they lower the worst node's variance to this fraction."""
KINDS: dict[str, str] = {
    "response": "randomized response",
    "unary": "optimised unary encoding",
    "hashing": "optimised local hashing",
}


def level_randomizer(name: str, budget: LocalBudget, shape: Hierarchy) -> LocalRandomizer:
    """The randomizer of that name. For `auto`, the one whose worst node varies least: randomized
    response if levels have few nodes, and otherwise Hadamard response.

    A report's question decides which of several randomizers made it, so shuffling amplifies it only
    as an arbitrary randomizer.
    """
    epsilon = budget(None)
    if name == "hadamard":
        return LevelResponse.spending(epsilon, shape)
    if name != AUTO:
        build = look_up("randomizer", name, RANDOMIZERS)
        oracles = tuple(build(lambda _: epsilon, size) for size in shape.level_sizes)
        return OracleLevels(shape, KINDS[name], oracles)
    best: LevelResponse | OracleLevels = LevelResponse.spending(epsilon, shape)
    for kind in KINDS:
        try:
            other = level_randomizer(kind, budget, shape)
        except LocalError:
            continue
        assert isinstance(other, OracleLevels)
        best = other if other.worst < WORTH * best.worst else best
    return best
