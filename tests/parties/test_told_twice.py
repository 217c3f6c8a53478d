"""Parties that are told something else in a run than before: in the same process, and in one that
was killed and started again."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from tallyroom.fss.ring import Bytes
from tallyroom.parties.block import PartyBlock
from tallyroom.protocols.aggregation.contract import Memory
from tallyroom.protocols.algebra.ring import signed
from tallyroom.protocols.garbling.base_ot import POINT_BYTES
from tallyroom.protocols.garbling.batch import NUMBER_BYTES
from tallyroom.protocols.garbling.direct_session import DirectGarbler
from tallyroom.protocols.garbling.ot_extension import CHECK_BYTES
from tallyroom.protocols.garbling.session import Garbler
from tallyroom.protocols.identity.sealing import SealingKey
from tallyroom.protocols.pairwise.roles.link_batch import REPLY
from tallyroom.protocols.pairwise.roles.party import link_message
from tallyroom.protocols.pairwise.sampling.pair_assignment import ENTRY
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.run.machines import server_machine
from tallyroom.protocols.statistics.of_pairs import Gini
from tallyroom.protocols.statistics.pairwise import Pairs
from tallyroom.protocols.wire.machine import Continue
from tallyroom.protocols.wire.messages import Message, Phase, Role, body_of
from tallyroom.storage import party_answers as answers_module
from tallyroom.storage.party_answers import PartyAnswers
from tests.protocols.pairwise.gathering import a_pairs_query, held
from tests.samples import a_message, a_query, bitmap, holdings_of

VALUES = [0.1, 0.4, 0.6, 0.9]
EVERYONE = (0, 1, 2, 3)
Start = Callable[[], PartyBlock]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """A host of four parties, as it is started and started again."""
    monkeypatch.setattr(answers_module, "sync", lambda _: None)  # no power is cut here
    return lambda: PartyBlock(
        holdings_of(VALUES, 4), Randomness(bytes(16)), answers=PartyAnswers(tmp_path)
    )


def asked(query: Query, receivers: tuple[int, ...] = EVERYONE) -> Message:
    return a_message(
        Phase.QUERY,
        Role.COORDINATOR,
        Role.PARTY,
        receivers=receivers,
        body=query.encode(),
        run=query.run,
    )


# --- shuffle: a key for the reports ---

SHUFFLED = a_query(
    aggregator="shuffle",
    servers=1,
    epsilon=Fraction(2),
    noise=Placement.CURATOR,
    delta=1e-6,
)


def key(number: int) -> Message:
    public = SealingKey(bytes([number]) * 32).public
    return a_message(
        Phase.KEYS,
        Role.COORDINATOR,
        Role.PARTY,
        receivers=EVERYONE,
        body=public,
        run=SHUFFLED.run,
    )


@pytest.mark.parametrize("killed", [False, True], ids=["goes on", "is killed"])
def test_reports_are_sealed_under_one_key(killed: bool, start: Start) -> None:
    """The coins of a report are for one release: asked again, with another key, it is not made."""
    host = start()
    assert host.handle(asked(SHUFFLED)).messages == []
    first = host.handle(key(1)).messages
    assert [message.phase for message in first] == [Phase.SUBMIT]
    if killed:
        host = start()
    assert host.handle(asked(SHUFFLED)).messages == []
    second = host.handle(key(2))
    assert second.messages == []
    assert second.refused
    again = host.handle(key(1)).messages
    assert [m.encode() for m in again] == ([m.encode() for m in first] if killed else [])


def test_without_a_store_a_host_that_goes_on_takes_one_key() -> None:
    host = PartyBlock(holdings_of(VALUES, 4), Randomness(bytes(16)))
    host.handle(asked(SHUFFLED))
    assert host.handle(key(1)).messages
    host.handle(asked(SHUFFLED))
    assert host.handle(key(2)).messages == []


# --- masking: who submitted ---

MASKED = a_query(
    aggregator="masking", servers=1, epsilon=Fraction(1), noise=Placement.CURATOR, min_parties=3
)


def test_shares_of_both_secrets_are_not_given_to_whoever_has_hosts_started_anew(
    start: Start,
) -> None:
    """A server that tells a host that all submitted, and the same host, started anew, that one did
    not, would have that one's own mask and its key: its vector."""
    host = start()
    server = server_machine(MASKED, 0, Randomness.from_seed(1, "server-0"), Memory())
    server.start()
    told: list[Message] = []
    waiting = host.handle(asked(MASKED)).messages
    while waiting:
        step = server.receive(waiting.pop(0))
        assert isinstance(step, Continue)
        for message in step.messages:
            if message.receiver_role is Role.PARTY:
                told.append(message)
                waiting += host.handle(message).messages
    assert [message.phase for message in told] == [
        Phase.KEYS,
        Phase.DEAL,
        Phase.CHECK,
        Phase.UNMASK,
    ]
    check = told[2]

    host = start()
    host.handle(asked(MASKED))
    for message in told[:2]:
        assert host.handle(message).refused == []
    fewer = replace(check.select(slice(0, 3)), body=body_of(bitmap(4, [0, 1, 2])))
    lie = host.handle(fewer)
    assert lie.messages == []
    assert "something else than before" in lie.refused[0].reason
    for message in told[2:]:
        again = host.handle(message)
        assert again.refused == []
        assert again.messages


# --- pairs: which records meet whose ---

