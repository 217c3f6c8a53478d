"""The coordinator: who is here, what may be asked, and questions as text."""

import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.privacy.ledger import Filter, LedgerRefusal
from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.run.receipts import Receipt, request_digest
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.protocols.statistics.on_demand import EcdfPoints
from tallyroom.protocols.wire.messages import Message, Phase, Role, time_of
from tallyroom.servers.coordinator import Coordinator
from tallyroom.storage.ledger import Ledger
from tests.samples import a_message, a_query

QUESTION = Question(Mean(lower=0.0, upper=1.0), "additive", Fraction(1), Placement.EACH_SERVER)


def ids(*numbers: int) -> np.typing.NDArray[np.uint32]:
    return np.array(numbers, dtype=np.uint32)


def coordinator(parties: int = 3, cap: Fraction | None = None) -> Coordinator:
    return Coordinator(
        2, parties, Ledger(None, Filter.of(cap)), Randomness.from_seed(1, "coordinator")
    )


def test_parties_come_and_go() -> None:
    desk = coordinator()
    desk.enrol(ids(0, 2), ids(3, 1))
    assert desk.enrolled == 2
    desk.enrol(ids(0), ids(4))
    assert desk.enrolled == 2
    desk.leave(ids(2))
    assert desk.enrolled == 1


@pytest.mark.parametrize(
    ("who", "records"),
    [((), ()), ((0,), ()), ((0,), (0,)), ((0, 1), (1,)), ((3,), (1,)), ((2**31,), (1,))],
)
def test_impossible_parties_do_not_join(who: tuple[int, ...], records: tuple[int, ...]) -> None:
    desk = coordinator()
    with pytest.raises(LocalError):
        desk.enrol(ids(*who), ids(*records))
    assert desk.enrolled == 0


def test_servers_are_told_not_to_wait_for_those_that_are_not_here() -> None:
    desk = coordinator()
    desk.enrol(ids(0, 2), ids(3, 1))
    query = desk.query(Question(**{**QUESTION.__dict__, "min_parties": 2}))
    messages = desk.ask(query).messages
    assert [message.phase for message in messages] == [Phase.QUERY] * 3 + [Phase.EXCUSE] * 2
    assert messages[-1].body.tobytes() == np.packbits([False, True, False]).tobytes()


def test_a_party_that_is_back_is_not_excused() -> None:
    desk = coordinator()
    desk.enrol(ids(0, 1, 2), ids(3, 1, 1))
    query = desk.query(QUESTION)
    desk.ask(query)
    desk.leave(ids(1, 2))
    desk.enrol(ids(2), ids(1))
    (message, _) = desk.excuse_absent(query.run).messages
    assert message.body.tobytes() == np.packbits([False, True, False]).tobytes()
    desk.enrol(ids(1), ids(1))
    assert not desk.excuse_absent(query.run).messages


def test_nobody_here_is_no_run() -> None:
    with pytest.raises(RunFailed, match="no party is here"):
        coordinator().query(QUESTION)


def test_the_unit_of_privacy_sets_the_records_per_unit() -> None:
    desk = coordinator()
    desk.enrol(ids(0, 1, 2), ids(3, 1, 5))
    assert desk.query(QUESTION).records_per_unit == 1
    assert desk.query(Question(**{**QUESTION.__dict__, "unit": "party"})).records_per_unit == 5
    assert desk.query(QUESTION).records == 9


def test_the_coordinators_own_cap_holds_before_anybody_is_asked() -> None:
    desk = coordinator(cap=Fraction(1, 2))
    desk.enrol(ids(0, 1, 2), ids(1, 1, 1))
    with pytest.raises(LedgerRefusal, match=r"0\.5 of 0\.5 is left"):
        desk.query(QUESTION)


def test_a_coordinator_is_not_asked() -> None:
    body = a_query().encode()
    question = a_message(Phase.QUERY, Role.COORDINATOR, Role.COORDINATOR, body=body)
    (refusal,) = coordinator().handle(question).refused
    assert "it is not asked" in refusal.reason


def test_questions_go_round() -> None:
    for epsilon in (None, Fraction(1, 3)):
        asked = Question(
            **{**QUESTION.__dict__, "epsilon": epsilon, "min_parties": 2, "deadline": 9.0}
        )
        assert Question.decode(asked.encode()) == asked


def text(**changes: Any) -> str:
    return json.dumps(json.loads(QUESTION.encode()) | changes)


def test_a_deadline_that_never_passes_is_refused_before_anybody_waits() -> None:
    for deadline in (float("nan"), float("inf"), 10**6):
        with pytest.raises(LocalError, match="deadline"):
            Question.decode(text(deadline=deadline))


