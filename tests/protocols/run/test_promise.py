"""What weakens a promise is said with every answer, on the screen and in the result, whether
somebody chose it or the number of records did."""

from fractions import Fraction
from typing import Any

import pytest

from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.run.promise import NO_NOISE, concessions, promise_of, together
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.statistics.choices import Mode
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.protocols.statistics.on_demand import EcdfPoints
from tallyroom.simulation import Federation
from tests.conftest import Tally
from tests.samples import NONCE

UNIT: dict[str, Any] = {"lower": 0.0, "upper": 1.0}
CURVE = Ecdf(**UNIT, thresholds=1024)
KEYS = "keys are not checked: a party may upload one that counts twice"
MILLION = 10**6


def settled(
    statistic: Any, spec: str, noise: Placement, servers: int = 2, records: int = 100, **more: Any
) -> Query:
    question = Question(statistic, spec, more.pop("epsilon", Fraction(1)), noise, **more)
    return question.query(NONCE, 20, servers, records, records // 20)


EACH, JOINT = Placement.EACH_SERVER, Placement.JOINT
WEAKER: dict[str, tuple[Query, str]] = {
    "a million records": (settled(CURVE, "fss", EACH, records=MILLION), KEYS),
    "three servers": (settled(CURVE, "fss", EACH, servers=3), KEYS),
    "unchecked as asked": (settled(CURVE, "fss?verified=no", EACH), KEYS),
    "on demand": (settled(EcdfPoints(**UNIT, at=(0.5,)), "fss", EACH), KEYS),
    "a choice by keys": (settled(Mode(**UNIT, bins=8), "fss", JOINT), KEYS),
    "few neighbours": (
        settled(Mean(**UNIT), "masking?neighbours=4", Placement.CURATOR, servers=1),
        "each party has 4 neighbours, where 19 are safe",
    ),
    "no noise": (settled(Mean(**UNIT), "additive", EACH, epsilon=None), NO_NOISE),
}
AS_STRONG_AS_CAN_BE = (
    settled(Mean(**UNIT), "additive", JOINT),
    settled(CURVE, "fss", EACH),
    settled(CURVE, "fss", EACH, records=1000),
    settled(Mean(**UNIT), "additive", EACH),
    settled(Mean(**UNIT), "masking", Placement.CURATOR, servers=1),
    settled(Mean(**UNIT), "masking?neighbours=0", Placement.CURATOR, servers=1),
)


@pytest.mark.parametrize("name", WEAKER)
def test_what_weakens_a_promise_is_part_of_it(name: str) -> None:
    query, words = WEAKER[name]
    assert any(words in each for each in concessions(query))
    promise = promise_of(query)
    assert promise.concessions == concessions(query)
    assert promise.as_json()["concessions"] == list(promise.concessions)
    whole = together([("one", promise), ("two", promise_of(AS_STRONG_AS_CAN_BE[0]))])
    assert whole.concessions == promise.concessions


@pytest.mark.parametrize("query", AS_STRONG_AS_CAN_BE, ids=lambda query: query.aggregator)
def test_a_promise_that_nothing_weakens_concedes_nothing(query: Query) -> None:
    assert concessions(query) == ()
    assert "concessions" not in promise_of(query).as_json()


def test_it_is_in_the_result_and_among_its_notes() -> None:
    with Federation(3, 3, "fss", data="synthetic:scores?n=12") as federation:
        document: Any = federation.run(Ecdf(value="score", thresholds=8), 1).as_json()
    (said,) = document["privacy"]["concessions"]
    assert said.startswith(KEYS)
    assert said in document["notes"]


def test_it_is_on_the_screen(tally_here: Tally) -> None:
    done = tally_here(
        *("run", "ecdf", "--data", "synthetic:scores?n=12", "--parties", "3", "--servers", "3"),
        *("--aggregator", "fss", "--thresholds", "8"),
    )
    assert done.returncode == 0
    assert KEYS in " ".join((done.stderr + done.stdout).split())
