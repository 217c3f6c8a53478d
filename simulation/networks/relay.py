"""Relays, which need no root: a process's traffic passes a proxy with the rate, delay and loss of
its line and of the receiver's.

They carry TCP streams: delay and rate are right, but congestion has no dynamics. A lost packet
holds up everything after it for a round trip, as in TCP; opening a connection takes a round trip.
"""

import asyncio
import contextlib
import os
import random
import threading
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from tallyroom.protocols.wire.messages import Role
from tallyroom.simulation.networks.emulation import LOOPBACK, Emulation, LineAccess
from tallyroom.simulation.networks.network import Network
from tallyroom.simulation.networks.profile import Profile

PACKET = 1448
CHUNK = 1 << 14
MOST_CHUNKS = 4096
"""Bytes in flight at a time; a sender with more waits."""
MOST_HEAD = 4096
PROXY = "grpc_proxy"
HEAD_ENDS = b"\r\n\r\n"


@dataclass(frozen=True)
class Proxied(LineAccess):
    """gRPC asks the proxy for every connection."""

    proxy: str

    def plug_in(self) -> None:
        for name in ("no_grpc_proxy", "no_proxy"):
            os.environ.pop(name, None)
        os.environ[PROXY] = self.proxy


class RelayDirection:
    """One direction of a line that all connections of a process share, one chunk after another."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._free = 0.0

    def book(self, size: int, now: float) -> tuple[float, float]:
        """When the first and the last of `size` bytes pass, if they are available from `now` on."""
        begun = max(self._free, now)
        self._free = begun + size / self._rate
        return begun, self._free


class RelayLine:
    """The line of one process, which hosts `members` members of its role."""

    def __init__(self, network: Network, role: Role, members: int = 1) -> None:
        self.role = role
        rate = network.line(role).rate * members
        self.up, self.down = RelayDirection(rate), RelayDirection(rate)


class RandomLosses:
    """The random losses of a link, the same in every run."""

    def __init__(self, link: Profile) -> None:
        self._link = link
        self._random = random.Random(1)

    def delay(self, size: int) -> float:
        """The delay of `size` bytes: three times as long if a packet is lost and sent again."""
        packets = -(-size // PACKET)
        lost = self._random.random() >= (1 - self._link.loss) ** packets
        return self._link.delay * (3 if lost else 1)


class Relays(Emulation):
    """All relays of a federation, in one thread."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._lines: dict[str, RelayLine] = {}
        self._outlets: dict[str, LineAccess] = {}
        self._listening: dict[int, RelayLine] = {}
        self._servers: list[asyncio.Server] = []

    def line(self, name: str, role: Role, members: int = 1) -> LineAccess:
        if name not in self._outlets:
            self._lines[name] = RelayLine(self._network, role, members)
            port = self._wait(self._open(self._lines[name]))
            self._outlets[name] = Proxied(f"http://{LOOPBACK}:{port}")
        return self._outlets[name]

    def listens(self, name: str, port: int) -> None:
        self._listening[port] = self._lines[name]

    def close(self) -> None:
        if not self._loop.is_closed():
            self._wait(self._end())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        ours = asyncio.current_task()
        tasks = [each for each in asyncio.all_tasks() if each is not ours]
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0.05)  # lets the loop close aborted sockets

    async def _open(self, line: RelayLine) -> int:
        async def carry(near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
            try:
                await self._carry(line, near, back)
            except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                pass  # the receiver is absent or a process is gone: the streams end
            except asyncio.CancelledError:
                pass  # all streams end
            finally:
                back.transport.abort()

        server = await asyncio.start_server(carry, LOOPBACK, 0, limit=MOST_HEAD)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def _carry(
        self, line: RelayLine, near: asyncio.StreamReader, back: asyncio.StreamWriter
    ) -> None:
        """A process asks for a connection with `CONNECT host:port`."""
        head = await near.readuntil(HEAD_ENDS)
        method, target, _ = head.split(b" ", 2)
        host, _, port = target.decode().rpartition(":")
        if method != b"CONNECT" or host != LOOPBACK:
            raise ValueError("not a connection between processes of this federation")
        # Parties that meet listen on any free port, and tell each other.
        other = self._listening.setdefault(int(port), RelayLine(self._network, Role.PARTY))
        link = self._network.between(line.role, other.role)
        far, on = await asyncio.open_connection(LOOPBACK, int(port))
        try:
            await asyncio.sleep(2 * link.delay)
            back.write(b"HTTP/1.1 200 OK" + HEAD_ENDS)
            await asyncio.gather(
                _pump(near, on, line.up, other.down, RandomLosses(link)),
                _pump(far, back, other.up, line.down, RandomLosses(link)),
            )
        finally:
            on.transport.abort()


async def _pump(
    source: asyncio.StreamReader,
    sink: asyncio.StreamWriter,
    out: RelayDirection,
    into: RelayDirection,
    luck: RandomLosses,
) -> None:
    """Forwards in order: nothing overtakes what was sent before. A chunk takes the receiver's line
    only after it has passed the sender's, since others may be faster."""
    loop = asyncio.get_running_loop()
    sent: asyncio.Queue[tuple[float, float, bytes]] = asyncio.Queue(MOST_CHUNKS)
    under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(MOST_CHUNKS)

    async def until(due: float) -> None:
        if (left := due - loop.time()) > 0:
            await asyncio.sleep(left)

    async def forward() -> None:
        while True:
            begun, ended, data = await sent.get()
            await until(begun)
            arrived = max(ended, into.book(len(data), begun)[1])
            await under_way.put((arrived + luck.delay(len(data)), data))

    async def deliver() -> None:
        last = 0.0
        while True:
            due, data = await under_way.get()
            last = max(last, due)
            await until(last)
            if not data:
                with contextlib.suppress(OSError):
                    sink.write_eof()
                return
            sink.write(data)
            await sink.drain()

    forwarding, delivery = asyncio.create_task(forward()), asyncio.create_task(deliver())
    try:
        while data := await source.read(CHUNK):
            await sent.put((*out.book(len(data), loop.time()), data))
        await sent.put((*out.book(0, loop.time()), b""))
        await delivery
    finally:
        forwarding.cancel()
        delivery.cancel()
