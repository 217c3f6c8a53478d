"""A server decides for itself what it takes part in, whatever the coordinator says."""

import datetime as dt
import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tallyroom.protocols.identity.certificates import Authority, Identity
from tallyroom.protocols.identity.signing import SigningIdentity
from tallyroom.protocols.privacy.ledger import Filter
from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.protocols.query import Query, run_name
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.run.receipts import (
    RECEIPT_BYTES,
    Receipt,
    decode_receipt,
    request_digest,
    share_digest,
)
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.protocols.wire.loop import Reply
from tallyroom.protocols.wire.messages import Message, Phase, Role
from tallyroom.servers.aggregation_server import AggregationServer
from tallyroom.storage.ledger import Ledger
from tests.samples import NONCE, a_message, a_query, bitmap


def server(cap: Fraction | None = None, index: int = 0) -> AggregationServer:
    return AggregationServer(
        index, Ledger(None, Filter.of(cap)), Randomness.from_seed(1, "server-0")
    )


def question(query: Query, index: int = 0) -> Message:
    return a_message(
        Phase.QUERY,
        Role.COORDINATOR,
        Role.SERVER,
        receivers=(index,),
        body=query.encode(),
        run=query.run,
    )


def release(asked: AggregationServer, query: Query) -> Reply:
    """Everybody submits, then the coordinator asks for the release."""
    body = np.ones((query.parties, 8 * query.plan.length), dtype=np.uint8)
    everyone = tuple(range(query.parties))
    asked.handle(
        a_message(Phase.SUBMIT, Role.PARTY, Role.SERVER, everyone, body=body, run=query.run)
    )
    members = bitmap(query.parties, list(everyone))
    return asked.handle(
        a_message(Phase.RELEASE, Role.COORDINATOR, Role.SERVER, body=members, run=query.run)
    )


def test_more_than_the_servers_own_cap_is_refused_whatever_the_coordinator_holds() -> None:
    asked = server(cap=Fraction(1))
    first = a_query(epsilon=Fraction(3, 4))
    assert asked.handle(question(first)).refused == []
    assert [m.phase for m in release(asked, first).messages] == [Phase.SHARE]
    second = a_query(nonce=b"run-0002", epsilon=Fraction(1, 2), data="under another name")
    (refusal,) = asked.handle(question(second)).refused
    assert "epsilon 0.5 refused: 0.25 of 1 is left" in refusal.reason
    assert "unknown" in release(asked, second).refused[0].reason
    last = a_query(nonce=b"run-0003", epsilon=Fraction(1, 4))
    assert asked.handle(question(last)).refused == []


def test_two_runs_that_were_both_opened_cannot_both_be_released() -> None:
    """The check at the opening is a courtesy; the one at the release is the rule."""
    asked = server(cap=Fraction(1))
    queries = [a_query(nonce=f"run-000{i}".encode(), epsilon=Fraction(3, 4)) for i in (1, 2)]
    for query in queries:
        assert asked.handle(question(query)).refused == []
    assert len(release(asked, queries[0]).messages) == 1
    second = release(asked, queries[1])
    assert second.messages == []
    assert "0.25 of 1 is left" in second.refused[0].reason


def test_a_study_that_the_cap_cannot_hold_is_refused_at_its_first_question() -> None:
    asked = server(cap=Fraction(1))
    first = a_query(epsilon=Fraction(1, 4), later=PrivacyLoss.of(Fraction(4, 5)))
    (refusal,) = asked.handle(question(first)).refused
    assert "epsilon 1.05 refused: 1 of 1 is left" in refusal.reason
    assert "unknown" in release(asked, first).refused[0].reason
    again = a_query(nonce=b"run-0002", epsilon=Fraction(1, 4), later=PrivacyLoss.of(Fraction(3, 4)))
    assert asked.handle(question(again)).refused == []


