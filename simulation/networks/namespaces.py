"""Network namespaces, which need root: every process has a network of its own, whose only exit is a
line that this process forwards packet by packet. TCP is the kernel's, with all its dynamics.

Each namespace has a TUN device. A packet from it passes the sender's line and the receiver's, each
with its own rate and a queue that drops what it has no room for, waits for the delay, and enters
the receiver's device. Nothing outside is touched: namespaces and devices disappear with the last
process that has them open.
"""

import contextlib
import ctypes
import fcntl
import heapq
import itertools
import os
import random
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.wire.messages import Role
from tallyroom.simulation.networks.emulation import LOOPBACK, Emulation, LineAccess
from tallyroom.simulation.networks.network import Network
from tallyroom.simulation.networks.profile import Profile

T = TypeVar("T")
TUN = Path("/dev/net/tun")
PREFIX = "10.77"
MOST_LINES = 250 * 250
CLONE_NEWNET = 0x40000000
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
SIOCSIFADDR, SIOCSIFNETMASK, SIOCGIFFLAGS, SIOCSIFFLAGS = 0x8916, 0x891C, 0x8913, 0x8914
IFF_UP = 1
DEVICE = b"line0"
NO_IPV6 = Path("/proc/sys/net/ipv6/conf/line0/disable_ipv6")
LEAST_QUEUE = 1 << 16
QUEUE_SECONDS = 0.1
"""A queue holds as much as its line carries in this time; more is dropped, and TCP slows down."""
BUFFER = 1 << 16


def missing() -> str:
    """Returns why namespaces cannot be used here; empty if they can."""
    if not hasattr(os, "geteuid") or not Path("/proc/self/ns/net").exists():
        return "this system has no network namespaces"
    if os.geteuid() != 0:
        return "namespaces need root"
    if not os.access(TUN, os.R_OK | os.W_OK):
        return f"{TUN} cannot be opened"
    try:
        for each in made_at(f"{PREFIX}.255.254"):
            os.close(each)
    except OSError as error:  # root in a container may lack the capability
        return f"no namespace can be made: {error.strerror}"
    return ""


