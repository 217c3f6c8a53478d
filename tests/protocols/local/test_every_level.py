"""Answers about every level: their (ε, δ) as drawn from integers, and Theorem 4's error."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.local.auc import AucResponse, _Stream
from tallyroom.protocols.local.every_level import (
    EveryLevel,
    auc_response,
    composed_delta,
    composed_response,
)
from tallyroom.protocols.local.pairs import FIXED_POINT
from tallyroom.protocols.local.response import WORD, RandomizedResponse
from tallyroom.protocols.randomness import Randomness
from tests.goodness import ALPHA
from tests.protocols.local.auc_samples import estimates, plain_auc, some_records
from tests.protocols.local.odds import exponential

DEPTH = 3
BUDGETS = [
    (Fraction(1), Fraction(1, 100)),
    (Fraction(3), Fraction(1, 1000)),
    (Fraction(1), Fraction(0)),
]


def all_questions(randomizer: EveryLevel) -> np.ndarray:
    """Every combination of rows, one of each level's matrix."""
    rows = itertools.product(*(range(2 << level) for level in range(randomizer.levels)))
    return np.array(list(rows), dtype="<u4").view(np.uint8).reshape(-1, 4 * randomizer.levels)


def signs_of(randomizer: EveryLevel, questions: np.ndarray, code: int) -> np.ndarray:
    """What each level's answer says if its word is below `keep`. It is seen to say the contrary
    from there on, and to depend on no other level's word."""
    keep, levels = randomizer.response.keep, randomizer.levels
    inputs = np.full(len(questions), code)
    rng = np.random.default_rng(code)

    def said(words: np.ndarray) -> np.ndarray:
        bits = np.unpackbits(
            randomizer.reports(inputs, questions, words), axis=1, bitorder="little"
        )
        assert (bits[:, levels + (not randomizer.private_labels) :] == 0).all()
        if not randomizer.private_labels:
            assert (bits[:, levels] == code & 1).all()
        return bits[:, :levels]

    ends = [np.full((len(questions), levels), word, dtype=np.uint64) for word in (0, keep - 1)]
    other = [np.full_like(ends[0], word) for word in (keep, WORD - 1)]
    truth = said(ends[0])
    assert (said(ends[1]) == truth).all()
    assert all((said(words) == 1 - truth).all() for words in other)
    mixed = rng.integers(0, 2, (len(questions), levels))
    words = np.where(mixed == 0, ends[1], other[0])
    assert (said(words) == truth ^ mixed).all()
    return truth


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
@pytest.mark.parametrize("private", [False, True])
def test_a_report_is_epsilon_delta_private_for_every_question(
    epsilon: Fraction, delta: Fraction, private: bool
) -> None:
    """All questions, inputs and reports of a small domain, with the probabilities that words have:
    the largest Σ max(0, P - e^ε·P') is δ at most, and no less but for a part in 10^9. With public
    labels, among inputs of one label."""
    depth = DEPTH - private
    randomizer = EveryLevel.spending(epsilon, delta, depth, private)
    questions = all_questions(randomizer)
    keep = Fraction(randomizer.response.keep, WORD)
    other = 1 - keep
    codes = range(2 << depth) if private else range(0, 2 << depth, 2)
    signs = [signs_of(randomizer, questions, code) for code in codes]
    apart = {
        int(count)
        for one, another in itertools.combinations(signs, 2)
        for count in np.unique((one != another).sum(axis=1))
    }
    assert max(apart) == randomizer.levels
    odds, largest = exponential(epsilon), Fraction(0)
    for differing in apart:
        above = Fraction(0)
        for said in itertools.product((0, 1), repeat=differing):
            lies = sum(said)
            one = keep ** (differing - lies) * other**lies
            another = keep**lies * other ** (differing - lies)
            above += max(Fraction(0), one - odds * another)
        largest = max(largest, above)
    assert largest <= delta
    assert largest >= delta * (1 - Fraction(1, 10**9))
    more = RandomizedResponse(2, randomizer.response.other - 1)
    assert composed_delta(more, randomizer.levels, odds) > delta


def test_it_is_at_least_as_truthful_as_advanced_composition() -> None:
    """Dwork, Rothblum and Vadhan (2010): α answers of ε0 cost √(2α·ln(1/δ))·ε0 + α·ε0·(e^ε0-1), so
    that ε0 may always be spent; and ε/α, without a δ. Theorem 4's two orders follow."""
    for epsilon, delta, times in itertools.product((0.1, 1.0, 4.0), (1e-3, 1e-9), (4, 12, 24)):
        found = composed_response(Fraction(epsilon), Fraction(delta), times)
        spent = math.log(found.ratio)
        assert spent >= epsilon / times * (1 - 1e-9)
        root = math.sqrt(2 * times * math.log(1 / delta))
        advanced = epsilon / (root + 2 * epsilon)
        cost = root * advanced + times * advanced * math.expm1(advanced)
        if cost <= epsilon:
            assert spent >= advanced
            gain = (math.exp(advanced) + 1) / (math.exp(advanced) - 1)
            assert found.gain**2 <= gain**2
    pure = composed_response(Fraction(1), Fraction(0), 12)
    assert math.log(pure.ratio) == pytest.approx(1 / 12)


