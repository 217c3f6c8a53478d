"""Every frequency oracle: its ε as it is drawn from integers, its estimates and their variances."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.local import (
    RANDOMIZERS,
    FrequencyOracle,
    HadamardResponse,
    LocalHashing,
    RandomizedResponse,
    UnaryEncoding,
    contract,
    frequency_oracle,
)
from tallyroom.protocols.local.contract import Bodies
from tallyroom.protocols.local.response import WORD
from tallyroom.protocols.randomness import Randomness
from tests.goodness import ALPHA
from tests.protocols.local.laws import Law, largest_ratio, law_of, law_of_bits
from tests.protocols.local.odds import exponential

EPSILONS = [Fraction(1, 10), Fraction(1), Fraction(2)]


def oracle(name: str, epsilon: Fraction, values: int) -> FrequencyOracle:
    return RANDOMIZERS[name](lambda _: epsilon, values)


def law_of_report(randomizer: FrequencyOracle, value: int, question: Bodies) -> Law:
    """The exact probability of every report."""

    def says(words: list[int]) -> bytes:
        drawn = np.array([words], dtype=np.uint64)
        return randomizer.reports(np.array([value]), question, drawn).tobytes()

    if isinstance(randomizer, UnaryEncoding):
        return law_of_bits(says, randomizer.words, randomizer.values)
    return law_of(says, randomizer.words)


def questions_of(randomizer: FrequencyOracle) -> list[Bodies]:
    """All of them, or a few of the many hash functions."""
    if isinstance(randomizer, HadamardResponse):
        words = np.arange(randomizer.order, dtype=np.uint64)[:, None]
    else:
        words = Randomness(bytes(16)).words(3 * randomizer.question_words).reshape(3, -1)
        words = words if randomizer.question_words else words[:1]
    return [row[None, :] for row in randomizer.questions(words)]


@pytest.mark.parametrize("name", RANDOMIZERS)
@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("values", [2, 5])
def test_the_largest_ratio_of_probabilities_is_e_to_epsilon(
    name: str, epsilon: Fraction, values: int
) -> None:
    """Over all inputs, reports and questions: e^ε at most, and to 12 digits no less."""
    randomizer = oracle(name, epsilon, values)
    largest = Fraction(0)
    for question in questions_of(randomizer):
        laws = [law_of_report(randomizer, value, question) for value in range(values)]
        largest = max(largest, largest_ratio(laws))
    assert largest == randomizer.ratio
    assert exponential(epsilon) * (1 - Fraction(1, 10**12)) < largest <= exponential(epsilon)


@pytest.mark.parametrize("name", ["response", "unary", "hadamard"])
def test_one_report_is_unbiased_with_exactly_the_stated_variance(name: str) -> None:
    """By enumeration of questions and reports, for every value that a record may have."""
    randomizer = oracle(name, Fraction(1), 5)
    questions = questions_of(randomizer)
    for value in range(5):
        mean, second = np.zeros(5), np.zeros(5)
        for question in questions:
            for report, chance in law_of_report(randomizer, value, question).items():
                row = np.frombuffer(report, dtype=np.uint8)[None, :]
                assert randomizer.possible(row, question).all()
                estimate = randomizer.summarise(row, question).vector
                mean += float(chance) / len(questions) * estimate
                second += float(chance) / len(questions) * estimate**2
        truth = np.eye(5)[value]
        assert mean == pytest.approx(truth, abs=1e-9)
        assert second - mean**2 == pytest.approx(randomizer.variances(truth, 1))
        others = np.delete(second - mean**2, value)
        assert others == pytest.approx(randomizer.empty_variance)


@pytest.mark.parametrize("name", RANDOMIZERS)
def test_estimates_are_unbiased_with_the_variance_that_is_stated(name: str) -> None:
    """1500 estimates from 200 records in any order: means within the two-sided ALPHA quantile of
    their deviation, the ratio of variances within that of a normal with deviation √(2/1500)."""
    runs, records = 1500, 200
    randomizer = oracle(name, Fraction(1), 6)
    truth = np.array([120, 50, 20, 10, 0, 0])
    inputs = np.repeat(np.arange(6), truth)
    source = Randomness(bytes(16))
    found = []
    for _ in range(runs):
        asked = source.words(records * randomizer.question_words).reshape(records, -1)
        questions = randomizer.questions(asked)
        words = source.words(records * randomizer.words).reshape(records, -1)
        reports = randomizer.reports(inputs, questions, words)
        found.append(randomizer.summarise(reports, questions).vector)
    order = np.random.default_rng(1).permutation(records)
    again = randomizer.summarise(reports[order], questions[order])
    assert (again.vector == found[-1]).all()
    assert (again.records, again.refused) == (records, 0)
    estimates = np.stack(found)
    variances = randomizer.variances(truth.astype(float), records)
    bound = stats.norm.isf(ALPHA / 2)
    assert (np.abs(estimates.mean(axis=0) - truth) < bound * np.sqrt(variances / runs)).all()
    ratio = estimates.var(axis=0) / variances
    assert (np.abs(ratio - 1) < bound * math.sqrt(2 / runs)).all()


@pytest.mark.parametrize(
    ("name", "report", "question"),
    [
        ("response", b"\x05", b""),
        ("unary", b"\x01", b""),
        ("hadamard", b"\x02", bytes(4)),
        ("hadamard", b"\x00", b"\x08\0\0\0"),
        ("hashing", b"\x04", bytes(8)),
        ("hashing", b"\x00", b"\xff\xff\xff\x7f" + bytes(4)),
    ],
)
def test_what_is_no_report_is_refused_and_counted(
    name: str, report: bytes, question: bytes
) -> None:
    randomizer = oracle(name, Fraction(1), 5)
    good = randomizer.questions(np.zeros((3, randomizer.question_words), dtype=np.uint64))
    words = np.zeros((3, randomizer.words), dtype=np.uint64)
    reports = randomizer.reports(np.arange(3), good, words)
    honest = randomizer.summarise(reports, good)
    bad = np.frombuffer(report, dtype=np.uint8)[None, :]
    asked = np.frombuffer(question, dtype=np.uint8)[None, :]
    mixed = randomizer.summarise(np.vstack([reports, bad]), np.vstack([good, asked]))
    assert (mixed.records, mixed.refused) == (3, 1)
    assert (mixed.vector == honest.vector).all()


def test_a_wide_alphabet_does_not_let_a_report_fill_the_memory() -> None:
    randomizer = RandomizedResponse.spending(Fraction(1), 1 << 17)
    worst = np.full((1, 4), 255, dtype=np.uint8)
    found = randomizer.summarise(worst, np.zeros((1, 0), dtype=np.uint8))
    assert (found.records, found.refused, len(found.vector)) == (0, 1, 1 << 17)


@pytest.mark.parametrize("count", [0, 1, 2, 7, 8, 9, 4097])
def test_bytes_are_counted_the_same_natively_and_by_numpy(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = np.random.default_rng(1).integers(0, 256, count).astype(np.uint8)
    expected = np.bincount(values, minlength=256).tolist()
    assert contract.count_values(values, 256).tolist() == expected
    assert contract.count_values(np.repeat(values, 2)[::2], 256).tolist() == expected
    monkeypatch.setattr(contract, "count_bytes", None)
    assert contract.count_values(values, 256).tolist() == expected


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
def test_the_choice_has_the_least_variance(epsilon: float) -> None:
    """Wang et al.: randomized response while k < 3e^ε + 2, then unary encoding."""
    edge = 3 * math.exp(epsilon) + 2
    for values in range(2, 300):
        chosen = frequency_oracle("auto", lambda _: Fraction(epsilon), values)
        assert isinstance(chosen, RandomizedResponse if values < edge else UnaryEncoding)


def test_what_is_too_large_for_one_randomizer_is_counted_by_another() -> None:
    chosen = frequency_oracle("auto", lambda _: Fraction(1), 1 << 13)
    assert isinstance(chosen, HadamardResponse)
    for kind in (UnaryEncoding, LocalHashing):
        with pytest.raises(LocalError, match="4096 values"):
            kind.spending(Fraction(1), 1 << 13)
    with pytest.raises(LocalError, match="did you mean hadamard"):
        frequency_oracle("hadamar", lambda _: Fraction(1), 3)
    with pytest.raises(LocalError, match="too small"):
        frequency_oracle("auto", lambda _: Fraction(1, 10**30), 3)


@pytest.mark.parametrize("name", RANDOMIZERS)
def test_huge_budgets_overflow_nowhere(name: str) -> None:
    randomizer = oracle(name, Fraction(10**6), 4)
    questions = randomizer.questions(np.zeros((4, randomizer.question_words), dtype=np.uint64))
    words = np.full((4, randomizer.words), WORD - 1, dtype=np.uint64)
    summary = randomizer.summarise(randomizer.reports(np.arange(4), questions, words), questions)
    assert np.isfinite(summary.vector).all()
    assert np.isfinite(randomizer.variances(summary.vector, 4)).all()
