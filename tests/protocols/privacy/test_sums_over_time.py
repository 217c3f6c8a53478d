"""Sums of blocks of times: exact sensitivity, and the best linear unbiased estimates of sums."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from tallyroom.protocols.privacy.mechanisms import DiscreteLaplace
from tallyroom.protocols.privacy.sums_over_time import (
    SUM_STRATEGIES,
    BlocksAsTheyFill,
    BlocksOverTime,
    TimeBlocks,
    TreeOverTime,
    best_blocks,
)
from tallyroom.protocols.randomness import Randomness

SHAPES = [
    TimeBlocks(1, 2, 1),
    TimeBlocks(7, 7, 1),
    TimeBlocks(9, 3, 2),
    TimeBlocks(23, 3, 3),
    TimeBlocks(23, 3, 3, complete=False),
    TimeBlocks(27, 3, 3, complete=False),
    TimeBlocks(2, 3, 3, complete=False),
    TimeBlocks(12, 3, 3, complete=False),
]


def told(blocks: TimeBlocks) -> NDArray[np.float64]:
    """The blocks that have a value, as a matrix over times."""
    rows = []
    for width, size in zip(blocks.widths, blocks.level_sizes, strict=True):
        for at in range(size):
            row = np.zeros(blocks.cells)
            row[at * width : (at + 1) * width] = 1.0
            known = blocks.complete or (at + 1) * width <= blocks.cells
            rows.append(row if known else np.zeros(blocks.cells))
    return np.array(rows)


@pytest.mark.parametrize("blocks", SHAPES, ids=str)
def test_sums_are_least_squares_of_the_blocks_that_are_told(blocks: TimeBlocks) -> None:
    matrix = told(blocks)
    noisy = np.random.default_rng(1).normal(size=blocks.nodes) * 100 - 50
    cells = np.linalg.lstsq(matrix, noisy, rcond=None)[0]
    assert blocks.sums(noisy) == pytest.approx(np.cumsum(cells), abs=1e-8)
    upto = np.tril(np.ones((blocks.cells, blocks.cells)))
    variances = np.diag(upto @ np.linalg.inv(matrix.T @ matrix) @ upto.T)
    assert blocks.sum_variances == pytest.approx(variances)
    pseudo = upto @ np.linalg.pinv(matrix)
    for last in range(blocks.cells):
        weights = blocks.prefix_weights(last) * matrix.any(axis=1)
        assert weights == pytest.approx(pseudo[last], abs=1e-10)


@pytest.mark.parametrize("steps", [1, 2, 5, 20, 64, 100])
def test_a_value_moves_one_block_of_every_level(steps: int) -> None:
    """Exactly so, by enumeration of all times: the sums up to each later time move together."""
    strategy = BlocksOverTime(steps, 7, False)
    moved = [
        strategy.measure(np.uint64(7) * (np.arange(steps) >= at).astype(np.uint64))
        for at in range(steps)
    ]
    assert max(int(each.sum()) for each in moved) == strategy.sensitivity.l1
    assert max(int((each**2).sum()) for each in moved) == strategy.sensitivity.squared_l2


@pytest.mark.parametrize(
    ("steps", "least", "tree"), [(64, 35, 224), (256, 72, 450), (1024, 118, 792), (4096, 194, 1274)]
)
def test_blocks_have_a_sixth_of_the_trees_variance(steps: int, least: float, tree: float) -> None:
    """At ε = 1, where a value moves a sum by one, with continuous noise."""

    def mean_variance(kind: str) -> float:
        strategy = SUM_STRATEGIES[kind](steps, 1, False)
        return float(strategy.sum_variances(2.0 * strategy.sensitivity.l1**2).mean())

    assert mean_variance("hierarchy") <= least
    assert mean_variance("tree") == pytest.approx(tree, rel=0.01)


@pytest.mark.parametrize(
    ("batches", "least"), [(1, 2), (7, 8), (64, 53.3), (256, 116.6), (1024, 228.4)]
)
def test_sums_told_at_their_times_are_the_best_of_what_is_out_by_then(
    batches: int, least: float
) -> None:
    strategy = BlocksAsTheyFill(batches, 1, False)
    variances = strategy.sum_variances(1.0)
    noisy = np.random.default_rng(2).normal(size=strategy.noises)
    told = strategy.sums(noisy)
    for upto in {1, 2, 3, batches // 3 + 1, batches // 2 + 1, batches} - {batches + 1}:
        if upto > batches:
            continue
        so_far = replace(strategy.blocks, cells=upto)
        assert variances[upto - 1] == pytest.approx(so_far.sum_variances[-1])
        known = np.zeros(so_far.nodes)
        done = np.flatnonzero(so_far.ends)
        in_order = done[np.argsort(so_far.ends[done], kind="stable")]
        known[in_order] = noisy[: strategy.completed[upto]]
        assert told[upto - 1] == pytest.approx(so_far.sums(known)[-1])
    assert 2 * strategy.sensitivity.l1**2 * variances.mean() <= least


@pytest.mark.parametrize("kind", [BlocksOverTime, BlocksAsTheyFill, TreeOverTime])
def test_variances_are_those_of_drawn_noise(kind: type[BlocksOverTime | TreeOverTime]) -> None:
    """4000 draws: the mean of squares over 100 times is within 8 % of its expectation by more
    than five standard deviations, for a tree, whose sums share the most noise."""
    strategy, runs = kind(100, 1, True), 4000
    law = DiscreteLaplace.of_variance(50.0)
    drawn = law.draw(runs * strategy.noises, Randomness.from_seed(1, "noise")).view(np.uint64)
    squares = np.zeros(100)
    for noise in drawn.reshape(runs, strategy.noises):
        placed = strategy.place(noise).view(np.int64)
        assert not placed[strategy.measured :].any(), "numbers of records are public"
        squares += strategy.sums(placed[: strategy.measured].astype(np.float64)) ** 2
    expected = strategy.sum_variances(law.variance)
    assert (squares / runs).mean() == pytest.approx(expected.mean(), rel=0.08)
    assert squares / runs == pytest.approx(expected, rel=0.2)


def test_every_number_of_steps_has_blocks() -> None:
    for steps in range(1, 200):
        blocks = best_blocks(steps)
        assert (blocks.cells, blocks.widths[-1]) == (steps, 1)
        assert blocks.levels == 1 or blocks.widths[0] < steps
