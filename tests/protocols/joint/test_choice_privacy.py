"""What several choices in order cost, exactly and as two servers make them."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.joint.choice import Choice, Moved, choose, units_of_epsilon, winners
from tallyroom.protocols.joint.computation import STEP_BYTES, Program
from tallyroom.protocols.joint.noise import draw_noise
from tallyroom.protocols.joint.noise_circuit import JointGeometric
from tallyroom.protocols.plans.contract import NoisyChoice
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.statistics.choices import Mode
from tallyroom.protocols.statistics.ecdf import Quantile
from tallyroom.protocols.statistics.planned import planned
from tests.goodness import ALPHA, chi_square_p
from tests.protocols.joint.two_ends import BASES, Ends, shared

Counts = tuple[int, ...]
Laws = dict[Counts, NDArray[np.float64]]


def exact(counts: Counts, picks: int, noise: JointGeometric) -> NDArray[np.float64]:
    """The probability of every ordered choice, by enumeration of all noises; its place is that of
    the indices as digits."""
    p = noise.probabilities()
    axes = np.indices((len(p),) * len(counts)).reshape(len(counts), -1)
    weights = np.prod(p[axes], axis=0)
    noisy = np.array(counts)[:, None] + axes
    order = np.argsort(-noisy, axis=0, kind="stable")[:picks]
    places = sum(row * len(counts) ** i for i, row in enumerate(order[::-1]))
    found: NDArray[np.float64] = np.bincount(places, weights, len(counts) ** picks).astype(float)
    return found


def worst(moves: Iterator[Counts], bases: list[Counts], picks: int, noise: JointGeometric) -> float:
    laws: Laws = {}
    largest = 0.0
    for move, base in itertools.product(moves, bases):
        other = tuple(np.add(base, move).tolist())
        for each in (base, other):
            laws[each] = laws[each] if each in laws else exact(each, picks, noise)
        one, another = (law[laws[base] > 0] for law in (laws[base], laws[other]))
        largest = max(largest, float(np.abs(np.log(one / another)).max()))
    return largest


@pytest.mark.parametrize(
    ("moved", "moves"),
    [
        (Moved.ONE_UP_ONE_DOWN, list(itertools.permutations((1, -1, 0)))),
        (Moved.ANYHOW, list(itertools.product((1, 0, -1), repeat=3))),
        (Moved.ALIKE, list(itertools.product((1, 0), repeat=3))),
    ],
    ids=["one up, one down", "anyhow", "alike"],
)
def test_two_choices_in_order_cost_what_the_map_says(moved: Moved, moves: list[Counts]) -> None:
    """Of three small counts, by enumeration of 32³ noises: never more than the map, and nearly all
    of it where both that are chosen have to come from behind."""
    noise = JointGeometric(Fraction(1), 5, 45)
    epsilon = units_of_epsilon(2, moved) / float(noise.scale)
    found = worst(iter(moves), [(3, 3, 3), (1, 2, 4), (1, 1, 6)], 2, noise)
    assert found <= epsilon + 1e-6
    assert found > 0.9 * epsilon


def test_three_choices_of_four() -> None:
    noise = JointGeometric(Fraction(1, 2), 4, 45)
    found = worst(iter([(-1, 0, 0, 1)]), [(1, 1, 1, 4)], 3, noise)
    epsilon = units_of_epsilon(3, Moved.ONE_UP_ONE_DOWN) / float(noise.scale)
    assert 0.8 * epsilon < found <= epsilon + 1e-6


TRIALS = 300
NOISE = JointGeometric(Fraction(3, 2), 6, 12)
HALVED = JointGeometric(NOISE.scale / 2, 6, 12)


def chosen(counts: Counts, noise: JointGeometric) -> NDArray[np.int64]:
    """How often each ordered choice of two was made, of so many."""
    choice = Choice(len(counts), sum(counts), picks=2)
    shares = shared(np.array(counts))
    width = choice.width(noise.largest)

    def program(index: int, randomness: Randomness) -> Program:
        drawn = yield from draw_noise(noise, TRIALS * choice.noises, randomness, index)
        found = []
        for each in drawn.reshape(TRIALS, -1):
            found.append((yield from choose(choice, index, shares[index], each, width)))
        return np.stack(found)

    ours, theirs = Ends(program, bases=BASES).run()
    first, second = (ours + theirs).astype(np.int64).T
    return np.bincount(first * len(counts) + second, minlength=len(counts) ** 2)


def test_servers_make_two_choices_with_the_exact_probabilities() -> None:
    """n = 300, alpha 1e-9; noise of half the scale is seen."""
    counts = (3, 1, 0)
    expected = exact(counts, 2, NOISE) * TRIALS
    possible = expected > 0
    for noise, fits in ((NOISE, True), (HALVED, False)):
        found = chosen(counts, noise)
        assert found[~possible].sum() == 0
        assert (chi_square_p(found[possible], expected[possible]) > ALPHA) == fits


CONTESTS = 3000
PROVEN = 1e-7


def measured_epsilon(noise: JointGeometric) -> float:
    """What Clopper and Pearson's bounds prove at confidence 1 − 2e-7 from n = 3000 contests on
    either of two adjacent counts. The event is that the first bin wins: with 1 and 2 records it is
    e^ε times as likely as with 0 and 3, and no event is more telling."""
    won = []
    for counts, seed in (([1, 2], 3), ([0, 3], 4)):
        rows = np.tile(np.array(counts), (CONTESTS, 1))
        won.append(int(contests(rows, noise, seed)[0]))
    low = stats.beta.ppf(PROVEN, won[0], CONTESTS - won[0] + 1)
    high = stats.beta.ppf(1 - PROVEN, won[1] + 1, CONTESTS - won[1])
    return math.log(low / high)


def contests(rows: NDArray[np.int64], noise: JointGeometric, seed: int) -> NDArray[np.int64]:
    """How often each place won, of a contest in every row."""
    shares = shared(rows, seed)
    width = (int(rows.max()) + noise.largest).bit_length()

    def program(index: int, randomness: Randomness) -> Program:
        drawn = yield from draw_noise(noise, rows.size, randomness, index)
        return (yield from winners(shares[index] + drawn.reshape(rows.shape), width))

    ours, theirs = Ends(program, seed=seed, bases=BASES).run()
    return np.bincount((ours + theirs).astype(np.int64), minlength=rows.shape[1])


def test_what_can_be_measured_stays_below_epsilon_and_halved_noise_is_caught() -> None:
    """ε = 2/s = 4/3; halved noise makes it 8/3, and proves more than 4/3."""
    epsilon = planned(Mode(bins=2, lower=0.0, upper=1.0)).plan.sensitivity.l1 / float(NOISE.scale)
    assert 0.5 * epsilon < measured_epsilon(NOISE) < epsilon
    assert measured_epsilon(HALVED) > epsilon


@pytest.mark.parametrize("who", [0, 1], ids=["the garbler sees", "the evaluator sees"])
def test_neither_server_s_view_tells_what_is_shared(who: int) -> None:
    """1500 contests, each on its own shares: all that one end receives and the shares it has and
    gets, byte by byte, have one law whichever of two sets of scores is shared. alpha 1e-9 each."""
    views = []
    for seed, scores in ((5, [9, 1, 2]), (6, [0, 3, 7])):
        shares = shared(np.tile(np.array(scores), (1500, 1)), seed)

        def program(index: int, _: Randomness, shares: tuple[Vector, Vector] = shares) -> Program:
            return winners(shares[index], 4)

        ends = Ends(program, seed=seed)
        result = ends.run()[who]
        received = [body[STEP_BYTES:] for body in ends.sent[2 + who :: 2]]
        views.append([*received, shares[who].view(np.uint8), result.view(np.uint8)])
    for ours, theirs in zip(*views, strict=True):
        counts = [np.bincount(each.ravel(), minlength=256) for each in (ours, theirs)]
        assert stats.chi2_contingency(counts).pvalue > ALPHA


def test_every_quantile_is_a_contest_that_is_paid_for() -> None:
    """Choices of independent noises compose: k of them cost what one costs, k times."""
    asked = Quantile(lower=0.0, upper=1.0, strategy="max")
    one = planned(asked).plan
    five = planned(replace(asked, quantile=(0.1, 0.3, 0.5, 0.7, 0.9))).plan
    assert isinstance(five, NoisyChoice)
    assert one.sensitivity.l1 == units_of_epsilon(1, Moved.ANYHOW)
    assert five.sensitivity.l1 == five.rule.contests * one.sensitivity.l1
