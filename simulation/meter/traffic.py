"""What was sent between two ends, from the headers of packets in the order in which they were sent.

Bytes are those that TCP or UDP carried, each counted once however often it was sent again; packets
and their sizes are those of the wire. A turn begins when the other end of a connection has
something new to say: a ping and its pong are two turns.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

HEADER_BYTES = 96
"""Of each packet: enough for the longest headers of IP and TCP."""
TCP, UDP = 6, 17
SYN = 0x02
MOST_CONNECTIONS = 100_000
"""Of more, the others are counted as one for each pair of addresses."""

Headers = NDArray[np.uint8]
Integers = NDArray[np.int64]
End = tuple[int, int]
"""An address, or the last four bytes of one, and a port."""


@dataclass
class SentTraffic:
    """`again_bytes` were sent before; `lost_packets` did not arrive."""

    bytes: int = 0
    packets: int = 0
    packet_bytes: int = 0
    again_bytes: int = 0
    lost_packets: int = 0

    def add(self, other: "SentTraffic") -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    def as_json(self) -> dict[str, int]:
        return dict(vars(self))


@dataclass(frozen=True)
class PacketTable:
    """Columns, a row for each packet. `payload` is what TCP or UDP carries."""

    source: Integers
    source_port: Integers
    target: Integers
    target_port: Integers
    protocol: Integers
    size: Integers
    payload: Integers
    sequence: Integers
    syn: NDArray[np.bool_]


def read_headers(headers: Headers, sizes: Integers) -> PacketTable:
    """`headers` has `HEADER_BYTES` of each packet, from the first byte of IP on."""
    rows = np.arange(len(headers))

    def number(at: Integers | int, width: int) -> Integers:
        found = np.zeros(len(headers), dtype=np.int64)
        for step in range(width):
            found = found << 8 | headers[rows, np.minimum(at + step, HEADER_BYTES - 1)]
        return found

    newer = headers[:, 0] >> 4 == 6
    begins = np.where(newer, 40, (headers[:, 0] & 15).astype(np.int64) * 4)
    protocol = np.where(newer, headers[:, 6], headers[:, 9]).astype(np.int64)
    later = ~newer & (number(6, 2) & 0x1FFF > 0)  # a fragment that has no header of its own
    tcp, udp = (protocol == TCP) & ~later, (protocol == UDP) & ~later
    own = np.where(tcp, (number(begins + 12, 1) >> 4) * 4, np.where(udp, 8, 0))
    carries = (protocol == TCP) | (protocol == UDP)
    return PacketTable(
        source=number(np.where(newer, 20, 12), 4),
        source_port=np.where(tcp | udp, number(begins, 2), 0),
        target=number(np.where(newer, 36, 16), 4),
        target_port=np.where(tcp | udp, number(begins + 2, 2), 0),
        protocol=protocol,
        size=sizes,
        payload=np.where(carries, np.maximum(sizes - begins - own, 0), 0),
        sequence=np.where(tcp, number(begins + 4, 4), 0),
        syn=tcp & (number(begins + 13, 1) & SYN > 0),
    )


class Flow:
    """One direction of a connection. TCP numbers its bytes, modulo 2³²."""

    def __init__(self) -> None:
        self._next: int | None = None

    def new_bytes(self, sequence: Integers, payload: Integers, syn: NDArray[np.bool_]) -> Integers:
        """How many bytes of each packet were never sent before."""
        found = np.zeros(len(payload), dtype=np.int64)
        begins = sorted({0, len(payload), *np.flatnonzero(syn).tolist()})
        for begin, end in pairwise(begins):
            if syn[begin]:
                self._next = int(sequence[begin]) + 1
            elif self._next is None:
                self._next = int(sequence[begin])
            part = slice(begin, end)
            ahead = (sequence[part] + payload[part] - self._next).astype(np.uint32).astype(np.int32)
            reached = np.where(payload[part] > 0, ahead, 0).astype(np.int64)
            furthest = np.maximum.accumulate(np.concatenate(([0], reached)))
            found[part] = np.diff(furthest)
            self._next += int(furthest[-1])
        return found


@dataclass
class Connection:
    """`carried` is by phase and direction, which is True from the smaller end to the other."""

    ends: tuple[End, End]
    flows: dict[bool, Flow] = field(default_factory=lambda: {True: Flow(), False: Flow()})
    carried: dict[tuple[bool, str], SentTraffic] = field(default_factory=dict)
    turns: int = 0
    last: bool | None = None

    def add(
        self, seen: PacketTable, at: Integers, upward: NDArray[np.bool_], phase: "Says"
    ) -> None:
        new = np.zeros(len(at), dtype=np.int64)
        for way, flow in self.flows.items():
            mine = at[upward == way]
            if len(mine) == 0:
                continue
            payload = seen.payload[mine]
            if seen.protocol[mine[0]] == TCP:
                new[upward == way] = flow.new_bytes(seen.sequence[mine], payload, seen.syn[mine])
            else:
                new[upward == way] = payload
            sent = SentTraffic(int(new[upward == way].sum()), len(mine), int(seen.size[mine].sum()))
            sent.again_bytes = int(payload.sum()) - sent.bytes
            self.carried.setdefault((way, phase(self.ends[not way])), SentTraffic()).add(sent)
        self._turn(upward[new > 0])

    def _turn(self, spoke: NDArray[np.bool_]) -> None:
        if len(spoke) == 0:
            return
        first = self.last is None or self.last != spoke[0]
        self.turns += int(first) + int(np.count_nonzero(spoke[1:] != spoke[:-1]))
        self.last = bool(spoke[-1])


Says = Callable[[End], str]


class Traffic:
    """Connections by their two ends. `phase` says what phase the sender at an end is in."""

    def __init__(self, phase: Says = lambda _: "") -> None:
        self._phase = phase
        self.connections: dict[tuple[End, End, int], Connection] = {}

    def add(self, headers: Headers, sizes: Integers) -> None:
        """Packets in the order in which they were sent."""
        if len(headers) == 0:
            return
        seen = read_headers(headers, sizes)
        source = seen.source << 16 | seen.source_port
        target = seen.target << 16 | seen.target_port
        upward = source <= target
        low, high = np.minimum(source, target), np.maximum(source, target)
        order = np.lexsort((np.arange(len(low)), seen.protocol, high, low))
        keys = np.stack((low, high, seen.protocol))[:, order]
        begins = np.flatnonzero(np.any(keys[:, 1:] != keys[:, :-1], axis=0)) + 1
        for at in np.split(order, begins):
            first = at[0]
            found = self._connection(int(low[first]), int(high[first]), int(seen.protocol[first]))
            found.add(seen, at, upward[at], self._phase)

    def lost(self, source: int, target: int) -> None:
        """One packet between two addresses did not arrive."""
        low, high = sorted((source, target))
        way = source <= target
        found = self._connection(low << 16, high << 16, 0)
        spent = found.carried.setdefault((way, self._phase(found.ends[not way])), SentTraffic())
        spent.lost_packets += 1

    def _connection(self, low: int, high: int, protocol: int) -> Connection:
        ends: tuple[End, End] = ((low >> 16, low & 0xFFFF), (high >> 16, high & 0xFFFF))
        key = (*ends, protocol)
        if key not in self.connections and len(self.connections) >= MOST_CONNECTIONS:
            ends = ((ends[0][0], 0), (ends[1][0], 0))
            key = (*ends, protocol)
        return self.connections.setdefault(key, Connection(ends))


@dataclass
class PairTraffic:
    """What one member sent to another, by phase. `turns` are of the connection between the two
    that has most of them, both directions together."""

    sender: str
    receiver: str
    phases: dict[str, SentTraffic] = field(default_factory=dict)
    turns: int = 0

    @property
    def total(self) -> SentTraffic:
        whole = SentTraffic()
        for part in self.phases.values():
            whole.add(part)
        return whole


def pairs_of(connections: Iterable[Connection], name: Says) -> list[PairTraffic]:
    """Ordered pairs that sent anything, by name."""
    found: dict[tuple[str, str], PairTraffic] = {}
    for each in connections:
        names = name(each.ends[0]), name(each.ends[1])
        for (upward, phase), carried in each.carried.items():
            pair = names if upward else names[::-1]
            made = found.setdefault(pair, PairTraffic(*pair))
            made.phases.setdefault(phase, SentTraffic()).add(carried)
            made.turns = max(made.turns, each.turns)
    return [found[pair] for pair in sorted(found)]
