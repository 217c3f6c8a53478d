"""Hadamard response: one bit per record (S1 §4, after Bassily, Nissim, Stemmer and Thakurta 2017).

The question is a uniform row j of the K × K Hadamard matrix, K the least power of two that is not
below the number of values. The record with value x answers the sign H[j, x] = (-1)^⟨j, x⟩ by binary
randomized response. Rows are orthogonal, so Σ s·H[j, v]·(e^ε+1)/(e^ε-1) over all reports is an
unbiased count of v; its variance is a little above that of unary encoding. All K counts come from
one fast transform: O(n + K log K).
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.local.contract import (
    Bodies,
    Flags,
    FrequencyOracle,
    Integers,
    Reals,
    Words,
)
from tallyroom.protocols.local.response import RandomizedResponse

MAX_ORDER = 1 << 25
"""The largest order of a Hadamard matrix."""


@dataclass(frozen=True)
class HadamardResponse(FrequencyOracle):
    """Counts of `values` values; `response` is binary."""

    values: int
    response: RandomizedResponse

    def __post_init__(self) -> None:
        if not 1 <= self.values <= MAX_ORDER:
            raise LocalError(f"Hadamard response takes 1 to {MAX_ORDER} values, not {self.values}")
        if self.response.values != 2:
            raise LocalError("Hadamard response needs a binary randomized response")

    @classmethod
    def spending(cls, epsilon: Fraction, values: int) -> "HadamardResponse":
        return cls(values, RandomizedResponse.spending(epsilon, 2))

    @property
    def name(self) -> str:
        return f"Hadamard response, one bit for {self.values} values"

    @property
    def ratio(self) -> Fraction:
        return self.response.ratio

    @property
    def order(self) -> int:
        """K."""
        return 1 << (self.values - 1).bit_length()

    @property
    def words(self) -> int:
        return 1

    @property
    def report_bits(self) -> int:
        return 1

    @property
    def question_words(self) -> int:
        return 1

    @property
    def question_bytes(self) -> int:
        return 4

    @property
    def gain(self) -> float:
        return self.response.gain

    @property
    def empty_variance(self) -> float:
        return self.gain**2

    def questions(self, words: Words) -> Bodies:
        rows = (words[:, 0] & np.uint64(self.order - 1)).astype("<u4")
        return rows.view(np.uint8).reshape(-1, 4)

    def reports(self, inputs: Integers, questions: Bodies, words: Words) -> Bodies:
        signs = parity(rows_of(questions) & inputs)
        return self.response.randomize(signs, words).astype(np.uint8)[:, None]

    def possible(self, reports: Bodies, questions: Bodies) -> Flags:
        return (reports[:, 0] < 2) & (rows_of(questions) < self.order)

    def tally(self, reports: Bodies, questions: Bodies) -> Integers:
        """For each row, the sum of the signs that answer it."""
        return sums_of_signs(rows_of(questions), reports[:, 0], self.order)

    def estimate(self, counts: Integers) -> Reals:
        return transformed(counts)[: self.values] * self.gain

    def variances(self, estimates: Reals, reports: int) -> Reals:
        """A report adds ±gain to every count, and on average 1 to that of its record's value."""
        held = np.clip(estimates, 0, reports)
        return np.asarray(reports * self.gain**2 - held, dtype=np.float64)


def rows_of(questions: Bodies) -> Integers:
    return np.ascontiguousarray(questions).view("<u4")[:, 0].astype(np.int64)


def parity(words: Integers) -> Integers:
    """The parity of the number of ones in each word."""
    return (np.bitwise_count(words) & 1).astype(np.int64)


def sums_of_signs(rows: Integers, bits: NDArray[np.uint8], order: int) -> Integers:
    """The sum, for each row, of the signs of its bits: a 0 counts 1, a 1 counts -1."""
    sums = np.bincount(2 * rows + bits, minlength=2 * order).reshape(order, 2)
    return np.asarray(sums[:, 0] - sums[:, 1], dtype=np.int64)


def transformed(sums: Integers) -> Reals:
    """H times the vector, by the fast Walsh-Hadamard transform; its length is a power of two."""
    values = sums.astype(np.float64)
    half = 1
    while half < len(values):
        pairs = values.reshape(-1, 2, half)
        values = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).ravel()
        half *= 2
    return values
