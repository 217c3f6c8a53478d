"""Hierarchies by any randomizer: what a node's estimate is, and which one `auto` takes."""

import math
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from scipy import stats

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.local import RANDOMIZERS
from tallyroom.protocols.local.levels import LevelResponse
from tallyroom.protocols.local.oracle_levels import OracleLevels, level_randomizer
from tallyroom.protocols.privacy.hierarchy import Hierarchy
from tallyroom.protocols.randomness import Randomness
from tests.goodness import ALPHA

OTHERS = [name for name in RANDOMIZERS if name != "hadamard"]
SHAPE = Hierarchy(12, 4)


def spending(epsilon: Fraction, values: int | None) -> Fraction:
    return epsilon


def built(name: str, epsilon: int | Fraction = 2, shape: Hierarchy = SHAPE) -> OracleLevels:
    found = level_randomizer(name, partial(spending, Fraction(epsilon)), shape)
    assert isinstance(found, OracleLevels)
    return found


@pytest.mark.parametrize("name", OTHERS)
def test_all_nodes_are_unbiased_within_the_variance_that_is_stated(name: str) -> None:
    """500 estimates from 240 records in any order: the means of all nodes at ALPHA; no variance
    above what is stated, give or take the ALPHA quantile of a deviation of √(2/500)."""
    runs, n = 500, 240
    randomizer = built(name)
    cells = np.arange(n) % 12 * (np.arange(n) % 3 == 0)
    source, found = Randomness(bytes(16)), []
    for _ in range(runs):
        asked = source.words(n * randomizer.question_words).reshape(n, -1)
        questions = randomizer.questions(asked)
        words = source.words(n * randomizer.words).reshape(n, -1)
        reports = randomizer.reports(cells, questions, words)
        assert randomizer.possible(reports, questions).all()
        found.append(randomizer.summarise(reports, questions).vector)
    order = np.random.default_rng(1).permutation(n)
    assert (randomizer.summarise(reports[order], questions[order]).vector == found[-1]).all()
    truth = np.concatenate(
        [
            np.bincount(cells // width, minlength=size)
            for width, size in zip(SHAPE.widths, SHAPE.level_sizes, strict=True)
        ]
    )
    bound = stats.norm.isf(ALPHA / 2)
    [stated] = randomizer.variances(np.zeros(1), n)
    deviations = np.std(found, axis=0)
    assert (np.abs(np.mean(found, axis=0) - truth) < bound * deviations / math.sqrt(runs)).all()
    assert (deviations**2 < stated * (1 + bound * math.sqrt(2 / runs))).all()
    assert (deviations**2).max() > stated / 20


def test_auto_is_response_for_a_few_nodes_and_else_hadamard() -> None:
    """The largest eigenvalue of the covariance of all nodes of a level, by numpy and from the
    papers' probabilities, with the most nodes; unary encoding and hashing vary as Hadamard at
    least."""
    for epsilon in (Fraction(1, 10), Fraction(1), Fraction(4)):
        e = math.exp(epsilon)
        for shape in (Hierarchy(2, 2), Hierarchy(4, 2), Hierarchy(3, 3), Hierarchy(64, 8)):
            auto = level_randomizer("auto", partial(spending, epsilon), shape)
            k, h = max(shape.level_sizes), shape.height
            law = np.where(np.arange(k) == 0, e, 1.0) / (k - 1 + e)
            covariance = (np.diag(law) - np.outer(law, law)) / (law[0] - law[-1]) ** 2
            response = h * np.linalg.eigvalsh(covariance).max() + h - 1
            hadamard = h * ((e + 1) / (e - 1)) ** 2
            expected = OracleLevels if response < 0.99 * hadamard else LevelResponse
            assert type(auto) is expected, (epsilon, shape)
            least = response if expected is OracleLevels else hadamard
            assert auto.variances(np.zeros(1), 1) == pytest.approx([least])
            assert all(built(name, epsilon, shape).worst >= least * 0.98 for name in OTHERS)


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_report_is_refused_and_counted(name: str) -> None:
    """No level, no such answer at that level, and something behind an answer."""
    randomizer = built(name, 1, Hierarchy(1024, 4))
    words = Randomness(bytes(16)).words(60 * randomizer.question_words).reshape(60, -1)
    questions = randomizer.questions(words)
    drawn = Randomness(bytes(16)).words(60 * randomizer.words).reshape(60, -1)
    reports = randomizer.reports(np.arange(60), questions, drawn)
    found = randomizer.summarise(reports, questions)
    asked = np.zeros((3, randomizer.question_bytes), dtype=np.uint8)
    asked[0, 0] = len(randomizer.oracles)
    said = np.zeros((3, randomizer.report_bytes), dtype=np.uint8)
    said[1] = 255
    if randomizer.report_bytes > 1:
        said[2, -1] = 1
    else:
        asked[2, -1] = 255
    mixed = randomizer.summarise(np.vstack([said, reports]), np.vstack([asked, questions]))
    assert (mixed.records, mixed.refused) == (60, 3)
    assert (mixed.vector == found.vector).all()


def test_what_a_level_is_too_large_for_is_said() -> None:
    with pytest.raises(LocalError, match="4096 values"):
        built("unary", 1, Hierarchy(1 << 14, 16))
    with pytest.raises(LocalError, match="did you mean unary"):
        built("unry")


def test_shuffling_amplifies_it_as_any_randomizer() -> None:
    """The question tells which level it is: no randomized response among one set of values."""
    asked: list[int | None] = []

    def budget(values: int | None) -> Fraction:
        asked.append(values)
        return Fraction(1)

    level_randomizer("response", budget, SHAPE)
    assert asked == [None]
    assert built("response").amplified_as is None
