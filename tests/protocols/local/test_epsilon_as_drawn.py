"""Randomizers made of others: their ε as it is drawn from integers, rounding and levels included.

Those that they are made of are enumerated in `test_frequency_oracles`, answers about every level in
`test_every_level`.
"""

from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from tallyroom.protocols.local import (
    BoundedResponse,
    HadamardResponse,
    LocalRandomizer,
    RandomizedResponse,
    UnaryEncoding,
)
from tallyroom.protocols.local.auc import AucResponse
from tallyroom.protocols.local.contract import Bodies
from tallyroom.protocols.local.oracle_levels import OracleLevels, level_randomizer
from tallyroom.protocols.local.pairs import PairResponse, Rounding
from tallyroom.protocols.local.pairs_by_oracle import OraclePairs
from tallyroom.protocols.privacy.hierarchy import Hierarchy
from tests.protocols.local.laws import Law, largest_ratio, law_of, law_of_bits
from tests.protocols.local.odds import exponential

EPSILON = Fraction(1)
SHAPE = Hierarchy(6, 3)
KERNELS = np.zeros((1, 3, 3))
SIMPLE, RANDOMIZED = Rounding((3,), (1,)), Rounding((3,), (4,))
BINARY, TERNARY = (RandomizedResponse.spending(EPSILON, k) for k in (2, 3))


def spending(values: int | None) -> Fraction:
    return EPSILON


def says(randomizer: LocalRandomizer, value: int, question: Bodies, words: list[int]) -> bytes:
    drawn = np.array([words], dtype=np.uint64)
    return randomizer.reports(np.array([value]), question, drawn).tobytes()


def law(randomizer: LocalRandomizer, value: int, question: Bodies, last: int = 0) -> Law:
    return law_of(partial(says, randomizer, value, question), randomizer.words, last)


def asked(randomizer: LocalRandomizer, words: list[list[int]]) -> list[Bodies]:
    rows = randomizer.questions(np.array(words, dtype=np.uint64))
    return [row[None, :] for row in rows]


def assert_exact(largest: Fraction) -> None:
    """e^ε at most, and to 12 digits no less."""
    assert exponential(EPSILON) * (1 - Fraction(1, 10**12)) < largest <= exponential(EPSILON)


@pytest.mark.parametrize("name", ["response", "hashing", "hadamard", "unary"])
def test_a_node_of_a_level(name: str) -> None:
    """Of both levels, of 2 and 6 nodes, for three cells and a few questions."""
    randomizer = level_randomizer(name, spending, SHAPE)
    asks = [
        [level, a, b][: randomizer.question_words] for level in (0, 1) for a, b in ((1, 2), (5, 3))
    ]
    ratios = []
    for question in asked(randomizer, asks):
        level = int(question[0, 0])
        laws = []
        for cell in (0, 1, 5):
            if name == "unary":
                assert isinstance(randomizer, OracleLevels)
                told = partial(says, randomizer, cell, question)
                laws.append(law_of_bits(told, randomizer.words, SHAPE.level_sizes[level]))
            else:
                # A level whose report needs fewer words than another's leaves the rest unread.
                laws.append(law(randomizer, cell, question))
        ratios.append(largest_ratio(laws))
    assert_exact(max(ratios))


@pytest.mark.parametrize("points", [2, 3])
def test_a_value_that_is_rounded_to_a_grid(points: int) -> None:
    """Of four steps, so that halves are rounded by a word's first bits."""
    randomizer = BoundedResponse(RandomizedResponse.spending(EPSILON, points), 4)
    question = np.zeros((1, 0), dtype=np.uint8)
    assert_exact(largest_ratio([law(randomizer, value, question) for value in range(5)]))


@pytest.mark.parametrize(
    "randomizer",
    [
        PairResponse(TERNARY, SIMPLE, KERNELS, (1.0,)),
        PairResponse(TERNARY, RANDOMIZED, KERNELS, (1.0,)),
        OraclePairs(HadamardResponse(3, BINARY), SIMPLE, KERNELS, (1.0,)),
        OraclePairs(HadamardResponse(3, BINARY), RANDOMIZED, KERNELS, (1.0,)),
    ],
    ids=lambda each: f"{type(each).__name__} {each.rounding.words}",
)
def test_a_bin_of_pairs(randomizer: PairResponse | OraclePairs) -> None:
    """The word that a place is rounded by comes last; its two lowest bits decide."""
    rounded = randomizer.rounding.words
    rows = [[row] for row in range(1, 4)] if randomizer.question_words else [[]]
    places = (0, 3, 8) if rounded else (0, 1, 2)
    ratios = [
        largest_ratio([law(randomizer, place, question, 4 * rounded) for place in places])
        for question in asked(randomizer, rows)
    ]
    assert_exact(max(ratios))


def test_a_bin_of_pairs_by_unary_encoding() -> None:
    randomizer = OraclePairs(UnaryEncoding.spending(EPSILON, 3), SIMPLE, KERNELS, (1.0,))
    question = np.zeros((1, 0), dtype=np.uint8)
    laws = [
        law_of_bits(partial(says, randomizer, value, question), randomizer.words, 3)
        for value in range(3)
    ]
    assert_exact(largest_ratio(laws))


@pytest.mark.parametrize("private", [False, True])
def test_a_score_and_its_label(private: bool) -> None:
    """Every question; with public labels, among records of one label."""
    randomizer = AucResponse.spending(EPSILON, 2, private)
    asks = [[level, row] for level in range(randomizer.levels) for row in range(2 << level)]
    groups = [range(8)] if private else [range(0, 8, 2), range(1, 8, 2)]
    ratios = [
        largest_ratio([law(randomizer, code, question) for code in group])
        for question in asked(randomizer, asks)
        for group in groups
    ]
    assert_exact(max(ratios))
