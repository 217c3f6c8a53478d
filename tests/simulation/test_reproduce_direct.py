"""One noise on a Hosmer–Lemeshow statistic: its sensitivity, and verdicts that can fail."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from tallyroom.protocols.randomness import Randomness
from tallyroom.simulation.reproduce import s0_direct
from tallyroom.simulation.reproduce.contract import Number
from tallyroom.simulation.reproduce.s0_direct import CLIPPED, INDIRECT, SMOOTH, WORST, Groups


def test_the_statistic_is_that_of_both_classes() -> None:
    rng = np.random.default_rng(1)
    score = rng.uniform(0.05, 0.95, 57)
    positive = rng.random(57) < score
    expected = 0.0
    ends = [57 * at // 5 for at in range(6)]
    order = np.argsort(score)
    for low, high in pairwise(ends):
        own = order[low:high]
        for observed, predicted in (
            (positive[own].sum(), score[own].sum()),
            ((~positive[own]).sum(), (1 - score[own]).sum()),
        ):
            expected += (observed - predicted) ** 2 / predicted
    assert Groups.of(score, positive, 5).statistic == pytest.approx(expected)


def test_a_replaced_record_moves_it_no_further_than_stated() -> None:
    """1,500 neighbours of 6 to 40 records, scores at the ends of their range among them. The bound
    is used to more than two thirds, and the smooth one is smooth."""
    rng = np.random.default_rng(1)
    used = 0.0
    for _ in range(1500):
        n, groups = int(rng.integers(6, 41)), int(rng.integers(1, 4))
        score, positive = rng.random(n) ** rng.integers(1, 4), rng.random(n) < rng.random()
        other, labels, at = score.copy(), positive.copy(), rng.integers(n)
        other[at], labels[at] = rng.choice([0.0, 1.0, rng.random()]), rng.random() < 0.5
        here, there = Groups.of(score, positive, groups), Groups.of(other, labels, groups)
        moved = abs(here.statistic - there.statistic)
        [bound] = here.moved(np.zeros(1))
        assert moved <= bound * (1 + 1e-9)
        assert bound <= here.worst * (1 + 1e-9)
        used = max(used, moved / bound)
        for beta in (0.05, 0.5):
            assert here.smooth(beta) >= bound
            assert there.smooth(beta) <= np.exp(beta) * here.smooth(beta) * (1 + 1e-9)
    assert used > 2 / 3


def test_what_comes_near_the_worst_case_is_bounded_by_it() -> None:
    """All scores at the clip and all labels positive: the largest statistic of one group, which one
    record moves most."""
    score, positive = np.full(50, CLIPPED / 2), np.ones(50, dtype=bool)
    here, there = Groups.of(score, positive, 1), Groups.of(score, np.arange(50) > 0, 1)
    assert 1 < here.statistic - there.statistic <= here.worst


def test_noise_is_that_of_the_way() -> None:
    """200 draws each: the deviation of Laplace noise is √2 times the sensitivity over ε, within a
    fifth; half of the smooth one's draws are within its scale, 0.96 of the bound at ε = 1."""
    rng = np.random.default_rng(2)
    score = rng.uniform(0.2, 0.8, 4000)
    groups = Groups.of(score, rng.random(4000) < score)
    source = Randomness(bytes(16))
    worst = [s0_direct.direct(groups, WORST, Fraction(1), source) for _ in range(200)]
    assert np.std(worst) == pytest.approx(2**0.5 * groups.worst, rel=0.3)
    smooth = [s0_direct.direct(groups, SMOOTH, Fraction(1), source) for _ in range(200)]
    scale = 0.96 * groups.smooth(0.5)
    assert np.median(np.abs(np.array(smooth) - groups.statistic)) == pytest.approx(scale, rel=0.4)


def rows(worst: float, smooth: float) -> list[dict[str, Number]]:
    errors = {INDIRECT: 10.0, WORST: worst, SMOOTH: smooth}
    return [
        {"protocol": way, "epsilon": epsilon, "relative_mse": error, "median_square": error}
        for way, error in errors.items()
        for epsilon in (0.1, 0.2, 5.0)
    ]


def test_verdicts_can_fail() -> None:
    assert list(s0_direct.judge(rows(9.0, 11.0)).values()) == [True]
    assert list(s0_direct.judge_ours(rows(9.0, 11.0)).values()) == [False]
    assert list(s0_direct.judge(rows(11.0, 9.0)).values()) == [False]
    assert list(s0_direct.judge_ours(rows(11.0, 9.0)).values()) == [True]
    assert list(s0_direct.judge([]).values()) == [False]
