"""Whoever cheats prio3 is named and left out, and the sum over the others is exact."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tallyroom.protocols.aggregation.contract import Bodies
from tallyroom.protocols.aggregation.exchange import Exchange
from tallyroom.protocols.aggregation.prio3.aggregator import Prio3
from tallyroom.protocols.aggregation.prio3.reports import reporting
from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.query import Query
from tallyroom.protocols.statistics.bounded import Bounded
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.vdaf.prio3 import NONCE_BYTES
from tallyroom.protocols.wire.messages import Message
from tests.protocols.aggregation.prio3_runs import (
    INVALID,
    LOWER,
    PARTIES,
    STATISTICS,
    UPPER,
    Spoil,
    exchange_about,
    exchange_of,
    name_of,
    one_each,
    one_hots,
    query_about,
    total_of,
    uneven_holdings,
    without,
)

# --- cheating with data ---


@pytest.mark.parametrize("servers", [2, 3])
@pytest.mark.parametrize("statistic", STATISTICS, ids=name_of)
def test_who_exaggerates_is_named_and_left_out(statistic: Bounded, servers: int) -> None:
    """Parties 1 and 3 put a thousand records at the bound into one report."""
    holdings = uneven_holdings(*statistic.bounds)
    query = query_about(statistic, servers, min_parties=4)
    total = total_of(exchange_about(query, holdings, liars=[1, 3]))
    honest = [0, 2, 4, 5]
    expected = query.plan.encode(holdings)[honest].sum(axis=0, dtype=np.uint64)
    assert total.vector.tolist() == expected.tolist()
    assert total.contributors.tolist() == honest
    assert total.records == holdings.counts[honest].sum()
    assert total.caught == ((1, INVALID), (3, INVALID))


TOP = 2**64 - 1
FALSE_ROWS = {
    "two ones": [1, 1, 0, 0],
    "none": [0, 0, 0, 0],
    "all": [1, 1, 1, 1],
    "two in one bin": [0, 2, 0, 0],
    "a thousand": [0, 0, 0, 1000],
    "minus one": [TOP, 0, 0, 0],
    "adds up to one": [2, TOP, 0, 0],
    "the ends of the ring": [2**63, 2**63 - 1, 1, 0],
}


@pytest.mark.parametrize("servers", [2, 3])
@pytest.mark.parametrize("name", FALSE_ROWS)
def test_a_vector_that_is_no_record_is_caught(name: str, servers: int) -> None:
    vectors = one_hots(4)
    vectors[2] = FALSE_ROWS[name]
    exchange = Exchange(Prio3(), one_each(4, servers))
    exchange.join(np.arange(PARTIES, dtype=np.uint32), vectors)
    exchange.run()
    check_caught(exchange, vectors)


def check_caught(
    exchange: Exchange, vectors: Vector, reason: str = INVALID, cheater: int = 2
) -> None:
    total = total_of(exchange)
    others = without(cheater)
    assert total.caught == ((cheater, reason),)
    assert total.contributors.tolist() == others.tolist()
    assert total.vector.tolist() == vectors[others].sum(axis=0, dtype=np.uint64).tolist()


# --- cheating with bytes ---


def places(query: Query) -> dict[str, tuple[int, int]]:
    """For parts of a report: the server, and one byte in that part."""
    prio3 = reporting(query).prio3
    shares = NONCE_BYTES + prio3.public_share_bytes
    proof = shares + prio3.circuit.encoded_length * prio3.field.width
    found = {
        "leader's measurement": (0, shares + 1),
        "leader's proof": (0, proof + 3),
        "helper's seed": (1, shares + 5),
        "last helper's seed": (query.servers - 1, shares + 5),
        "nonce at the leader": (0, 0),
        "nonce at the helper": (1, 0),
    }
    if prio3.joint:
        found |= {
            "leader's blind": (0, reporting(query).report_bytes(0) - 1),
            "helper's blind": (1, reporting(query).report_bytes(1) - 1),
            "helper's part at the leader": (0, NONCE_BYTES + 32),
            "leader's part at the helper": (1, NONCE_BYTES),
        }
    return found


@pytest.mark.parametrize("servers", [2, 3])
@pytest.mark.parametrize("place", places(one_each(4)))
def test_a_changed_byte_is_caught(place: str, servers: int) -> None:
    query = one_each(4, servers)
    server, byte = places(query)[place]

    def spoil(receiver: int, body: Bodies) -> Bodies:
        if receiver == server:
            body[0, byte] ^= 4
        return body

    vectors = one_hots(4)
    check_caught(exchange_of(query, vectors, 2, spoil), vectors)


def all_ones(receiver: int, body: Bodies) -> Bodies:
    """Field elements past the modulus, to the leader."""
    body[:, NONCE_BYTES:] = 255
    return body


def shuffled(receiver: int, body: Bodies) -> Bodies:
    body[:, NONCE_BYTES:] = np.random.default_rng(1).permuted(body[:, NONCE_BYTES:])
    return body


@pytest.mark.parametrize("spoil", [all_ones, shuffled])
@pytest.mark.parametrize("servers", [2, 3])
def test_nonsense_is_caught(spoil: Spoil, servers: int) -> None:
    vectors = one_hots(4)
    check_caught(exchange_of(one_each(4, servers), vectors, 2, spoil), vectors)


@pytest.mark.parametrize("whole", [True, False])
def test_a_replayed_report_is_laid_at_the_door_of_who_came_later(whole: bool) -> None:
    """Party 2 sends again what party 0 sent, to every server; or its nonce alone."""
    stolen: dict[int, Bodies] = {}

    def way(message: Message) -> tuple[Message, ...]:
        server = int(message.receivers[0])
        if message.senders.tolist() == [0]:
            stolen[server] = message.body
        if message.senders.tolist() != [2]:
            return (message,)
        body = message.body.copy()
        end = None if whole else NONCE_BYTES
        body[:, :end] = stolen[server][:, :end]
        return (replace(message, body=body),)

    vectors = one_hots(4)
    exchange = Exchange(Prio3(), one_each(4), way=way)
    for party in range(PARTIES):
        exchange.join(np.array([party], dtype=np.uint32), vectors[party : party + 1])
    exchange.run()
    check_caught(exchange, vectors, "its submission repeats one of its own or of another party")


@pytest.mark.parametrize("change", [{"nonce": b"run-0002"}, {"data": "other"}, {"min_parties": 4}])
def test_a_report_made_for_another_run_or_query_does_not_verify(change: dict[str, Any]) -> None:
    """Party 2 sends what it made for another; the widths are the same."""
    query = one_each(4)
    other = Exchange(Prio3(), replace(query, **change))
    vectors = one_hots(4)
    other.join(np.array([2], dtype=np.uint32), vectors[2:3])
    made = {int(message.receivers[0]): message.body for message in other.sent_by_parties}
    exchange = exchange_of(query, vectors, 2, lambda receiver, _: made[receiver])
    check_caught(exchange, vectors)


def reports_of(message: Message, count: int) -> Bodies:
    return message.body.reshape(message.links, count, -1)


@pytest.mark.parametrize("servers", [2, 3])
@pytest.mark.parametrize("only", [None, 0, 1])
@pytest.mark.parametrize("kept", [[0], [0, 1, 1], []], ids=["fewer", "one twice", "none"])
def test_other_numbers_of_reports_than_records_are_caught(
    kept: list[int], only: int | None, servers: int
) -> None:
    """Party 2 holds two records; it sends other numbers of reports to one server or to all."""
    statistic = Histogram(lower=LOWER, upper=UPPER, bins=5)
    holdings = uneven_holdings(*statistic.bounds)
    query = query_about(statistic, servers)

    def way(message: Message) -> tuple[Message, ...]:
        if 2 not in message.senders or only not in (None, int(message.receivers[0])):
            return (message,)
        cheating = message.senders == 2
        chosen = message.select(np.flatnonzero(cheating))
        others = message.select(np.flatnonzero(~cheating))
        body = reports_of(chosen, 2)[:, kept].reshape(1, -1)
        return (replace(chosen, body=body), others)

    exchange = Exchange(Prio3(), query, way=way, records=holdings.counts.astype(np.int64))
    exchange.enter(holdings.ids, Prio3().party(query, holdings, exchange.randomness))
    exchange.expire()
    assert exchange.total is not None
    expected = query.plan.encode(holdings)[without(2)].sum(axis=0, dtype=np.uint64)
    assert exchange.total.vector.tolist() == expected.tolist()
    assert [party for party, _ in exchange.total.caught] == [2]


def test_one_false_record_of_many_costs_a_party_all_of_them() -> None:
    statistic = Histogram(lower=LOWER, upper=UPPER, bins=5)
    holdings = uneven_holdings(*statistic.bounds)
    query = query_about(statistic)

    def way(message: Message) -> tuple[Message, ...]:
        body = message.body.copy()
        if message.receivers.tolist() == [1] and 5 in message.senders:
            last = np.flatnonzero(message.senders == 5)
            body[last, -1] ^= 1  # in the third of three reports
        return (replace(message, body=body),)

    exchange = Exchange(Prio3(), query, way=way, records=holdings.counts.astype(np.int64))
    exchange.enter(holdings.ids, Prio3().party(query, holdings, exchange.randomness))
    exchange.run()
    total = total_of(exchange)
    assert total.caught == ((5, INVALID),)
    expected = query.plan.encode(holdings)[:5].sum(axis=0, dtype=np.uint64)
    assert total.vector.tolist() == expected.tolist()
    assert total.records == holdings.counts[:5].sum()


def test_too_many_cheaters_fail_the_run_with_their_names() -> None:
    vectors = one_hots(4)
    vectors[[1, 4]] = 0
    exchange = Exchange(Prio3(), one_each(4))
    exchange.join(np.arange(PARTIES, dtype=np.uint32), vectors)
    exchange.run()
    assert exchange.total is None
    assert exchange.failed is not None
    assert exchange.failed.reason == (
        "only 4 of 6 parties sent a submission that verifies and 5 are needed; "
        "caught: party-1, party-4"
    )
