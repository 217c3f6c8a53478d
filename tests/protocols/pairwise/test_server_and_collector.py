"""Servers and collector of pairs: halves of pairs never count, and a release is made once."""

from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.aggregation.collector import COLLECTOR_ACCEPTS, CollectorState
from tallyroom.protocols.aggregation.contract import Memory
from tallyroom.protocols.aggregation.one_round import OneRound, ServerState
from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.garbling.links import Mask
from tallyroom.protocols.pairwise.roles.server_and_collector import (
    PAIRS_ACCEPTS,
    PATIENCE,
    STAGES,
    PairwiseCollector,
    PairwiseServer,
)
from tallyroom.protocols.pairwise.sampling.pair_assignment import (
    both_ends,
    draw_meetings,
    pack_cells,
)
from tallyroom.protocols.pairwise.sampling.schedule import pairs_of
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.run.machines import check, collector_machine, server_machine, stages
from tallyroom.protocols.statistics.of_pairs import Gini
from tallyroom.protocols.wire.machine import Continue, Done, Failed, Rejected, Step
from tallyroom.protocols.wire.messages import Message, Phase, Role, address
from tests.protocols.pairwise.gathering import (
    Gathering,
    a_pairs_query,
    deal_base_ots,
    drawn_values,
    held,
    ratings,
)
from tests.samples import a_message, a_query, bitmap

COUNTS = [2, 1, 3]
GINI = Gini(lower=0.0, upper=1.0, bits=8, pairs_per_party="3", outputs="weighed")
SLOTS = 9


@pytest.fixture(autouse=True)
def no_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    deal_base_ots(monkeypatch)


def a_meeting(**changes: Any) -> tuple[Query, Holdings]:
    holdings = held(COUNTS, ratings(sum(COUNTS)))
    return a_pairs_query(GINI, holdings, **changes), holdings


def submissions(query: Query, holdings: Holdings) -> list[Message]:
    sent = Gathering(query, holdings).run().sent
    return [message for message in sent if message.phase is Phase.SUBMIT]


def a_full_server(**changes: Any) -> tuple[PairwiseServer, Query, Holdings]:
    """Server 0 when all have submitted."""
    query, holdings = a_meeting(**changes)
    server = server_machine(query, 0, Randomness.from_seed(2, "server-0"), Memory())
    assert isinstance(server, PairwiseServer)
    server.start()
    step = server.receive(submissions(query, holdings)[0])
    assert isinstance(step, Continue)
    assert step.messages[0].phase is Phase.ROSTER
    return server, query, holdings


def cells_of(query: Query, holdings: Holdings) -> Mask:
    everything = np.ones((len(COUNTS), SLOTS), dtype=bool)
    return both_ends(pairs_of(query).sample, holdings.counts.astype(np.int64), everything)


def release(members: bytes, cells: bytes) -> Message:
    return a_message(Phase.RELEASE, Role.COORDINATOR, Role.SERVER, body=members + cells)


def refusal(step: Step) -> str:
    assert isinstance(step, Rejected)
    return step.reason


EVERYONE = bitmap(3, [0, 1, 2])


def test_a_release_that_is_none_is_refused_and_the_right_one_made() -> None:
    server, query, holdings = a_full_server(min_parties=2)
    cells = cells_of(query, holdings)
    good = pack_cells(cells).tobytes()
    padded = np.unpackbits(pack_cells(cells), axis=1)
    padded[0, SLOTS:] = 1
    wrong = f"not {SLOTS} slots for each of 3 parties"
    hostile = {
        "no slots": (release(EVERYONE, b""), wrong),
        "too few slots": (release(EVERYONE, good[:-1]), wrong),
        "too many slots": (release(EVERYONE, good + b"\0"), wrong),
        "a padding bit of slots": (release(EVERYONE, np.packbits(padded).tobytes()), wrong),
        "a padding bit of parties": (release(b"\xff", good), wrong),
        "slots of somebody left out": (release(bitmap(3, [0, 1]), good), wrong),
        "two rows": (
            replace(
                release(EVERYONE, good),
                senders=address(0, 1),
                body=np.repeat(release(EVERYONE, good).body, 2, axis=0),
            ),
            wrong,
        ),
        "too few parties": (
            release(bitmap(3, [0]), pack_cells(cells * [[1], [0], [0]]).tobytes()),
            "fewer than 2 parties",
        ),
        "from a party": (replace(release(EVERYONE, good), sender_role=Role.PARTY), "must come"),
    }
    for message, reason in hostile.values():
        assert reason in refusal(server.receive(message))
        assert server.state is ServerState.CLOSED
    step = server.receive(release(EVERYONE, good))
    assert isinstance(step, Continue)
    assert step.messages[0].phase is Phase.SHARE


