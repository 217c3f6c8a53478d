"""Losses in ρ: never below the exact loss of what was released, whoever chose it and when."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.rdp import rdp_privacy_accountant
from numpy.typing import NDArray

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.ledger import (
    Composition,
    Filter,
    LedgerRefusal,
    adaptive_epsilon,
    cap_text,
    parse_cap,
)
from tallyroom.protocols.privacy.loss import NO_LOSS, UNBOUNDED, PrivacyLoss
from tallyroom.protocols.privacy.mechanisms import DiscreteLaplace
from tallyroom.protocols.privacy.noise_law import Sensitivity

Chances = NDArray[np.float64]
STEP = 1 / 120
"""Losses of single noises are multiples of it, so that sums of them meet on a grid."""


def of_curve(epsilon: Fraction, levels: int) -> PrivacyLoss:
    """ρ of a curve: 2h counts move by one each, under noise of scale 2h/ε."""
    moved = Sensitivity.of_counts(2 * levels)
    return DiscreteLaplace.calibrated(PrivacyLoss.of(epsilon), moved).concentrated(moved)


def one_noise(steps: int) -> Chances:
    """The law of the loss of one count that moves by one: ± so many steps, exactly."""
    chances = np.zeros(2 * steps + 1)
    chances[-1] = 1 / (1 + math.exp(-steps * STEP))
    chances[0] = 1 - chances[-1]
    return chances


def exact_epsilon(law: Chances, delta: float) -> float:
    """The least ε of a law of losses around 0, on the grid."""
    losses = (np.arange(len(law)) - len(law) // 2) * STEP

    def beyond(epsilon: float) -> float:
        above = losses > epsilon
        return float(-np.expm1(epsilon - losses[above]) @ law[above])

    low, high = 0.0, float(losses[-1])
    if beyond(0.0) <= delta:
        return 0.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if beyond(middle) <= delta else (middle, high)
    return high


def test_a_hundred_curves_read_what_their_noises_cost() -> None:
    """ε = 0.1 and h = 3 at δ = 1e-6: the exact loss is 1.80, ρ + 2·√(ρ·ln(1/δ)) is 2.23, plain sums
    say 10, and ε²/2 of each would say 5."""
    curve = of_curve(Fraction(1, 10), 3)
    assert curve == PrivacyLoss.concentrated(Fraction(1, 1200))
    found = adaptive_epsilon({curve: 100}, 1e-6)
    assert 1.8 < found < 2.0
    by_epsilon = PrivacyLoss.of(Fraction(1, 10)).as_concentrated()
    assert adaptive_epsilon({by_epsilon: 100}, 1e-6) > 4.8


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_the_rho_of_a_curve_follows_from_all_outcomes(levels: int) -> None:
    """Rényi divergences over all outcomes of its 2h noises, at ε = h/10: 1/20 for each noise."""
    law = np.ones(1)
    for _ in range(2 * levels):
        law = np.convolve(law, one_noise(6))
    losses = (np.arange(len(law)) - len(law) // 2) * STEP
    rho = of_curve(Fraction(levels, 10), levels).rho
    assert rho is not None
    for order in (1.001, 1.5, 2.0, 8.0, 64.0, 512.0):
        divergence = math.log(float(law @ np.exp((order - 1) * losses))) / (order - 1)
        assert divergence <= order * float(rho) * (1 + 1e-9) + 1e-12
    assert float(law @ losses) == pytest.approx(float(rho), rel=1e-3)  # no looser than it must be


def test_it_is_never_below_the_exact_loss_of_a_thousand_sequences() -> None:
    """Of curves fixed beforehand, 1 to 6 of them, of random ε and h."""
    rng = np.random.default_rng(5)
    for _ in range(1000):
        law, spent = np.ones(1), dict[PrivacyLoss, int]()
        for _ in range(rng.integers(1, 7)):
            levels, steps = int(rng.integers(1, 4)), int(rng.integers(1, 25))
            for _ in range(2 * levels):
                law = np.convolve(law, one_noise(steps))
            loss = of_curve(Fraction(2 * levels * steps, 120), levels)
            spent[loss] = spent.get(loss, 0) + 1
        delta = float(rng.choice([1e-6, 1e-4, 1e-2]))
        assert adaptive_epsilon(spent, delta) >= exact_epsilon(law, delta) - 1e-9


def test_nor_where_each_choice_follows_from_the_answers_before() -> None:
    """Fifty analysts, each of whom looks at five answers before the next question, and asks
    whatever the ledger still allows. All outcomes are enumerated."""
    epsilon, delta = Fraction(1, 2), 0.15
    rule = Filter.of(PrivacyLoss.of(epsilon, delta))
    rng = np.random.default_rng(6)
    closest = 0.0
    for _ in range(50):
        told = _beyond(rule, lambda: Fraction(int(rng.integers(6, 24)), 64), float(epsilon))
        assert told <= delta
        closest = max(closest, told)
    assert closest > delta / 50, "nobody comes near to what is allowed"


def _beyond(rule: Filter, choose: Callable[[], Fraction], epsilon: float) -> float:
    """Σ max(0, P − e^ε·Q) over all courses of events."""
    total = 0.0
    stack: list[tuple[float, float, dict[PrivacyLoss, int], int]] = [(1.0, 1.0, {}, 5)]
    while stack:
        here, there, spent, left = stack.pop()
        asked = choose()
        loss = PrivacyLoss.of(asked).as_concentrated()
        try:
            rule.check(loss, spent)
        except LedgerRefusal:
            left = 0
        if not left:
            total += max(0.0, here - math.exp(epsilon) * there)
            continue
        truth = 1 / (1 + math.exp(-asked))
        grown = {**spent, loss: spent.get(loss, 0) + 1}
        stack.append((here * truth, there * (1 - truth), grown, left - 1))
        stack.append((here * (1 - truth), there * truth, grown, left - 1))
    return total


# --- caps as people write them ---


@pytest.mark.parametrize(
    ("text", "cap", "composition"),
    [
        ("3", PrivacyLoss(Fraction(3), Fraction(1)), Composition.SUM),
        ("3, delta = 1e-6", PrivacyLoss.of(3, 1e-6), Composition.RHO),
        ("1/3,delta=1e-9", PrivacyLoss.of(Fraction(1, 3), 1e-9), Composition.RHO),
        ("rho 0.1", PrivacyLoss(None, Fraction(1), Fraction(1, 10)), Composition.SUM),
        ("inf", PrivacyLoss(None, Fraction(1)), Composition.SUM),
    ],
)
def test_caps_are_written_in_three_ways(
    text: str, cap: PrivacyLoss, composition: Composition
) -> None:
    found = parse_cap(text)
    assert Filter.of(found) == Filter(cap, composition)
    assert parse_cap(cap_text(found)) == found


@pytest.mark.parametrize(
    "text",
    [
        "",
        "3,",
        "3, delta",
        "3, delta = 0",
        "3, delta = 1",
        "3, delta = nan",
        "inf, delta = 1e-6",
        "rho",
        "rho 0",
        "rho -1",
        "rho inf",
        "rho 0.1, delta = 1e-6",
        "3, rho 0.1",
        "3 " * 999,
    ],
)
def test_a_cap_that_is_none_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(LocalError) as refused:
        parse_cap(text)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 300


def test_a_cap_in_rho_counts_each_loss_by_its_rho_and_refuses_what_exceeds_it() -> None:
    rule, curve = Filter.of(parse_cap("rho 0.01")), of_curve(Fraction(1, 10), 3)
    rule.check(curve, {curve: 11})
    with pytest.raises(LedgerRefusal, match=r"rho 0\.000833333 refused: 0 of 0\.01 is left"):
        rule.check(curve, {curve: 12})
    with pytest.raises(LedgerRefusal, match="without noise is refused"):
        rule.check(UNBOUNDED, {})


def test_a_cap_with_delta_converts_the_sum_at_that_delta() -> None:
    rule, curve = Filter.of(parse_cap("1, delta = 1e-6")), of_curve(Fraction(1, 10), 3)
    count = 0
    while True:
        try:
            rule.check(curve, {curve: count})
        except LedgerRefusal as error:
            refused = str(error)
            break
        count += 1
    assert "would come to epsilon 1.0" in refused
    assert adaptive_epsilon({curve: count}, 1e-6) <= 1 < adaptive_epsilon({curve: count + 1}, 1e-6)
    assert count > 20, "plain sums would allow 10"


def test_the_delta_of_samplers_is_taken_off_that_of_the_cap() -> None:
    rule = Filter.of(parse_cap("1, delta = 1e-6"))
    rule.check(PrivacyLoss.concentrated(Fraction(1, 100), 9e-7), {})
    for delta in (1e-6, 2e-6):
        with pytest.raises(LedgerRefusal, match="refused"):
            rule.check(PrivacyLoss.concentrated(Fraction(1, 10**9), delta), {})


def test_rho_cannot_be_held_against_a_cap_without_delta() -> None:
    for rule in (Filter.of(Fraction(3)), Filter.of(Fraction(3), 0.0)):
        with pytest.raises(LedgerRefusal, match="write the cap as `3, delta = 1e-6`"):
            rule.check(PrivacyLoss.concentrated(Fraction(1, 100)), {})


def test_a_cap_with_delta_has_no_other_composition() -> None:
    for text in ("1, delta = 1e-6", "rho 0.1"):
        with pytest.raises(LocalError, match="add up in rho, not tight"):
            Filter.of(parse_cap(text), 1e-5, Composition.TIGHT)
    for cap in (PrivacyLoss.of(1), PrivacyLoss(None, Fraction(1, 10)), NO_LOSS):
        with pytest.raises(LocalError, match="under a cap as"):
            Filter(cap, Composition.RHO)


# --- against dp-accounting ---


def curve_and_its_distribution(levels: int, epsilon: Fraction) -> tuple[PrivacyLoss, Any]:
    """Laplace noise on 2h counts that move by one each."""
    scale = float(2 * levels / epsilon)
    one = privacy_loss_distribution.from_laplace_mechanism(
        scale, value_discretization_interval=1e-3
    )
    return of_curve(epsilon, levels), one.self_compose(2 * levels)


def gaussian_and_its_distribution(rho: Fraction) -> tuple[PrivacyLoss, Any]:
    """A count that moves by one, under noise of σ² = 1/(2ρ)."""
    one = privacy_loss_distribution.from_gaussian_mechanism(
        float(1 / (2 * rho)) ** 0.5, value_discretization_interval=1e-3
    )
    return PrivacyLoss.concentrated(rho), one


@pytest.mark.parametrize("seed", range(6))
def test_it_is_never_below_the_privacy_loss_distribution_of_both_laws(seed: int) -> None:
    """Of up to eight releases. What their grid and ρ lose is within a quarter."""
    rng = np.random.default_rng(seed)
    spent: dict[PrivacyLoss, int] = {}
    whole = None
    for _ in range(rng.integers(3, 9)):
        if rng.integers(2):
            epsilon = Fraction(int(rng.integers(5, 60)), 100)
            loss, told = curve_and_its_distribution(int(rng.integers(2, 5)), epsilon)
        else:
            loss, told = gaussian_and_its_distribution(Fraction(int(rng.integers(5, 60)), 1000))
        spent[loss] = spent.get(loss, 0) + 1
        whole = told if whole is None else whole.compose(told)
    assert whole is not None
    for delta in (1e-9, 1e-6, 1e-3):
        ours, theirs = adaptive_epsilon(spent, delta), float(whole.get_epsilon_for_delta(delta))
        assert theirs * (1 - 5e-3) <= ours <= 1.25 * theirs


def test_a_hundred_gaussian_releases_are_within_one_percent_of_dp_accounting() -> None:
    """Its accountant of Rényi differential privacy, which is adaptive too; never below it by more
    than its grid of orders."""
    rho = Fraction(1, 1200)
    accountant = rdp_privacy_accountant.RdpAccountant(list(1 + np.exp(np.linspace(-3, 8, 2000))))
    accountant.compose(dp_event.GaussianDpEvent(float(1 / (2 * rho)) ** 0.5), 100)
    ours = adaptive_epsilon({PrivacyLoss.concentrated(rho): 100}, 1e-6)
    theirs = accountant.get_epsilon(1e-6)
    assert theirs * (1 - 1e-4) <= ours <= 1.01 * theirs
