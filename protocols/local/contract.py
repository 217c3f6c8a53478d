"""The contract of a local randomizer: a report per record, private by itself.

A report answers a public question: the same for every record in randomized response, a row of the
Hadamard matrix, a hash function or a level of a hierarchy elsewhere. Questions are drawn without
regard to any data and need not be secret: a report is ε-private for each of them. So where the
server knows who reports, both sides derive the question from the run's name, and only the answer
travels; where it does not, the question travels with it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

count_bytes: Callable[[NDArray[np.unsignedinteger]], bytes] | None
try:
    from tallyroom.protocols.local._counting import count_bytes
except ImportError:  # no compiler at build time
    count_bytes = None

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]
Words = NDArray[np.uint64]
Bodies = NDArray[np.uint8]
Flags = NDArray[np.bool]


@dataclass(frozen=True)
class Summary:
    """What reports say together: `vector` estimates the statistic's, from `records` reports;
    `refused` others are none that the randomizer makes."""

    vector: Reals
    records: int
    refused: int


class LocalRandomizer(ABC):
    """Turns each private integer into a report, and reports into estimates.

    A report is a function of its input, its question and `words` uniform 64-bit words by integer
    arithmetic alone, so its probabilities are exactly what is stated.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """In the field's words, for whoever reads the answer."""

    @property
    @abstractmethod
    def words(self) -> int:
        """Secret words that a report takes."""

    @property
    def amplified_as(self) -> int | None:
        """Among how many values it is a randomized response, as shuffling amplifies it; None for
        what is bounded as any randomizer is."""
        return None

    @property
    def delta(self) -> Fraction:
        """The δ of a report that is (ε, δ)-private by itself; 0 of those that are ε-private."""
        return Fraction(0)

    @property
    @abstractmethod
    def report_bits(self) -> int:
        """Bits that a report says."""

    @property
    def report_bytes(self) -> int:
        """Bytes that it is written in."""
        return -(-self.report_bits // 8)

    @property
    def question_words(self) -> int:
        """Public words that a question takes."""
        return 0

    @property
    def question_bytes(self) -> int:
        return 0

    def questions(self, words: Words) -> Bodies:
        """From words of shape (n, question_words), rows of `question_bytes`."""
        return np.zeros((len(words), 0), dtype=np.uint8)

    @property
    def answers_alike(self) -> bool:
        """Whether an answer that is possible to one question is so to each."""
        return True

    @abstractmethod
    def reports(self, inputs: Integers, questions: Bodies, words: Words) -> Bodies:
        """Rows of `report_bytes` for `inputs`, from `words` of shape (len(inputs), words)."""

    @abstractmethod
    def possible(self, reports: Bodies, questions: Bodies) -> Flags:
        """Which of these rows, of the right widths, are reports that can be made."""

    @abstractmethod
    def tally(self, reports: Bodies, questions: Bodies) -> Integers:
        """Counts that possible reports add up to, in whatever order they come."""

    @property
    @abstractmethod
    def gain(self) -> float:
        """The most by which one report moves an estimate."""

    def largest(self, records: int) -> float:
        """What estimates from so many reports stay below in size."""
        return self.gain * records

    @abstractmethod
    def estimate(self, counts: Integers) -> Reals:
        """Unbiased estimates from a tally."""

    @abstractmethod
    def variances(self, estimates: Reals, reports: int) -> Reals:
        """The variance of each estimate, or a bound on it, as far as `estimates` tell."""

    def summarise(self, reports: Bodies, questions: Bodies) -> Summary:
        """Impossible reports are left out and counted."""
        possible = self.possible(reports, questions)
        refused = len(possible) - int(np.count_nonzero(possible))
        if refused:
            reports, questions = reports[possible], questions[possible]
        return Summary(self.estimate(self.tally(reports, questions)), len(reports), refused)


class FrequencyOracle(LocalRandomizer):
    """One whose estimates are how many records hold each value."""

    @property
    @abstractmethod
    def ratio(self) -> Fraction:
        """The most by which replacing the input changes a report's probability; ε is its log."""

    @property
    @abstractmethod
    def empty_variance(self) -> float:
        """What one record adds to the variance of a value that it does not hold: what randomizers
        are compared by, as in Wang et al. (USENIX Security 2017)."""


class OneValue(LocalRandomizer):
    """One that reports a value among `alphabet`, to a question that is always the same."""

    @property
    @abstractmethod
    def alphabet(self) -> int: ...

    @property
    def amplified_as(self) -> int | None:
        return self.alphabet

    @abstractmethod
    def randomize(self, inputs: Integers, words: Words) -> Integers:
        """Reported values, from words of shape (len(inputs), self.words)."""

    @property
    def report_bits(self) -> int:
        return (self.alphabet - 1).bit_length()

    @property
    def report_bytes(self) -> int:
        """1, 2 or 4: what counting reads without unpacking."""
        return int(self._kind.itemsize)

    @property
    def _kind(self) -> np.dtype[np.unsignedinteger]:
        return np.dtype(
            "u1" if self.alphabet <= 1 << 8 else "<u2" if self.alphabet <= 1 << 16 else "<u4"
        )

    def reports(self, inputs: Integers, questions: Bodies, words: Words) -> Bodies:
        said = self.randomize(inputs, words).astype(self._kind)
        return said.view(np.uint8).reshape(len(inputs), self.report_bytes)

    def said(self, reports: Bodies) -> NDArray[np.unsignedinteger]:
        return np.ascontiguousarray(reports).view(self._kind)[:, 0]

    def possible(self, reports: Bodies, questions: Bodies) -> Flags:
        return self.said(reports) < self.alphabet

    def summarise(self, reports: Bodies, questions: Bodies) -> Summary:
        """Impossible values of one or two bytes are counted with the others, in one pass."""
        if self.report_bytes > 2:
            return super().summarise(reports, questions)
        counts = count_values(self.said(reports), 1 << (8 * self.report_bytes))
        counts, beyond = counts[: self.alphabet], int(counts[self.alphabet :].sum())
        return Summary(self.estimate(counts), len(reports) - beyond, beyond)

    def tally(self, reports: Bodies, questions: Bodies) -> Integers:
        return count_values(self.said(reports), self.alphabet)[: self.alphabet]


def count_values(values: NDArray[np.unsignedinteger], limit: int) -> Integers:
    """How often each value below `limit` occurs; there are no others."""
    if values.dtype != np.uint8:
        return _in_blocks(values, limit)
    if count_bytes is None:
        return count_bytes_twin(values)
    return np.frombuffer(count_bytes(np.ascontiguousarray(values)), dtype=np.int64).copy()


def count_bytes_twin(values: NDArray[np.unsignedinteger]) -> Integers:
    """Bytes two at a time: half as many steps, and a table that fits the cache."""
    even = len(values) // 2 * 2
    pairs = np.ascontiguousarray(values[:even]).view("<u2")
    counted = _in_blocks(pairs, 1 << 16).reshape(256, 256)
    both: Integers = counted.sum(axis=0) + counted.sum(axis=1)
    both[values[even:]] += 1
    return both


BLOCK = 1 << 20


def _in_blocks(values: NDArray[np.unsignedinteger], limit: int) -> Integers:
    """numpy widens what it counts to 64 bits: in blocks, that takes little memory."""
    counts = np.zeros(limit, dtype=np.int64)
    for start in range(0, len(values), BLOCK):
        counts += np.bincount(values[start : start + BLOCK], minlength=limit)
    return counts
