"""Hierarchical histograms in the local model (S1 §4; Kulkarni, Cormode and Srivastava 2019).

The question is a uniform level of a hierarchy and a uniform row of that level's Hadamard matrix; a
record answers one bit, about the node of that level it is in. With h levels, a node's count is h
times what the reports of its level say. Whatever the level, a report moves the count of each node
by ±h·gain with probability 1/h. So all nodes have the same variance, n·h·gain², as the best linear
unbiased estimate of the hierarchy (`protocols.privacy.hierarchy`) assumes.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.local.contract import Bodies, Integers, Reals, Words
from tallyroom.protocols.local.hadamard import rows_of, sums_of_signs, transformed
from tallyroom.protocols.local.one_level import OneLevel
from tallyroom.protocols.local.response import RandomizedResponse
from tallyroom.protocols.privacy.hierarchy import Hierarchy


@dataclass(frozen=True)
class LevelResponse(OneLevel):
    """Inputs are cells of `shape`; the estimates are the counts of all its nodes."""

    shape: Hierarchy
    response: RandomizedResponse

    def __post_init__(self) -> None:
        if not 1 <= self.shape.height <= 255:
            raise LocalError("a hierarchy needs more than one cell, and 1 to 255 levels")

    @classmethod
    def spending(cls, epsilon: Fraction, shape: Hierarchy) -> "LevelResponse":
        return cls(shape, RandomizedResponse.spending(epsilon, 2))

    @property
    def name(self) -> str:
        levels = self.shape.height
        return f"Hadamard response, one bit about one of {levels} level{'s' * (levels > 1)}"

    @property
    def report_bits(self) -> int:
        return 1

    @property
    def orders(self) -> Integers:
        sizes = [1 << (size - 1).bit_length() for size in self.shape.level_sizes]
        return np.array(sizes, dtype=np.int64)

    def reports(self, inputs: Integers, questions: Bodies, words: Words) -> Bodies:
        widths = np.array(self.shape.widths, dtype=np.int64)
        nodes = inputs // widths[questions[:, 0]]
        return self.answered(nodes, questions, words).astype(np.uint8)[:, None]

    def tally(self, reports: Bodies, questions: Bodies) -> Integers:
        """The sums of signs of every row of every level, one level after another."""
        orders = self.orders
        starts = np.concatenate([[0], np.cumsum(orders)[:-1]])
        places = starts[questions[:, 0]] + rows_of(questions[:, 1:])
        return sums_of_signs(places, reports[:, 0], int(orders.sum()))

    def estimate(self, counts: Integers) -> Reals:
        ends = np.cumsum(self.orders)[:-1]
        nodes = [
            transformed(sums)[:size]
            for sums, size in zip(np.split(counts, ends), self.shape.level_sizes, strict=True)
        ]
        return np.concatenate(nodes) * self.gain

    def variances(self, estimates: Reals, reports: int) -> Reals:
        """One bound for all nodes, a little above the variance of each."""
        return np.array([reports * self.worst])

    @property
    def worst(self) -> float:
        """The most that a record adds to the variance of a node."""
        return self.shape.height * self.response.gain**2
