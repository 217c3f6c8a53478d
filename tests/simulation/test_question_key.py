"""Who comes back with a key alone gets the answer to what was asked under it, or none."""

import dataclasses
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from tallyroom.protocols.errors import RunFailed
from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.simulation.asking import check_resumed, keyed

ASKED = Question(
    Histogram(lower=0, upper=1, bins=3), "additive", Fraction(1, 3), Placement.EACH_SERVER
)
OTHERS: dict[str, Any] = {
    "statistic": Histogram(lower=0.0, upper=1.0, bins=4),
    "aggregator": "curator",
    "epsilon": None,
    "noise": Placement.CURATOR,
    "data": "other",
    "unit": "party",
    "min_parties": 3,
    "deadline": 31.0,
    "delta": 1e-9,
    "later": PrivacyLoss.of(Fraction(1, 2), 1e-9),
    "fresh": True,
    "honest": 1,
    "law": "twofold",
    "rho": "1/50",
    "security": "covert",
}


def test_a_question_is_known_by_its_key_over_the_wire() -> None:
    for statistic in (ASKED.statistic, Ecdf(value="x", lower=0, upper=9)):
        question = keyed(replace(ASKED, statistic=statistic, deadline=50))
        told = Question.decode(question.encode())
        check_resumed(question.key, told)
        assert told == question


@pytest.mark.parametrize("field", sorted(f.name for f in dataclasses.fields(Question)))
def test_a_coordinator_cannot_pass_off_the_answer_to_another_question(field: str) -> None:
    question = keyed(ASKED)
    others = OTHERS | {"key": keyed(ASKED).key}
    with pytest.raises(RunFailed, match="not to what was asked"):
        check_resumed(question.key, replace(question, **{field: others[field]}))


def test_keys_do_not_repeat_and_of_a_chosen_one_only_the_name_is_known() -> None:
    assert keyed(ASKED).key != keyed(ASKED).key
    chosen = replace(ASKED, key="monday")
    check_resumed("monday", chosen)
    check_resumed("monday", replace(chosen, delta=1e-9))
    with pytest.raises(RunFailed):
        check_resumed("tuesday", chosen)
