"""The thresholded histogram: against the sampler that enumerates the space, and on huge spaces."""

import decimal
import itertools
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy import thresholded
from tallyroom.protocols.privacy.noise_sums import passing
from tallyroom.protocols.privacy.thresholded import (
    Space,
    ThresholdedHistogram,
    binomial,
    distinct_outside,
    lei_threshold,
    passing_chance,
    rows_of,
    threshold_for,
)
from tallyroom.protocols.randomness import Randomness
from tests.goodness import ALPHA, chi_square_p, fits

Vector = NDArray[np.float64]


def randomness(label: str) -> Randomness:
    return Randomness.from_seed(12, label)


def tail(threshold: int, scale: float) -> float:
    return math.exp(-(threshold + 1) / scale) / (1 + math.exp(-1 / scale))


def test_it_has_the_distribution_of_the_enumerating_sampler() -> None:
    """Five cells, two of them held: which cells pass (32 outcomes) and the values of each.

    1200 histograms against the exact chances; half of the noise would be refused.
    """
    mechanism = ThresholdedHistogram.spending(Fraction(1), 1)
    assert mechanism.noise.scale == 2
    assert mechanism.privacy_map() == 1
    exact = np.array([3, 0, 1, 0, 0])
    cells = np.repeat(np.arange(5), exact)
    runs = 1200
    source = randomness("small")
    seen = np.zeros((runs, 5), dtype=np.int64)
    for row in seen:
        histogram = mechanism.sample(cells, 5, source)
        assert (np.diff(histogram.cells) > 0).all()
        row[histogram.cells] = histogram.counts
    assert ((seen == 0) | (seen > 1)).all()

    def outcomes(scale: float) -> Vector:
        passes = np.array(
            [tail(1 - c, scale) if c <= 1 else 1 - tail(c - 2, scale) for c in exact.tolist()]
        )
        subsets = np.array(list(itertools.product((0, 1), repeat=5)))
        chances: Vector = np.where(subsets, passes, 1 - passes).prod(axis=1)
        return chances

    observed = np.bincount((seen > 0) @ [16, 8, 4, 2, 1], minlength=32)
    assert chi_square_p(observed, outcomes(2.0) * runs) > ALPHA
    assert chi_square_p(observed, outcomes(1.0) * runs) < ALPHA
    support = np.arange(2, 40)
    for cell, count in enumerate(exact.tolist()):
        values = seen[seen[:, cell] > 0, cell]
        chances = np.exp(-np.abs(support - count) / 2)
        assert fits(values, support, chances / chances.sum()) > ALPHA


def noise_law(scale: Fraction, noises: int) -> tuple[NDArray[np.int64], Vector]:
    """Every value of a sum of noises and its chance, by convolution."""
    reach = math.ceil(45 * scale)
    one = np.exp(-np.abs(np.arange(-reach, reach + 1)) / float(scale))
    law = np.ones(1)
    for _ in range(noises):
        law = np.convolve(law, one / one.sum())
    return np.arange(len(law)) - noises * reach, law


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(2), Fraction(25, 3)])
def test_sums_of_noises_pass_as_often_and_as_high_as_enumeration_has_it(scale: Fraction) -> None:
    """Up to 16 noises, thresholds from 0 into the far tail; one noise has its closed form."""
    for noises in (1, 2, 3, 5, 16):
        values, law = noise_law(scale, noises)
        for threshold in (0, 1, 7, math.ceil(9 * scale)):
            above = values > threshold
            chance, expected = map(float, passing(threshold, scale, noises))
            assert chance == pytest.approx(law[above].sum(), rel=1e-9)
            assert expected == pytest.approx((law * values)[above].sum(), rel=1e-9)
    assert passing(40, scale)[0] == pytest.approx(passing_chance(40, scale), rel=Decimal("1e-25"))