def test_a_second_release_over_other_slots_is_refused() -> None:
    """The difference of two would be a few pairs' values under too little noise."""
    server, query, holdings = a_full_server(epsilon=Fraction(1))
    cells = cells_of(query, holdings)
    first = server.receive(release(EVERYONE, pack_cells(cells).tobytes()))
    again = server.receive(release(EVERYONE, pack_cells(cells).tobytes()))
    assert isinstance(first, Continue)
    assert isinstance(again, Continue)
    assert first.messages[0].encode() == again.messages[0].encode()
    assert first.spends == again.spends
    fewer = cells.copy()
    fewer[tuple(np.argwhere(cells)[0])] = False
    assert "a second release" in refusal(
        server.receive(release(EVERYONE, pack_cells(fewer).tobytes()))
    )


def test_a_release_over_somebody_who_did_not_submit_is_refused() -> None:
    query, holdings = a_meeting(min_parties=2)
    server = server_machine(query, 0, Randomness.from_seed(2, "server-0"), Memory())
    server.start()
    submitted = submissions(query, holdings)[0]
    assert server.receive(submitted.select(np.array([0, 1]))) == Continue()
    server.expire()
    good = pack_cells(cells_of(query, holdings)).tobytes()
    assert "did not submit" in refusal(server.receive(release(EVERYONE, good)))


@pytest.mark.parametrize("servers", [1, 2, 3])
def test_servers_add_up_exactly_the_slots_of_the_release(servers: int) -> None:
    """Any set of slots, in whatever blocks submissions came."""
    query, holdings = a_meeting(servers=servers)
    submitted = submissions(query, holdings)
    draw = np.random.default_rng(1)
    everything = np.ones((3, SLOTS), dtype=bool)
    masks = [draw.integers(0, 2, (3, SLOTS)).astype(bool) for _ in range(8)]
    masks += [everything, ~everything, everything & [[True], [False], [True]]]
    for number, mask in enumerate(masks):
        shares = []
        for index, message in enumerate(submitted):
            server = server_machine(query, index, Randomness(bytes(16)), Memory())
            server.start()
            parts = message.split() if number % 2 else [message]
            for part in parts:
                server.receive(part)
            step = server.receive(release(EVERYONE, pack_cells(mask).tobytes()))
            assert isinstance(step, Continue)
            shares.append(step.messages[0].body[0].view("<u8"))
        vectors = opened(query, submitted)
        wanted = (vectors * mask.astype(np.uint64)).sum(axis=0, dtype=np.uint64)
        assert np.stack(shares).sum(axis=0, dtype=np.uint64).tolist() == wanted.tolist()


def opened(query: Query, submitted: list[Message]) -> Vector:
    """Every party's vector, (parties, slots), from what it submitted."""
    aggregator = aggregator_named(query.aggregator)
    assert isinstance(aggregator, OneRound)
    rows = []
    for party in range(query.parties):
        shares = [
            aggregator.merge(message.rows()[party : party + 1], SLOTS, index)
            for index, message in enumerate(submitted)
        ]
        rows.append(np.stack(shares).sum(axis=0, dtype=np.uint64))
    return np.stack(rows)


# --- the collector ---


def a_collector(**changes: Any) -> tuple[PairwiseCollector, Query, Holdings]:
    query, holdings = a_meeting(**changes)
    counts = holdings.counts.astype(np.int64)
    collector = collector_machine(query, counts, Randomness(bytes(16)))
    assert isinstance(collector, PairwiseCollector)
    collector.start()
    return collector, query, holdings


def paired(*parties: int, cells: Mask) -> Message:
    rows = pack_cells(cells[list(parties)])
    return a_message(Phase.PAIRED, Role.PARTY, Role.COORDINATOR, parties, (0,), rows)


def a_roster(server: int, members: list[int]) -> Message:
    return a_message(
        Phase.ROSTER, Role.SERVER, Role.COORDINATOR, (server,), body=bitmap(3, members)
    )


def test_what_parties_say_is_done_is_checked() -> None:
    collector, query, holdings = a_collector()
    cells = cells_of(query, holdings)
    good = paired(0, cells=cells)
    padded = good.body.copy()
    padded[0, -1] |= 1
    hostile = {
        "too short": replace(good, body=good.body[:, :-1]),
        "too long": replace(good, body=np.zeros((1, 3), dtype=np.uint8)),
        "empty": replace(good, body=good.body[:, :0]),
        "a padding bit": replace(good, body=padded),
        "a party that is not there": replace(good, senders=address(3)),
        "a party far away": replace(good, senders=address(2**24 - 1)),
    }
    for message in hostile.values():
        assert refusal(collector.receive(message)) == f"not a bitmap of {SLOTS} slots"
    assert collector.receive(good) == Continue(deadline=PATIENCE * query.deadline)
    assert collector.receive(good) == Continue(deadline=PATIENCE * query.deadline)
    contradiction = paired(0, cells=~cells)
    assert refusal(collector.receive(contradiction)) == "it said otherwise before"
    assert "out of turn" in refusal(collector.receive(replace(good, sender_role=Role.SERVER)))


