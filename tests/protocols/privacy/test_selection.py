"""Private choices: their exact probabilities, and the ε an attacker can measure.

Three links make the chain: the exact probabilities (enumerated in `choices`) lose at most ε between
adjacent scores; the samples have those probabilities; and an attack on samples proves no more than
ε, but more than ε when the noise is halved. Samples are 4000 on each side, and a right program is
refused with probability at most ALPHA a check.
"""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.selection import (
    Above,
    AboveThreshold,
    Exponential,
    NoneAbove,
)
from tallyroom.protocols.randomness import Randomness
from tests.goodness import ALPHA, chi_square_p
from tests.protocols.privacy.choices import (
    above_threshold_probabilities,
    exponential_probabilities,
    proven_epsilon,
    worst_loss,
)

RUNS = 4000


def randomness(label: str) -> Randomness:
    return Randomness.from_seed(5, label)


@pytest.mark.parametrize("epsilon", [Fraction(1, 3), Fraction(2)])
@pytest.mark.parametrize("sensitivity", [1, 3])
def test_exact_probabilities_lose_at_most_epsilon(epsilon: Fraction, sensitivity: int) -> None:
    """All moves of three scores by the sensitivity at most; monotone ones with half the noise."""
    general = Exponential.spending(epsilon, sensitivity)
    monotone = Exponential.spending(epsilon, sensitivity, monotone=True)
    assert general.scale == 2 * monotone.scale
    assert general.privacy_map(sensitivity) == monotone.privacy_map(sensitivity, True) == epsilon
    worst = {False: 0.0, True: 0.0}
    for scores in ([0, 0, 0], [0, 7, 2], [9, 0, 9]):
        for step in itertools.product([-sensitivity, 0, sensitivity], repeat=3):
            moved = [score + by for score, by in zip(scores, step, strict=True)]
            one_way = min(step) >= 0 or max(step) <= 0
            for mechanism, counts in ((general, True), (monotone, one_way)):
                if counts:
                    scale = float(mechanism.scale)
                    loss = worst_loss(
                        exponential_probabilities(scores, scale),
                        exponential_probabilities(moved, scale),
                    )
                    key = mechanism is monotone
                    worst[key] = max(worst[key], loss)
    assert worst[False] <= float(epsilon) + 1e-9
    assert worst[True] <= float(epsilon) + 1e-9
    # The bound is no waste: three candidates already come this near to it.
    assert worst[False] >= 0.6 * float(epsilon)


@pytest.mark.parametrize("scores", [[3], [0, 0], [5, 0, 4, 5, -9], [-(2**60), 2**60, 2**60 - 1]])
def test_choices_have_their_exact_probabilities(scores: list[int]) -> None:
    mechanism = Exponential(Fraction(5, 3))
    chosen = mechanism.choose_often(RUNS, scores, randomness("fit"))
    counts = np.bincount(chosen, minlength=len(scores))
    if max(scores) > 2**59:  # enumerate what is within reach of the best
        assert counts[0] == 0
        counts, scores = counts[1:], [1, 0]
    if len(scores) == 1:
        assert counts.tolist() == [RUNS]
    else:
        assert chi_square_p(counts, exponential_probabilities(scores, 5 / 3) * RUNS) > ALPHA
    assert 0 <= mechanism.choose(scores, randomness("one")) < len(scores)


def test_the_measured_epsilon_stays_below_epsilon_and_halved_noise_is_caught() -> None:
    """One candidate falls by Δ while nine others rise by Δ. Bounds at 1e-7 on each side."""
    here, there = [1] + [0] * 9, [0] + [1] * 9
    epsilon = Fraction(2)

    def proven(mechanism: Exponential) -> float:
        hits = [
            int((mechanism.choose_often(RUNS, scores, randomness(str(scores))) == 0).sum())
            for scores in (here, there)
        ]
        return proven_epsilon(hits[0], hits[1], RUNS, 1e-7)

    honest = Exponential.spending(epsilon, 1)
    assert 1 < proven(honest) <= 2
    assert proven(Exponential(honest.scale / 2)) > 2


def found(
    mechanism: AboveThreshold, scores: list[int], threshold: int, runs: int
) -> NDArray[np.int64]:
    """How often each index was the first yes, and last how often none was."""
    source = randomness(f"search {scores}")
    counts = np.zeros(len(scores) + 1, dtype=np.int64)
    for _ in range(runs):
        answer = mechanism.first_above(scores, threshold, len(scores), source)
        counts[answer.index if isinstance(answer, Above) else -1] += 1
    return counts


