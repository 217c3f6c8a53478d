"""Comparison keys as an aggregator: exact counts, and bad keys refused by their sender's name."""

from dataclasses import replace

import numpy as np
import pytest

from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.aggregation.contract import Memory
from tallyroom.protocols.aggregation.one_round import SummingServer
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import deal
from tallyroom.protocols.statistics import Curve
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.protocols.statistics.release import Release
from tallyroom.protocols.wire.machine import Continue, Done, Rejected
from tallyroom.protocols.wire.messages import Message
from tests.protocols.aggregation.fss_samples import (
    PARTIES,
    PLAIN,
    a_query,
    release,
    some_holdings,
    submissions,
)

KEYS, FINE_KEYS = "fss?verified=no", "fss?domain=fine&verified=no"


def a_server(query: Query, index: int) -> SummingServer:
    machine = PLAIN.server(query, index, Randomness.from_seed(2, f"server-{index}"), Memory())
    assert isinstance(machine, SummingServer)
    return machine


def counted(
    query: Query, messages: tuple[Message, ...], members: np.typing.NDArray[np.bool]
) -> Curve:
    total = np.zeros(query.plan.length, dtype=np.uint64)
    for index in range(query.servers):
        server = a_server(query, index)
        for message in messages:
            if int(message.receivers[0]) == index:
                assert isinstance(server.receive(message), Continue)
        if server.state.name == "COLLECTING":
            server.expire()
        step = server.receive(release(query, members))
        assert isinstance(step, Continue)
        total += step.messages[0].body[0].view("<u8")
    records = int(some_holdings().counts[members].sum())
    answer = query.statistic.read(Release(query.plan, total, records, None)).estimate
    assert isinstance(answer, Curve)
    return answer


@pytest.mark.parametrize("servers", [2, 3, 4])
def test_counts_equal_the_truth(servers: int) -> None:
    query, holdings = a_query(servers), some_holdings()
    everyone = np.ones(PARTIES, dtype=bool)
    assert counted(query, submissions(query, holdings), everyone) == query.statistic.reference(
        holdings
    )


@pytest.mark.parametrize("servers", [2, 3])
def test_parties_that_are_left_out_do_not_count(servers: int) -> None:
    query, holdings = a_query(servers), some_holdings()
    members = np.array([True, False, True, True, False, True, True])
    kept = np.repeat(members, holdings.counts)
    remaining = deal({"value": holdings.column("value")[kept]}, 1)
    answer = counted(query, submissions(query, holdings), members)
    assert answer == query.statistic.reference(remaining)


def test_a_party_sends_the_same_keys_in_any_block() -> None:
    query, holdings = a_query(), some_holdings()
    together = {}
    for message in submissions(query, holdings):
        for single in message.split():
            together[int(single.senders[0]), int(single.receivers[0])] = single.encode()
    for block in holdings.blocks(PARTIES):
        for single in submissions(query, block):
            assert together[int(single.senders[0]), int(single.receivers[0])] == single.encode()


def test_uploads_grow_by_a_level_where_thresholds_double_and_pointwise_doubles() -> None:
    sizes = {}
    for thresholds in (16, 64, 1024):
        statistic = Ecdf(lower=0.0, upper=1.0, thresholds=thresholds)
        for name in (KEYS, FINE_KEYS, "additive"):
            query = replace(a_query(statistic=statistic), aggregator=name)
            party = aggregator_named(name).party(query, some_holdings(), Randomness(bytes(16)))
            step = party.start()
            assert isinstance(step, Done)
            sizes[name, thresholds] = sum(m.links * m.charge for m in step.messages)
    fine = {sizes[FINE_KEYS, thresholds] for thresholds in (16, 64, 1024)}
    assert len(fine) == 1
    level = 2 * 24 * some_holdings().rows
    assert sizes[KEYS, 64] - sizes[KEYS, 16] == 2 * level
    assert sizes[KEYS, 1024] - sizes[KEYS, 64] == 4 * level
    assert fine.pop() - sizes[KEYS, 1024] == (32 - 10) * level
    growth = (sizes["additive", 1024] - sizes["additive", 64]) / (1024 - 64)
    assert growth == 8 * PARTIES


def tampered(message: Message, change: str) -> Message:
    body = message.body.copy()
    match change:
        case "truncated":
            body = body[:, :-1]
        case "trailing":
            body = np.hstack([body, np.zeros((len(body), 1), dtype=np.uint8)])
        case "empty":
            body = body[:, :0]
        case "header only":
            body = body[:, :16]
        case "version":
            body[:, 0] ^= 1
        case "domain":
            body[:, 1] ^= 1
        case "ring":
            body[:, 2] ^= 96
        case "control bits":
            body[:, 8] |= 3
        case "too many":
            keys = body[:, 8:]
            body = np.hstack([body[:, :8], keys, keys, keys, keys])
    return replace(message, body=body)


@pytest.mark.parametrize(
    "change",
    [
        "truncated",
        "trailing",
        "empty",
        "header only",
        "version",
        "domain",
        "ring",
        "control bits",
        "too many",
    ],
)
def test_a_bad_key_is_refused_by_name_and_the_rest_goes_on(change: str) -> None:
    query, holdings = a_query(), some_holdings()
    singles = [single for message in submissions(query, holdings) for single in message.split()]
    bad = next(m for m in singles if m.senders[0] == 4 and m.receivers[0] == 0)
    server = a_server(query, 0)
    step = server.receive(tampered(bad, change))
    assert isinstance(step, Rejected)
    assert step.sender == "party-4"
    for single in singles:
        if single.receivers[0] == 0:
            assert isinstance(server.receive(single), Continue)
    assert server.state.name == "CLOSED"


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (replace(a_query(), servers=1), "at least 2"),
        (replace(a_query(), statistic=Mean(lower=0.0, upper=1.0)), "cannot do mean"),
        (
            replace(
                a_query(statistic=Ecdf(lower=0.0, upper=1.0, strategy="tree")),
                noise=Placement.PARTIES,
                min_parties=PARTIES,
            ),
            "noise",
        ),
        (
            replace(a_query(statistic=Ecdf(lower=0.0, upper=1.0, thresholds=1 << 18)), servers=5),
            "",
        ),
    ],
)
def test_what_keys_cannot_do_is_said(query: Query, reason: str) -> None:
    if reason:
        with pytest.raises(LocalError, match=reason):
            PLAIN.check(query)
    else:
        PLAIN.check(query)