def test_what_a_study_foresees_is_neither_charged_nor_kept_for_it() -> None:
    """Only releases are in the ledger: who says that more follows can block nobody."""
    asked = server(cap=Fraction(1))
    for number in range(3):
        nonce = f"run-001{number}".encode()
        held = a_query(nonce=nonce, epsilon=Fraction(1, 8), later=PrivacyLoss.of(Fraction(1, 2)))
        assert asked.handle(question(held)).refused == []
        assert len(release(asked, held).messages) == 1
    rest = a_query(nonce=b"run-0020", epsilon=Fraction(5, 8))
    assert asked.handle(question(rest)).refused == []
    assert len(release(asked, rest).messages) == 1


@pytest.mark.parametrize("foreseen", [Fraction(0), Fraction(1, 2)])
def test_a_claim_to_have_been_foreseen_opens_nothing(foreseen: Fraction) -> None:
    """Questions beyond what the first one foresaw, by a coordinator that says they follow from it:
    each has to fit under the cap by itself."""
    asked = server(cap=Fraction(1))
    first = a_query(epsilon=Fraction(1, 2), later=PrivacyLoss.of(foreseen))
    assert asked.handle(question(first)).refused == []
    assert len(release(asked, first).messages) == 1
    second = a_query(nonce=b"run-0002", epsilon=Fraction(3, 4))
    (refusal,) = asked.handle(question(second)).refused
    assert "0.5 of 1 is left" in refusal.reason


def test_an_answer_without_noise_is_refused_under_a_cap() -> None:
    (refusal,) = server(cap=Fraction(100)).handle(question(a_query())).refused
    assert "without noise is refused" in refusal.reason


@pytest.mark.parametrize(
    "changes",
    [
        {"aggregator": "aditive"},
        {"aggregator": "curator"},
        {"servers": 1},
        {"statistic": Mean(lower=0.0, upper=1.0), "epsilon": Fraction(1, 10**9)},
    ],
    ids=str,
)
def test_what_cannot_be_done_is_refused_before_parties_work_for_it(changes: dict[str, Any]) -> None:
    asked = server()
    query = a_query(**({"epsilon": Fraction(1)} | changes))
    (refusal,) = asked.handle(question(query)).refused
    assert refusal.sender == "coordinator"
    assert query.run not in asked.deadlines
    assert asked.handle(question(a_query())).refused == []


@pytest.mark.parametrize("bounds", [(None, None), (0.0, 1e-320), (1.0, 0.0)])
def test_bounds_that_nobody_can_compute_with_are_refused(
    bounds: tuple[float | None, float | None],
) -> None:
    """No query can be made of them: a coordinator that puts one writes it by hand."""
    honest = a_query(statistic=Mean(lower=0.0, upper=1.0))
    fields = json.loads(honest.encode())
    fields["parameters"] |= {"lower": bounds[0], "upper": bounds[1]}
    forged = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    message = a_message(
        Phase.QUERY,
        Role.COORDINATOR,
        Role.SERVER,
        body=forged,
        run=run_name(honest.nonce, forged),
    )
    (refusal,) = server().handle(message).refused
    assert refusal.sender == "coordinator"
    assert "bounds" in refusal.reason or "below" in refusal.reason


def test_a_server_is_among_those_that_are_asked() -> None:
    outside = server(index=2)
    (refusal,) = outside.handle(question(a_query(), index=2)).refused
    assert "server-2 is not among 2 servers" in refusal.reason
    assert "elsewhere" in outside.handle(question(a_query(), index=0)).refused[0].reason


def test_the_deadline_is_the_querys() -> None:
    asked, query = server(), a_query(deadline=7.5)
    asked.handle(question(query))
    assert asked.deadlines == {query.run: 7.5}


def test_runs_and_servers_draw_noise_of_their_own() -> None:
    def noise(nonce: bytes, seed_role: str) -> list[int]:
        asked = AggregationServer(0, Ledger(None), Randomness.from_seed(1, seed_role))
        query = a_query(nonce=nonce, epsilon=Fraction(1, 100))
        asked.handle(question(query))
        (share,) = release(asked, query).messages
        drawn: list[int] = share.body[0, RECEIPT_BYTES:].view("<i8").tolist()
        return drawn

    drawn = [noise(NONCE, "server-0"), noise(b"run-0002", "server-0"), noise(NONCE, "server-1")]
    assert len({tuple(each) for each in drawn}) == 3
    assert noise(NONCE, "server-0") == drawn[0]


