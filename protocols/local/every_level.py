"""AUC from answers about every level at once: Theorem 4 of S1, under ε and under (ε, δ).

A record answers one bit per level of the tree, each by the same binary randomized response, to a
row of that level's Hadamard matrix. Two inputs differ in at most all signs, so a report is as
private as that many independent responses together. Their exact (ε, δ) is a sum over how many of
them tell the truth (Kairouz, Oh and Viswanath 2015), and the most truthful response within it is
found by integer arithmetic. With δ = 0 each answer has ε/α, which is the theorem's α³; with δ > 0
it has about ε/√(2α ln(1/δ)), which is the theorem's α²·log(1/δ). The δ comes from the record's own
coins: it holds for each question, whoever chose the question.

Levels are independent here, as Theorem 3 assumes. A report has a bit for each level. With one bit
about one level (`AucResponse`) the error is of order α² without a δ, so answers about every level
have the smaller error only for large ε; `auc_response` chooses.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.local.auc import AucResponse, TreeResponse
from tallyroom.protocols.local.contract import Bodies, Flags, Integers, Words
from tallyroom.protocols.local.hadamard import parity
from tallyroom.protocols.local.response import WORD, RandomizedResponse, exp_below
from tallyroom.protocols.local.walk import WalkAnswers
from tallyroom.protocols.registry import look_up

ASKED: Mapping[str, str] = {
    "auto": "whichever has the smaller error",
    "one": "one level at random",
    "all": "every level",
}
"""Which levels a report is about."""
WORTH = 0.95
"""Every level is asked about only if that lowers a node's variance to this fraction."""


def composed_delta(response: RandomizedResponse, times: int, odds: Fraction) -> Fraction:
    """The least δ for which `times` independent responses, to inputs that all differ, are
    (ε, δ)-private; exact. `odds` is e^ε."""
    keep, other = response.keep, response.other
    above = Fraction(0)
    for true in range(times + 1):
        one = keep**true * other ** (times - true)
        another = keep ** (times - true) * other**true
        above += math.comb(times, true) * max(Fraction(0), one - odds * another)
    delta: Fraction = above / WORD**times
    return delta


def composed_response(epsilon: Fraction, delta: Fraction, times: int) -> RandomizedResponse:
    """The most truthful binary response such that `times` of them together are (ε, δ)-private.

    Raises `LocalError` where `epsilon` is too small for 64-bit probabilities.
    """
    odds = exp_below(epsilon)
    low, high = 1, (WORD >> 1) - 1
    if composed_delta(RandomizedResponse(2, high), times, odds) > delta:
        raise LocalError(f"epsilon {float(epsilon):g} is too small for {times} answers")
    while low < high:
        middle = (low + high) // 2
        fits = composed_delta(RandomizedResponse(2, middle), times, odds) <= delta
        low, high = (low, middle) if fits else (middle + 1, high)
    return RandomizedResponse(2, low)


@dataclass(frozen=True)
class EveryLevel(TreeResponse):
    """Answers a bit about each level. `delta` is the δ granted to a report."""

    delta: Fraction = Fraction(0)

    @classmethod
    def spending(
        cls, epsilon: Fraction, delta: Fraction, depth: int, private_labels: bool
    ) -> "EveryLevel":
        response = composed_response(epsilon, delta, depth + private_labels)
        return cls(depth, private_labels, response, delta)

    @property
    def asked(self) -> str:
        levels = self.levels
        return f"a bit about each of {levels} level{'s' * (levels > 1)}"

    @property
    def words(self) -> int:
        return self.levels

    @property
    def report_bits(self) -> int:
        """A bit per level, and the label if labels are public."""
        return self.levels + (not self.private_labels)

    @property
    def question_words(self) -> int:
        """Two rows in a word."""
        return -(-self.levels // 2)

    @property
    def question_bytes(self) -> int:
        return 4 * self.levels

    @property
    def gain(self) -> float:
        return self.response.gain

    @property
    def variance(self) -> float:
        return self.response.gain**2

    @property
    def _orders(self) -> Integers:
        """The orders of the levels' Hadamard matrices."""
        return np.int64(2) << np.arange(self.levels)

    def questions(self, words: Words) -> Bodies:
        rows = np.ascontiguousarray(words.astype("<u8")).view("<u4")[:, : self.levels]
        asked = (rows & (self._orders - 1).astype(np.uint32)).astype("<u4")
        return asked.view(np.uint8).reshape(len(words), self.question_bytes)

    def reports(self, inputs: Integers, questions: Bodies, words: Words) -> Bodies:
        rows = _rows(questions)
        bits = np.zeros((len(inputs), self.report_bits), dtype=np.uint8)
        for level in range(self.levels):
            signs = parity(rows[:, level] & self.places(level, inputs))
            bits[:, level] = self.response.randomize(signs, words[:, level : level + 1])
        if not self.private_labels:
            bits[:, -1] = inputs & 1
        return np.packbits(bits, axis=1, bitorder="little")

    def possible(self, reports: Bodies, questions: Bodies) -> Flags:
        """A report is possible if its unused bits are 0 and its rows exist."""
        spare = 8 * self.report_bytes - self.report_bits
        padded = reports[:, -1] < 1 << (8 - spare)
        return np.asarray(padded & (_rows(questions) < self._orders).all(axis=1))

    def answers(self, level: int, reports: Bodies, questions: Bodies) -> WalkAnswers:
        rows = np.ascontiguousarray(questions[:, 4 * level : 4 * level + 4]).view("<u4")[:, 0]
        return WalkAnswers(rows, _bit(reports, level), self.labels(reports))

    def labels(self, reports: Bodies) -> Bodies:
        return _bit(reports, self.report_bits - 1)


def _rows(questions: Bodies) -> Integers:
    return np.ascontiguousarray(questions).view("<u4").astype(np.int64)


def _bit(reports: Bodies, place: int) -> Bodies:
    return (reports[:, place // 8] >> np.uint8(place % 8)) & np.uint8(1)


def auc_response(
    asked: str, epsilon: Fraction, delta: Fraction, depth: int, private_labels: bool
) -> TreeResponse:
    """Answers about `one` level or `all` of them; for `auto`, whichever makes nodes vary less. A δ
    or longer reports are taken only if they lower the variance by a twentieth."""
    look_up("levels", asked, ASKED)
    one = AucResponse.spending(epsilon, depth, private_labels)
    if asked == "one":
        return one
    if asked == "all":
        return EveryLevel.spending(epsilon, delta, depth, private_labels)
    best: TreeResponse = one
    for granted in dict.fromkeys((Fraction(0), delta)):
        try:
            every = EveryLevel.spending(epsilon, granted, depth, private_labels)
        except LocalError:
            continue
        if every.variance < WORTH * best.variance:
            best = every
    return best