@pytest.mark.parametrize(
    "question",
    [
        "",
        "null",
        "[]",
        "{}",
        "{",
        "[" * 100_000,
        text(surprise=1),
        text(statistic="maen"),
        text(statistic=[]),
        text(parameters={"lower": 10**400}),
        text(parameters=None),
        text(epsilon="1e999999999"),
        text(epsilon=1),
        text(epsilon=None),
        text(noise="nowhere"),
        text(min_parties="all"),
        text(min_parties=1.5),
        text(min_parties=True),
        text(deadline="soon"),
        text(deadline=None),
        text(deadline=10**400),
        text(deadline=float("nan")),
        text(deadline=float("inf")),
        text(deadline=0),
        text(aggregator=7),
        text(data=None),
        text(unit=[]),
        text(key=3),
    ],
)
def test_malformed_questions(question: str) -> None:
    desk = coordinator()
    desk.enrol(ids(0, 1, 2), ids(1, 1, 1))
    with pytest.raises(LocalError):
        desk.query(Question.decode(question))


def test_a_party_cannot_claim_more_records_than_any_question_is_about() -> None:
    desk = coordinator()
    with pytest.raises(LocalError, match="at most"):
        desk.enrol(ids(0), ids(2**32 - 1))
    assert desk.enrolled == 0


def test_a_key_is_of_one_question() -> None:
    desk = coordinator()
    desk.enrol(ids(0, 1, 2), ids(1, 1, 1))
    asked = Question(**{**QUESTION.__dict__, "key": "ours"})
    query = desk.query(asked)
    desk.ask(query)
    desk.enrol(ids(1), ids(7))  # the same question, though a party has more records by now
    assert desk.query(asked) == query
    for field, value in {"epsilon": Fraction(2), "min_parties": 2, "deadline": 9.0}.items():
        with pytest.raises(LocalError, match="another question was asked under this key"):
            desk.query(Question(**{**asked.__dict__, field: value}))


def test_questions_without_a_key_have_names_that_never_come_again() -> None:
    """Also after a restart, with the same secret; under a seed they are the seed's."""

    def names(seeded: bool) -> list[bytes]:
        ledger, secret = Ledger(None), Randomness.from_seed(1, "coordinator")
        desk = Coordinator(2, 3, ledger, secret, seeded=seeded)
        return [desk.named(desk.keyed(QUESTION).key) for _ in range(3)]

    assert len({*names(False), *names(False)}) == 6
    assert names(True) == names(True)


def test_runs_are_numbered_by_time_and_told_apart_by_key() -> None:
    desk = coordinator()
    desk.enrol(ids(0, 1, 2), ids(1, 1, 1))
    first = desk.query(replace(QUESTION, key="first"), 7)
    desk.ask(first)
    assert desk.last_time == time_of(first.nonce) == 7
    second = desk.query(replace(QUESTION, key="second"), 7)
    assert time_of(second.nonce) == 7
    assert second.nonce != first.nonce
    assert desk.query(replace(QUESTION, key="first"), 9) == first  # the same question and key
    desk.withdraw(first.run)
    assert time_of(desk.query(replace(QUESTION, key="first"), 9).nonce) == 9


def test_only_a_share_of_the_points_that_were_asked_last_is_taken() -> None:
    """A server that is back says again what it said before, in as many bytes."""
    made = coordinator()
    made.enrol(ids(0, 1, 2), np.array([1, 1, 1], dtype=np.uint32))
    points = EcdfPoints(lower=0.0, upper=1.0, at=(0.5,))
    question = Question(points, "fss", Fraction(1), Placement.EACH_SERVER, key="k")
    query = made.query(question)
    release = np.packbits(np.ones(3, dtype=bool)).tobytes()
    made.releases.remember(b"k", query, made.data, ids(0, 1, 2))
    asked = made.ask(made.query(replace(question, key="again"))).messages
    (ask,) = {message.body[0].tobytes() for message in asked if message.phase is Phase.ASK}

    def share(request: bytes) -> Message:
        receipt = Receipt(query.run, 0, request, bytes(32), PrivacyLoss.of(1)).encode()
        body = receipt + bytes(8)
        return a_message(Phase.SHARE, Role.SERVER, Role.COORDINATOR, body=body, run=query.run)

    for request in (request_digest(release, bytes(8)), request_digest(release), bytes(32)):
        (refusal,) = made.handle(share(request)).refused
        assert refusal.reason == "a share of other points than were asked last"
    assert made.handle(share(request_digest(release, ask))).refused == []