def test_theorem_4_s_orders_in_the_number_of_levels() -> None:
    """From 8 levels to 24 a node's variance, α·C, grows as α² without a δ, as it must for Theorem
    3's bound of α²·C to be α³; with one, as α·ln(1/δ), the more nearly the more levels."""

    def grown(delta: Fraction) -> float:
        few, many = (EveryLevel.spending(Fraction(1), delta, d, False) for d in (8, 24))
        return many.variance / few.variance

    assert grown(Fraction(0)) == pytest.approx(9, rel=0.01)
    assert grown(Fraction(1, 10**3)) < 4.5
    two = EveryLevel.spending(Fraction(1), Fraction(1, 10**3), 24, False)
    bound = 24 * 2 * math.log(1e3) * 4
    assert two.variance < bound


@pytest.mark.parametrize("private", [False, True])
def test_nodes_are_unbiased_with_the_variance_that_is_stated(private: bool) -> None:
    """500 runs of 200 records: the means of all nodes at ALPHA, their variances within the ALPHA
    quantile of a normal with deviation √(2/500)."""
    runs, codes = 500, some_records(200, 2)
    randomizer = EveryLevel.spending(Fraction(4), Fraction(1, 1000), 2, private)
    source, found = Randomness(bytes(16)), []
    for _ in range(runs):
        asked = source.words(200 * randomizer.question_words).reshape(200, -1)
        questions = randomizer.questions(asked)
        words = source.words(200 * randomizer.words).reshape(200, -1)
        stream = _Stream(randomizer, randomizer.reports(codes, questions, words), questions)
        level_1 = stream.children(1, np.array([0]))
        level_2 = stream.children(2, np.array([0, 1]))
        found.append(np.concatenate([each.ravel() for each in (*level_1, *level_2)]))
    truth: list[int] = []
    for bits in (1, 2):
        for label in (0, 1):
            scores = codes[codes & 1 == label] >> 1 >> (2 - bits)
            truth += np.bincount(scores, minlength=1 << bits).tolist()
    bound = stats.norm.isf(ALPHA / 2)
    held, positives = np.array(truth), int((codes & 1).sum())
    size = np.array([200 - positives] * 2 + [positives] * 2 + [200 - positives] * 4)
    size = np.concatenate([size, [positives] * 4]) if not private else np.full(12, 200)
    variances = size * randomizer.variance - held
    means = np.mean(found, axis=0)
    assert (np.abs(means - held) < bound * np.sqrt(variances / runs)).all()
    ratio = np.var(found, axis=0) / variances
    assert (np.abs(ratio - 1) < bound * math.sqrt(2 / runs)).all()


def test_the_error_is_within_theorem_3_and_of_its_order() -> None:
    """30 runs of 5000 records, labels public. The mean square is about a fiftieth of the bound, and
    with 30 degrees of freedom within a fifth and five times of that, at ALPHA."""
    codes = some_records(5000, 8)
    randomizer = EveryLevel.spending(Fraction(8), Fraction(1, 10**6), 8, private_labels=False)
    areas = estimates(randomizer, codes, 30)[:, 0] / FIXED_POINT
    positives = int((codes & 1).sum())
    bound = randomizer.theorem_3(positives, len(codes) - positives)
    error = float(np.mean((areas - plain_auc(codes)) ** 2))
    assert bound / 500 < error < bound / 5


def test_private_labels_are_estimated_too() -> None:
    codes = some_records(3000, 4)
    randomizer = EveryLevel.spending(Fraction(20), Fraction(1, 10**6), 4, private_labels=True)
    [[area, positives]] = estimates(randomizer, codes, 1)
    assert abs(area / FIXED_POINT - plain_auc(codes)) < 0.1
    assert abs(positives - (codes & 1).sum()) < 300


def test_order_changes_nothing_and_what_is_no_report_is_counted() -> None:
    codes = some_records(400, 5)
    randomizer = EveryLevel.spending(Fraction(8), Fraction(1, 1000), 5, private_labels=False)
    source = Randomness(bytes(16))
    questions = randomizer.questions(source.words(400 * 3).reshape(-1, 3))
    reports = randomizer.reports(codes, questions, source.words(400 * 5).reshape(-1, 5))
    order = np.random.default_rng(1).permutation(400)
    found = randomizer.summarise(reports, questions)
    assert (randomizer.summarise(reports[order], questions[order]).vector == found.vector).all()
    asked = np.zeros((2, 20), dtype=np.uint8)
    asked[1, 0] = 2  # the first level has two rows
    bad = np.array([[1 << 6], [0]], dtype=np.uint8)
    mixed = randomizer.summarise(np.vstack([bad, reports]), np.vstack([asked, questions]))
    assert (mixed.records, mixed.refused) == (400, 2)
    assert (mixed.vector == found.vector).all()


def test_auto_takes_what_errs_less_and_no_delta_for_nothing() -> None:
    def chosen(epsilon: int | Fraction, delta: Fraction, depth: int) -> object:
        found = auc_response("auto", Fraction(epsilon), delta, depth, False)
        return type(found), found.delta

    small = Fraction(1, 10**6)
    assert chosen(1, small, 12) == (AucResponse, 0)
    assert chosen(8, small, 8) == (EveryLevel, 0)
    assert chosen(16, Fraction(1, 1000), 24) == (EveryLevel, Fraction(1, 1000))
    assert chosen(Fraction(1, 10**17), Fraction(0), 24) == (AucResponse, 0)
    with pytest.raises(LocalError, match="did you mean all"):
        auc_response("al", Fraction(1), small, 3, False)


def test_budgets_that_are_huge_or_tiny() -> None:
    huge = EveryLevel.spending(Fraction(10**6), Fraction(0), 24, True)
    assert 1 <= huge.gain < 2
    with pytest.raises(LocalError, match="too small for 24 answers"):
        EveryLevel.spending(Fraction(1, 10**20), Fraction(0), 24, False)
