"""What reads bytes in statistics of pairs: machines told whom to meet and what others computed, and
hosts that open what a relay hands them."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from google.protobuf.message import DecodeError

from tallyroom.fss.ring import Bytes
from tallyroom.parties.sealed_channel import SealedChannel
from tallyroom.protocols.aggregation.contract import Memory
from tallyroom.protocols.errors import PeerError
from tallyroom.protocols.identity.certificates import Identity
from tallyroom.protocols.pairwise.roles.by_servers import MeetingServer
from tallyroom.protocols.pairwise.sampling.pair_assignment import (
    meeting_messages,
    pack_cells,
    parse_cells,
    parse_meetings,
)
from tallyroom.protocols.pairwise.sampling.schedule import pairs_of
from tallyroom.protocols.plans.pairs import PairwiseMean
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.run.machines import collector_machine, party_machine
from tallyroom.protocols.statistics.of_pairs import Gini
from tallyroom.protocols.wire.machine import Continue, Done, Machine, Rejected
from tallyroom.protocols.wire.messages import Message, Phase, Role, address, decode
from tallyroom.protos import tally_pb2 as pb
from tallyroom.servers.hosts import LEAST_WAITING_BYTES, Announced, HostRegister
from tests.protocols.pairwise.gathering import a_pairs_query, held

PARTIES = 3
RELEASED = b"\xe0" + (6).to_bytes(8, "little")
"""Of all parties' six records, in two matchings."""
WORDS = (b"", b"a word", bytes(range(64)))
ANNE, BERT = Identity(Role.PARTY, 0, 0), Identity(Role.PARTY, 1, 2)


@cache
def the_query() -> tuple[Query, PairwiseMean, Holdings]:
    """Of three parties with two records each, every one of which is in two pairs."""
    holdings = held([2] * PARTIES, {"value": np.linspace(0.0, 1.0, 2 * PARTIES)})
    statistic = Gini(lower=0.0, upper=1.0, bits=3, pairs_per_party="2")
    query = a_pairs_query(statistic, holdings)
    return query, pairs_of(query), holdings


@cache
def lists_of_meetings() -> dict[int, Message]:
    """What the coordinator tells each party."""
    query, plan, holdings = the_query()
    messages = meeting_messages(query, plan.sample, holdings.counts.astype(np.int64))
    rows = [row for message in messages for row in message.split()]
    return {int(row.receivers[0]): row for row in rows}


def a_party(number: int) -> Machine:
    query, _, holdings = the_query()
    block = list(holdings.blocks(PARTIES))[number]
    return party_machine(query, block, Randomness.from_seed(1, f"party {number}"))


def row(data: bytes) -> Bytes:
    return np.frombuffer(data, dtype=np.uint8).reshape(1, -1)


def pairing(data: bytes) -> None:
    """A party takes a list in which no slot of its own comes twice, or is as it was."""
    query, plan, _ = the_query()
    machine, told = a_party(0), lists_of_meetings()[0]
    spoken = Message(
        query.run,
        Phase.PAIRING,
        Role.COORDINATOR,
        Role.PARTY,
        address(0),
        told.receivers,
        row(data),
    )
    step = machine.receive(spoken)
    if isinstance(step, Rejected):
        assert not isinstance(machine.receive(told), Rejected)
        return
    entries = parse_meetings(row(data)[0], 0, plan.max_records_per_party, plan.sample, PARTIES)
    assert not isinstance(entries, str)
    assert len(set(entries["slot"].tolist())) == len(entries)


def opening(data: bytes) -> None:
    """A garbler answers a point of the curve with as many as there are; nothing else moves it."""
    evaluator, garbler, opened = _openings()[0]
    machine = a_party(garbler)
    machine.receive(lists_of_meetings()[garbler])
    spoken = Message(
        the_query()[0].run,
        Phase.PAIR,
        Role.PARTY,
        Role.PARTY,
        address(evaluator),
        address(garbler),
        row(data),
    )
    step = machine.receive(spoken)
    if isinstance(step, Rejected):
        return
    assert isinstance(step, Continue)
    # So few bits go by base transfers alone: the garbler answers with its point.
    assert [message.width for message in step.messages] == [1 + 33]
    assert len(data) == len(opened)
    assert data[0] == opened[0]


def paired(data: bytes) -> None:
    """A collector takes bitmaps without a bit too many."""
    query, plan, holdings = the_query()
    counts = holdings.counts.astype(np.int64)
    collector = collector_machine(query, counts, Randomness.from_seed(1, "coordinator"))
    collector.start()
    message = Message(
        query.run, Phase.PAIRED, Role.PARTY, Role.COORDINATOR, address(1), address(0), row(data)
    )
    step = collector.receive(message)
    cells = parse_cells(row(data), plan.slots)
    assert isinstance(step, Rejected) == (cells is None)
    assert cells is None or pack_cells(cells).tobytes() == data


