"""Optimised local hashing (Wang, Blocki, Li and Jha, USENIX Security 2017).

The question is a hash function h(v) = ((a·v + b) mod P) mod g with P = 2^31 - 1 and g near e^ε + 1.
The record answers h(x) by randomized response among g values, so the report has the response's ε
whatever the function is. A report supports the values that hash to it: x with probability p, and
any other v with probability q + (p - q)·c, where c is the probability that two values collide. Over
uniform a and b two different values hash to independent uniform numbers below P, so c follows
exactly from how many of them are congruent modulo g. Counting support takes O(n·k).
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
from tallyroom.protocols.local.response import RandomizedResponse, exp_below, support_variances

PRIME = (1 << 31) - 1
MAX_HASHED = 1 << 12
"""The most values, because a server tries each of them on every report."""
MAX_BUCKETS = 1 << 16
_ROWS = 1 << 14


@dataclass(frozen=True)
class LocalHashing(FrequencyOracle):
    """`response` answers among g buckets."""

    values: int
    response: RandomizedResponse

    def __post_init__(self) -> None:
        if not 2 <= self.values <= MAX_HASHED or self.response.values > MAX_BUCKETS:
            raise LocalError(f"local hashing takes 2 to {MAX_HASHED} values, not {self.values}")

    @classmethod
    def spending(cls, epsilon: Fraction, values: int) -> "LocalHashing":
        buckets = min(round(exp_below(epsilon)) + 1, MAX_BUCKETS)
        return cls(values, RandomizedResponse.spending(epsilon, buckets))

    @property
    def name(self) -> str:
        return f"optimised local hashing of {self.values} values to {self.response.values}"

    @property
    def ratio(self) -> Fraction:
        return self.response.ratio

    @property
    def collision(self) -> Fraction:
        """c."""
        each, more = divmod(PRIME, self.response.values)
        fewer = self.response.values - more
        return Fraction(more * (each + 1) ** 2 + fewer * each**2, PRIME**2)

    @property
    def p(self) -> float:
        return self.response.p

    @property
    def q(self) -> float:
        """The probability that a report supports a value that its record does not have."""
        response = self.response
        return response.q + response.truthful * float(self.collision)

    @property
    def words(self) -> int:
        return 1

    @property
    def report_bits(self) -> int:
        return (self.response.values - 1).bit_length()

    @property
    def report_bytes(self) -> int:
        return self.response.report_bytes

    @property
    def question_words(self) -> int:
        return 2

    @property
    def question_bytes(self) -> int:
        return 8

    @property
    def gain(self) -> float:
        return self.response.gain / (1 - float(self.collision))

    @property
    def empty_variance(self) -> float:
        return self.q * (1 - self.q) * self.gain**2

    def questions(self, words: Words) -> Bodies:
        """a and b, each a word modulo P, which is uniform up to 2^-33."""
        return (words % np.uint64(PRIME)).astype("<u4").view(np.uint8).reshape(-1, 8)

    def reports(self, inputs: Integers, questions: Bodies, words: Words) -> Bodies:
        hashed = self._hash(questions, inputs)
        return self.response.reports(hashed, questions, words)

    def _hash(self, questions: Bodies, values: Integers) -> Integers:
        a, b = np.ascontiguousarray(questions).view("<u4").astype(np.int64).T
        return np.asarray((a * values + b) % PRIME % self.response.values, dtype=np.int64)

    def possible(self, reports: Bodies, questions: Bodies) -> Flags:
        coefficients = np.ascontiguousarray(questions).view("<u4")
        in_field = (coefficients < PRIME).all(axis=1)
        return np.asarray(self.response.possible(reports, questions) & in_field)

    def tally(self, reports: Bodies, questions: Bodies) -> Integers:
        """How many reports support each value, and how many reports there are."""
        counts = np.zeros(self.values + 1, dtype=np.int64)
        counts[-1] = len(reports)
        for start in range(0, len(reports), _ROWS):
            part = slice(start, start + _ROWS)
            said = self.response.said(reports[part]).astype(np.uint32)
            counts[:-1] += self._support(questions[part], said)
        return counts

    def _support(self, questions: Bodies, said: NDArray[np.uint32]) -> Integers:
        """How many reports support each value v. (a·v + b) mod P follows from that of v - 1 by
        adding a, and subtracting P unless that wraps below 0, which makes it larger."""
        prime, buckets = np.uint32(PRIME), np.uint32(self.response.values)
        a, place = np.ascontiguousarray(questions).view("<u4").astype(np.uint32).T.copy()
        counts = np.zeros(self.values, dtype=np.int64)
        for value in range(self.values):
            counts[value] = np.count_nonzero(place - place // buckets * buckets == said)
            place += a
            np.minimum(place, place - prime, out=place)
        return counts

    def estimate(self, counts: Integers) -> Reals:
        return np.asarray((counts[:-1] - counts[-1] * self.q) * self.gain, dtype=np.float64)

    def variances(self, estimates: Reals, reports: int) -> Reals:
        return support_variances(self.p, self.q, self.gain, estimates, reports)