@pytest.mark.parametrize("state", CollectorState)
def test_a_collector_of_pairs_takes_what_its_table_says_and_nothing_else(
    state: CollectorState,
) -> None:
    for phase, role in product(Phase, Role):
        collector, query, holdings = a_collector()
        cells = cells_of(query, holdings)
        if state is not CollectorState.ROSTERS:
            collector.receive(paired(0, 1, 2, cells=cells))
            for server in (0, 1):
                collector.receive(a_roster(server, [0, 1, 2]))
        words = bytes(8 * query.released)
        share = a_message(Phase.SHARE, Role.SERVER, Role.COORDINATOR, (0,), body=words)
        if state is CollectorState.OVER:
            for server in (0, 1):
                collector.receive(replace(share, senders=address(server)))
        told = {
            Phase.PAIRED: paired(0, cells=cells),
            Phase.ROSTER: a_roster(0, [0, 1, 2]),
            Phase.SHARE: share,
        }.get(phase, replace(share, phase=phase))
        step = collector.receive(replace(told, sender_role=role))
        taken = PAIRS_ACCEPTS.get((state, phase)) is role
        assert isinstance(step, Rejected) is not taken, (phase, role, step)
    assert PAIRS_ACCEPTS.items() - COLLECTOR_ACCEPTS.items() == {
        ((CollectorState.ROSTERS, Phase.PAIRED), Role.PARTY)
    }


def test_the_release_waits_for_all_that_submitted() -> None:
    collector, query, holdings = a_collector(min_parties=1)
    cells = cells_of(query, holdings)
    assert collector.receive(paired(0, 2, cells=cells)) == Continue(
        deadline=PATIENCE * query.deadline
    )
    for server in (0, 1):
        assert collector.receive(a_roster(server, [0, 1, 2])) == Continue()
    step = collector.receive(paired(1, cells=cells))
    assert isinstance(step, Continue)
    assert [message.phase for message in step.messages] == [Phase.RELEASE] * 2
    late = paired(1, cells=cells)
    assert refusal(collector.receive(late)) == "paired is out of turn"


def test_who_is_silent_when_the_others_are_done_is_excused_once() -> None:
    collector, query, holdings = a_collector(min_parties=1)
    collector.receive(paired(0, 2, cells=cells_of(query, holdings)))
    step = collector.expire()
    assert isinstance(step, Continue)
    assert step.deadline == PATIENCE * query.deadline
    assert [message.phase for message in step.messages] == [Phase.EXCUSE] * 2
    assert step.messages[0].body.tobytes() == bitmap(3, [1])
    failed = collector.expire()
    assert isinstance(failed, Failed)
    assert failed.reason == "server-0, server-1 did not answer within the deadline"


def test_a_slot_counts_only_if_both_parties_call_it_done() -> None:
    query, holdings = a_meeting()
    sample = pairs_of(query).sample
    counts = holdings.counts.astype(np.int64)
    parties, entries = draw_meetings(sample, counts)
    ends = {
        (int(party), int(entry["slot"])): (int(entry["partner"]), int(entry["theirs"]))
        for party, entry in zip(parties, entries, strict=True)
    }
    draw = np.random.default_rng(5)
    for _ in range(50):
        done = draw.integers(0, 2, (3, SLOTS)).astype(bool)
        mutual = both_ends(sample, counts, done)
        for party in range(3):
            for slot in range(SLOTS):
                other = ends.get((party, slot))
                wanted = other is not None and done[party, slot] and done[other]
                assert mutual[party, slot] == wanted


def test_the_answer_counts_pairs_and_spends_once() -> None:
    query, holdings = a_meeting(epsilon=Fraction(1, 2), noise=Placement.PER_PAIR, delta=1e-9)
    gathering = Gathering(query, holdings).run()
    assert gathering.total is not None
    assert gathering.total.records == len(drawn_values(query, holdings)) == 9
    assert {spend.receipt for spend in gathering.spends} == {query.run.hex()}
    (delta,) = {spend.loss.delta for spend in gathering.spends}
    assert 0 < delta <= 1e-9


def test_who_computes_pairs() -> None:
    query, _ = a_meeting()
    check(query)
    assert stages(query) == STAGES
    for aggregator in ("fss", "masking", "shamir", "shuffle"):
        with pytest.raises(LocalError):
            check(replace(query, aggregator=aggregator, servers=2))
    with pytest.raises(LocalError, match="not computed in pairs"):
        pairs_of(a_query())


def test_the_run_is_over_once() -> None:
    query, holdings = a_meeting()
    gathering = Gathering(query, holdings).run()
    assert isinstance(gathering.coordinator.receive(a_roster(0, [0])), Rejected)
    assert not isinstance(gathering.coordinator.expire(), Done)
