"""PriROC: bins that add up, monotone curves, and noise that hides a replaced record."""

from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tallyroom.protocols.privacy import hb, quantiles
from tallyroom.protocols.privacy.dawa import Dawa
from tallyroom.protocols.privacy.mechanisms import DiscreteLaplace
from tallyroom.protocols.privacy.priroc import MAX_DEPTH, PrirocRelease, depth_for, priroc
from tallyroom.protocols.randomness import Randomness

Counts = NDArray[np.int64]


def classes(seed: int = 0, cells: int = 64, records: int = 200) -> tuple[Counts, Counts]:
    generator = np.random.default_rng(seed)
    negative = np.bincount(generator.binomial(cells - 1, 0.4, records), minlength=cells)
    positive = np.bincount(generator.binomial(cells - 1, 0.6, records // 2), minlength=cells)
    return negative, positive


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("counts", ["dawa", "hb"])
@pytest.mark.parametrize("epsilon", ["0.01", "1", "1000"])
def test_a_release_is_a_curve_of_all_records(fixed: bool, counts: str, epsilon: str) -> None:
    negative, positive = classes()
    randomness = Randomness.from_seed(1, "priroc")
    found = priroc(negative, positive, 5, Fraction(epsilon), randomness, fixed=fixed, counts=counts)
    assert len(found.thresholds) == 31
    assert (np.diff(found.thresholds) >= 0).all()
    assert len(found.bins) == 64
    assert found.bins.sum() == pytest.approx(300)
    curves = found.distributions
    for each in (curves.negative, curves.positive):
        assert (np.diff(each) >= 0).all()
        assert 0 <= each[0] <= each[-1] == 1.0


@pytest.mark.parametrize("counts", ["dawa", "hb"])
def test_with_little_noise_the_bins_hold_their_records(counts: str) -> None:
    """Half-open: a cell that is a threshold is in the bin below it."""
    negative, positive = classes()
    found = priroc(
        negative,
        positive,
        4,
        Fraction(10**6),
        Randomness.from_seed(2, "priroc"),
        counts=counts,
    )
    ends = [-1, *found.thresholds.tolist(), 63]
    for class_, exact in enumerate((negative, positive)):
        for place, (low, high) in enumerate(pairwise(ends)):
            count = exact[low + 1 : high + 1].sum()
            assert found.bins[16 * class_ + place] == pytest.approx(count, abs=0.51)


def test_thresholds_part_the_scores_about_evenly() -> None:
    negative, positive = classes(records=4000)
    found = priroc(negative, positive, 2, Fraction(1000), Randomness.from_seed(3, "priroc"))
    shares = np.cumsum(negative + positive)[found.thresholds] / 6000
    np.testing.assert_allclose(shares, [0.25, 0.5, 0.75], atol=0.06)


def test_s2_has_as_many_bins_as_the_largest_power_of_two_up_to_n() -> None:
    for counts, epsilon in (("dawa", Fraction(1)), ("hb", None)):
        sizes = [depth_for(n, epsilon, counts) for n in (1, 2, 3, 558, 684, 1024, 10**6)]
        assert sizes == [1, 1, 1, 9, 9, 10, 10]


def test_bins_go_by_n_epsilon_alone_and_are_no_more_than_s2_has() -> None:
    products = (1, 50, 200, 400, 1000, 2000, 4000, 10**5)
    for n in (10**4, 10**5, 10**7):
        found = [depth_for(n, Fraction(product, n)) for product in products]
        assert found == [1, 2, 3, 3, 4, 4, 5, 7]
    assert depth_for(10**9, Fraction(10**9)) == MAX_DEPTH
    assert depth_for(20, Fraction(1000)) == 4
    assert depth_for(1, Fraction(1, 10**9)) == depth_for(0, Fraction(1)) == 1


def test_bins_between_equal_thresholds_are_empty_and_take_no_noise() -> None:
    """All scores in three cells: of 32 bins no more than three can hold a record."""
    cells = np.array([100, 0, 50])
    for counts in ("dawa", "hb"):
        source = Randomness.from_seed(5, "empty")
        found = priroc(cells, cells[::-1], 5, Fraction(1, 10), source, counts=counts)
        bins = found.bins.reshape(2, -1)
        wide = np.diff(found.thresholds, prepend=-1, append=2) > 0
        assert 1 <= wide.sum() <= 3
        assert not bins[:, ~wide].any()
        assert bins.sum() == pytest.approx(300)
        assert bins[:, wide].all()


def test_depths_outside_are_refused() -> None:
    negative, positive = classes()
    for depth in (0, MAX_DEPTH + 1):
        with pytest.raises(ValueError, match="depth"):
            priroc(negative, positive, depth, Fraction(1), Randomness.from_seed(1, "x"))


def test_a_class_without_records_is_a_curve() -> None:
    curves = PrirocRelease(np.array([3]), np.array([9.0, 1.0, -2.0, 1.0])).distributions
    assert curves.positives == 1.0
    assert curves.positive.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("counts", ["dawa", "hb"])
def test_its_parts_spend_epsilon_and_no_more(
    monkeypatch: pytest.MonkeyPatch, fixed: bool, counts: str
) -> None:
    """Medians, DAWA and HB have empirical tests of their own; this is what each is granted."""
    medians: list[Fraction] = []
    buckets: list[Fraction] = []
    noises: list[tuple[Fraction, int]] = []
    found_medians, dawa, spending = (
        quantiles.recursive_medians,
        Dawa.spending,
        DiscreteLaplace.spending,
    )

    def thresholds(*arguments: Any) -> list[int]:
        medians.append(arguments[4])
        return found_medians(*arguments)

    def granted(epsilon: Fraction, one_sided: bool) -> Dawa:
        buckets.append(epsilon)
        return dawa(epsilon, one_sided=one_sided)

    def drawn(epsilon: Fraction, sensitivity: int) -> DiscreteLaplace:
        noises.append((epsilon, sensitivity))
        return spending(epsilon, sensitivity)

    monkeypatch.setattr("tallyroom.protocols.privacy.priroc.recursive_medians", thresholds)
    monkeypatch.setattr(Dawa, "spending", granted)
    if counts == "hb":
        monkeypatch.setattr(DiscreteLaplace, "spending", drawn)
    negative, positive = classes()
    priroc(
        negative,
        positive,
        3,
        Fraction(1),
        Randomness.from_seed(1, "x"),
        fixed=fixed,
        counts=counts,
    )
    rest = [epsilon for epsilon, _ in noises] if counts == "hb" else buckets
    assert sum(medians) + sum(rest) == 1
    assert len(medians) == (not fixed)
    if counts == "hb":
        assert noises[0][1] == 2 * hb.line(16).height