EACH = 8
PAIRED = held([EACH, EACH], {"value": np.linspace(0.03, 0.97, 2 * EACH)})


def a_list(query: Query, slots: list[int]) -> Message:
    """Tells party 0, which evaluates, which of its records meet the first ones of party 1."""
    entries = np.zeros(len(slots), dtype=ENTRY)
    entries["slot"], entries["partner"], entries["theirs"] = slots, 1, np.arange(len(slots))
    body = len(slots).to_bytes(4, "little") + entries.tobytes()
    return a_message(Phase.PAIRING, Role.COORDINATOR, Role.PARTY, body=body, run=query.run)


def opened(query: Query, slots: list[int]) -> tuple[PartyBlock, Message]:
    """A host without a store, as it was started or started anew with the same secret."""
    host = PartyBlock(next(PAIRED.blocks(2)), Randomness(bytes(16)))
    host.handle(asked(query, (0,)))
    (opening,) = host.handle(a_list(query, slots)).messages
    return host, opening


def requested(host: PartyBlock, query: Query, reply: Bytes) -> Bytes | None:
    """What it asks for; None if it finds that the reply was made for another opening."""
    link = np.array([1 << 32], dtype=np.uint64)
    said = host.handle(link_message(query.run, link, REPLY, reply, evaluator=False)).messages
    return said[0].rows()[0, 1:] if said else None


@pytest.mark.parametrize("pairs", [1, EACH], ids=["base transfers alone", "an extension"])
def test_two_lists_of_pairs_do_not_show_where_records_differ(pairs: int) -> None:
    """A garbler that has its peer started anew, and gives it the same reply. By base transfers
    alone, points were equal just where bits of two records were; by an extension, all 128 columns
    had the same difference, which is that of the records."""
    query = a_pairs_query(Gini(lower=0.0, upper=1.0, bits=16), PAIRED)
    first, second = list(range(pairs)), list(range(EACH - pairs, EACH))[::-1]
    (one, opening), (other, _) = (opened(query, slots) for slots in (first, second))
    again, same_opening = opened(query, first)
    assert opening.encode() == same_opening.encode()
    link = np.array([1 << 32], dtype=np.uint64)
    garbler = (DirectGarbler if pairs == 1 else Garbler)(link, Randomness.from_seed(2, "garbler"))
    reply = garbler.reply(opening.rows()[:, 1:])
    ask, asked_again, its_own = (requested(host, query, reply) for host in (one, again, other))
    assert ask is not None
    assert asked_again is not None
    assert np.array_equal(ask, asked_again)
    if pairs == 1:
        assert its_own is not None
        points = (
            each[NUMBER_BYTES:][: 16 * POINT_BYTES].reshape(16, -1) for each in (ask, its_own)
        )
        assert not np.equal(*points).all(axis=1).any()
    elif its_own is not None:
        columns = (ask ^ its_own)[NUMBER_BYTES:-CHECK_BYTES].reshape(128, -1)
        assert len(np.unique(columns, axis=0)) > 120


def noises(query: Query, pairs: list[tuple[int, int]]) -> list[int]:
    """What a party adds to the values of its own pairs, as a curator sees it."""
    statistic, party = query.statistic, next(PAIRED.blocks(2))
    assert isinstance(statistic, Pairs)
    entries = np.zeros((len(pairs), 2), dtype=ENTRY)
    entries["slot"], entries["theirs"] = pairs, np.array(pairs)[:, ::-1]
    entries["second"] = [0, 1]
    host = PartyBlock(party, Randomness(bytes(16)))
    host.handle(asked(query, (0,)))
    body = entries.size.to_bytes(4, "little") + entries.tobytes()
    told = a_message(Phase.PAIRING, Role.COORDINATOR, Role.PARTY, body=body, run=query.run)
    (sent,) = (m for m in host.handle(told).messages if m.phase is Phase.SUBMIT)
    values = signed(sent.body[0].view("<u8"))
    first, second = np.array(pairs).T
    records = query.plan.measured(party)
    kernel = statistic.kernel.reference(records[first], records[second])
    found: list[int] = (values[first] - kernel.ravel()).tolist()
    return found


def test_noise_on_a_partys_own_pairs_is_for_those_pairs() -> None:
    """The same noise on other pairs would tell how they differ."""
    gini = Gini(lower=0.0, upper=1.0, bits=16, pairs_per_party="1")
    query = a_pairs_query(gini, PAIRED, 1, Fraction(1, 100), Placement.PER_PAIR, delta=1e-3)
    lists = [(0, 1), (2, 3), (4, 5), (6, 7)], [(0, 2), (1, 3), (4, 6), (5, 7)]
    first, other = (noises(query, pairs) for pairs in lists)
    assert max(map(abs, first)) > 1000
    assert noises(query, lists[0]) == first
    assert not set(first) & set(other)


def test_a_host_that_was_told_whom_to_meet_is_told_nothing_else(tmp_path: Path) -> None:
    query = a_pairs_query(Gini(lower=0.0, upper=1.0, bits=16), PAIRED)

    def started() -> PartyBlock:
        block = next(PAIRED.blocks(2))
        host = PartyBlock(block, Randomness(bytes(16)), answers=PartyAnswers(tmp_path))
        host.handle(asked(query, (0,)))
        return host

    assert started().handle(a_list(query, [0])).messages
    host = started()
    assert "something else than before" in host.handle(a_list(query, [1])).refused[0].reason
    assert host.handle(a_list(query, [0])).messages
