"""Optimal composition: against enumeration, the closed formula, and dp-accounting."""

import itertools
import math
import time
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting.pld import common, privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st

from tallyroom.protocols.privacy import composition
from tallyroom.protocols.privacy.composition import composed_epsilon
from tallyroom.protocols.privacy.loss import PrivacyLoss, as_written

Charges = Sequence[tuple[float, float]]


def composed(charges: Charges, delta: float) -> float:
    return composed_epsilon(
        {
            PrivacyLoss(None if math.isinf(e) else Fraction(e), as_written(d)): count
            for (e, d), count in Counter(charges).items()
        },
        delta,
    )


def enumerated_delta(charges: Charges, epsilon: float) -> float:
    """δ(ε) over all outcomes of the dominating pairs, in forty digits."""
    with localcontext() as context:
        context.prec = 40
        untold = Decimal(1)
        for _, delta in charges:
            untold *= 1 - Decimal(delta)
        total = Decimal(0)
        for signs in itertools.product((1, -1), repeat=len(charges)):
            p = q = Decimal(1)
            for sign, (each, _) in zip(signs, charges, strict=True):
                grown = Decimal(each).exp()
                p *= grown / (1 + grown) if sign > 0 else 1 / (1 + grown)
                q *= 1 / (1 + grown) if sign > 0 else grown / (1 + grown)
            total += max(Decimal(0), p - Decimal(epsilon).exp() * q)
        return float(1 - untold * (1 - total))


def kairouz_delta(epsilon: float, delta: float, count: int, i: int) -> tuple[float, float]:
    """Kairouz, Oh and Viswanath 2015, Theorem 3.3: the ith (ε, δ) of `count` equal releases."""
    with localcontext() as context:
        context.prec = 60
        one = Decimal(epsilon)
        top = sum(
            (
                math.comb(count, j)
                * ((one * (count - j)).exp() - (one * (count - 2 * i + j)).exp())
                for j in range(i)
            ),
            Decimal(0),
        )
        inner = top / (1 + one.exp()) ** count
        told = 1 - (1 - Decimal(delta)) ** count * (1 - inner)
        return (count - 2 * i) * epsilon, float(told)


def theirs(charges: Charges, delta: float) -> float:
    """dp-accounting's pessimistic estimate, on a grid of 1e-4."""
    composed = None
    for epsilon, lost in charges:
        one = privacy_loss_distribution.from_privacy_parameters(
            common.DifferentialPrivacyParameters(epsilon, lost), value_discretization_interval=1e-4
        )
        composed = one if composed is None else composed.compose(one)
    assert composed is not None
    return float(composed.get_epsilon_for_delta(delta))


@pytest.mark.parametrize(("epsilon", "delta", "count"), [(0.1, 0.0, 100), (1.0, 1e-9, 7)])
def test_equal_releases_follow_the_closed_formula(epsilon: float, delta: float, count: int) -> None:
    for i in range(1, count // 2, max(1, count // 20)):
        total, at = kairouz_delta(epsilon, delta, count, i)
        if 1e-12 < at < 0.5:
            found = composed([(epsilon, delta)] * count, at)
            assert found == pytest.approx(total, rel=1e-6, abs=1e-6)


small = st.lists(
    st.tuples(st.floats(1e-3, 3.0), st.sampled_from([0.0, 1e-9, 1e-4])), min_size=1, max_size=5
)


@settings(max_examples=25)
@given(small, st.sampled_from([1e-6, 1e-3, 0.1]))
def test_the_bound_holds_and_is_tight_where_all_outcomes_can_be_counted(
    charges: list[tuple[float, float]], delta: float
) -> None:
    found = composed(charges, delta)
    if math.isinf(found):
        assert enumerated_delta(charges, 50.0) > delta
        return
    assert enumerated_delta(charges, found) <= delta * (1 + 1e-6)
    assert found <= sum(epsilon for epsilon, _ in charges) * (1 + 1e-12)
    grid = 1e-3 * max(epsilon for epsilon, _ in charges)
    if found > grid:
        assert enumerated_delta(charges, found - grid) > delta * (1 - 1e-3)


@pytest.mark.parametrize(
    ("charges", "delta"),
    [
        ([(0.1, 0.0)] * 60, 1e-6),
        ([(0.1, 1e-8)] * 40 + [(0.37, 0.0)] * 7 + [(1.0, 1e-9)] * 2, 1e-6),
        ([(0.02, 0.0)] * 80 + [(0.5, 0.0)] * 3, 1e-5),
        ([(2.0, 0.0), (5.0, 0.0)], 1e-3),
    ],
)
def test_dp_accounting_finds_the_same(charges: Charges, delta: float) -> None:
    assert composed(charges, delta) == pytest.approx(theirs(charges, delta), rel=2e-3)


def test_more_different_epsilons_than_are_told_apart_are_rounded_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    charges = [(float(e), 0.0) for e in np.random.default_rng(1).uniform(0.01, 0.2, 60)]
    fine = composed(charges, 1e-6)
    monkeypatch.setattr(composition, "MAX_GROUPS", 12)
    coarse = composed(charges, 1e-6)
    assert fine <= coarse <= 1.2 * fine < sum(epsilon for epsilon, _ in charges)


def test_extremes_cost_neither_an_overflow_nor_minutes() -> None:
    draw = np.random.default_rng(2)
    million = 10**6
    begun = time.process_time()
    assert composed([], 1e-6) == 0.0
    assert composed([(1e-9, 0.0)] * million, 1e-6) <= 1e-3
    assert 0 < composed([(1e-3, 0.0)] * million, 1e-6) < 10
    assert composed([(1e9, 0.0)] * 1000, 1e-6) == pytest.approx(1e12)
    wide = 10.0 ** draw.uniform(-9, 9, 2000)
    assert composed([(float(e), 0.0) for e in wide], 1e-6) <= wide.sum() * (1 + 1e-9)
    assert time.process_time() < begun + 30


def test_what_cannot_be_composed_is_infinite() -> None:
    assert composed([(1.0, 0.0), (math.inf, 0.0)], 0.1) == math.inf
    assert composed([(1.0, 0.06), (1.0, 0.06)], 0.1) == math.inf
    assert composed([(1.0, 1.0)], 0.1) == math.inf
    assert composed([(1.0, 0.0), (2.0, 0.0)], 0.0) == 3.0
    for delta in (-0.1, 1.0, math.nan):
        with pytest.raises(ValueError, match="probability"):
            composed([(1.0, 0.0)], delta)


def test_concentrated_losses_are_summed_and_converted() -> None:
    rho = PrivacyLoss.concentrated(Fraction(1, 20))
    assert composed_epsilon({rho: 4}, 1e-6) == pytest.approx((rho * 4).at(1e-6).size)
    mixed = composed_epsilon({rho: 1, PrivacyLoss.of(1, 1e-7): 2}, 1e-6)
    assert mixed == (rho + PrivacyLoss.of(2, 2e-7)).at(1e-6).size
    assert composed_epsilon({rho: 1}, 0.0) == math.inf
