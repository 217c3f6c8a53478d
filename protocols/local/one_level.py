"""Questions about one level of a tree: a uniform level, and a uniform row of its Hadamard matrix.

A record answers one bit, about the node of that level it is in. Whatever the level, a report moves
the count of a node by ± the number of levels times the gain of one response.
"""

from abc import abstractmethod

import numpy as np

from tallyroom.protocols.local.contract import Bodies, Flags, Integers, LocalRandomizer, Words
from tallyroom.protocols.local.hadamard import parity, rows_of
from tallyroom.protocols.local.response import RandomizedResponse


class OneLevel(LocalRandomizer):
    """Mixin for a randomizer whose `response` is binary; it must be the first base class."""

    response: RandomizedResponse

    @property
    @abstractmethod
    def orders(self) -> Integers:
        """The order of each level's Hadamard matrix: a power of two, at most 2^32. There are at
        most 255 levels."""

    @property
    def words(self) -> int:
        return 1

    @property
    def question_words(self) -> int:
        return 2

    @property
    def question_bytes(self) -> int:
        """A level, and a row in four bytes."""
        return 5

    @property
    def gain(self) -> float:
        return len(self.orders) * self.response.gain

    def questions(self, words: Words) -> Bodies:
        """A level, which is a word modulo the number of levels and uniform up to 2^-56, and a
        row."""
        levels = (words[:, 0] % np.uint64(len(self.orders))).astype(np.uint8)
        rows = words[:, 1] & (self.orders[levels] - 1).astype(np.uint64)
        asked = rows.astype("<u4").view(np.uint8).reshape(-1, 4)
        return np.concatenate([levels[:, None], asked], axis=1)

    def answered(self, nodes: Integers, questions: Bodies, words: Words) -> Integers:
        """The bit that each record answers; `nodes` are the records' nodes at the levels that
        their questions are about."""
        return self.response.randomize(parity(rows_of(questions[:, 1:]) & nodes), words)

    def possible(self, reports: Bodies, questions: Bodies) -> Flags:
        known = questions[:, 0] < len(self.orders)
        orders = self.orders[np.where(known, questions[:, 0], 0)]
        in_range = reports[:, 0] < 1 << self.report_bits
        return np.asarray(known & in_range & (rows_of(questions[:, 1:]) < orders))
