"""The filter: one rule for all ledgers, whatever measure the cap and the losses are in."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.ledger import (
    ANYTHING,
    Charges,
    Composition,
    Filter,
    LedgerRefusal,
    Totals,
)
from tallyroom.protocols.privacy.loss import NO_LOSS, UNBOUNDED, PrivacyLoss

HALF = Fraction(1, 2)
RHO = PrivacyLoss.concentrated(Fraction(1, 20))


def fits(cap: PrivacyLoss, loss: PrivacyLoss, charges: Charges | None = None) -> bool:
    try:
        Filter(cap).check(loss, charges or {})
    except LedgerRefusal:
        return False
    return True


def test_a_cap_of_rho_adds_the_rho_of_each_loss() -> None:
    """Two spends of ε = 1 are ρ = 1, where ε = 2 would be ρ = 2."""
    cap, one = PrivacyLoss.concentrated(1), PrivacyLoss.of(1)
    assert fits(cap, one, {one: 1})
    assert not fits(cap, one, {one: 2})
    assert fits(cap, PrivacyLoss.concentrated(HALF), {one: 1})
    with pytest.raises(LedgerRefusal, match=r"rho 0\.5 refused: 0 of 1 is left in the ledger"):
        Filter(cap).check(one, {one: 2})


def test_losses_of_equal_rho_are_counted_each() -> None:
    equal: Charges = {PrivacyLoss.of(1): 1, PrivacyLoss.concentrated(HALF): 1}
    assert not fits(PrivacyLoss.concentrated(1), PrivacyLoss.of(1), equal)


def test_a_cap_of_rho_has_its_own_delta() -> None:
    assert not fits(PrivacyLoss.concentrated(1), PrivacyLoss.concentrated(HALF, 1e-9))
    assert not fits(PrivacyLoss.concentrated(1), UNBOUNDED)
    assert not fits(PrivacyLoss.concentrated(1), NO_LOSS, {UNBOUNDED: 1})


def test_a_concentrated_loss_is_converted_at_the_delta_of_the_cap() -> None:
    needed = RHO.at(1e-6).epsilon
    assert needed is not None
    assert fits(PrivacyLoss(needed, Fraction(1, 10**6)), RHO)
    assert not fits(PrivacyLoss(needed * Fraction(99, 100), Fraction(1, 10**6)), RHO)
    assert not fits(PrivacyLoss(needed, Fraction(1, 10**6)), RHO, {RHO: 1})


def test_without_a_cap_of_delta_no_concentrated_loss_fits_a_cap_of_epsilon() -> None:
    """At δ = 1 every ρ is ε = 0, which must not open the ledger."""
    with pytest.raises(LedgerRefusal, match=r"ρ 0\.05 refused"):
        Filter.of(Fraction(100)).check(RHO, {})
    Filter.of(Fraction(100)).check(PrivacyLoss.of(1, 0.9), {PrivacyLoss.of(1, 0.9): 5})


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.fractions(0, 2, max_denominator=20), st.booleans()), max_size=8),
    st.fractions(0, 3, max_denominator=20),
    st.booleans(),
)
def test_what_was_let_through_one_by_one_is_within_the_cap(
    asked: list[tuple[Fraction, bool]], size: Fraction, in_rho: bool
) -> None:
    most = Fraction(1, 10**6)
    cap = PrivacyLoss(None, most, size) if in_rho else PrivacyLoss(size, most)
    charges: dict[PrivacyLoss, int] = {}
    for number, concentrated in asked:
        loss = PrivacyLoss.concentrated(number / 10) if concentrated else PrivacyLoss.of(number)
        if fits(cap, loss, charges):
            charges[loss] = charges.get(loss, 0) + 1
    pure = sum((loss.size * count for loss, count in charges.items() if loss.rho is None), 0.0)
    each = [(loss.as_concentrated(), count) for loss, count in charges.items()]
    rho = sum(((loss.rho or Fraction(0)) * count for loss, count in each), Fraction(0))
    if in_rho:
        assert rho <= size
    elif all(loss.rho is None for loss in charges):
        assert pure <= size * (1 + Fraction(1, 10**9))
    else:
        assert PrivacyLoss(None, Fraction(0), rho) <= cap


def test_totals_of_both_measures() -> None:
    totals = Totals.of({PrivacyLoss.of(1, 1e-7): 2, RHO: 3, UNBOUNDED: 4})
    assert totals.noisy == PrivacyLoss.of(2, 2e-7) + RHO * 3
    assert (totals.exact, totals.epsilon(1e-6)) == (4, float("inf"))
    assert Totals(totals.noisy, 0).epsilon(1e-6) == totals.noisy.at(1e-6).size
    assert Totals.of({}).epsilon() == 0


def test_what_is_no_filter() -> None:
    for delta in (-1e-9, 1.0, float("nan")):
        with pytest.raises(LocalError, match="a cap of delta"):
            Filter.of(Fraction(1), delta)
    for cap in (PrivacyLoss.of(1), PrivacyLoss.concentrated(1, 1e-6)):
        with pytest.raises(LocalError, match="tight composition"):
            Filter(cap, Composition.TIGHT)
    ANYTHING.check(UNBOUNDED, {UNBOUNDED: 10**6})
