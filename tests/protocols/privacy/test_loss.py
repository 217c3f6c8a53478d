"""Losses: their algebra by properties, their conversions against exact laws and dp-accounting."""

import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.loss import NO_LOSS, UNBOUNDED, PrivacyLoss, as_written

sizes = st.fractions(min_value=0, max_value=50, max_denominator=1000)
deltas = st.sampled_from([0.0, 1e-12, 1e-6, 1e-5, 0.01])
in_epsilon = st.builds(PrivacyLoss.of, sizes, deltas)
in_rho = st.builds(PrivacyLoss.concentrated, sizes, deltas)
losses = st.one_of(in_epsilon, in_rho, st.just(UNBOUNDED))


def test_as_it_was_written() -> None:
    """Ten times 1e-6 is 1e-5; in doubles it is not."""
    assert PrivacyLoss.of(Fraction(1, 3), 1e-6) * 10 == PrivacyLoss.of(Fraction(10, 3), 1e-5)
    assert 10 * PrivacyLoss.of(None, 1e-6) == PrivacyLoss.of(None, 1e-5)
    assert float(PrivacyLoss.of(1, 0.1).delta) == 0.1


@given(losses, losses, losses)
def test_composition_is_commutative_and_associative(
    a: PrivacyLoss, b: PrivacyLoss, c: PrivacyLoss
) -> None:
    assert a + b == b + a
    if all(each.rho is None for each in (a, b, c)) or all(
        each.epsilon is None for each in (a, b, c)
    ):
        assert (a + b) + c == a + (b + c)
    assert a + NO_LOSS == (a if a.rho is None else a + PrivacyLoss.concentrated(0))


@given(in_epsilon, in_rho)
def test_measures_meet_in_rho(pure: PrivacyLoss, concentrated: PrivacyLoss) -> None:
    both = pure + concentrated
    assert pure.epsilon is not None
    if concentrated.rho is None:  # ρ = 0 is ε = 0
        assert both.epsilon == pure.epsilon
    else:
        assert both.rho == pure.epsilon**2 / 2 + concentrated.rho
    assert both.delta == pure.delta + concentrated.delta


@given(losses, st.integers(0, 5))
def test_count_times(loss: PrivacyLoss, count: int) -> None:
    together = NO_LOSS if loss.epsilon is not None else NO_LOSS.as_concentrated()
    for _ in range(count):
        together = together + loss
    assert (loss * count == together) or not count
    assert (loss * 0).nothing


@settings(deadline=None)
@given(losses, losses, losses)
def test_the_order_is_partial(a: PrivacyLoss, b: PrivacyLoss, c: PrivacyLoss) -> None:
    assert a <= a
    if a <= b and b <= a and a.bounded and (a.rho is None) == (b.rho is None):
        assert a == b
    if a <= b and b <= c and (a.rho is None) == (b.rho is None) == (c.rho is None):
        assert a <= c
    assert a <= UNBOUNDED
    assert not a.bounded or not a >= UNBOUNDED
    assert not (a < b and b < a)


def test_neither_fits() -> None:
    much, likely = PrivacyLoss.of(2, 1e-9), PrivacyLoss.of(1, 1e-6)
    assert not much <= likely
    assert not likely <= much
    assert PrivacyLoss.of(1) <= PrivacyLoss.concentrated(Fraction(1, 2))
    assert not PrivacyLoss.of(Fraction(1001, 1000)) <= PrivacyLoss.concentrated(Fraction(1, 2))
    # No ε is enough for ρ without a δ, however large it is.
    assert not PrivacyLoss.concentrated(Fraction(1, 100)) <= PrivacyLoss.of(10**9)
    assert PrivacyLoss.concentrated(Fraction(1, 100)) <= PrivacyLoss.of(1, 1e-6)


@given(in_epsilon, st.lists(st.integers(1, 9), min_size=1, max_size=7))
def test_shares_are_within_the_whole(loss: PrivacyLoss, weights: list[int]) -> None:
    shares = [loss.share(Fraction(weight, sum(weights))) for weight in weights]
    whole = sum(shares, NO_LOSS)
    assert whole <= loss
    assert whole.epsilon == loss.epsilon
    for share in shares:  # they travel as doubles
        assert as_written(float(share.delta)) == share.delta
    assert float(loss.delta - whole.delta) <= 1e-15


