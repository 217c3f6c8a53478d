"""The sparse vector technique of two servers: the right index, with the right probabilities, within
the stated ε."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.joint.above_threshold import FirstAbove, units_of_epsilon
from tallyroom.protocols.joint.computation import Program
from tallyroom.protocols.joint.noise import draw_noise
from tallyroom.protocols.joint.noise_circuit import JointGeometric
from tallyroom.protocols.randomness import Randomness
from tests.goodness import ALPHA, chi_square_p
from tests.protocols.joint.two_ends import BASES, Ends, shared

SCALE = Fraction(3)
NOISE = JointGeometric(SCALE, 6, 12)


@given(
    rows=st.integers(1, 19).flatmap(
        lambda n: st.lists(
            st.lists(st.integers(0, 40), min_size=n, max_size=n), min_size=1, max_size=3
        )
    ),
    threshold=st.integers(1, 40),
    seed=st.integers(0, 1000),
)
@settings(max_examples=25, deadline=None)
def test_without_noise_it_is_the_first_that_reaches_it(
    rows: list[list[int]], threshold: int, seed: int
) -> None:
    thresholds = tuple(max(1, threshold - i) for i in range(len(rows)))
    search = FirstAbove(len(rows[0]), 40, thresholds)
    expected = [
        next((i for i, score in enumerate(row) if score >= t), len(row))
        for row, t in zip(rows, thresholds, strict=True)
    ]
    scores = np.array(rows).ravel()
    shares = shared(scores, seed)

    def program(index: int, _: Randomness) -> Program:
        return search.program(index, shares[index], None, search.width(0))

    ours, theirs = Ends(program, bases=BASES).run()
    assert (ours + theirs).tolist() == expected
    assert search.in_clear(scores).tolist() == expected


def searched(
    scores: list[int], threshold: int, noise: JointGeometric, trials: int, seed: int = 1
) -> NDArray[np.int64]:
    """How often each index was found, the last for none, of so many searches at once."""
    search = FirstAbove(len(scores), 40, (threshold,) * trials)
    shares = shared(np.tile(np.array(scores), trials), seed)
    width = search.width(noise.largest)

    def program(index: int, randomness: Randomness) -> Program:
        drawn = yield from draw_noise(noise, search.noises, randomness, index)
        return (yield from search.program(index, shares[index], drawn, width))

    ours, theirs = Ends(program, seed=seed, bases=BASES).run()
    return np.bincount((ours + theirs).astype(np.int64), minlength=len(scores) + 1)


def exact(scores: list[int], threshold: int, noise: JointGeometric) -> NDArray[np.float64]:
    """By enumeration of the threshold's noise: given it, scores are independent."""
    p = noise.probabilities()
    reaches = np.concatenate([np.cumsum(p[::-1])[::-1], [0.0]])  # P(ν ≥ v)
    found = np.zeros(len(scores) + 1)
    for rho, weight in enumerate(p):
        left = weight
        for i, score in enumerate(scores):
            above = reaches[min(max(threshold + rho - score, 0), len(p))]
            found[i] += left * above
            left *= 1 - above
        found[-1] += left
    return found


def test_what_is_found_has_the_exact_probabilities() -> None:
    """n = 2000, alpha 1e-9; noise of half the scale would be seen."""
    scores = [3, 6, 2, 8]
    expected = exact(scores, 7, NOISE) * 2000
    assert expected.sum() == pytest.approx(2000)
    assert expected.min() > 50
    assert chi_square_p(searched(scores, 7, NOISE, 2000), expected) > ALPHA
    halved = JointGeometric(SCALE / 2, 6, 12)
    assert chi_square_p(searched(scores, 7, halved, 2000), expected) < ALPHA


@pytest.mark.parametrize("scale", [Fraction(1), Fraction(2), Fraction(5)])
def test_no_answer_costs_more_than_the_map_says(scale: Fraction) -> None:
    """Exactly, over pairs of adjacent scores of small size: moved anyhow, and all the same way."""
    noise = JointGeometric(scale, 8, 45)
    worst = dict.fromkeys((False, True), 0.0)
    for base in ([3, 3, 3], [0, 2, 4], [5, 1, 1], [8, 8, 9], [1, 1, 9]):
        for moved, monotone in (
            ([1, -1, 0], False),
            ([1, 1, -1], False),
            ([-1, -1, 1], False),
            ([1, 1, 0], True),
            ([1, 1, 1], True),
            ([0, 0, 1], True),
        ):
            other = np.add(base, moved).tolist()
            for threshold in (2, 6, 10):
                ratio = exact(base, threshold, noise) / exact(other, threshold, noise)
                worst[monotone] = max(worst[monotone], float(np.abs(np.log(ratio)).max()))
    for monotone, found in worst.items():
        epsilon = units_of_epsilon(1, monotone) / float(scale)
        assert found <= epsilon + 1e-6
        assert found > 0.6 * epsilon  # the map is no idle bound
    assert units_of_epsilon(2, True) == 4


TRIALS = 3000
PROVEN = 1e-7


def measured_epsilon(noise: JointGeometric) -> float:
    """What Clopper and Pearson's bounds prove at confidence 1 − 2e-7 from n = 3000 searches on
    either of two adjacent counts. The event is that the second bin is the first to reach 4: with 3
    and 4 records it is e^ε times as likely as with 4 and 3, and no event is more telling."""
    ours, theirs = (
        int(searched(scores, 4, noise, TRIALS, seed)[1])
        for scores, seed in (([3, 4], 3), ([4, 3], 4))
    )
    low = stats.beta.ppf(PROVEN, ours, TRIALS - ours + 1)
    high = stats.beta.ppf(1 - PROVEN, theirs + 1, TRIALS - theirs)
    return math.log(low / high)


def test_what_can_be_measured_stays_below_epsilon_and_halved_noise_is_caught() -> None:
    """ε = 3/s = 1. What is proven lies 5 standard deviations below ln(p/p′), which is 1; halved
    noise makes it 2, and what is proven 7 of them above 1."""
    assert units_of_epsilon(1, monotone=False) / SCALE == 1
    assert 0.3 < measured_epsilon(NOISE) < 1
    assert measured_epsilon(JointGeometric(SCALE / 2, 6, 12)) > 1


def test_a_threshold_out_of_range_is_one_line() -> None:
    for threshold in (0, 6):
        with pytest.raises(LocalError, match="from 1 to the number of records, 5, not"):
            FirstAbove(2, 5, (threshold,))
    with pytest.raises(LocalError, match="nothing to compare"):
        FirstAbove(0, 5, (1,))
    with pytest.raises(LocalError, match="too long"):
        FirstAbove(2, 1 << 62, (1,)).width(0)
