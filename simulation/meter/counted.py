"""Where members run, and who counts what they send each other.

- `InNamespaces`: each member has a network namespace and a line; what forwards packets counts them.
- `Together`: one command is on the loopback of one namespace, and a tap on that counts.
- `OnLoopback`: without root, nobody counts.
"""

import os
import socket
import struct
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np

from tallyroom.simulation.meter.processes import ProcessWatch
from tallyroom.simulation.meter.program import Program
from tallyroom.simulation.meter.tap import Tap
from tallyroom.simulation.meter.traffic import (
    HEADER_BYTES,
    End,
    Headers,
    Integers,
    PairTraffic,
    Traffic,
    pairs_of,
)
from tallyroom.simulation.networks.emulation import LOOPBACK
from tallyroom.simulation.networks.namespaces import (
    DEVICE,
    Namespaces,
    PacketObserver,
    counted,
    made_alone,
)
from tallyroom.simulation.networks.network import Network

BATCH = 4096
UNKNOWN = "unknown"
AT_ONCE, SHARE = 0.2, 0.02
"""CPU seconds that finding the owners of new connections may take: so many, and this share of the
time."""

Phases = Callable[[str], str]
"""The phase that a member is in."""


class Counted(ABC):
    """`kernel` is what the kernel counted: bytes and packets of all devices, headers included."""

    addresses: dict[str, str]
    namespaces: dict[str, int]

    @abstractmethod
    def drain(self) -> None:
        """What was sent until now is counted when it returns."""

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def pairs(self) -> list[PairTraffic]: ...

    @property
    def kernel(self) -> dict[str, int]:
        return {}

    @property
    def missed(self) -> int:
        """Packets that nobody counted."""
        return 0


class OnLoopback(Counted):
    def __init__(self, program: Program) -> None:
        self.addresses = dict.fromkeys(program.members, LOOPBACK)
        self.namespaces = {}

    def drain(self) -> None:
        pass

    def close(self) -> None:
        pass

    def pairs(self) -> list[PairTraffic]:
        return []


class InNamespaces(Counted, PacketObserver):
    def __init__(self, program: Program, phase: Phases) -> None:
        self._traffic = Traffic(lambda end: phase(self._name(end)))
        self._lock = threading.Lock()
        self._waiting: list[bytes] = []
        self._lines = Namespaces(program.network or Network(), self)
        for name, role in program.members.items():
            self._lines.line(name, role.role)
        self.addresses = {name: self._lines.address(name) for name in program.members}
        self.namespaces = {name: self._lines.descriptor(name) for name in program.members}
        self._names = {_number(address): name for name, address in self.addresses.items()}
        self._kernel: dict[str, int] = {}

    def _name(self, end: End) -> str:
        return self._names.get(end[0], UNKNOWN)

    def sent(self, packet: bytes) -> None:
        with self._lock:
            self._waiting.append(packet)
            if len(self._waiting) >= BATCH:
                self._count()

    def lost(self, packet: bytes) -> None:
        with self._lock:
            self._traffic.lost(*struct.unpack("!II", packet[12:20]))

    def _count(self) -> None:
        packets, self._waiting = self._waiting, []
        heads = b"".join(packet[:HEADER_BYTES].ljust(HEADER_BYTES, b"\0") for packet in packets)
        headers = np.frombuffer(heads, np.uint8).reshape(-1, HEADER_BYTES)
        self._traffic.add(headers, np.array([len(packet) for packet in packets], dtype=np.int64))

    def drain(self) -> None:
        with self._lock:
            self._count()

    def close(self) -> None:
        try:
            for name in self.namespaces:
                found = counted(self.namespaces[name], DEVICE.decode())
                for key, value in found.items():
                    self._kernel[key] = self._kernel.get(key, 0) + value
        finally:
            self._lines.close()
            self.drain()

    @property
    def kernel(self) -> dict[str, int]:
        return {name: self._kernel[name] for name in ("sent_bytes", "sent_packets")}

    @property
    def missed(self) -> int:
        seen = sum(pair.total.packets for pair in self.pairs())
        return self._kernel["sent_packets"] - seen

    def pairs(self) -> list[PairTraffic]:
        return pairs_of(self._traffic.connections.values(), self._name)


class Together(Counted):
    """Ends are the processes of the command, by the ports that they have open."""

    def __init__(self, program: Program, phase: Phases, watch: ProcessWatch) -> None:
        (self._member,) = program.members
        self._watch = watch
        self._names: dict[int, str] = {}
        self._named = 0
        self._began, self._looking = time.monotonic(), 0.0
        self._traffic = Traffic(lambda _: phase(self._member))
        self._namespace = made_alone()
        self._tap = Tap(self._namespace, self._take)
        self.addresses = {self._member: LOOPBACK}
        self.namespaces = {self._member: self._namespace}
        self._kernel: dict[str, int] = {}

    def _take(self, headers: Headers, sizes: Integers) -> None:
        self._traffic.add(headers, sizes)
        connections = len(self._traffic.connections)
        allowed = AT_ONCE + SHARE * (time.monotonic() - self._began)
        if connections > self._named and self._looking < allowed:
            begun = time.thread_time()
            self._names = self._watch.owners() | self._names
            self._named = connections
            self._looking += time.thread_time() - begun

    def drain(self) -> None:
        self._tap.drain()

    def close(self) -> None:
        self._kernel = counted(self._namespace, "lo")
        self._tap.close()
        os.close(self._namespace)

    @property
    def kernel(self) -> dict[str, int]:
        return {name: self._kernel[name] for name in ("sent_bytes", "sent_packets")}

    @property
    def missed(self) -> int:
        return self._tap.missed

    def pairs(self) -> list[PairTraffic]:
        return pairs_of(
            self._traffic.connections.values(), lambda end: self._names.get(end[1], UNKNOWN)
        )


def _number(address: str) -> int:
    return int.from_bytes(socket.inet_aton(address), "big")
