"""AUC in the local model (S1 §4): two hierarchical histograms, one bit per record.

The question is a uniform level l of the binary tree over d = 2^α scores and a uniform row of its
Hadamard matrix; a record answers about its prefix of l bits. With public labels that is all, and
each class has its own estimates ĥ, of variance v = n·α·gain². With private labels, which goes
beyond the paper, the record's class is one more bit of the prefix and level 0 asks for it alone:
α + 1 levels for all records together.

The server walks the tree (Eq. 10): where max(ĥ⁺, √(av⁺)/2)·max(ĥ⁻, √(av⁻)/2) < τ = a√(v⁺v⁻) a node
is discarded and counts ½ĥ⁺ĥ⁻, from its children's estimates; else it counts ĥ⁺(right)·ĥ⁻(left) and
its children are looked at. Records in one leaf are tied and count ½, where the paper has 0: that is
what the AUC of every other protocol here means.

A level is transformed whole while its matrix is not much larger than its reports are many, and
above that only the nodes that are reached are looked up: O(n log d) and what those few cost.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from protocols.errors import LocalError
from protocols.local.contract import (
    Bodies,
    Flags,
    Integers,
    LocalRandomizer,
    Reals,
    Summary,
    Words,
)
from protocols.local.hadamard import parity, rows_of, sums_of_signs, transformed
from protocols.local.pairs import FIXED_POINT
from protocols.local.response import RandomizedResponse

MAX_DEPTH = 24
_WHOLE = 1 << 14
_CELLS = 1 << 22
Classes = tuple[Reals, Reals]
"""Of the negative records, and of the positive."""


@dataclass(frozen=True)
class AucResponse(LocalRandomizer):
    """Inputs are 2·score + label for a score below 2^`depth`. The estimates are the AUC, in units
    of 1/`FIXED_POINT`, and the number of positive records."""

    depth: int
    private_labels: bool
    response: RandomizedResponse

    def __post_init__(self) -> None:
        if not 1 <= self.depth <= MAX_DEPTH:
            raise LocalError(f"scores have 1 to {MAX_DEPTH} bits in the local model")

    @classmethod
    def spending(cls, epsilon: Fraction, depth: int, private_labels: bool) -> "AucResponse":
        return cls(depth, private_labels, RandomizedResponse.spending(epsilon, 2))

    @property
    def name(self) -> str:
        labels = "the label included" if self.private_labels else "beside a public label"
        return f"hierarchical histograms over 2^{self.depth} scores, Hadamard response, {labels}"

    @property
    def words(self) -> int:
        return 1

    @property
    def report_bits(self) -> int:
        """The bit, and the label where that is public."""
        return 1 if self.private_labels else 2

    @property
    def question_words(self) -> int:
        return 2

    @property
    def question_bytes(self) -> int:
        return 5

    @property
    def levels(self) -> int:
        return self.depth + self.private_labels

    def bits(self, levels: Integers) -> Integers:
        """How many are asked for at a level: of the score one more each time, from the first; or
        the class, and then of the score."""
        return levels + 1

    @property
    def gain(self) -> float:
        return self.levels * self.response.gain

    def largest(self, records: int) -> float:
        return float(FIXED_POINT) * 16 * self.gain**2

    def questions(self, words: Words) -> Bodies:
        levels = (words[:, 0] % np.uint64(self.levels)).astype(np.uint8)
        orders = np.uint64(1) << self.bits(levels.astype(np.int64)).astype(np.uint64)
        rows = (words[:, 1] & (orders - np.uint64(1))).astype("<u4")
        return np.concatenate([levels[:, None], rows.view(np.uint8).reshape(-1, 4)], axis=1)

    def reports(self, inputs: Integers, questions: Bodies, words: Words) -> Bodies:
        scores, labels = inputs >> 1, inputs & 1
        levels = questions[:, 0].astype(np.int64)
        if self.private_labels:  # level l: the class, then l bits of the score
            places = (labels << levels) | (scores >> (self.depth - levels))
        else:
            places = scores >> (self.depth - 1 - levels)
        bits = self.response.randomize(parity(rows_of(questions[:, 1:]) & places), words)
        said = bits if self.private_labels else 2 * labels + bits
        return said.astype(np.uint8)[:, None]

    def possible(self, reports: Bodies, questions: Bodies) -> Flags:
        levels = questions[:, 0].astype(np.int64)
        known = levels < self.levels
        orders = np.int64(1) << self.bits(np.where(known, levels, 0))
        in_range = reports[:, 0] < 1 << self.report_bits
        return np.asarray(known & in_range & (rows_of(questions[:, 1:]) < orders))

    def tally(self, reports: Bodies, questions: Bodies) -> Integers:
        """Of all rows of all levels, for small domains: what is walked is not tallied whole."""
        raise LocalError("a tree of scores is walked, not tallied")

    def estimate(self, counts: Integers) -> Reals:
        raise LocalError("a tree of scores is walked, not tallied")

    def summarise(self, reports: Bodies, questions: Bodies) -> Summary:
        possible = self.possible(reports, questions)
        refused = len(possible) - int(np.count_nonzero(possible))
        if refused:
            reports, questions = reports[possible], questions[possible]
        tree = _Tree(self, reports[:, 0], questions)
        area = tree.area()
        found = np.array([area * FIXED_POINT, tree.sizes[1]])
        return Summary(found, len(reports), refused)

    def variances(self, estimates: Reals, reports: int) -> Reals:
        """Theorem 3's bound on the error of the AUC, at the class sizes that are known or told."""
        positives = float(np.clip(estimates[-1], 1, max(reports - 1, 1)))
        bound = self.theorem_3(positives, max(reports - positives, 1.0))
        return np.array([bound * FIXED_POINT**2])

    def constant(self, positives: float, negatives: float) -> float:
        """C: v = C·n·α for a class of n."""
        if not self.private_labels:
            return self.response.gain**2
        n = positives + negatives
        return self.response.gain**2 * self.levels / self.depth * n / min(positives, negatives)

    def theorem_3(self, positives: float, negatives: float) -> float:
        """The bound on the mean square error of the AUC."""
        c = self.constant(positives, negatives)
        a = best_a(positives, negatives, c)
        brackets = _brackets(positives, negatives, c, a)
        return c * self.depth**2 * brackets / (positives * negatives)


