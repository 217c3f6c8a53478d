"""Statistics of pairs by Hadamard response and unary encoding: by enumeration, and by many runs."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.local.choice import LocalBudget
from tallyroom.protocols.local.pairs import FIXED_POINT, PairResponse, Rounding, mean_over_pairs
from tallyroom.protocols.local.pairs_by_oracle import OraclePairs, PairRandomizer, pair_randomizer
from tallyroom.protocols.local.response import WORD
from tallyroom.protocols.randomness import Randomness
from tests.goodness import ALPHA

KERNEL = np.array([[[0.0, 1.0, 0.5], [0.25, 1.0, 0.0], [1.0, 0.75, 0.5]]])


def one(epsilon: int) -> LocalBudget:
    return lambda _: Fraction(epsilon)


def built(name: str, epsilon: int = 1, k: int = 3) -> PairRandomizer:
    kernel = KERNEL if k == 3 else np.abs(np.subtract.outer(np.arange(k), np.arange(k)))[None] / k
    return pair_randomizer(name, one(epsilon), Rounding((k,), (1,)), kernel, (1.0,))


@pytest.mark.parametrize("name", ["hadamard", "unary"])
def test_it_is_unbiased_by_enumeration(name: str) -> None:
    """Three records, all of their questions and reports with their probabilities: for a kernel that
    is not symmetric."""
    randomizer = built(name)
    assert isinstance(randomizer, OraclePairs)
    questions = randomizer.questions(np.arange(4, dtype=np.uint64)[:, None])
    if name == "unary":
        questions = questions[:1]
    outcomes: list[list[tuple[float, bytes, bytes]]] = []
    records = (0, 1, 1)
    for record in records:
        here = []
        for question in questions:
            for said in range(2 if name == "hadamard" else 8):
                chance = probability(randomizer, record, question.tobytes(), said)
                byte = said if name == "hadamard" else said << 5
                here.append((chance / len(questions), question.tobytes(), bytes([byte])))
        outcomes.append(here)
        assert sum(chance for chance, _, _ in here) == pytest.approx(1)
    mean = 0.0
    for chosen in itertools.product(*outcomes):
        asked = np.frombuffer(b"".join(each[1] for each in chosen), dtype=np.uint8).reshape(3, -1)
        reports = np.frombuffer(b"".join(each[2] for each in chosen), dtype=np.uint8)
        chance = math.prod(each[0] for each in chosen)
        mean += chance * float(randomizer.summarise(reports.reshape(3, 1), asked).vector[0])
    truth = np.mean([KERNEL[0, a, b] for a, b in itertools.permutations(records, 2)])
    assert mean / FIXED_POINT == pytest.approx(truth, abs=1e-9)


def probability(randomizer: OraclePairs, record: int, question: bytes, said: int) -> float:
    """Of a report, by the paper: the sign of a row with probability e^ε/(e^ε+1); a fair bit for the
    record's own value, and 1/(e^ε+1) for others."""
    lie = 1 / (math.e + 1)
    if question:
        [row] = np.frombuffer(question, dtype="<u4").tolist()
        sign = (row & record).bit_count() & 1
        return 1 - lie if said == sign else lie
    bits = [said >> (2 - place) & 1 for place in range(3)]
    chances = [0.5 if place == record else lie for place in range(3)]
    return math.prod(c if bit else 1 - c for c, bit in zip(chances, bits, strict=True))


@pytest.mark.parametrize("name", ["hadamard", "unary"])
def test_its_variance_is_within_the_bound_and_of_its_order(name: str) -> None:
    """600 estimates from 300 records among 12 bins: the mean at ALPHA, the variance below the bound
    (its relative deviation is √(2/600)), and above a hundredth of it."""
    runs, n, k = 600, 300, 12
    randomizer = built(name, 2, k)
    assert isinstance(randomizer, OraclePairs)
    inputs = np.arange(n) % 5 + np.arange(n) % 7
    source, found = Randomness(bytes(16)), []
    for _ in range(runs):
        asked = source.words(n * randomizer.question_words).reshape(n, -1)
        questions = randomizer.questions(asked)
        words = source.words(n * randomizer.words).reshape(n, -1)
        reports = randomizer.reports(inputs, questions, words)
        assert randomizer.possible(reports, questions).all()
        found.append(randomizer.summarise(reports, questions).vector[0] / FIXED_POINT)
    order = np.random.default_rng(1).permutation(n)
    again = randomizer.summarise(reports[order], questions[order]).vector[0] / FIXED_POINT
    assert again == found[-1]
    truth = mean_over_pairs(randomizer.kernels, np.bincount(inputs, minlength=k))[0]
    bound = stats.norm.isf(ALPHA / 2)
    assert abs(np.mean(found) - truth) < bound * np.std(found) / math.sqrt(runs)
    [stated] = randomizer.variances(np.zeros(1), n) / FIXED_POINT**2
    assert stated / 100 < np.var(found) < stated


def test_auto_is_response_for_few_bins_and_hadamard_for_many() -> None:
    """The bounds cross where (k + e^ε - 1)²/(e^ε - 1)² is 1 + k·((e^ε+1)/(e^ε-1))²."""
    for epsilon in (1, 2):
        e = math.exp(epsilon)
        for k in range(2, 80):
            response = ((k + e - 1) / (e - 1)) ** 2
            hadamard = 1 + k * ((e + 1) / (e - 1)) ** 2
            found = built("auto", epsilon, k)
            assert isinstance(found, PairResponse if response <= hadamard else OraclePairs)
            if isinstance(found, OraclePairs):
                assert "one bit for" in found.name


def test_what_is_no_report_is_refused_and_counted_and_one_is_no_pair() -> None:
    randomizer = built("hadamard")
    questions = np.zeros((3, 4), dtype=np.uint8)
    questions[2, 0] = 4  # there are four rows
    said = np.array([[0], [2], [0]], dtype=np.uint8)
    assert randomizer.possible(said, questions).tolist() == [True, False, False]
    with pytest.raises(LocalError, match="two records"):
        randomizer.summarise(said, questions)
    with pytest.raises(LocalError, match="randomizer"):
        built("hashing")
    huge = built("unary", 10**6)
    words = np.full((3, huge.words), WORD - 1, dtype=np.uint64)
    none = np.zeros((3, 0), dtype=np.uint8)
    found = huge.summarise(huge.reports(np.arange(3), none, words), none)
    assert np.isfinite(found.vector).all()
