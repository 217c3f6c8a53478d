"""Results of every statistic and every study: verifying finds out whatever is changed in them."""

import json
from typing import Any

import pytest

from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.on_demand import OnDemand
from tallyroom.protocols.statistics.pairwise import Pairs
from tallyroom.simulation import Federation
from tests.every_statistic import EVERY, put, records
from tests.simulation.changed_results import check_every_change
from tests.simulation.every_study import DATA, STUDIES

PARTIES = 4
CHANGES, SLOW = 60, 10
"""Drawn of a hundred to several hundred, for each; fewer where reading an answer takes long."""


def document_of(
    asked: Any, epsilon: int, about: tuple[int, int, str], data: Any, **how: Any
) -> dict[str, Any]:
    with Federation(*about, data=data) as federation:
        result = federation.run(asked, epsilon, **how)
    document: dict[str, Any] = json.loads(json.dumps(result.as_json()))
    return document


@pytest.mark.parametrize("statistic", EVERY, ids=lambda each: each.name)
def test_a_result_of_any_statistic(statistic: Statistic) -> None:
    parties = 2 if isinstance(statistic, Pairs) else PARTIES
    servers, question = put(statistic)
    document = document_of(
        statistic,
        1,
        (parties, servers, question.aggregator),
        records(parties).columns,
        noise=question.noise,
    )
    most = SLOW if isinstance(statistic, OnDemand) else CHANGES
    assert check_every_change(document, most=most) > CHANGES


@pytest.mark.parametrize("name", STUDIES)
def test_a_result_of_any_study(name: str) -> None:
    curated = "by a curator" in name or "by objective" in name
    about = (3, 1, "curator") if curated else (3, 2, "additive")
    document = document_of(STUDIES[name], 500, about, DATA, delta=1e-4)
    assert check_every_change(document, ("study.parameters",), most=CHANGES) > CHANGES
