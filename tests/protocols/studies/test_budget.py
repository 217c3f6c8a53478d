"""A study spends what it declared and no more, whatever it asks."""

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.errors import LocalError
from protocols.privacy.ledger import as_written
from protocols.statistics.moments import Mean
from protocols.studies.budget import MAX_QUESTIONS, Budget
from protocols.studies.contract import Ask, Finding, Steps, Study

MEAN = Mean(lower=0.0, upper=1.0)


@dataclass(frozen=True)
class Declared(Study):
    """Declares as it is told."""

    declared: tuple[Fraction, ...] = ()
    name: ClassVar[str] = "declared"

    def shares(self) -> tuple[Fraction, ...]:
        return self.declared

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
    budget = Budget(Declared(shares), epsilon, delta)
    grants = [budget.grant(ask(share)) for share in shares]
    spent = [grant.epsilon or Fraction(0) for grant in grants]
    assert sum(spent) == epsilon
    assert sum(as_written(grant.delta) for grant in grants) <= as_written(delta)
    for index, grant in enumerate(grants):
        assert grant.later_epsilon == sum(spent[index + 1 :])
        assert as_written(grant.delta) + as_written(grant.later_delta) <= as_written(delta)
    assert grants[-1].later_delta == 0


def test_a_study_that_asks_for_more_than_it_declared_gets_no_grant() -> None:
    half = Fraction(1, 2)
    for declared, asked in (
        ((half,), [half, Fraction(1, 100)]),  # one more question
        ((half,), [Fraction(51, 100)]),  # a larger share
        ((half, half), [Fraction(3, 4), half]),  # too much by and by
    ):
        budget = Budget(Declared(declared), Fraction(1), 0.0)
        *fine, last = asked
        for share in fine:
            budget.grant(ask(share))
        with pytest.raises(LocalError, match="more than it declared"):
            budget.grant(ask(last))


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
        Budget(Declared(declared), Fraction(1), 0.0)


@pytest.mark.parametrize("share", [Fraction(0), Fraction(-1, 2), Fraction(3, 2)])
def test_what_is_no_share(share: Fraction) -> None:
    with pytest.raises(LocalError, match="share"):
        ask(share)


def test_without_noise_nothing_is_counted() -> None:
    grant = Budget(Declared((Fraction(1, 2),) * 2), None, 1e-6).grant(ask(Fraction(1, 2)))
    assert grant.epsilon is None
    assert (grant.later_epsilon, grant.later_delta) == (Fraction(0), 0.0)