def gaussian_delta(rho: float, epsilon: float) -> float:
    """The exact δ of the Gaussian mechanism of that ρ (Balle and Wang 2018, Theorem 8)."""
    mu = math.sqrt(2 * rho)
    first = stats.norm.logcdf(mu / 2 - epsilon / mu)
    second = epsilon + stats.norm.logcdf(-mu / 2 - epsilon / mu)
    return float(math.exp(first) - math.exp(second))


@pytest.mark.parametrize("rho", ["1/1000000", "1/100", "1/2", "2", "40"])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-12])
def test_rho_in_epsilon(rho: str, delta: float) -> None:
    """It holds for the Gaussian mechanism, is no more than the plain rule, and is what
    dp-accounting finds on a grid of orders, or less."""
    from dp_accounting.rdp.rdp_privacy_accountant import compute_epsilon

    found = PrivacyLoss.concentrated(Fraction(rho)).at(delta)
    assert found.epsilon is not None
    assert float(found.delta) == delta
    size, epsilon = float(Fraction(rho)), float(found.epsilon)
    assert gaussian_delta(size, epsilon) <= delta
    assert epsilon <= (size + 2 * math.sqrt(size * math.log(1 / delta))) * (1 + 1e-9)
    orders = 1 + np.exp(np.linspace(-8, 14, 4000))
    theirs, _ = compute_epsilon(orders, size * orders, delta)
    assert epsilon <= theirs * (1 + 1e-6)
    assert epsilon >= theirs * (1 - 1e-3)


def test_a_delta_below_all_doubles_is_one_still() -> None:
    """What is left of a δ may be so small; ε grows as √ln(1/δ), and is no traceback."""
    tiny, small = Fraction(1, 10**330), Fraction(1, 10**300)
    found = [PrivacyLoss.concentrated(1).at(delta).epsilon for delta in (tiny, small)]
    assert found[0] is not None
    assert found[1] is not None
    assert 1 < found[0] / found[1] < Fraction(11, 10)


def test_delta_of_a_concentrated_loss_is_taken_off() -> None:
    loss = PrivacyLoss.concentrated(Fraction(1, 2), 1e-7)
    less = PrivacyLoss.concentrated(Fraction(1, 2)).at(as_written(1e-6) - as_written(1e-7))
    assert loss.at(1e-6).epsilon == less.epsilon
    assert not loss.at(1e-7).bounded
    assert not PrivacyLoss.of(1, 1e-5).at(1e-6).bounded
    assert PrivacyLoss.of(1).at(1e-6) == PrivacyLoss.of(1, 1e-6)


@given(st.integers(1, 4), st.integers(2, 5), st.sampled_from([0.0, 1e-6]))
def test_groups(epsilon: int, size: int, delta: float) -> None:
    group = PrivacyLoss.of(epsilon, delta).of_group(size)
    assert group.epsilon == epsilon * size
    expected = delta * sum(math.exp(epsilon * step) for step in range(size))
    assert float(group.delta) == pytest.approx(expected, rel=1e-9)
    assert float(group.delta) >= expected * (1 - 1e-15)
    back = group.of_each(size)
    assert back.epsilon == epsilon
    assert float(back.delta) == pytest.approx(delta, rel=1e-9)
    assert PrivacyLoss.concentrated(epsilon).of_group(size).rho == epsilon * size**2


def test_for_people() -> None:
    assert str(PrivacyLoss.of(Fraction(1, 2))) == "ε 0.5"
    assert str(PrivacyLoss.of(1, 1e-6)) == "ε 1, δ 1e-06"
    assert str(PrivacyLoss.concentrated(Fraction(1, 8), 1e-9)) == "ρ 0.125, δ 1e-09"
    assert str(UNBOUNDED) == "no noise"


def test_encoding() -> None:
    assert PrivacyLoss.of(Fraction(1, 3), 1e-6).encode() == {"epsilon": "1/3", "delta": 1e-6}
    assert PrivacyLoss.concentrated(Fraction(1, 3)).encode() == {"rho": "1/3", "delta": 0.0}
    assert UNBOUNDED.encode() == {"epsilon": "inf", "delta": 0.0}