def test_a_search_has_its_exact_probabilities_and_halved_noise_is_caught() -> None:
    """ε = 3: three queries rise by Δ and the fourth falls by it. Bounds at 1e-7 on each side.

    Halved noise loses more than ε, exactly computed, and its samples do not pass for honest ones.
    """
    here, there, threshold, runs = [0, 0, 0, 1], [1, 1, 1, 0], 1, 800
    honest = AboveThreshold.spending(Fraction(3), 1)
    assert honest.scale == 1
    halved = AboveThreshold(honest.scale / 2)

    def exact(mechanism: AboveThreshold, scores: list[int]) -> NDArray[np.float64]:
        return above_threshold_probabilities(scores, threshold, float(mechanism.scale))

    hits = []
    for scores in (here, there):
        counts = found(honest, scores, threshold, runs)
        assert chi_square_p(counts, exact(honest, scores) * runs) > ALPHA
        hits.append(int(counts[3]))
    assert proven_epsilon(hits[0], hits[1], runs, 1e-7) <= 3
    assert worst_loss(exact(honest, here), exact(honest, there)) <= 3
    assert worst_loss(exact(halved, here), exact(halved, there)) > 3
    assert chi_square_p(found(halved, here, threshold, runs), exact(honest, here) * runs) < ALPHA


@pytest.mark.parametrize("monotone", [False, True])
def test_exact_searches_lose_at_most_epsilon_however_many_queries(monotone: bool) -> None:
    mechanism = AboveThreshold.spending(Fraction(1), 2, monotone)
    assert mechanism.privacy_map(2, monotone) == 1
    worst = 0.0
    for scores in ([0] * 5, [4, -3, 0, 9, 1]):
        for step in itertools.product([-2, 0, 2], repeat=5):
            if monotone and min(step) < 0 < max(step):
                continue
            moved = [score + by for score, by in zip(scores, step, strict=True)]
            for threshold in (-3, 4):
                one = above_threshold_probabilities(scores, threshold, float(mechanism.scale))
                other = above_threshold_probabilities(moved, threshold, float(mechanism.scale))
                worst = max(worst, worst_loss(one, other))
    assert 0.5 <= worst <= 1 + 1e-9


def test_a_search_looks_at_nothing_after_the_first_yes_and_stops_at_its_limit() -> None:
    mechanism = AboveThreshold.spending(Fraction(1000), 1)
    asked = iter([0, 0, 50, 60])
    assert mechanism.first_above(asked, 25, 10, randomness("stop")) == Above(2)
    assert next(asked) == 60
    asked = iter(range(10))
    assert mechanism.first_above(asked, 99, 4, randomness("stop")) == NoneAbove(4)
    assert next(asked) == 4
    assert mechanism.first_above([], 0, 4, randomness("stop")) == NoneAbove(0)
    search = mechanism.search(25, 2, randomness("stop"))
    assert not search.ask(0)
    assert search.ask(50)
    with pytest.raises(LocalError, match="another epsilon"):
        search.ask(0)
    search = mechanism.search(25, 1, randomness("stop"))
    assert not search.ask(0)
    with pytest.raises(LocalError, match="all of its 1"):
        search.ask(50)


@pytest.mark.parametrize(
    "scores", [[], [[1]], [0.5], [float("nan")], [2**60 + 1], [2**64], [True, False], ["1"]]
)
def test_bad_scores_are_refused(scores: list[int]) -> None:
    with pytest.raises(ValueError, match="score"):
        Exponential(Fraction(1)).choose(scores, randomness("bad"))


def test_bad_parameters_are_refused() -> None:
    for epsilon, sensitivity in ((Fraction(0), 1), (Fraction(-1), 1), (Fraction(1), 0)):
        with pytest.raises(ValueError, match="positive"):
            Exponential.spending(epsilon, sensitivity)
        with pytest.raises(ValueError, match="positive"):
            AboveThreshold.spending(epsilon, sensitivity)
    with pytest.raises(LocalError, match="too small"):
        Exponential.spending(Fraction(1, 10**9), 2**50)
    with pytest.raises(ValueError, match="at least one"):
        AboveThreshold.spending(Fraction(1), 1).search(0, 0, randomness("bad"))
    with pytest.raises(ValueError, match="score"):
        AboveThreshold.spending(Fraction(1), 1).search(2**62, 1, randomness("bad"))
