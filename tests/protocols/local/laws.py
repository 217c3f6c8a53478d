"""The exact law of a report, found by asking what words say."""

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from tallyroom.protocols.local.response import WORD

Law = dict[bytes, Fraction]
MOST_HALVED = 64 * 16
Says = Callable[[list[int]], bytes]
"""The report that words make."""


def law_of(says: Says, words: int, last: int = 0) -> Law:
    """The words that give one law of what follows are a stretch, so ends that agree agree between;
    where the ends of a range differ it is halved. With `last`, a power of two, all that counts of
    the last word is its value modulo that, each as likely."""
    if last:
        law: Law = {}
        for value in range(last):
            _add(law, law_of(_with_last(says, value), words - 1), Fraction(1, last))
        assert says([0] * words) == _with_last(says, WORD - last)([0] * (words - 1))
        return law

    def following(before: list[int]) -> Law:
        if len(before) == words:
            return {says(before): Fraction(1)}
        return _stretches(lambda word: following([*before, word]))

    return following([])


def _with_last(says: Says, word: int) -> Says:
    return lambda words: says([*words, word])


def _stretches(at: Callable[[int], Law]) -> Law:
    law: Law = {}
    ranges, halved = [(0, WORD - 1, at(0), at(WORD - 1))], 0
    while ranges:
        first, last, left, right = ranges.pop()
        assert halved < MOST_HALVED, "reports change with a word at more than a few places"
        if left == right:
            _add(law, left, Fraction(last - first + 1, WORD))
            continue
        halved += 1
        middle = (first + last) // 2
        ranges.append((first, middle, left, at(middle)))
        ranges.append((middle + 1, last, at(middle + 1), right))
    return law


def _add(law: Law, other: Law, weight: Fraction) -> None:
    for report, chance in other.items():
        law[report] = law.get(report, Fraction(0)) + weight * chance


def law_of_bits(says: Says, words: int, bits: int) -> Law:
    """Where each of the first bits of a report has a word of its own and is set below some word."""
    chances = []
    for bit in range(bits):

        def is_set(word: int, bit: int = bit) -> bool:
            drawn = [WORD - 1] * words
            drawn[bit] = word
            return bool(np.unpackbits(np.frombuffer(says(drawn), dtype=np.uint8))[bit])

        low, high = 0, WORD - 1
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if is_set(middle) else (low, middle)
        chances.append(Fraction(low, WORD))
    width = len(says([0] * words))
    law: Law = {}
    for said in itertools.product((0, 1), repeat=bits):
        each = [c if bit else 1 - c for c, bit in zip(chances, said, strict=True)]
        report = np.packbits(np.array(said, dtype=np.uint8)).tobytes().ljust(width, b"\0")
        law[report] = math.prod(each, start=Fraction(1))
    return law


def largest_ratio(laws: list[Law]) -> Fraction:
    """Over reports and inputs, each of which has one of these laws."""
    assert all(sum(law.values()) == 1 for law in laws)
    largest = Fraction(0)
    for one, other in itertools.permutations(laws, 2):
        assert one.keys() == other.keys()
        largest = max(largest, *(one[report] / other[report] for report in one))
    return largest
