"""A relay in front of a station: the delay, rate and loss of a profile, without root.

It carries TCP streams: delay and rate are right, the dynamics of congestion are not there. A lost
packet holds up what comes after it for a round trip, as TCP would.
"""

import asyncio
import contextlib
import random
import threading
from collections.abc import Coroutine
from typing import Any

from simulation.networks.profile import Profile

PACKET = 1448
CHUNK = 1 << 14
MOST_CHUNKS = 4096
"""On the way at a time; who sends more waits."""


class RelayLine:
    """One direction of a station's line, which all its connections share."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self._free = 0.0
        self._luck = random.Random(1)

    def arrival(self, size: int, now: float) -> float:
        """When the last of `size` bytes comes out, that go in now."""
        profile = self.profile
        self._free = max(self._free, now) + size / profile.rate
        packets = -(-size // PACKET)
        lost = self._luck.random() >= (1 - profile.loss) ** packets
        return self._free + profile.delay * (3 if lost else 1)


class Relays:
    """All relays of a federation, in one thread."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._ports: dict[str, int] = {}
        self._targets: dict[str, int] = {}
        self._servers: list[asyncio.Server] = []

    def before(self, name: str, port: int) -> int:
        """The port of the relay to that station, which listens at `port`; the same when the
        station comes back at another."""
        self._targets[name] = port
        if name not in self._ports:
            self._ports[name] = self._wait(self._listen(name))
        return self._ports[name]

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
        await asyncio.sleep(0.05)  # the loop closes the sockets of what was aborted

    async def _listen(self, name: str) -> int:
        lines = RelayLine(self._profile), RelayLine(self._profile)

        async def carry(near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
            try:
                far, on = await asyncio.open_connection("127.0.0.1", self._targets[name])
            except OSError:
                back.transport.abort()
                return
            try:
                await asyncio.gather(_pump(near, on, lines[0]), _pump(far, back, lines[1]))
            except (OSError, asyncio.CancelledError):
                pass  # a station is gone, or all of them: the streams end either way
            finally:
                for writer in (back, on):
                    writer.transport.abort()

        server = await asyncio.start_server(carry, "127.0.0.1", 0)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, line: RelayLine) -> None:
    """In order: nothing overtakes what was sent before it."""
    loop = asyncio.get_running_loop()
    under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(MOST_CHUNKS)

    async def deliver() -> None:
        last = 0.0
        while True:
            due, data = await under_way.get()
            last = max(last, due)
            if (left := last - loop.time()) > 0:
                await asyncio.sleep(left)
            if not data:
                with contextlib.suppress(OSError):
                    sink.write_eof()
                return
            sink.write(data)
            await sink.drain()

    delivery = asyncio.create_task(deliver())
    try:
        while data := await source.read(CHUNK):
            await under_way.put((line.arrival(len(data), loop.time()), data))
        await under_way.put((line.arrival(0, loop.time()), b""))
        await delivery
    finally:
        delivery.cancel()
