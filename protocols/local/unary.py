"""Optimised unary encoding (Wang, Blocki, Li and Jha, USENIX Security 2017).

A report has a bit for every value. The bit of the record's own value is a fair coin; every other
bit is set with probability q = 1/(e^ε + 1). Two inputs differ in two bits, and a report is at most
p(1-q)/(q(1-p)) = (1-q)/q times as likely under one as under the other: e^ε, with p = ½ exactly and
q rounded up to a multiple of 2^-64. For many values it has the least variance of all randomizers
here, and the longest reports.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.local.contract import (
    Bodies,
    Flags,
    FrequencyOracle,
    Integers,
    Reals,
    Words,
    count_values,
)
from tallyroom.protocols.local.response import WORD, RandomizedResponse, support_variances

MAX_UNARY = 1 << 12
"""The most bits in a report."""
_HALF = 1 << 63
_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).astype(np.int64)
"""The bits of every byte, first bit first."""


@dataclass(frozen=True)
class UnaryEncoding(FrequencyOracle):
    """`other` is the probability of a bit that is not the record's own, in units of 2^-64."""

    values: int
    other: int

    def __post_init__(self) -> None:
        if not 2 <= self.values <= MAX_UNARY:
            raise LocalError(f"unary encoding takes 2 to {MAX_UNARY} values, not {self.values}")
        if not 1 <= self.other < _HALF:
            raise LocalError("unary encoding must set other values' bits less often than its own")

    @classmethod
    def spending(cls, epsilon: Fraction, values: int) -> "UnaryEncoding":
        """Takes q from binary randomized response, which also needs (1-q)/q ≤ e^ε."""
        return cls(values, RandomizedResponse.spending(epsilon, 2).other)

    @property
    def name(self) -> str:
        return f"optimised unary encoding of {self.values} values"

    @property
    def ratio(self) -> Fraction:
        """The most by which replacing the input changes a report's probability; ε is its log."""
        return Fraction(WORD - self.other, self.other)

    @property
    def words(self) -> int:
        return self.values

    @property
    def report_bits(self) -> int:
        return self.values

    @property
    def q(self) -> float:
        return self.other / WORD

    @property
    def gain(self) -> float:
        return WORD / (_HALF - self.other)

    @property
    def empty_variance(self) -> float:
        return self.q * (1 - self.q) * self.gain**2

    def reports(self, inputs: Integers, questions: Bodies, words: Words) -> Bodies:
        bits = words < np.uint64(self.other)
        rows = np.arange(len(inputs))
        bits[rows, inputs] = words[rows, inputs] < np.uint64(_HALF)
        return np.packbits(bits, axis=1)

    def possible(self, reports: Bodies, questions: Bodies) -> Flags:
        """A report is possible if its bits after the last value are 0."""
        spare = 8 * self.report_bytes - self.values
        return np.asarray((reports[:, -1] & np.uint8((1 << spare) - 1)) == 0)

    def tally(self, reports: Bodies, questions: Bodies) -> Integers:
        """How many reports set each bit, and how many reports there are. Counts how often each byte
        occurs at each place."""
        counts = np.zeros(self.values + 1, dtype=np.int64)
        for place in range(0, self.values, 8):
            width = min(8, self.values - place)
            bits = count_values(reports[:, place // 8], 1 << 8) @ _BITS
            counts[place : place + width] = bits[:width]
        counts[-1] = len(reports)
        return counts

    def estimate(self, counts: Integers) -> Reals:
        """(c - nq)/(½ - q) for every value."""
        return np.asarray((counts[:-1] - counts[-1] * self.q) * self.gain, dtype=np.float64)

    def variances(self, estimates: Reals, reports: int) -> Reals:
        return support_variances(0.5, self.q, self.gain, estimates, reports)
