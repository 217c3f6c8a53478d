"""Servers and collector of checked keys: whom they hear, when, and how they find a bad key."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from tallyroom.protocols.aggregation.contract import Memory
from tallyroom.protocols.aggregation.fss.prints import FAN, Prints, different, parts, single
from tallyroom.protocols.aggregation.fss.verified_keys import challenge
from tallyroom.protocols.aggregation.fss.verified_server import SERVER_STAGES, STEP, VerifiedServer
from tallyroom.protocols.aggregation.verifying_collector import COLLECTOR_STAGES, CollectorStage
from tallyroom.protocols.aggregation.verifying_server import VerifyingStage
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.wire.machine import Continue, Failed, Rejected
from tallyroom.protocols.wire.messages import Message, Phase, Role, address, body_of
from tests.protocols.aggregation.fss_verified_runs import (
    FSS,
    PARTIES,
    Spoil,
    query_about,
    some_holdings,
    spoiled,
    twice,
)


def closed_servers(
    holdings: Holdings, query: Query, spoil: Spoil | None = None
) -> tuple[list[VerifiedServer], list[Message]]:
    """Both servers with all keys, and what they say to each other then."""
    way = spoiled([4], spoil) if spoil else lambda m: (m,)
    party = FSS.party(query, holdings, Randomness.from_seed(1, "parties")).start()
    servers, between = [], []
    for index in (0, 1):
        server = FSS.server(query, index, Randomness.from_seed(1, f"server-{index}"), Memory())
        assert isinstance(server, VerifiedServer)
        for message in party.messages:  # type: ignore[union-attr]
            for one in way(message):
                if int(one.receivers[0]) == index:
                    step = server.receive(one)
                    assert isinstance(step, Continue)
                    between += [m for m in step.messages if m.between_servers]
        servers.append(server)
    return servers, between


def from_coordinator(query: Query, phase: Phase, members: Iterable[int]) -> Message:
    chosen = np.isin(np.arange(query.parties), list(members))
    body = body_of(np.packbits(chosen).tobytes())
    return Message(query.run, phase, Role.COORDINATOR, Role.SERVER, address(0), address(0), body)


def test_servers_told_to_check_different_parties_end_the_run() -> None:
    holdings = some_holdings()
    query = query_about(holdings)
    servers, contributions = closed_servers(holdings, query)
    digests: list[Message] = []
    for index, server in enumerate(servers):
        assert isinstance(server.receive(contributions[1 - index]), Continue)
        members = range(PARTIES - index)
        step = server.receive(from_coordinator(query, Phase.VERIFY, members))
        assert isinstance(step, Continue)
        digests += step.messages
    for index, server in enumerate(servers):
        step = server.receive(digests[1 - index])
        assert isinstance(step, Failed)
        assert "it was told to check other parties" in step.reason


def test_a_coordinator_cannot_release_what_was_not_checked_or_not_good() -> None:
    holdings = some_holdings()
    query = query_about(holdings)
    servers, contributions = closed_servers(holdings, query, twice)
    everyone = from_coordinator(query, Phase.RELEASE, range(PARTIES))
    assert isinstance(servers[0].receive(everyone), Rejected)
    queue = [*contributions]
    for server in servers:
        step = server.receive(from_coordinator(query, Phase.VERIFY, range(PARTIES)))
        assert isinstance(step, Continue)
        queue += step.messages
        assert isinstance(server.receive(everyone), Rejected)
        other = from_coordinator(query, Phase.VERIFY, range(3))
        assert server.receive(other) == Rejected("coordinator", "a second check, of other parties")
    while queue:
        message = queue.pop(0)
        if message.between_servers:
            step = servers[int(message.receivers[0])].receive(message)
            assert isinstance(step, Continue)
            queue += step.messages
    for server in servers:
        assert server.stage is VerifyingStage.CHECKED
        refusal = server.receive(everyone)
        assert isinstance(refusal, Rejected)
        assert "do not verify" in refusal.reason
        good = from_coordinator(query, Phase.RELEASE, set(range(PARTIES)) - {4})
        assert isinstance(server.receive(good), Continue)


def test_more_keys_than_a_party_may_hold_are_refused() -> None:
    """Whatever the coordinator overlooks."""
    query = query_about(some_holdings(2 * PARTIES))
    larger = some_holdings(3 * PARTIES)
    allowed = replace(query, records=larger.rows, max_records_per_party=3)
    for asked, refused in ((query, True), (allowed, False)):
        sent = FSS.party(asked, larger, Randomness.from_seed(1, "parties")).start()
        server = FSS.server(asked, 0, Randomness.from_seed(1, "server-0"), Memory())
        step = server.receive(sent.messages[0])  # type: ignore[union-attr]
        assert isinstance(step, Rejected) is refused
        if isinstance(step, Rejected):
            assert step.reason == "3 keys, where a party holds at most 2 records"


def test_only_the_other_server_is_heard_in_its_turn() -> None:
    holdings = some_holdings()
    query = query_about(holdings)
    (server, _), contributions = closed_servers(holdings, query)
    right = contributions[1]
    for wrong in (
        replace(right, sender_role=Role.COORDINATOR),
        replace(right, sender_role=Role.PARTY),
        replace(right, senders=address(0)),
        replace(right, senders=address(2)),
        replace(right, body=right.body[:, :3]),
        replace(right, body=right.body[:, :-1]),
        replace(right, body=body_of(STEP.pack(1) + bytes(32))),
        replace(right, body=body_of(STEP.pack(2**32 - 1) + bytes(32))),
    ):
        assert isinstance(server.receive(wrong), Rejected)
    assert server.receive(right) == Continue()
    assert server.receive(right) == Continue(repeated=True)
    changed = right.body.copy()
    changed[0, -1] ^= 1
    assert isinstance(server.receive(replace(right, body=changed)), Rejected)


def test_every_stage_takes_what_the_table_says_and_nothing_else() -> None:
    holdings = some_holdings()
    query = query_about(holdings)
    for stage in VerifyingStage:
        for phase in Phase:
            for role in Role:
                if SERVER_STAGES.get((stage, phase)) is role:
                    continue
                server = at_stage(stage, holdings, query)
                message = Message(
                    query.run, phase, role, Role.SERVER, address(1), address(0), body_of(b"\0\0")
                )
                assert isinstance(server.receive(message), Rejected), (stage, phase, role)
                assert server.stage is stage


STAGED: dict[VerifyingStage, VerifiedServer] = {}


def at_stage(stage: VerifyingStage, holdings: Holdings, query: Query) -> VerifiedServer:
    """Rejections change nothing, so one server a stage will do."""
    if stage in STAGED:
        return STAGED[stage]
    if stage is VerifyingStage.COLLECTING:
        server = FSS.server(query, 0, Randomness(bytes(16)), Memory())
        assert isinstance(server, VerifiedServer)
    else:
        servers, contributions = closed_servers(holdings, query)
        server = servers[0]
        check = from_coordinator(query, Phase.VERIFY, range(PARTIES))
        if stage is not VerifyingStage.CLOSED:
            server.receive(contributions[1])
            server.receive(check)
        if stage in (VerifyingStage.CHECKED, VerifyingStage.RELEASED):
            servers[1].receive(contributions[0])
            step = servers[1].receive(check)
            assert isinstance(step, Continue)
            server.receive(step.messages[0])
        if stage is VerifyingStage.RELEASED:
            server.receive(from_coordinator(query, Phase.RELEASE, range(PARTIES)))
    assert server.stage is stage
    return STAGED.setdefault(stage, server)


def test_the_collector_takes_what_its_table_says() -> None:
    holdings = some_holdings()
    query = query_about(holdings)
    collector = FSS.collector(query, holdings.counts.astype(np.int64), Randomness(bytes(16)))
    collector.start()
    for phase in Phase:
        for role in Role:
            if COLLECTOR_STAGES.get((CollectorStage.ROSTERS, phase)) is role:
                continue
            message = Message(
                query.run, phase, role, Role.COORDINATOR, address(0), address(0), body_of(b"\0")
            )
            assert isinstance(collector.receive(message), Rejected)


def test_the_challenge_needs_both_contributions_and_the_run() -> None:
    query = query_about(some_holdings())
    other = replace(query, nonce=b"yesterda")
    found = {
        challenge(about, pair, batch)
        for about in (query, other)
        for pair in ((b"a" * 32, b"b" * 32), (b"b" * 32, b"a" * 32), (b"a" * 32, b"c" * 32))
        for batch in (0, 1)
    }
    assert len(found) == 12


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 129, 5000])
def test_bisection_finds_exactly_those_that_differ(count: int) -> None:
    generator = np.random.default_rng(count)
    counts = generator.integers(1, 4, count)
    prints = generator.integers(0, 2**64, (int(counts.sum()), 3), dtype=np.uint64)
    bad = np.unique(generator.integers(0, count, 1 + count // 40))
    other = prints.copy()
    other[(np.cumsum(counts) - 1)[bad], 2] ^= np.uint64(1)
    ours, theirs = (Prints(these, counts, bytes(16)) for these in (prints, other))
    ranges, rounds = [(0, count)], 0
    while True:
        ranges = different(ranges, ours.digests(ranges), theirs.digests(ranges))
        rounds += 1
        if single(ranges):
            break
        ranges = parts(ranges)
    assert [first for first, _ in ranges] == bad.tolist()
    assert rounds <= 1 + np.ceil(np.log(max(count, 2)) / np.log(FAN)) + 1
