"""The byte codec: strict, bounded, and the same for a batch as for its parts."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallyroom.protocols.errors import PeerError
from tallyroom.protocols.wire.messages import (
    MAX_WIRE_BYTES,
    VERSION,
    Message,
    Phase,
    Role,
    address,
    body_of,
    decode,
)
from tests.samples import RUN, a_message, same

HEADER = struct.Struct("<BBBHB28sIII")
IN_RUNS = [role for role in Role if role is not Role.REGISTRAR]


@st.composite
def messages(draw: st.DrawFn) -> Message:
    links = draw(st.integers(1, 6))
    roles = draw(st.sampled_from(IN_RUNS)), draw(st.sampled_from(IN_RUNS))
    paired = roles == (Role.PARTY, Role.PARTY)
    senders = links if paired else draw(st.sampled_from([1, links]))
    receivers = links if paired or senders == 1 else draw(st.sampled_from([1, links]))
    ids = st.integers(0, 2**24 - 1)
    width = draw(st.integers(0, 40))
    rows = draw(st.sampled_from([1, links]))
    body = np.frombuffer(draw(st.binary(min_size=rows * width, max_size=rows * width)), np.uint8)
    return Message(
        draw(st.binary(min_size=28, max_size=28)),
        draw(st.sampled_from(Phase)),
        *roles,
        address(*draw(st.lists(ids, min_size=senders, max_size=senders, unique=True))),
        address(*draw(st.lists(ids, min_size=receivers, max_size=receivers, unique=True))),
        body.reshape(rows, width),
        draw(st.integers(0, 1000)),
    )


@given(messages())
def test_what_is_encoded_is_decoded(message: Message) -> None:
    data = message.encode()
    back = decode(data, "peer")
    assert len(data) == message.wire_bytes
    assert back.encode() == data
    assert (back.run, back.phase, back.round) == (message.run, message.phase, message.round)
    assert (back.sender_role, back.receiver_role) == (message.sender_role, message.receiver_role)
    assert back.senders.tolist() == message.senders.tolist()
    assert back.receivers.tolist() == message.receivers.tolist()
    assert back.rows().tolist() == message.rows().tolist()


@given(messages())
def test_every_truncation_and_every_trailing_byte_is_refused(message: Message) -> None:
    data = message.encode()
    for end in range(len(data)):
        with pytest.raises(PeerError):
            decode(data[:end], "peer")
    with pytest.raises(PeerError):
        decode(data + b"\0", "peer")


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_and_nothing_else_is_raised(data: bytes) -> None:
    try:
        message = decode(data, "peer")
    except PeerError:
        return
    assert message.encode() == data


@given(messages(), st.data())
def test_one_changed_byte_is_refused_or_decodes_to_exactly_those_bytes(
    message: Message, data: st.DataObject
) -> None:
    wire = bytearray(message.encode())
    place = data.draw(st.integers(0, len(wire) - 1))
    wire[place] ^= data.draw(st.integers(1, 255))
    try:
        back = decode(bytes(wire), "peer")
    except PeerError:
        return
    assert back.encode() == bytes(wire)


def header(**changes: int) -> bytes:
    fields = {
        "version": VERSION,
        "phase": 2,
        "sender_role": 1,
        "receiver_role": 2,
        "round": 1,
        "flags": 0,
        "senders": 1,
        "receivers": 1,
        "width": 4,
    } | changes
    roles = 16 * fields.pop("sender_role") + fields.pop("receiver_role")
    values = list(fields.values())
    values.insert(2, roles)
    ids = b"".join(
        np.arange(fields[who]).astype("<u4").tobytes() for who in ("senders", "receivers")
    )
    links = max(fields["senders"], fields["receivers"])
    rows = 1 if fields["flags"] else links
    return HEADER.pack(*values[:5], RUN, *values[5:]) + ids + bytes(rows * fields["width"])


def test_the_header_under_test_is_the_real_one() -> None:
    assert decode(header(), "peer").width == 4
    assert decode(header(flags=1, senders=3), "peer").links == 3


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 0},
        {"version": VERSION - 1},
        {"version": VERSION + 1},
        {"phase": 0},
        {"phase": 200},
        {"sender_role": 0},
        {"sender_role": 5},
        {"receiver_role": 5},
        {"receiver_role": 9},
        {"flags": 1},  # shared by one link is another encoding of the same message
        {"flags": 2, "senders": 3},
        {"flags": 3, "senders": 3},
        {"round": 2**15 + 1},
        {"round": 2**16 - 1},
        {"senders": 0},
        {"receivers": 0},
        {"senders": 0, "receivers": 0},
        {"senders": 2, "receivers": 3},
    ],
    ids=str,
)
def test_bad_headers_are_refused(changes: dict[str, int]) -> None:
    with pytest.raises(PeerError, match="malformed message"):
        decode(header(**changes), "peer")


@pytest.mark.parametrize("ids", [((5, 1, 5), (0,)), ((0,), (2, 2)), ((1, 2), (3, 3))], ids=str)
def test_a_member_that_appears_twice_is_refused(
    ids: tuple[tuple[int, ...], tuple[int, ...]],
) -> None:
    """A batch is taken apart where a part is bad: one sender must not cost a million parts."""
    message = a_message(Phase.SUBMIT, Role.PARTY, Role.SERVER, *ids)
    with pytest.raises(PeerError, match="a member appears twice"):
        decode(message.encode(), "party-5")


def between_parties(senders: tuple[int, ...], receivers: tuple[int, ...]) -> Message:
    body = np.arange(4 * max(len(senders), len(receivers)), dtype=np.uint8).reshape(-1, 4)
    return a_message(Phase.PAIR, Role.PARTY, Role.PARTY, senders, receivers, body)


def test_between_parties_a_member_may_appear_in_several_pairs() -> None:
    message = between_parties((3, 3, 1, 2, 0), (1, 2, 3, 3, 0))
    back = decode(message.encode(), "party-3")
    assert same(back, message)
    assert [(int(m.senders[0]), int(m.receivers[0])) for m in back.split()] == [
        (3, 1),
        (3, 2),
        (1, 3),
        (2, 3),
        (0, 0),
    ]


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (((3, 3), (1, 1)), "a pair appears twice"),
        (((3, 1, 3), (1, 3, 1)), "a pair appears twice"),
        (((3,), (1, 2)), "1 parties cannot pair with 2"),
        (((1, 2), (3,)), "2 parties cannot pair with 1"),
        (((2**24,), (0,)), "index"),
        (((0,), (2**24,)), "index"),
    ],
    ids=str,
)
def test_between_parties_each_pair_is_there_once(
    ids: tuple[tuple[int, ...], tuple[int, ...]], words: str
) -> None:
    with pytest.raises(PeerError, match=words):
        decode(between_parties(*ids).encode(), "party-3")


@pytest.mark.parametrize(
    "roles",
    [
        (sender, receiver)
        for sender in IN_RUNS
        for receiver in IN_RUNS
        if (sender, receiver) != (Role.PARTY, Role.PARTY)
    ],
    ids=str,
)
def test_between_others_no_member_appears_twice(roles: tuple[Role, Role]) -> None:
    message = a_message(Phase.PAIR, *roles, (3, 3), (1, 2), bytes(4))
    with pytest.raises(PeerError, match="a member appears twice"):
        decode(message.encode(), "peer")


@pytest.mark.parametrize("index", [2**24, 2**32 - 1])
def test_an_index_that_no_federation_has_is_refused(index: int) -> None:
    """Meters keep arrays by party: one wild index must not cost gigabytes."""
    for senders, receivers in (((index,), (0,)), ((0,), (index,)), ((0, index), (0,))):
        message = a_message(Phase.SUBMIT, Role.PARTY, Role.SERVER, senders, receivers, b"body")
        with pytest.raises(PeerError, match="malformed message: index"):
            decode(message.encode(), "peer")


@pytest.mark.parametrize(
    "counts", [(2**32 - 1, 1, 0), (1, 2**32 - 1, 2**32 - 1), (1, 1, 2**32 - 1)]
)
def test_a_header_that_promises_the_moon_costs_nothing(counts: tuple[int, int, int]) -> None:
    with pytest.raises(PeerError, match="promises"):
        decode(HEADER.pack(VERSION, 2, 0x12, 1, 0, RUN, *counts), "peer")


@given(messages())
def test_a_batch_is_exactly_its_batches_of_one(message: Message) -> None:
    singles = list(message.split())
    assert len(singles) == message.links
    for i, single in enumerate(singles):
        assert single.links == 1
        assert single.charge == message.charge == len(single.encode())
        assert single.rows().tolist() == [message.rows()[i].tolist()]
        assert single.senders[0] == message.senders[i if len(message.senders) > 1 else 0]
        assert single.receivers[0] == message.receivers[i if len(message.receivers) > 1 else 0]
        assert same(decode(single.encode(), "peer"), single)


@given(messages(), st.integers(0, 120))
def test_chunks_lose_nothing_and_stay_within_the_limit(message: Message, room: int) -> None:
    largest_single = HEADER.size + 8 + message.width
    limit = largest_single + room
    chunks = list(message.chunks(limit))
    assert all(len(chunk.encode()) <= limit for chunk in chunks)
    parts = [single for chunk in chunks for single in chunk.split()]
    assert [part.encode() for part in parts] == [single.encode() for single in message.split()]


def test_chunks_are_as_few_as_the_limit_allows() -> None:
    rows = np.zeros((100_000, 800), dtype=np.uint8)
    message = a_message(Phase.SUBMIT, Role.PARTY, Role.SERVER, tuple(range(100_000)), body=rows)
    sizes = [chunk.wire_bytes for chunk in message.chunks()]
    assert max(sizes) <= MAX_WIRE_BYTES
    assert min(sizes[:-1]) > 0.99 * MAX_WIRE_BYTES


def test_bodies_show_in_no_log_line() -> None:
    secret = b"a share that is secret"
    message = a_message(Phase.SUBMIT, Role.PARTY, Role.SERVER, (3,), body=secret)
    assert repr(message) == "<submit party-3->server-0 1x22 B>"
    for shown in (repr(message), str(message), f"{[message]}"):
        assert "secret" not in shown
        assert str(body_of(secret)[0, 0]) not in shown