def test_a_run_that_was_released_is_not_begun_anew_though_it_was_forgotten() -> None:
    """It would draw the same noise, and could be told to release over other parties."""
    ledger = Ledger(None)
    query = a_query(epsilon=Fraction(1), min_parties=1)
    first = AggregationServer(0, ledger, Randomness.from_seed(1, "server-0"))
    first.handle(question(query))
    assert release(first, query).messages
    again = AggregationServer(0, ledger, Randomness.from_seed(1, "server-0"))
    (refusal,) = again.handle(question(query)).refused
    assert refusal.reason == f"run {query.nonce.hex()} was released before"
    again.replaying = True
    assert again.handle(question(query)).refused == []
    ledger.close()


@pytest.mark.parametrize(
    "first",
    [
        a_query(epsilon=Fraction(1), min_parties=1),
        a_query(
            statistic=Ecdf(value="value", lower=0.0, upper=1.0, thresholds=4),
            epsilon=Fraction(1),
            min_parties=1,
        ),
    ],
)
def test_nor_under_another_name_that_has_the_same_noise(first: Query) -> None:
    """Names are forgotten once there are very many of them; what was released is not."""
    others = [replace(first, deadline=first.deadline + 1)]
    if isinstance(first.statistic, Ecdf):
        others.append(replace(first, statistic=replace(first.statistic, smooth="2")))
    ledger = Ledger(None)
    asked = AggregationServer(0, ledger, Randomness.from_seed(1, "server-0"))
    asked.handle(question(first))
    assert release(asked, first).messages
    for other in others:
        assert other.run != first.run
        assert other.stream == first.stream
        again = AggregationServer(0, ledger, Randomness.from_seed(1, "server-0"))
        (refusal,) = again.handle(question(other)).refused
        assert refusal.reason == f"run {first.nonce.hex()} was released before"
    fresh = replace(first, nonce=b"run-0002")
    assert asked.handle(question(fresh)).refused == []
    ledger.close()


def test_a_receipt_says_what_the_ledger_has_and_covers_the_share() -> None:
    members = Authority.create("members", dt.datetime.now(dt.UTC), dt.timedelta(days=1))
    held = members.issue(Identity(Role.SERVER, 0, 0), dt.datetime.now(dt.UTC), dt.timedelta(days=1))
    ledger = Ledger(None)
    asked = AggregationServer(
        0, ledger, Randomness.from_seed(1, "s"), signing=SigningIdentity.of(held)
    )
    query = a_query(epsilon=Fraction(1, 3))
    asked.handle(question(query))
    (share,) = release(asked, query).messages
    body = share.body[0].tobytes()
    receipt = decode_receipt(query.run, 0, body[:RECEIPT_BYTES])
    receipt.check_signature(held.certificate, members.pem)
    assert receipt.share == share_digest([body[RECEIPT_BYTES:]])
    assert receipt.request == request_digest(bitmap(4, [0, 1, 2, 3]))
    ((_, _, epsilon, delta, _),) = ledger.rows()
    assert (epsilon, delta) == ("1/3", 0.0)
    assert receipt.loss == PrivacyLoss.read(epsilon, delta)
    ledger.close()


def test_what_a_ledger_lacks_is_not_made_good_by_another_receipt() -> None:
    asked = server()
    query = a_query(epsilon=Fraction(1, 2))
    asked.handle(question(query))
    release(asked, query)
    lost = bytes(len(query.run))
    for run in (lost, query.run):
        asked.shown(Receipt(run, 0, bytes(32), bytes(32), query.loss))
    asked.shown(Receipt(query.run, 0, bytes(32), bytes(32), PrivacyLoss.of(0)))
    (refusal,) = asked.handle(question(a_query(nonce=b"run-0002"))).refused
    assert f"its ledger lacks run {lost.hex()}" in refusal.reason
