"""No study fails half-way for what could be known before its first question.

Every installed study is put to every aggregator, with one to three servers and for either unit of
privacy: it is refused while all ledgers are empty, or comes to its end within the ε that was asked.
"""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tallyroom.protocols.aggregation import aggregator_names
from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.run.policy import Policy, parse_policy
from tallyroom.protocols.statistics.ecdf import Quantile
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.protocols.studies import study_names
from tallyroom.protocols.studies.contract import Study
from tallyroom.protocols.studies.hosmer_lemeshow import HosmerLemeshow
from tallyroom.protocols.studies.private_bounds import PrivateBounds
from tallyroom.protocols.studies.quantile_search import QuantileSearchStudy
from tallyroom.simulation.federation import Federation
from tests.simulation.every_study import DATA, STUDIES

EPSILON = Fraction(4)
ENDED, REFUSED, GAVE_UP = "ended", "refused", "gave up"
GIVING_UP = (
    "no bounds were found",
    "the scores are in",
    "noise leaves no",
    "the private mean is",
    "no cell is above the threshold",
    "no synthetic row is of a class",
    "the noise is too large for a plot",
)
"""What answers alone can tell, and nobody before."""


def spent(federation: Federation) -> list[Fraction]:
    """By every ledger of the federation."""
    ledgers = federation.runtime._ledgers  # type: ignore[attr-defined]
    return [sum((Fraction(row[2]) for row in ledger.rows()), Fraction(0)) for ledger in ledgers]


def outcome(study: Study | Quantile, **about: Any) -> str:
    how = {"unit": about.pop("unit", "record"), "noise": about.pop("noise", None)}
    try:
        federation = Federation(parties=3, data=DATA, seed=5, **about)
    except LocalError:
        return REFUSED  # nobody has so many servers
    with federation:
        federation.start()
        found, reason = ENDED, ""
        try:
            federation.run(study, epsilon=EPSILON, delta=1e-4, deadline=5, **how)
        except LocalError as error:
            found, reason = REFUSED, str(error)
        except RunFailed as error:
            found, reason = GAVE_UP, str(error)
        charged = spent(federation)
    if found is REFUSED:
        assert set(charged) == {0}, reason
    elif found is GAVE_UP:
        assert any(words in reason for words in GIVING_UP), reason
    assert max(charged) <= EPSILON
    assert max(charged) > 0 or found is REFUSED
    return found


@pytest.mark.parametrize("aggregator", aggregator_names())
@pytest.mark.parametrize("name", STUDIES)
def test_a_study_ends_or_is_refused_before_anything_is_spent(name: str, aggregator: str) -> None:
    found = [
        outcome(STUDIES[name], aggregator=aggregator, servers=servers, unit=unit)
        for servers in (1, 2, 3)
        for unit in ("record", "party")
    ]
    if aggregator == "additive" and "by a curator" not in name and "by objective" not in name:
        assert set(found[2:4]) <= {ENDED, GAVE_UP}  # two servers can do all that needs no curator


@pytest.mark.parametrize("aggregator", aggregator_names())
@pytest.mark.parametrize("name", STUDIES)
def test_wherever_the_noise_is_drawn(name: str, aggregator: str) -> None:
    """Among two servers, or three where they share it."""
    found = [
        outcome(
            STUDIES[name],
            aggregator=aggregator,
            servers=3 if noise is Placement.SHARED else 2,
            noise=noise,
        )
        for noise in Placement
    ]
    assert len(found) == len(Placement)


def test_every_installed_study_is_here() -> None:
    names = {study.name for study in STUDIES.values()}
    assert set(study_names()) <= names


def refused(study: Study, match: str, **about: Any) -> None:
    with Federation(parties=3, seed=5, **({"data": DATA} | about)) as federation:
        federation.start()
        with pytest.raises(LocalError, match=match):
            federation.run(study, epsilon=EPSILON)
        assert set(spent(federation)) == {0}


@pytest.mark.parametrize("aggregator", ["fss", "prio3"])
def test_a_second_question_that_the_aggregator_cannot_do(aggregator: str) -> None:
    refused(STUDIES["hosmer-lemeshow"], aggregator, aggregator=aggregator)  # type: ignore[arg-type]


def test_a_second_question_that_the_policy_of_parties_does_not_allow() -> None:
    policy = Policy(statistics=frozenset({"magnitudes"}))
    refused(PrivateBounds(Mean()), "would not answer mean: its policy", policy=policy)


def test_a_second_question_that_is_too_dear_for_the_policy_of_parties() -> None:
    policy = parse_policy("epsilon_per_question = 2.0")  # the first takes a fifth of 4
    refused(PrivateBounds(Mean()), r"epsilon 2 per question, not 3\.2", policy=policy)


def test_scores_that_are_no_probabilities() -> None:
    refused(HosmerLemeshow(groups=3), "not probabilities", data=DATA | {"score": DATA["score"] + 1})


def test_halves_that_doubles_cannot_tell_apart() -> None:
    high = {"value": np.full(6, 1e16)}
    study = QuantileSearchStudy(lower=1e16, upper=1e16 + 8, halvings=8)
    refused(study, "nothing left to halve", data=high)