@given(losses)
def test_a_loss_has_one_encoding(loss: PrivacyLoss) -> None:
    assert PrivacyLoss.read(loss.text, loss.written_delta) == loss
    fields: dict[str, Any] = {"other": 1, **loss.encode("later_")}
    assert PrivacyLoss.decode(fields, "later_") == loss
    assert fields == {"other": 1}
    assert json.loads(json.dumps(loss.encode())) == loss.encode()


def test_nothing_is_written_in_one_way() -> None:
    assert PrivacyLoss.concentrated(0, 1e-6) == PrivacyLoss.of(0, 1e-6)
    assert PrivacyLoss.concentrated(0).encode() == {"epsilon": "0", "delta": 0.0}
    assert NO_LOSS.as_concentrated() == NO_LOSS


@given(st.fractions(0, Fraction(9, 10), max_denominator=10**30))
def test_a_delta_that_no_double_holds_is_written_larger(delta: Fraction) -> None:
    written = as_written(PrivacyLoss(Fraction(1), delta).written_delta)
    assert delta <= written <= delta * (1 + Fraction(1, 2**50))


HOSTILE: list[dict[str, Any]] = [
    {},
    {"epsilon": "1"},
    {"delta": 0.0},
    {"epsilon": "1", "rho": "1", "delta": 0.0},
    {"epsilon": "inf", "rho": "1", "delta": 0.0},
    {"epsilon": "rho 1", "delta": 0.0},
    {"rho": "rho 1", "delta": 0.0},
    {"rho": "inf", "delta": 0.0},
    {"rho": "0", "delta": 0.0},
    {"rho": "0", "delta": 1e-6},
    *(
        {measure: size, "delta": 0.0}
        for measure in ("epsilon", "rho")
        for size in (
            *(
                "-1",
                "+1",
                "-0",
                "01",
                "1.0",
                "1e3",
                "0.5",
                "2/2",
                "2/4",
                "1/1",
                "1/0",
                "0/1",
                "1/-2",
            ),
            *("nan", "-inf", "Infinity", "INF", "", " 1", "1 ", "1\n", "1_0", "٣", "½", "1/2/3"),
            *("1/-2", "/2", "1/"),
            *("1e9999999", "9" * 65, "1/" + "9" * 63, "9" * 10**6, None, 1, 1.0, True, ["1"]),
        )
    ),
    *(
        {"epsilon": "1", "delta": delta}
        for delta in (0, 1, 1.0, -1e-9, -0.0, math.nan, math.inf, True, None, "0.0", [0.0])
    ),
]


@pytest.mark.parametrize("fields", HOSTILE, ids=lambda fields: f"{fields!r:.40}")
def test_no_other_encoding_is_read(fields: dict[str, Any]) -> None:
    with pytest.raises(LocalError):
        PrivacyLoss.decode(dict(fields))


def test_what_could_not_be_read_back_is_not_written() -> None:
    for loss in (PrivacyLoss.of(Fraction(1, 10**61)), PrivacyLoss.concentrated(10**60 - 1)):
        assert PrivacyLoss.decode(loss.encode()) == loss
    for loss in (PrivacyLoss.of(Fraction(1, 10**62)), PrivacyLoss.concentrated(10**60)):
        with pytest.raises(LocalError, match="too many digits"):
            loss.encode()


def test_what_is_no_loss() -> None:
    with pytest.raises(ValueError, match="not negative"):
        PrivacyLoss(Fraction(-1))
    with pytest.raises(ValueError, match="not negative"):
        PrivacyLoss(Fraction(1), Fraction(-1, 2))
    with pytest.raises(ValueError, match="not in both"):
        PrivacyLoss(Fraction(1), rho=Fraction(1))
    with pytest.raises(ValueError, match="releases"):
        PrivacyLoss.of(1) * -1
    for delta in (-1e-9, 1.0, math.nan, math.inf):
        with pytest.raises(LocalError, match="delta is a probability"):
            PrivacyLoss.of(1, delta)