def _brackets(positives: float, negatives: float, c: float, a: float) -> float:
    n = positives + negatives
    tail = 21 * math.sqrt(2 * n * c * a) / (math.sqrt(a) - 1)
    return 2 * n + (4 * a + 1) * min(positives, negatives) + tail


def best_a(positives: float, negatives: float, c: float) -> float:
    """The a > 1 for which Theorem 3's bound is least, to a twentieth."""
    choices = 1 + np.arange(1, 400) / 20
    return float(min(choices, key=lambda a: _brackets(positives, negatives, c, float(a))))


class _Tree:
    """The estimates that a server looks up, level by level."""

    def __init__(self, randomizer: AucResponse, said: Bodies, questions: Bodies) -> None:
        self._of = randomizer
        self._levels = questions[:, 0]
        self._rows = rows_of(questions[:, 1:])
        self._bits: Bodies = said & np.uint8(1)
        self._labels: Bodies = said >> np.uint8(1)
        self.sizes = self._sizes()
        if min(self.sizes) < 1:
            raise LocalError("one class has no records, as far as can be told: there is no AUC")

    def _sizes(self) -> tuple[float, float]:
        n = len(self._bits)
        if not self._of.private_labels:
            public = int(np.count_nonzero(self._labels))
            return n - public, public
        if n < 2:
            return 0.0, 0.0
        positives = self._private_positives(n)
        told = min(max(positives, 1.0), n - 1.0)
        return n - told, told

    def _private_positives(self, n: int) -> float:
        """At level l, the row that has the bit of the class alone tells n⁺ - n⁻, and n is known.
        It is one of 2^(l+1), so a level weighs half of the one before."""
        told = weights = 0.0
        for level in range(self._of.levels):
            row = 1 << level
            bits = self._bits[(self._levels == level) & (self._rows == row)]
            signs = len(bits) - 2 * int(np.count_nonzero(bits))
            told += (n / 2 - row * self._of.gain * signs) / row
            weights += 1 / row
        return told / weights

    def _look_up(self, chosen: Flags, bits: int, places: Integers) -> Reals:
        """The estimated counts of some places among 2^bits, from some of the reports."""
        rows, signs = self._rows[chosen], self._bits[chosen]
        order = 1 << bits
        if order <= max(_WHOLE, 4 * len(rows)):
            return transformed(sums_of_signs(rows, signs, order))[places] * self._of.gain
        found = np.zeros(len(places))
        step = max(1, _CELLS // max(len(rows), 1))
        sign = 1 - 2 * signs.astype(np.float64)
        for start in range(0, len(places), step):
            part = places[start : start + step]
            found[start : start + step] = sign @ (1 - 2 * parity(rows[:, None] & part))
        return found * self._of.gain

    def _nodes(self, prefix_bits: int, nodes: Integers) -> Classes:
        """Both classes' counts of nodes of so many bits."""
        if self._of.private_labels:
            chosen = self._levels == prefix_bits
            both = np.concatenate([nodes, nodes + (1 << prefix_bits)])
            negative, positive = np.split(self._look_up(chosen, prefix_bits + 1, both), 2)
            return negative, positive
        here = self._levels == prefix_bits - 1
        negative, positive = (
            self._look_up(here & (self._labels == label), prefix_bits, nodes) for label in (0, 1)
        )
        return negative, positive

    def area(self) -> float:
        randomizer, (negatives, positives) = self._of, self.sizes
        c = randomizer.constant(positives, negatives)
        a = best_a(positives, negatives, c)
        v = [c * size * randomizer.depth for size in self.sizes]
        if randomizer.private_labels:
            v = [randomizer.response.gain**2 * len(self._bits) * randomizer.levels] * 2
        least = [math.sqrt(a * each) / 2 for each in v]
        tau = a * math.sqrt(v[0] * v[1])
        nodes = np.zeros(1, dtype=np.int64)
        counts: Classes = (np.array([negatives]), np.array([positives]))
        total = 0.0
        for prefix_bits in range(1, randomizer.depth + 1):
            children = (2 * nodes[:, None] + np.arange(2)).ravel()
            minus, plus = (each.reshape(-1, 2) for each in self._nodes(prefix_bits, children))
            kept = np.maximum(counts[0], least[0]) * np.maximum(counts[1], least[1]) >= tau
            total += float((minus.sum(axis=1) * plus.sum(axis=1))[~kept].sum()) / 2
            total += float((plus[:, 1] * minus[:, 0])[kept].sum())
            nodes = children.reshape(-1, 2)[kept].ravel()
            counts = (minus[kept].ravel(), plus[kept].ravel())
            if not len(nodes):
                break
        else:
            total += float(counts[0] @ counts[1]) / 2
        return total / (negatives * positives)
