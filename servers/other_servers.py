"""A server's connections to the other servers, with mutual TLS, for what they compute together.

The coordinator says where the others are, and no more: whoever answers there has to prove with its
certificate which server it is. A message is sent again until it is acknowledged, which means that
it is in the other server's journal. A restarted server repeats all of a run, and repeated messages
are accepted silently.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv6Address

import grpc
import grpc.aio

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.identity.certificates import Credentials, Identity
from tallyroom.protocols.query import MAX_SERVERS
from tallyroom.protocols.wire.messages import Message, Role
from tallyroom.protos import tally_pb2 as pb
from tallyroom.protos.channel import open_channel
from tallyroom.protos.retry import may_succeed_later
from tallyroom.protos.tally_pb2_grpc import MessagesStub
from tallyroom.protos.tasks import Tasks
from tallyroom.servers.hosts import MAX_ADDRESS
from tallyroom.servers.metrics import parse_address

log = logging.getLogger(__name__)

CALL_SECONDS = 30.0
"""How long the other server may take over one message: it garbles or evaluates some megabytes."""
RETRY_SECONDS = 0.05
LONGEST_RETRY_SECONDS = 2.0
HOST = re.compile(r"[0-9A-Za-z._-]+")


class OtherServers:
    """`is_open` says whether a run is still open here; messages of other runs are dropped.
    `give_up` ends a run whose message the other server refused."""

    def __init__(self, credentials: Credentials, is_open: Callable[[bytes], bool]) -> None:
        self._credentials = credentials
        self._is_open = is_open
        self.give_up: Callable[[bytes, str], Awaitable[None]] | None = None
        self._targets: dict[int, str] = {}
        self._found = asyncio.Event()
        self._channels: dict[int, tuple[str, grpc.aio.Channel]] = {}
        self._queues: dict[int, asyncio.Queue[Message]] = {}
        self._tasks = Tasks()

    def find(self, targets: Sequence[str]) -> None:
        """Takes the servers' addresses, by index. Invalid addresses are skipped: those servers
        cannot be reached until the coordinator gives a better one."""
        known: dict[int, str] = {}
        for index, target in enumerate(targets[:MAX_SERVERS]):
            try:
                known[index] = as_target(target)
            except LocalError as error:
                log.warning("cannot reach %s: %s", Role.SERVER.named(index), error)
        if known:
            self._targets = known
            self._found.set()

    def send(self, message: Message) -> None:
        """Sends in order, as soon as the other server can be reached."""
        index = int(message.receivers[0])
        if index not in self._queues:
            self._queues[index] = asyncio.Queue()
            self._tasks.spawn(self._deliver_all(index))
        self._queues[index].put_nowait(message)

    async def close(self) -> None:
        await self._tasks.close()
        for _, channel in self._channels.values():
            await channel.close()

    async def _deliver_all(self, index: int) -> None:
        queue = self._queues[index]
        while True:
            await self._deliver(index, await queue.get())

    async def _deliver(self, index: int, message: Message) -> None:
        """Retries until the message is accepted or refused, or the run is over here."""
        pause = RETRY_SECONDS
        await self._found.wait()
        parcel = pb.Parcel(message=message.encode())
        while self._is_open(message.run):
            try:
                receipt = await (await self._line(index)).Send(parcel, timeout=CALL_SECONDS)
            except grpc.aio.AioRpcError as error:
                if not may_succeed_later(error):
                    await self._end(message, f"{message.receiver} refused: {error.details()}")
                    return
                log.info("%s: %s; sending again", message.receiver, error.details())
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_RETRY_SECONDS)
                continue
            if receipt.refused:
                await self._end(message, f"{message.receiver} refused: {receipt.refused[0].reason}")
            return

    async def _end(self, message: Message, reason: str) -> None:
        log.warning("run %s: %s", message.run.hex(), reason)
        if self.give_up is not None:
            await self.give_up(message.run, reason)

    async def _line(self, index: int) -> MessagesStub:
        """The connection to a server, at its last known address."""
        target = self._targets.get(index, "")
        known = self._channels.get(index)
        if known is None or known[0] != target:
            if known is not None:
                await known[1].close()
            identity = Identity(Role.SERVER, index, index)
            known = self._channels[index] = (
                target,
                open_channel(target, identity, self._credentials),
            )
        return MessagesStub(known[1])


def as_target(address: str) -> str:
    """Converts host:port to a gRPC target, whatever the host is called: gRPC by itself would take
    `unix:80` for a file. Raises `LocalError`."""
    if len(address) > MAX_ADDRESS:
        raise LocalError(f"an address of {len(address)} characters is too long")
    host, port = parse_address(address)
    if HOST.fullmatch(host):
        return f"dns:///{host}:{port}"
    try:
        number = IPv6Address(host)
    except ValueError:
        number = None
    if number is None or number.scope_id is not None:
        raise LocalError(f"{address!r} names no host")
    return f"dns:///[{number}]:{port}"
