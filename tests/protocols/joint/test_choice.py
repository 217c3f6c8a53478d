"""Choices of two servers: the right index, with the right probabilities, within the stated ε."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.joint.choice import Choice, Moved, choose, units_of_epsilon, winners
from tallyroom.protocols.joint.computation import Program
from tallyroom.protocols.joint.noise import draw_noise
from tallyroom.protocols.joint.noise_circuit import JointGeometric
from tallyroom.protocols.randomness import Randomness
from tests.goodness import ALPHA, chi_square_p
from tests.protocols.joint.chances import exact_probabilities
from tests.protocols.joint.two_ends import BASES, Ends, shared


def chosen(choice: Choice, counts: NDArray[np.int64], seed: int = 0) -> list[int]:
    shares = shared(counts, seed)

    def program(index: int, _: Randomness) -> Program:
        return choose(choice, index, shares[index], None, choice.width(0))

    ours, theirs = Ends(program, bases=BASES).run()
    return [int(i) for i in ours + theirs]


@given(
    counts=st.lists(st.integers(0, 40), min_size=2, max_size=19),
    picks=st.integers(1, 4),
    seed=st.integers(0, 1000),
)
@settings(max_examples=25, deadline=None)
def test_the_largest_are_found_in_order(counts: list[int], picks: int, seed: int) -> None:
    values = np.array(counts)
    picks = min(picks, len(counts))
    choice = Choice(len(counts), max(1, int(values.sum())), picks)
    assert chosen(choice, values, seed) == np.argsort(-values, kind="stable")[:picks].tolist()


@given(
    bins=st.lists(st.integers(0, 9), min_size=2, max_size=17).filter(any),
    share=st.fractions(0, 1),
    seed=st.integers(0, 1000),
)
@settings(max_examples=25, deadline=None)
def test_a_rank_is_found_where_numpy_has_it(bins: list[int], share: Fraction, seed: int) -> None:
    records = sum(bins)
    rank = max(1, -(-share.numerator * records // share.denominator))
    values = np.repeat(np.arange(len(bins)), bins)
    choice = Choice(len(bins), records, ranks=(rank, 1))
    expected = [int(np.sort(values)[rank - 1]), int(values.min())]
    assert chosen(choice, np.cumsum(bins), seed) == expected


def noisy_winners(scores: NDArray[np.int64], noise: JointGeometric, trials: int) -> list[int]:
    """How often each of `scores` won, of so many contests at once."""
    rows = np.tile(scores, (trials, 1))
    shares = shared(rows)
    width = int(scores.max() + noise.largest).bit_length()

    def program(index: int, randomness: Randomness) -> Program:
        drawn = yield from draw_noise(noise, rows.size, randomness, index)
        return (yield from winners(shares[index] + drawn.reshape(rows.shape), width))

    ours, theirs = Ends(program, bases=BASES).run()
    chosen = np.bincount((ours + theirs).astype(np.int64), minlength=len(scores))
    return [int(each) for each in chosen]


NOISE = JointGeometric(Fraction(2), 5, 12)


def test_choices_have_the_exact_probabilities() -> None:
    """n = 2000, alpha 1e-9; with noise of half the scale the test would see it."""
    scores = np.array([3, 5, 0, 5])
    expected = exact_probabilities(scores, NOISE)
    assert expected.sum() == pytest.approx(1)
    won = np.array(noisy_winners(scores, NOISE, 2000))
    assert chi_square_p(won, expected * 2000) > ALPHA
    halved = np.array(noisy_winners(scores, JointGeometric(Fraction(1), 5, 12), 2000))
    assert chi_square_p(halved, expected * 2000) < ALPHA


@pytest.mark.parametrize("scale", [Fraction(1), Fraction(2), Fraction(5)])
def test_no_choice_costs_more_than_the_map_says(scale: Fraction) -> None:
    """Exactly, over pairs of adjacent counts of small size: replaced, and with monotone scores."""
    noise = JointGeometric(scale, 7, 40)
    general = units_of_epsilon(1, Moved.ANYHOW) / float(scale)
    monotone = units_of_epsilon(1, Moved.ALIKE) / float(scale)
    worst = dict.fromkeys(("general", "monotone"), 0.0)
    for base in ([3, 3, 3], [0, 2, 4], [5, 1, 1], [2, 2, 0], [1, 1, 6]):
        x = exact_probabilities(np.array(base), noise)
        for moved, kind in (
            ([-1, 1, 0], "general"),
            ([1, 0, -1], "general"),
            ([0, -1, 1], "general"),
            ([1, 1, 0], "monotone"),
            ([0, 0, 1], "monotone"),
            ([1, 1, 1], "monotone"),
        ):
            if min(np.add(base, moved)) < 0:
                continue
            y = exact_probabilities(np.add(base, moved), noise)
            worst[kind] = max(worst[kind], float(np.abs(np.log(x / y)).max()))
    assert worst["general"] <= general + 1e-6
    assert worst["monotone"] <= monotone + 1e-6
    assert worst["general"] > 0.6 * general  # the map is no idle bound


def test_what_is_chosen_and_nothing_else_comes_out_and_each_share_is_uniform() -> None:
    """Of 2000 contests with one winner: the shares of its index say nothing by themselves."""
    rows = np.tile(np.array([1, 9, 2]), (2000, 1))
    shares = shared(rows)

    def program(index: int, _: Randomness) -> Program:
        return winners(shares[index], 4)

    ours, theirs = Ends(program, bases=BASES).run()
    assert set((ours + theirs).tolist()) == {1}
    for side in (ours, theirs):
        counts = np.bincount(side.view(np.uint8), minlength=256)
        assert chi_square_p(counts, np.full(256, counts.sum() / 256)) > ALPHA


def test_what_cannot_be_chosen_is_one_line() -> None:
    with pytest.raises(LocalError, match="3 of 2 cannot be chosen"):
        Choice(2, 5, 3)
    with pytest.raises(LocalError, match="one candidate"):
        Choice(1, 5)
    with pytest.raises(LocalError, match="from 1 to 5"):
        Choice(2, 5, ranks=(6,))
