"""Hierarchical histograms in the local model by any frequency oracle, one for each level.

The question is a uniform level and what that level's randomizer asks; a record answers about its
node there. With h levels, a node's count is h times what the reports of its level say. Hadamard
response, where every node has one variance, is `protocols.local.levels`. Others vary less at nodes
that hold few records and more at those that hold many, so what is stated of them, and what they are
chosen by, is the worst node.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.local.choice import AUTO, RANDOMIZERS, LocalBudget
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
from tallyroom.protocols.names import look_up
from tallyroom.protocols.privacy.hierarchy import Hierarchy


@dataclass(frozen=True)
class OracleLevels(LocalRandomizer):
    """Inputs are cells of `shape`; the estimates are of all its nodes. `oracles` are of its levels,
    from the top; `kind` is what they are called."""

    shape: Hierarchy
    kind: str
    oracles: tuple[FrequencyOracle, ...]

    def __post_init__(self) -> None:
        if not 1 <= self.shape.height <= 255 or len(self.oracles) != self.shape.height:
            raise LocalError("a hierarchy has a randomizer for each of 1 to 255 levels")

    @property
    def name(self) -> str:
        levels = self.shape.height
        return f"{self.kind} about one of {levels} level{'s' * (levels > 1)}"

    @property
    def words(self) -> int:
        return max(each.words for each in self.oracles)

    @property
    def report_bits(self) -> int:
        return max(each.report_bits for each in self.oracles)

    @property
    def report_bytes(self) -> int:
        return max(each.report_bytes for each in self.oracles)

    @property
    def question_words(self) -> int:
        return 1 + max(each.question_words for each in self.oracles)

    @property
    def question_bytes(self) -> int:
        """A level, and what is asked there."""
        return 1 + max(each.question_bytes for each in self.oracles)

    @property
    def answers_alike(self) -> bool:
        return False

    @property
    def gain(self) -> float:
        return self.shape.height * max(each.gain for each in self.oracles)

    def _levels(self, questions: Bodies) -> Iterator[tuple[int, FrequencyOracle, Integers, Bodies]]:
        """Each level that is asked about, with the places of its reports and their questions."""
        for level, oracle in enumerate(self.oracles):
            here = np.flatnonzero(questions[:, 0] == level)
            yield level, oracle, here, questions[here, 1 : 1 + oracle.question_bytes]

    def questions(self, words: Words) -> Bodies:
        """A word modulo h is uniform but for 2^-56."""
        found = np.zeros((len(words), self.question_bytes), dtype=np.uint8)
        found[:, 0] = (words[:, 0] % np.uint64(self.shape.height)).astype(np.uint8)
        for _, oracle, here, _ in self._levels(found):
            asked = oracle.questions(words[here, 1 : 1 + oracle.question_words])
            found[here, 1 : 1 + oracle.question_bytes] = asked
        return found

    def reports(self, inputs: Integers, questions: Bodies, words: Words) -> Bodies:
        found = np.zeros((len(inputs), self.report_bytes), dtype=np.uint8)
        for level, oracle, here, asked in self._levels(questions):
            nodes = inputs[here] // self.shape.widths[level]
            said = oracle.reports(nodes, asked, words[here, : oracle.words])
            found[here, : oracle.report_bytes] = said
        return found

    def possible(self, reports: Bodies, questions: Bodies) -> Flags:
        """What a level's randomizer says, and zeros behind it and its question."""
        found = np.zeros(len(reports), dtype=np.bool)
        for _, oracle, here, asked in self._levels(questions):
            said, rest = np.split(reports[here], [oracle.report_bytes], axis=1)
            behind = questions[here, 1 + oracle.question_bytes :]
            padded = (rest == 0).all(axis=1) & (behind == 0).all(axis=1)
            found[here] = padded & oracle.possible(said, asked)
        return found

    def tally(self, reports: Bodies, questions: Bodies) -> Integers:
        """Those of all levels, one after another."""
        return np.concatenate(
            [
                oracle.tally(reports[here, : oracle.report_bytes], asked)
                for _, oracle, here, asked in self._levels(questions)
            ]
        )

    def estimate(self, counts: Integers) -> Reals:
        ends = np.cumsum([_tallied(each) for each in self.oracles])[:-1]
        each = zip(self.oracles, np.split(counts, ends), strict=True)
        return np.concatenate([oracle.estimate(part) for oracle, part in each]) * self.shape.height

    def variances(self, estimates: Reals, reports: int) -> Reals:
        """One for all nodes, at most: that of a node which holds all records, if that is worst."""
        return np.array([reports * self.worst])

    @property
    def worst(self) -> float:
        """What a record adds to the variance of a node at most: asked about its level once in h
        times, and told h-fold, h times the variance there, and h - 1 for the node that it is in."""
        height = self.shape.height
        return height * max(map(_spread, self.oracles)) + height - 1


def _spread(oracle: FrequencyOracle) -> float:
    """The largest eigenvalue of the covariance of one record's estimates. Those of randomized
    response go together: gain² times that of a multinomial with one p and k - 1 times q."""
    if isinstance(oracle, RandomizedResponse):
        p, k = oracle.p, oracle.values
        return oracle.gain**2 * max(oracle.q, p * (1 - p) * k / (k - 1))
    return max(float(oracle.variances(np.ones(1), 1)[0]), oracle.empty_variance)


def _tallied(oracle: FrequencyOracle) -> int:
    """How many numbers it tallies."""
    none = np.zeros((0, oracle.report_bytes), dtype=np.uint8)
    return len(oracle.tally(none, np.zeros((0, oracle.question_bytes), dtype=np.uint8)))


WORTH = 0.99
"""How much less a node must vary for more than one bit to be told."""
KINDS: dict[str, str] = {
    "response": "randomized response",
    "unary": "optimised unary encoding",
    "hashing": "optimised local hashing",
}


def level_randomizer(name: str, budget: LocalBudget, shape: Hierarchy) -> LocalRandomizer:
    """That of a name; for `auto`, the one whose worst node varies least: randomized response where
    levels have a few nodes, and else Hadamard's.

    A report is one of several randomizers, by its question: shuffling amplifies it as any.
    """
    epsilon = budget(None)
    if name == "hadamard":
        return LevelResponse.spending(epsilon, shape)
    if name != AUTO:
        build = look_up("randomizer", name, RANDOMIZERS)
        oracles = tuple(build(lambda _: epsilon, size) for size in shape.level_sizes)
        return OracleLevels(shape, KINDS[name], oracles)
    best: LevelResponse | OracleLevels = LevelResponse.spending(epsilon, shape)
    for each in KINDS:
        try:
            found = level_randomizer(each, budget, shape)
        except LocalError:
            continue
        assert isinstance(found, OracleLevels)
        best = found if found.worst < WORTH * best.worst else best
    return best