def test_tails_keep_their_digits_with_many_noises_and_at_any_scale() -> None:
    """The normal law for 64 noises, each of deviation √2·s; and of one noise, E[L | L > τ] is
    τ + 1 and a geometric variable's mean, however far out."""
    scale = Fraction(10**7)
    for deviations in (0.5, 1.0, 2.0):
        threshold = math.floor(deviations * 1e7 * math.sqrt(128))
        found = float(passing(threshold, scale, 64)[0])
        assert found == pytest.approx(float(stats.norm.sf(deviations)), rel=0.02)
    chance, expected = passing(10**10, scale)
    mean = 1 / math.expm1(1e-7)
    assert float(expected / chance) == pytest.approx(10**10 + 1 + mean, rel=1e-12)


@pytest.mark.parametrize("noises", [1, 2, 3])
@pytest.mark.parametrize("epsilon", [Fraction(1, 4), Fraction(1), Fraction(3)])
@pytest.mark.parametrize("space", [4, 3000, 400_000])
def test_the_threshold_is_the_least_that_keeps_noise_down(
    space: int, epsilon: Fraction, noises: int
) -> None:
    """Against enumeration: under any number of noises a cell without records passes no more often
    than S4 lets it under one, and noise makes no more than a tenth of the rows. One less, and it
    would not be so, but for S4's own."""
    records = 1000
    own = lei_threshold(records, epsilon)
    found = threshold_for(space, records, epsilon, noises)
    values, law = noise_law(2 / epsilon, noises)
    alone, single = noise_law(2 / epsilon, 1)
    often = single[alone > own].sum()

    def keeps_down(threshold: int) -> bool:
        above = values > threshold
        few = space * (law * values)[above].sum() <= records / 10
        return bool(few and law[above].sum() <= often * (1 + 1e-9))

    assert found >= own
    assert keeps_down(found)
    assert found == own or not keeps_down(found - 1)
    assert (found == own) == (noises == 1 and space == 4)


def test_a_threshold_is_there_for_any_space_and_epsilon() -> None:
    for bits, epsilon in itertools.product((0, 30, 60), (Fraction(1, 10**9), Fraction(10**9))):
        found = threshold_for(1 << bits, 1000, epsilon, 64)
        assert (1 << bits) * passing(found, 2 / epsilon, 64)[1] <= 100


def test_the_number_of_passing_cells_is_binomial() -> None:
    scale = Fraction(3, 2)
    for trials, threshold in ((1, 0), (7, 0), (10**6, 18), (1 << 60, 60)):
        chance = tail(threshold, 1.5)
        assert float(passing_chance(threshold, scale)) == pytest.approx(chance, rel=1e-12)
        source = randomness(f"binomial {trials}")
        drawn = np.array([binomial(trials, threshold, scale, source) for _ in range(500)])
        support = np.arange(0, min(trials, 60) + 1)
        ideal = (
            stats.poisson.pmf(support, trials * chance)
            if trials > 10**7
            else stats.binom.pmf(support, trials, chance)
        )
        assert fits(drawn, support, np.asarray(ideal)) > ALPHA


def test_a_binomial_in_doubt_takes_more_digits() -> None:
    """A stream whose first bits lie on the boundary between 0 and 1 but for what follows them."""
    trials, threshold, scale = 3, 0, Fraction(1)
    p = 1 / (math.e + 1)
    boundary = passing_chance(threshold, scale, 120)
    with decimal.localcontext(prec=120):
        first = int((1 - boundary) ** trials * (1 << 320))
    asked: list[int] = []

    class Edge(Randomness):
        def bytes(self, count: int) -> bytes:
            start = sum(asked)
            asked.append(count)
            return (first << 320).to_bytes(80)[start : start + count]

    assert binomial(trials, threshold, scale, Edge(bytes(16))) in (0, 1)
    assert len(asked) > 1
    assert float(boundary) == pytest.approx(p)


def test_cells_outside_are_a_uniform_set() -> None:
    """All sets of each size out of 6 free cells of 8: 300 draws each; sparse and dense alike."""
    held = np.array([2, 5])
    free = [0, 1, 3, 4, 6, 7]
    for count in range(7):
        sets = list(itertools.combinations(free, count))
        counts = np.zeros(len(sets), dtype=np.int64)
        source = randomness(f"sets {count}")
        for _ in range(300):
            drawn = distinct_outside(count, held, 8, source)
            counts[sets.index(tuple(sorted(drawn.tolist())))] += 1
        if len(sets) > 1:
            assert chi_square_p(counts, np.full(len(sets), 300 / len(sets))) > ALPHA
    for space in (64, 1 << 60):
        source = randomness(f"space {space}")
        drawn = np.concatenate([distinct_outside(3, held, space, source) for _ in range(1000)])
        assert not np.isin(drawn, held).any()
        cell = drawn // (space // 8) if space > 64 else drawn // 8
        expected = np.full(8, 3000 / 8) if space > 64 else 3000 / 62 * np.array([6.0] + [8.0] * 7)
        assert chi_square_p(np.bincount(cell, minlength=8), expected) > ALPHA


