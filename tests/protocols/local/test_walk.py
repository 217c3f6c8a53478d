"""The walk down a tree of scores: how much memory and how much looking it takes."""

import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from tallyroom.protocols.local import auc, walk
from tallyroom.protocols.local.auc import AucResponse, TreeResponse
from tallyroom.protocols.local.every_level import EveryLevel

Bodies = NDArray[np.uint8]


def reports_of(randomizer: TreeResponse, records: int) -> tuple[Bodies, Bodies]:
    """Four scores that many records share: the walk follows them down to the leaves."""
    rng = np.random.default_rng(1)
    scores = rng.integers(0, 4, records) * ((1 << randomizer.depth) - 1) // 3
    codes = 2 * scores + rng.integers(0, 2, records)
    shape = (records, randomizer.question_words)
    questions = randomizer.questions(rng.integers(0, 2**64, shape, dtype=np.uint64))
    words = rng.integers(0, 2**64, (records, randomizer.words), dtype=np.uint64)
    return randomizer.reports(codes, questions, words), questions


def peak(randomizer: TreeResponse, records: int) -> int:
    """Bytes that the server allocates at most, beside the reports and their questions."""
    reports, questions = reports_of(randomizer, records)
    randomizer.summarise(reports, questions)  # imports and caches
    tracemalloc.start()
    try:
        randomizer.summarise(reports, questions)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("every", [False, True])
def test_memory_beyond_the_reports_is_that_of_a_block_and_of_the_nodes_reached(
    every: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight times the records take less than √8 times as much, which is how the nodes grow that are
    reached, and less than half of what the records take by themselves; and a domain squared takes
    at most twice as much, as its logarithm is."""
    for module in (auc, walk):
        monkeypatch.setattr(module, "BLOCK", 1 << 8)
    monkeypatch.setattr(walk, "WHOLE", 1 << 3)
    monkeypatch.setattr(walk, "CELLS", 1 << 10)

    def spending(depth: int) -> TreeResponse:
        if every:
            return EveryLevel.spending(Fraction(40), Fraction(0), depth, False)
        return AucResponse.spending(Fraction(40), depth, False)

    few, many = (peak(spending(8), records) for records in (2_000, 16_000))
    assert many < 8**0.5 * few
    reports, questions = reports_of(spending(8), 16_000)
    assert reports.nbytes + questions.nbytes > 2 * many
    assert peak(spending(16), 2_000) < 2 * few


def test_the_walk_goes_down_to_the_leaves_and_visits_few_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 2^24 scores, at each level at most a few times the square root of the records."""
    randomizer = AucResponse.spending(Fraction(4), 24, private_labels=False)
    visited: list[int] = []
    children = walk.TreeReports.children

    def counting(self: walk.TreeReports, bits: int, parents: NDArray[np.int64]) -> walk.Classes:
        visited.append(len(parents))
        return children(self, bits, parents)

    monkeypatch.setattr(walk.TreeReports, "children", counting)
    randomizer.summarise(*reports_of(randomizer, 20_000))
    assert len(visited) == 24
    assert max(visited) < 4 * 20_000**0.5
