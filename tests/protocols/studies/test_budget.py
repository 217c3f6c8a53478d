"""A study spends what it declared and no more, whatever it asks."""

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.loss import NO_LOSS, PrivacyLoss, as_written
from tallyroom.protocols.statistics.moments import Mean, Sum
from tallyroom.protocols.studies.budget import MAX_QUESTIONS, Budget
from tallyroom.protocols.studies.contract import Ask, Finding, Steps, Study

MEAN = Mean(lower=0.0, upper=1.0)
SUM = Sum(lower=0.0, upper=1.0)


@dataclass(frozen=True)
class Declared(Study):
    """Declares as it is told."""

    declared: tuple[Fraction, ...] = ()
    name: ClassVar[str] = "declared"

    def shares(self) -> tuple[Fraction, ...]:
        return self.declared

    def may_ask(self) -> tuple[Ask, ...]:
        """Any share of the mean, of the user's aggregator."""
        return Ask(MEAN, Fraction(1, 10**9)), Ask(MEAN, Fraction(1))

    def steps(self) -> Steps:
        for share in self.declared:
            yield Ask(MEAN, share)
        return Finding(0.0)


def ask(share: Fraction) -> Ask:
    return Ask(MEAN, share)


weights = st.lists(st.integers(1, 50), min_size=1, max_size=12)


@given(weights, st.fractions("1/100", 10), st.floats(0, 1e-3))
def test_all_questions_together_cost_the_whole_and_never_more(
    parts: list[int], epsilon: Fraction, delta: float
) -> None:
    shares = tuple(Fraction(part, sum(parts)) for part in parts)
    budget = Budget(Declared(shares), PrivacyLoss.of(epsilon, delta))
    grants = [budget.grant(ask(share)) for share in shares]
    spent = [grant.loss.epsilon or Fraction(0) for grant in grants]
    assert sum(spent) == epsilon
    assert sum(grant.loss.delta for grant in grants) <= as_written(delta)
    for index, grant in enumerate(grants):
        assert grant.later.epsilon == sum(spent[index + 1 :])
        assert grant.loss.delta + grant.later.delta <= as_written(delta)
    assert grants[-1].later == NO_LOSS


@given(weights, st.fractions("1/100", 10), st.floats(0, 1e-3))
def test_a_concentrated_loss_is_divided_alike(
    parts: list[int], rho: Fraction, delta: float
) -> None:
    shares = tuple(Fraction(part, sum(parts)) for part in parts)
    whole = PrivacyLoss.concentrated(rho, delta)
    budget = Budget(Declared(shares), whole)
    grants = [budget.grant(ask(share)) for share in shares]
    together = sum((grant.loss for grant in grants), NO_LOSS)
    assert together.rho == rho
    assert together <= whole
    for index, grant in enumerate(grants):
        rest = sum((each.loss for each in grants[index + 1 :]), NO_LOSS)
        assert (grant.later.rho, grant.later.epsilon) == (rest.rho, rest.epsilon)
        assert grant.loss + grant.later <= whole


def test_a_study_that_asks_for_more_than_it_declared_gets_no_grant() -> None:
    half = Fraction(1, 2)
    for declared, asked in (
        ((half,), [half, Fraction(1, 100)]),  # one more question
        ((half,), [Fraction(51, 100)]),  # a larger share
        ((half, half), [Fraction(3, 4), half]),  # too much by and by
    ):
        budget = Budget(Declared(declared), PrivacyLoss.of(Fraction(1)))
        *fine, last = asked
        for share in fine:
            budget.grant(ask(share))
        with pytest.raises(LocalError, match="more than it declared"):
            budget.grant(ask(last))


@dataclass(frozen=True)
class Listed(Declared):
    """Lists as it is told."""

    listed: tuple[Ask, ...] = ()

    def may_ask(self) -> tuple[Ask, ...]:
        return self.listed


def test_a_study_is_held_to_what_it_lists() -> None:
    fifth, half = Fraction(1, 5), Fraction(1, 2)
    listed = (Ask(MEAN, fifth), Ask(MEAN, half), Ask(SUM, half, "additive"))
    for share in (fifth, Fraction(1, 3), half):
        Budget(Listed((half, half), listed), PrivacyLoss.of(Fraction(1))).grant(Ask(MEAN, share))
    for unlisted, why in (
        (Ask(SUM, half), "sum, which it did not list"),
        (Ask(MEAN, half, "fss"), "mean of fss, which it did not list"),
        (Ask(MEAN, Fraction(1, 6)), "listed 1/5 to 1/2"),
        (Ask(MEAN, Fraction(3, 5)), "listed 1/5 to 1/2"),
        (Ask(SUM, fifth, "additive"), "listed 1/2$"),
    ):
        budget = Budget(Listed((half, half), listed), PrivacyLoss.of(Fraction(1)))
        with pytest.raises(LocalError, match=why):
            budget.grant(unlisted)
        assert budget.asked == 0


def test_what_cannot_be_listed() -> None:
    half = Fraction(1, 2)
    with pytest.raises(LocalError, match="lists no question"):
        Budget(Listed((half,)), PrivacyLoss.of(Fraction(1)))
    budget = Budget(Listed((half,), (ask(Fraction(3, 4)),)), PrivacyLoss.of(1))
    with pytest.raises(LocalError, match="declares 1/2 of ε and lists 3/4"):
        budget.rehearsal(ask(Fraction(3, 4)))


def test_a_rehearsal_foresees_the_whole_and_takes_nothing() -> None:
    budget = Budget(Declared((Fraction(1, 4), Fraction(3, 4))), PrivacyLoss.of(2, 1e-6))
    for _ in range(3):
        grant = budget.rehearsal(ask(Fraction(1, 4)))
        assert (grant.loss.epsilon, grant.later.epsilon) == (Fraction(1, 2), Fraction(3, 2))
    assert budget.grant(ask(Fraction(1, 4))) == grant


def test_what_samplers_cost_is_foreseen_where_no_delta_is_granted() -> None:
    shares = (Fraction(1, 4), Fraction(1, 4), Fraction(1, 2))
    for granted, later in ((0.0, [2e-12, 1e-12, 0.0]), (1e-6, [7.5e-7, 5e-7, 0.0])):
        budget = Budget(Declared(shares), PrivacyLoss.of(Fraction(1), granted))
        budget.foresee(1e-12)
        assert [budget.grant(ask(share)).later.written_delta for share in shares] == later


@pytest.mark.parametrize(
    "declared",
    [
        (),
        (Fraction(0),),
        (Fraction(-1), Fraction(1)),
        (Fraction(2, 3), Fraction(1, 2)),
        (Fraction(1, 10**6),) * (MAX_QUESTIONS + 1),
    ],
)
def test_what_cannot_be_declared(declared: tuple[Fraction, ...]) -> None:
    with pytest.raises(LocalError):
        Budget(Declared(declared), PrivacyLoss.of(Fraction(1)))


@pytest.mark.parametrize("share", [Fraction(0), Fraction(-1, 2), Fraction(3, 2)])
def test_what_is_no_share(share: Fraction) -> None:
    with pytest.raises(LocalError, match="share"):
        ask(share)


def test_without_noise_nothing_is_counted() -> None:
    budget = Budget(Declared((Fraction(1, 2),) * 2), PrivacyLoss.of(None, 1e-6))
    grant = budget.grant(ask(Fraction(1, 2)))
    assert not grant.loss.bounded
    assert grant.later == NO_LOSS