def test_huge_spaces_take_no_time_and_small_outputs() -> None:
    space = Space((2,) * 60)
    rows = np.random.default_rng(5).integers(0, 2, (3, 60)).repeat(400, axis=0)
    mechanism = ThresholdedHistogram.spending(Fraction(1), 75)
    histogram = mechanism.sample(space.encode(rows), space.size, randomness("huge"))
    assert (histogram.counts > 75).all()
    assert len(np.unique(histogram.cells)) == len(histogram.cells) < 300
    assert np.isin(space.encode(rows), histogram.cells).all()
    np.testing.assert_array_equal(space.decode(space.encode(rows)), rows)
    assert rows_of(histogram, space).shape == (histogram.counts.sum(), 60)


def test_cells_are_numbered_one_to_one() -> None:
    space = Space((3, 1, 4, 2))
    rows = np.array(list(itertools.product(range(3), range(1), range(4), range(2))))
    assert space.encode(rows).tolist() == list(range(24))
    np.testing.assert_array_equal(space.decode(np.arange(24)), rows)


def test_no_record_or_no_empty_cell() -> None:
    mechanism = ThresholdedHistogram.spending(Fraction(1), 2)
    none = mechanism.sample(np.empty(0, dtype=np.int64), 4, randomness("none"))
    assert (none.counts > 2).all()
    full = mechanism.sample(np.arange(4).repeat(50), 4, randomness("full"))
    assert full.cells.tolist() == [0, 1, 2, 3]
    assert lei_threshold(1, Fraction(1)) == 0
    assert lei_threshold(45_083, Fraction(1, 10)) == math.floor(5 * math.log(45_083))


def test_bad_input_is_refused() -> None:
    mechanism = ThresholdedHistogram.spending(Fraction(1), 2)
    for sizes, message in (((2,) * 61, "past"), ((3, 0), "at least one")):
        with pytest.raises(LocalError, match=message):
            Space(sizes)
    for rows, message in (([[2, 0]], "outside"), ([[-1, 0]], "outside"), ([[0]], "shape")):
        with pytest.raises(ValueError, match=message):
            Space((2, 2)).encode(rows)
    with pytest.raises(ValueError, match="integers"):
        Space((2,)).encode([[0.5]])
    with pytest.raises(LocalError, match="raise the threshold"):
        mechanism.sample(np.array([1]), 1 << 60, randomness("bad"))
    for cells in ([4], [-1]):
        with pytest.raises(ValueError, match="outside"):
            mechanism.sample(np.array(cells), 4, randomness("bad"))
    for space in (0, (1 << 60) + 1):
        with pytest.raises(LocalError, match="cells"):
            mechanism.sample(np.empty(0, dtype=np.int64), space, randomness("bad"))
    with pytest.raises(LocalError, match="threshold"):
        ThresholdedHistogram.spending(Fraction(1), -1)


def test_whether_it_is_refused_does_not_depend_on_the_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four of eight cells are held, or five: about as many empty cells would pass as are allowed,
    and the refusal would have told which of the two it is."""
    mechanism = ThresholdedHistogram.spending(Fraction(1), 0)
    chance = float(thresholded.passing_chance(0, mechanism.noise.scale))
    for cells in (np.arange(4), np.arange(5)):
        monkeypatch.setattr(thresholded, "MAX_OUTPUT", 3.5 * chance)
        with pytest.raises(LocalError, match="would pass"):
            mechanism.sample(cells, 8, randomness("refused"))
        monkeypatch.setattr(thresholded, "MAX_OUTPUT", 8.5 * chance)
        mechanism.sample(cells, 8, randomness("taken"))