@cache
def the_query_to_servers() -> tuple[Query, tuple[Message, ...]]:
    """The same by servers, and what the parties submit to them."""
    query, _, holdings = the_query()
    assert isinstance(query.statistic, Gini)
    asked = replace(query, statistic=replace(query.statistic, meet="servers"))
    step = party_machine(asked, holdings, Randomness.from_seed(1, "parties")).start()
    assert isinstance(step, Done)
    return asked, step.messages


def records_for_a_server(data: bytes) -> None:
    """A server takes a share of whole records, as many as a party may have."""
    query, _ = the_query_to_servers()
    machine = MeetingServer(query, 0, Randomness.from_seed(1, "server-0"), Memory())
    message = Message(
        query.run, Phase.SUBMIT, Role.PARTY, Role.SERVER, address(1), address(0), row(data)
    )
    step = machine.receive(message)
    if isinstance(step, Continue):
        assert 1 <= int.from_bytes(data[:4], "little") == len(data) - 4 <= 2


def release_of_pairs_by_servers(data: bytes) -> None:
    """A server releases the pairs that there are, or none."""
    query, submitted = the_query_to_servers()
    machine = MeetingServer(query, 0, Randomness.from_seed(1, "server-0"), Memory())
    machine.receive(submitted[0])
    message = Message(
        query.run, Phase.RELEASE, Role.COORDINATOR, Role.SERVER, address(0), address(0), row(data)
    )
    if isinstance(machine.receive(message), Continue):
        assert data == RELEASED


def envelope(data: bytes) -> None:
    """What a relay forwards comes from who sent it; what opens is what was sealed."""
    register = HostRegister()
    try:
        sent = pb.Envelope.FromString(data)
        for who in (ANNE, BERT):
            register.subscribe(who)
            key = _secret(who).public_key().public_bytes_raw()
            register._announced[who] = Announced(who, "", key, b"", b"")
        register.forward(ANNE, sent)
    except (DecodeError, LookupError, BufferError):
        return
    waiting = register._mail[Identity(Role.PARTY, sent.first, sent.last)]
    arrived = waiting.queue.get_nowait()
    assert arrived is not None
    assert (arrived.first, arrived.last, waiting.size) == (
        0,
        0,
        max(len(sent.sealed), LEAST_WAITING_BYTES),
    )
    try:
        plain = _channel(BERT, ANNE).open(arrived.sealed)
    except PeerError:
        return
    assert plain in WORDS


def sealed_message(data: bytes) -> None:
    """A peer that holds the keys may seal what it likes: it is still only bytes."""
    sealed = _channel(ANNE, BERT).seal(data)
    plain = _channel(BERT, ANNE).open(sealed)
    assert plain == data
    try:
        decode(plain, ANNE.name)
    except PeerError:
        return


def _secret(who: Identity) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(bytes([1 + who.first]) * 32)


def _channel(me: Identity, peer: Identity) -> SealedChannel:
    key = _secret(peer).public_key().public_bytes_raw()
    return SealedChannel(_secret(me), me, peer, key, b"room")


@cache
def _openings() -> tuple[tuple[int, int, bytes], ...]:
    """Evaluator, garbler and body of every opening."""
    found = []
    for number, told in lists_of_meetings().items():
        step = a_party(number).receive(told)
        assert isinstance(step, Continue)
        for message in step.messages:
            for one in message.split():
                body = one.body.tobytes()
                found.append((int(one.senders[0]), int(one.receivers[0]), body))
    return tuple(found)


def _envelopes() -> tuple[bytes, ...]:
    key = _secret(BERT).public_key().public_bytes_raw()
    return tuple(
        pb.Envelope(
            first=1, last=2, key=key, sealed=_channel(ANNE, BERT).seal(word)
        ).SerializeToString()
        for word in WORDS
    )


def _bitmaps() -> tuple[bytes, ...]:
    slots = the_query()[1].slots
    return tuple(pack_cells(np.full((1, slots), cell)).tobytes() for cell in (False, True))


PAIR_TARGETS: dict[str, tuple[Callable[[bytes], None], tuple[bytes, ...]]] = {
    "pairing": (pairing, tuple(told.body.tobytes() for told in lists_of_meetings().values())),
    "opening": (opening, (_openings()[0][2],)),
    "paired": (paired, _bitmaps()),
    "records-for-a-server": (
        records_for_a_server,
        (the_query_to_servers()[1][0].body[1].tobytes(),),
    ),
    "release-of-pairs-by-servers": (release_of_pairs_by_servers, (RELEASED,)),
    "envelope": (envelope, _envelopes()),
    "sealed_message": (sealed_message, tuple(m.encode() for m in lists_of_meetings().values())),
}
"""What takes any bytes, and some that it takes without complaint."""