def _libc(name: str, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@dataclass(frozen=True)
class Inside(LineAccess):
    """`path` leads to the namespace for as long as the process that made it lives."""

    path: str

    def plug_in(self) -> None:
        with open(self.path) as namespace:
            _libc("setns", namespace.fileno(), CLONE_NEWNET)


class PacketObserver:
    """Told of every packet that one process sends to another."""

    def sent(self, packet: bytes) -> None:
        """It left its sender's device."""

    def lost(self, packet: bytes) -> None:
        """It will not arrive."""


class Queue:
    """One direction of a line: packets pass one after another; one that finds it full is lost."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._room = max(LEAST_QUEUE, rate * QUEUE_SECONDS)
        self._free = 0.0

    def passed(self, size: int, now: float) -> float | None:
        """Returns when the packet has passed; None if it is dropped."""
        begun = max(self._free, now)
        if (begun - now) * self._rate > self._room:
            return None
        self._free = begun + size / self._rate
        return self._free


@dataclass
class Cell:
    """A namespace with its line."""

    role: Role
    address: str
    namespace: int
    device: int
    up: Queue
    down: Queue


class Namespaces(Emulation):
    """Raises `LocalError` if namespaces cannot be used here."""

    def __init__(self, network: Network, onlooker: PacketObserver | None = None) -> None:
        if reason := missing():
            raise LocalError(f"by=namespaces: {reason}; by=relays works without root")
        self._network = network
        self._cells: dict[str, Cell] = {}
        self._by_address: dict[bytes, Cell] = {}
        self._bridges: list[Bridge] = []
        self._switch = Switch(network, self._by_address, onlooker)

    def line(self, name: str, role: Role, members: int = 1) -> LineAccess:
        if name not in self._cells:
            number = len(self._cells)
            if number >= MOST_LINES:
                raise LocalError(f"by=namespaces: at most {MOST_LINES} processes")
            address = f"{PREFIX}.{number // 250}.{number % 250 + 1}"
            try:
                namespace, device = made_at(address)
            except OSError as error:
                raise LocalError(
                    f"by=namespaces: {error.strerror}; by=relays works without root"
                ) from None
            rate = self._network.line(role).rate * members
            cell = Cell(role, address, namespace, device, Queue(rate), Queue(rate))
            self._cells[name] = self._by_address[socket.inet_aton(address)] = cell
            self._switch.add(cell)
        return Inside(f"/proc/{os.getpid()}/fd/{self._cells[name].namespace}")

    def address(self, name: str) -> str:
        return self._cells[name].address

    def descriptor(self, name: str) -> int:
        """Of the namespace, until this is closed."""
        return self._cells[name].namespace

    def listens(self, name: str, port: int) -> None:
        pass

    def from_here(self, name: str, port: int) -> str:
        self._bridges.append(Bridge(self._cells[name], port))
        return f"{LOOPBACK}:{self._bridges[-1].port}"

    def close(self) -> None:
        for bridge in self._bridges:
            bridge.close()
        self._switch.close()
        for cell in self._cells.values():
            os.close(cell.namespace)
            os.close(cell.device)
        self._cells.clear()


def made_at(address: str) -> tuple[int, int]:
    """Makes a namespace whose device has that address; returns both. Raises `OSError`."""
    # In a thread of its own, which then ends: this process stays in its own namespace.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(_make, address).result()


def _make(address: str) -> tuple[int, int]:
    with contextlib.ExitStack() as undo:
        _libc("unshare", CLONE_NEWNET)
        namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        undo.callback(os.close, namespace)
        device = os.open(TUN, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
        undo.callback(os.close, device)
        fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", DEVICE, IFF_TUN | IFF_NO_PI))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
            _ask(way, SIOCSIFADDR, DEVICE, _ip(address))
            _ask(way, SIOCSIFNETMASK, DEVICE, _ip("255.255.0.0"))
            with contextlib.suppress(OSError):  # nobody here speaks IPv6: the kernel need not
                NO_IPV6.write_text("1")
            for each in (DEVICE, b"lo"):
                _raise_up(way, each)
        undo.pop_all()  # the caller owns it now
    return namespace, device


def made_alone() -> int:
    """A namespace with nothing but its loopback. Raises `OSError`."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(_make_alone).result()


def _make_alone() -> int:
    _libc("unshare", CLONE_NEWNET)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        _raise_up(way, b"lo")
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def within(namespace: int, work: Callable[[], T]) -> T:
    """For a thread that does nothing else afterwards: it stays in there."""
    _libc("setns", namespace, CLONE_NEWNET)
    return work()


def counted(namespace: int, device: str) -> dict[str, int]:
    """The kernel's own counts of what a device sent and received. Raises `RunFailed` if it is gone,
    as root in the namespace may have it."""

    def read() -> str:
        return Path("/proc/thread-self/net/dev").read_text()

    with ThreadPoolExecutor(1) as thread:
        lines = thread.submit(within, namespace, read).result().splitlines()
    counts = (line.split(":")[1].split() for line in lines if line.strip().startswith(device))
    if (found := next(counts, None)) is None:
        raise RunFailed(f"the network device {device} of a member was renamed or removed")
    names = {"received_bytes": 0, "received_packets": 1, "sent_bytes": 8, "sent_packets": 9}
    return {name: int(found[place]) for name, place in names.items()}


def _raise_up(way: socket.socket, device: bytes) -> None:
    flags = struct.unpack("16xH22x", _ask(way, SIOCGIFFLAGS, device, bytes(24)))[0]
    _ask(way, SIOCSIFFLAGS, device, struct.pack("H22x", flags | IFF_UP))


def _ip(address: str) -> bytes:
    return struct.pack("HH4s16x", socket.AF_INET, 0, socket.inet_aton(address))


def _ask(way: socket.socket, call: int, device: bytes, value: bytes) -> bytes:
    return fcntl.ioctl(way, call, struct.pack("16s24s", device, value))


class Switch:
    """Forwards packets between namespaces, in a thread."""

    def __init__(
        self, network: Network, cells: dict[bytes, Cell], onlooker: PacketObserver | None = None
    ) -> None:
        self._network = network
        self._cells = cells
        self._onlooker = onlooker or PacketObserver()
        self._links: dict[tuple[Role, Role], Profile] = {}
        self._luck = random.Random(1)
        self._order = itertools.count()
        self._sent: list[tuple[float, int, bytes, Cell, Profile]] = []
        self._due: list[tuple[float, int, bytes, Cell]] = []
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._ending = False
        self._thread = threading.Thread(target=self._forward, daemon=True)
        self._thread.start()

    def add(self, cell: Cell) -> None:
        self._selector.register(cell.device, selectors.EVENT_READ, cell)
        os.write(self._woken, b"x")

    def close(self) -> None:
        self._ending = True
        os.write(self._woken, b"x")
        self._thread.join()
        self._selector.close()
        os.close(self._wake)
        os.close(self._woken)

    def _forward(self) -> None:
        while not self._ending:
            waiting = [heap[0][0] for heap in (self._sent, self._due) if heap]
            now = time.monotonic()
            timeout = max(0.0, min(waiting) - now) if waiting else None
            for key, _ in self._selector.select(timeout):
                if key.data is None:
                    os.read(self._wake, BUFFER)
                else:
                    self._take(key.data)
            self._move(time.monotonic())

    def _take(self, sender: Cell) -> None:
        """Takes all packets that the device has to send."""
        for _ in range(256):
            try:
                packet = os.read(sender.device, BUFFER)
            except OSError:
                return
            if len(packet) < 20 or packet[0] >> 4 != 4:
                continue
            receiver = self._cells.get(packet[16:20])
            now = time.monotonic()
            if receiver is None:
                continue
            self._onlooker.sent(packet)
            passed = sender.up.passed(len(packet), now)
            link = self._link(sender.role, receiver.role)
            if passed is None or self._luck.random() < link.loss:
                self._onlooker.lost(packet)
                continue
            heapq.heappush(self._sent, (passed, next(self._order), packet, receiver, link))

    def _move(self, now: float) -> None:
        """A packet enters the receiver's line only after it has passed the sender's."""
        while self._sent and self._sent[0][0] <= now:
            sent, order, packet, receiver, link = heapq.heappop(self._sent)
            passed = receiver.down.passed(len(packet), sent)
            if passed is None:
                self._onlooker.lost(packet)
                continue
            heapq.heappush(self._due, (passed + link.delay, order, packet, receiver))
        while self._due and self._due[0][0] <= now:
            _, _, packet, receiver = heapq.heappop(self._due)
            try:
                os.write(receiver.device, packet)
            except OSError:  # its device is full: as a host that has no room
                self._onlooker.lost(packet)

    def _link(self, sender: Role, receiver: Role) -> Profile:
        if (sender, receiver) not in self._links:
            self._links[sender, receiver] = self._network.between(sender, receiver)
        return self._links[sender, receiver]


class Bridge:
    """Connects this machine's loopback to a port inside a namespace, bypassing its line."""

    def __init__(self, cell: Cell, port: int) -> None:
        self._target = (cell.address, port)
        self._namespace = cell.namespace
        self._listening = socket.create_server((LOOPBACK, 0))
        self.port = int(self._listening.getsockname()[1])
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for each in (self._listening, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        """A socket belongs to the namespace of the thread that makes it, so this thread enters."""
        _libc("setns", self._namespace, CLONE_NEWNET)
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self._target, 10)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            self._open += near, far
            for pair in ((near, far), (far, near)):
                threading.Thread(target=_copy, args=pair, daemon=True).start()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with _ends(sink):
        while data := source.recv(BUFFER):
            sink.sendall(data)


@contextmanager
def _ends(sink: socket.socket) -> Iterator[None]:
    with contextlib.suppress(OSError):
        try:
            yield
        finally:
            sink.shutdown(socket.SHUT_WR)
