"""The contract of a local randomizer: one report per record, each private by itself.

A report answers a public question. In randomized response every record gets the same question;
elsewhere it is a row of the Hadamard matrix, a hash function or a level of a hierarchy. Questions
are drawn independently of the data and need not be secret: a report is ε-private whatever the
question is. If the server knows who reports, both sides derive the question from the run's name and
only the answer travels; otherwise the question travels with the answer.
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
    """An estimate of the statistic's vector from `records` reports. `refused` more reports were
    left out, because the randomizer cannot have produced them."""

    vector: Reals
    records: int
    refused: int


class LocalRandomizer(ABC):
    """Turns each private integer into a report, and reports into estimates.

    A report is computed from its input, its question and `words` uniform 64-bit words by integer
    arithmetic alone, so its probabilities are exactly as stated.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """The randomizer's name in the literature, for the reader of the answer."""

    @property
    @abstractmethod
    def words(self) -> int:
        """How many secret random words a report takes."""

    @property
    def amplified_as(self) -> int | None:
        """k if shuffling amplifies this randomizer like a k-ary randomized response; None if only
        the bound for arbitrary randomizers applies."""
        return None

    @property
    def delta(self) -> Fraction:
        """The δ of a report that is (ε, δ)-private by itself; 0 if it is ε-private."""
        return Fraction(0)

    @property
    @abstractmethod
    def report_bits(self) -> int:
        """How many bits of information a report has."""

    @property
    def report_bytes(self) -> int:
        """How many bytes encode a report."""
        return -(-self.report_bits // 8)

    @property
    def question_words(self) -> int:
        """How many public random words a question takes."""
        return 0

    @property
    def question_bytes(self) -> int:
        return 0

    def questions(self, words: Words) -> Bodies:
        """Questions, as rows of `question_bytes`, from words of shape (n, question_words)."""
        return np.zeros((len(words), 0), dtype=np.uint8)

    @property
    def answers_alike(self) -> bool:
        """Whether every question has the same set of possible answers."""
        return True

    @abstractmethod
    def reports(self, inputs: Integers, questions: Bodies, words: Words) -> Bodies:
        """Rows of `report_bytes` for `inputs`, from `words` of shape (len(inputs), words)."""

    @abstractmethod
    def possible(self, reports: Bodies, questions: Bodies) -> Flags:
        """Which of these rows, of the right widths, the randomizer can produce."""

    @abstractmethod
    def tally(self, reports: Bodies, questions: Bodies) -> Integers:
        """Counts over possible reports; they do not depend on the order of the reports."""

    @property
    @abstractmethod
    def gain(self) -> float:
        """The most by which one report moves an estimate."""

    def largest(self, records: int) -> float:
        """A bound on the absolute value of estimates from `records` reports."""
        return self.gain * records

    @abstractmethod
    def estimate(self, counts: Integers) -> Reals:
        """Unbiased estimates from a tally."""

    @abstractmethod
    def variances(self, estimates: Reals, reports: int) -> Reals:
        """The variance of each estimate, or a bound on it, at the values that `estimates` give."""

    def summarise(self, reports: Bodies, questions: Bodies) -> Summary:
        """The estimate from possible reports. Impossible ones are left out and counted."""
        possible = self.possible(reports, questions)
        refused = len(possible) - int(np.count_nonzero(possible))
        if refused:
            reports, questions = reports[possible], questions[possible]
        return Summary(self.estimate(self.tally(reports, questions)), len(reports), refused)


class FrequencyOracle(LocalRandomizer):
    """A randomizer that estimates how many records hold each value."""

    @property
    @abstractmethod
    def ratio(self) -> Fraction:
        """The most by which replacing the input changes a report's probability; ε is its log."""

    @property
    @abstractmethod
    def empty_variance(self) -> float:
        """What one record adds to the variance of the count of a value that it does not hold.
        Randomizers are compared by it, as in Wang et al. (USENIX Security 2017)."""


class OneValue(LocalRandomizer):
    """A randomizer that reports one of `alphabet` values and has only one question."""

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
        """1, 2 or 4, so that reports are counted without unpacking."""
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
        """Like the base class, but counts reports of one or two bytes, also impossible ones, in one
        pass."""
        if self.report_bytes > 2:
            return super().summarise(reports, questions)
        counts = count_values(self.said(reports), 1 << (8 * self.report_bytes))
        counts, beyond = counts[: self.alphabet], int(counts[self.alphabet :].sum())
        return Summary(self.estimate(counts), len(reports) - beyond, beyond)

    def tally(self, reports: Bodies, questions: Bodies) -> Integers:
        return count_values(self.said(reports), self.alphabet)[: self.alphabet]


def count_values(values: NDArray[np.unsignedinteger], limit: int) -> Integers:
    """How often each value occurs; all values must be below `limit`."""
    if values.dtype != np.uint8:
        return _in_blocks(values, limit)
    if count_bytes is None:
        return count_bytes_twin(values)
    return np.frombuffer(count_bytes(np.ascontiguousarray(values)), dtype=np.int64).copy()


def count_bytes_twin(values: NDArray[np.unsignedinteger]) -> Integers:
    """Counts bytes two at a time: half as many steps, with a table that fits the cache."""
    even = len(values) // 2 * 2
    pairs = np.ascontiguousarray(values[:even]).view("<u2")
    counted = _in_blocks(pairs, 1 << 16).reshape(256, 256)
    both: Integers = counted.sum(axis=0) + counted.sum(axis=1)
    both[values[even:]] += 1
    return both


BLOCK = 1 << 20


def _in_blocks(values: NDArray[np.unsignedinteger], limit: int) -> Integers:
    """Counts in blocks, because numpy widens its input to 64 bits: so that takes little memory."""
    counts = np.zeros(limit, dtype=np.int64)
    for start in range(0, len(values), BLOCK):
        counts += np.bincount(values[start : start + BLOCK], minlength=limit)
    return counts
