"""AUC from hierarchical histograms: what is asked, what is answered, and the walk."""

import math
from fractions import Fraction

import numpy as np
import pytest

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.local import walk as module
from tallyroom.protocols.local.auc import AucResponse
from tallyroom.protocols.local.pairs import FIXED_POINT
from tallyroom.protocols.local.response import exp_below
from tallyroom.protocols.randomness import Randomness
from tests.protocols.local.auc_samples import estimates, plain_auc, some_records


@pytest.mark.parametrize("private", [False, True])
def test_a_report_is_within_epsilon_for_every_question(private: bool) -> None:
    """All inputs and questions of a small domain: the law of a report is one of two, a coin and its
    mirror image, whose ratio is that of the response; with public labels, among equal labels."""
    randomizer = AucResponse.spending(Fraction(1), 3, private)
    ends = np.array([[0], [2**64 - 1]], dtype=np.uint64)
    asked = np.array([[level, row] for level in range(randomizer.levels) for row in range(16)])
    questions = randomizer.questions(asked.astype(np.uint64))
    for question in questions:
        both = np.stack([question, question])
        laws: dict[int, set[tuple[int, ...]]] = {0: set(), 1: set()}
        for code in range(16):
            said = randomizer.reports(np.full(2, code), both, ends)[:, 0]
            laws[code & 1].add(tuple((said & 1).tolist()))
            assert private or (said >> 1 == code & 1).all()
        allowed = {(0, 1), (1, 0)}
        assert laws[0] | laws[1] <= allowed
    assert randomizer.response.ratio <= exp_below(Fraction(1))


@pytest.mark.parametrize("private", [False, True])
def test_with_next_to_no_lies_it_is_the_auc(private: bool) -> None:
    """20 runs of 4000 records at ε = 60: what is left is which level each was asked about."""
    codes = some_records(4000, 6)
    randomizer = AucResponse.spending(Fraction(60), 6, private)
    found = estimates(randomizer, codes, 20)
    areas = found[:, 0] / FIXED_POINT
    positives, truth = int((codes & 1).sum()), plain_auc(codes)
    bound = math.sqrt(randomizer.theorem_3(positives, len(codes) - positives))
    assert np.sqrt(np.mean((areas - truth) ** 2)) < bound
    assert abs(areas.mean() - truth) < 0.05
    if not private:
        assert (found[:, 1] == positives).all()


def test_the_error_is_within_theorem_3_and_of_its_order() -> None:
    """30 runs of 20,000 records at ε = 1, labels public."""
    codes = some_records(20_000, 8)
    randomizer = AucResponse.spending(Fraction(1), 8, private_labels=False)
    areas = estimates(randomizer, codes, 30)[:, 0] / FIXED_POINT
    positives = int((codes & 1).sum())
    bound = randomizer.theorem_3(positives, len(codes) - positives)
    error = float(np.mean((areas - plain_auc(codes)) ** 2))
    assert bound / 100 < error < bound


def test_what_is_looked_up_is_what_is_transformed(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = some_records(3000, 7)
    randomizer = AucResponse.spending(Fraction(3), 7, private_labels=True)
    whole = estimates(randomizer, codes, 2)
    monkeypatch.setattr(module, "WHOLE", 0)
    monkeypatch.setattr(module, "CELLS", 500)
    few = codes[:40]
    assert estimates(randomizer, codes, 2) == pytest.approx(whole)
    looked_up = estimates(randomizer, few, 2)
    monkeypatch.undo()
    assert estimates(randomizer, few, 2) == pytest.approx(looked_up)


def test_a_domain_of_2_to_the_24_is_walked_without_being_written_out() -> None:
    codes = some_records(2000, 24)
    randomizer = AucResponse.spending(Fraction(20), 24, private_labels=False)
    [[area, positives]] = estimates(randomizer, codes, 1)
    assert positives == (codes & 1).sum()
    assert abs(area / FIXED_POINT - plain_auc(codes)) < 0.3


def test_order_changes_nothing_and_what_is_no_report_is_counted() -> None:
    codes = some_records(500, 5)
    randomizer = AucResponse.spending(Fraction(4), 5, private_labels=False)
    source = Randomness(bytes(16))
    questions = randomizer.questions(source.words(1000).reshape(-1, 2))
    reports = randomizer.reports(codes, questions, source.words(500).reshape(-1, 1))
    order = np.random.default_rng(1).permutation(500)
    found = randomizer.summarise(reports, questions)
    assert (randomizer.summarise(reports[order], questions[order]).vector == found.vector).all()
    bad = np.array([[4], [0], [0]], dtype=np.uint8)
    asked = np.array([[0, 0, 0, 0, 0], [5, 0, 0, 0, 0], [0, 2, 0, 0, 0]], dtype=np.uint8)
    mixed = randomizer.summarise(np.vstack([reports, bad]), np.vstack([questions, asked]))
    assert (mixed.records, mixed.refused) == (500, 3)
    assert (mixed.vector == found.vector).all()


def test_an_empty_class_has_no_auc() -> None:
    randomizer = AucResponse.spending(Fraction(4), 5, private_labels=False)
    with pytest.raises(LocalError, match="one class appears to be empty"):
        estimates(randomizer, some_records(50, 5) & ~1, 1)
    for depth in (0, 25):
        with pytest.raises(LocalError, match="1 to 24 bits"):
            AucResponse.spending(Fraction(4), depth, private_labels=False)
