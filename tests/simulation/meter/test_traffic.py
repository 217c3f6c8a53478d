"""Bytes and turns from the headers of packets, against a plain count over the bytes themselves."""

import struct

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tallyroom.simulation.meter import traffic
from tallyroom.simulation.meter.traffic import HEADER_BYTES, Traffic, pairs_of

FIRST, SECOND = (0x0A000001, 5000), (0x0A000002, 6000)
NAMES = {FIRST[0]: "first", SECOND[0]: "second"}


def ip(source: int, target: int, protocol: int, rest: bytes, options: bytes = b"") -> bytes:
    size = 20 + len(options) + len(rest)
    head = struct.pack(
        "!BBHHHBBHII", 0x45 + len(options) // 4, 0, size, 0, 0, 64, protocol, 0, source, target
    )
    return head + options + rest


def tcp(
    source: tuple[int, int],
    target: tuple[int, int],
    sequence: int,
    payload: int,
    flags: int = 0x10,
    options: bytes = b"",
) -> bytes:
    words = (5 + len(options) // 4) << 4
    head = struct.pack(
        "!HHIIBBHHH", source[1], target[1], sequence % 2**32, 0, words, flags, 0, 0, 0
    )
    return ip(source[0], target[0], 6, head + options + bytes(payload))


def udp(source: tuple[int, int], target: tuple[int, int], payload: int) -> bytes:
    head = struct.pack("!HHHH", source[1], target[1], 8 + payload, 0)
    return ip(source[0], target[0], 17, head + bytes(payload))


def fed(found: Traffic, packets: list[bytes]) -> Traffic:
    heads = [packet[:HEADER_BYTES].ljust(HEADER_BYTES, b"\xff") for packet in packets]
    table = np.frombuffer(b"".join(heads), np.uint8).reshape(-1, HEADER_BYTES)
    found.add(table, np.array([len(packet) for packet in packets], dtype=np.int64))
    return found


def totals(found: Traffic) -> dict[tuple[str, str], tuple[int, int, int, int]]:
    return {
        (pair.sender, pair.receiver): (
            pair.total.bytes,
            pair.total.packets,
            pair.total.packet_bytes,
            pair.turns,
        )
        for pair in pairs_of(found.connections.values(), lambda end: NAMES[end[0]])
    }


def test_payload_is_what_is_left_of_every_header() -> None:
    packets = [
        tcp(FIRST, SECOND, 7, 100, options=bytes(12)),
        ip(FIRST[0], SECOND[0], 6, tcp(FIRST, SECOND, 107, 30)[20:], options=bytes(40)),
        udp(SECOND, FIRST, 50),
        ip(SECOND[0], FIRST[0], 1, bytes(64)),
    ]
    found = totals(fed(Traffic(), packets))
    assert found["first", "second"] == (130, 2, 152 + 110, 1)
    assert found["second", "first"] == (50, 2, 78 + 84, 1)


def test_the_newer_protocol_is_read_too() -> None:
    body = tcp(FIRST, SECOND, 1, 40)[20:]
    addresses = bytes(12) + struct.pack("!I", FIRST[0]) + bytes(12) + struct.pack("!I", SECOND[0])
    packet = struct.pack("!IHBB", 6 << 28, len(body), 6, 64) + addresses + body
    assert totals(fed(Traffic(), [packet])) == {("first", "second"): (40, 1, 100, 1)}


def test_a_later_fragment_is_all_payload() -> None:
    packet = bytearray(ip(FIRST[0], SECOND[0], 17, bytes(500)))
    packet[6:8] = struct.pack("!H", 185)
    assert totals(fed(Traffic(), [bytes(packet)])) == {("first", "second"): (500, 1, 520, 1)}


said = st.tuples(st.booleans(), st.integers(0, 300), st.integers(0, 900))


@given(
    st.lists(said, max_size=60), st.integers(0, 2**32 - 1), st.lists(st.integers(1, 7), max_size=9)
)
def test_every_byte_counts_once_however_often_it_is_sent(
    steps: list[tuple[bool, int, int]], begin: int, cuts: list[int]
) -> None:
    """Segments begin up to 900 bytes before what was sent last: they overlap or are sent again. In
    batches of any size, and across the end of TCP's numbers."""
    reached = {True: 0, False: 0}
    counted, turns, last = {True: 0, False: 0}, 0, None
    packets = []
    for way in (True, False):
        ends = (FIRST, SECOND) if way else (SECOND, FIRST)
        packets.append(tcp(*ends, begin - 1, 0, flags=0x02))
    for upward, size, back in steps:
        start = max(0, reached[upward] - back)
        ends = (FIRST, SECOND) if upward else (SECOND, FIRST)
        packets.append(tcp(*ends, begin + start, size))
        new = max(0, start + size - reached[upward])
        if new and last != upward:
            turns, last = turns + 1, upward
        counted[upward] += new
        reached[upward] += new
    found = Traffic()
    left = packets
    for cut in cuts:
        fed(found, left[:cut])
        left = left[cut:]
    fed(found, left)
    for pair, carried in totals(found).items():
        upward = pair == ("first", "second")
        assert carried[0] == counted[upward]
        assert carried[3] == turns


def test_a_connection_that_begins_again_is_counted_anew() -> None:
    packets = [
        tcp(FIRST, SECOND, 100, 0, flags=0x02),
        tcp(FIRST, SECOND, 101, 10),
        tcp(FIRST, SECOND, 50, 0, flags=0x02),
        tcp(FIRST, SECOND, 51, 20),
    ]
    assert totals(fed(Traffic(), packets))["first", "second"][0] == 30


def test_what_says_nothing_new_takes_no_turn() -> None:
    packets = [
        tcp(FIRST, SECOND, 0, 10),
        tcp(SECOND, FIRST, 0, 0),  # an acknowledgement
        tcp(FIRST, SECOND, 9, 1),  # a probe that nobody is lost
        tcp(FIRST, SECOND, 10, 0, flags=0x11),
        tcp(FIRST, SECOND, 11, 0),  # after the end, which has a number of its own
        tcp(SECOND, FIRST, 0, 5),
    ]
    found = totals(fed(Traffic(), packets))
    assert found["first", "second"][0] == 10
    assert found["second", "first"] == (5, 2, 85, 2)


def test_connections_beyond_the_bound_are_counted_together() -> None:
    before, traffic.MOST_CONNECTIONS = traffic.MOST_CONNECTIONS, 3
    try:
        found = fed(Traffic(), [udp((FIRST[0], port), SECOND, 10) for port in range(100, 120)])
    finally:
        traffic.MOST_CONNECTIONS = before
    assert len(found.connections) == 4
    assert totals(found) == {("first", "second"): (200, 20, 760, 1)}


def test_phases_are_those_of_the_sender() -> None:
    now = {"first": "a", "second": "b"}
    found = Traffic(lambda end: now[NAMES[end[0]]])
    fed(found, [udp(FIRST, SECOND, 10), udp(SECOND, FIRST, 20)])
    now["first"] = "c"
    fed(found, [udp(FIRST, SECOND, 30)])
    pairs = pairs_of(found.connections.values(), lambda end: NAMES[end[0]])
    spent = {(p.sender, name): c.bytes for p in pairs for name, c in p.phases.items()}
    assert spent == {("first", "a"): 10, ("second", "b"): 20, ("first", "c"): 30}
