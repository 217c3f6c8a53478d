"""How party hosts reach each other: directly, or through the coordinator's relay.

Connections are opened on first use: a host that never meets another pays nothing.
"""

import asyncio
import datetime as dt
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import grpc
import grpc.aio
import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from tallyroom.parties.peer_config import PeerConfig
from tallyroom.parties.sealed_channel import (
    SealedChannel,
    SignedKey,
    fingerprint,
    sign_key,
    verify_key,
)
from tallyroom.protocols.errors import PeerError
from tallyroom.protocols.identity.certificates import Credentials, Identity
from tallyroom.protocols.wire.loop import Reply
from tallyroom.protocols.wire.messages import Message, Role, decode
from tallyroom.protos import tally_pb2 as pb
from tallyroom.protos.channel import Context, new_server, open_channel, received, stop_serving
from tallyroom.protos.retry import may_succeed_later
from tallyroom.protos.tally_pb2_grpc import (
    CoordinatorStub,
    PeerServicer,
    PeerStub,
    RelayStub,
    add_PeerServicer_to_server,
)
from tallyroom.protos.tasks import Tasks

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.2
SEND_SECONDS = 30.0
MOST_LOCATED = 1024
"""How many parties one request may locate: their hosts' certificates must fit into one reply."""
PROMPT_SECONDS = 1.0
"""How long a sender waits to hear about refusals."""
MOST_UNDONE_BYTES = 64 << 20
"""How many bytes from other hosts may be accepted and not yet processed."""


@dataclass(frozen=True)
class _Host:
    signed_key: SignedKey
    address: str


@dataclass(frozen=True)
class _Outgoing:
    message: Message
    until: float


Hear = Callable[[Message], Awaitable[Reply]]


class Peers(PeerServicer):
    """`hear` takes messages from other hosts; `ends` returns when a run's messages expire."""

    def __init__(
        self,
        config: PeerConfig,
        coordinator: str,
        credentials: Credentials,
        party_authority: bytes,
        parties: NDArray[np.uint32],
        hear: Hear,
        ends: Callable[[bytes], float],
    ) -> None:
        self._party_authority = party_authority
        self._config = config
        self._coordinator = coordinator
        self._credentials = credentials
        self._parties = parties
        self._hear = hear
        self._ends = ends
        self._federation = fingerprint(credentials.authority)
        self._secret = X25519PrivateKey.generate()
        self._server: grpc.aio.Server | None = None
        self._address = ""
        self._channel: grpc.aio.Channel | None = None
        self._retired: list[grpc.aio.Channel] = []
        self._renewed = False
        self._announced = asyncio.Event()
        self._tasks = Tasks()
        self._listening: asyncio.Task[None] | None = None
        self._locating: asyncio.Task[None] | None = None
        self._unlocated: list[_Outgoing] = []
        self._homes: dict[int, Identity] = {}
        self._hosts: dict[Identity, _Host] = {}
        self._outboxes: dict[Identity, asyncio.Queue[_Outgoing]] = {}
        self._room = asyncio.Condition()
        self._undone = 0
        self._direct: dict[tuple[Identity, str], grpc.aio.Channel] = {}
        self._sealed: dict[tuple[Identity, bytes], SealedChannel] = {}

    def use(self, credentials: Credentials) -> None:
        """Uses new credentials from the next `wake` on: connections in use are not cut off."""
        self._credentials = credentials
        self._renewed = True

    def wake(self) -> None:
        """Starts to listen and announces it. Later calls do nothing unless the certificate was
        renewed since."""
        if self._listening is not None:
            if not self._renewed:
                return
            self._listening.cancel()
            self._announced.clear()
            self._retired += [self._line, *self._direct.values()]
            self._direct.clear()
        self._renewed = False
        self._channel = open_channel(
            self._coordinator, Identity(Role.COORDINATOR), self._credentials
        )
        self._listening = self._tasks.spawn(self._stay_announced())

    def post(self, message: Message) -> None:
        """Sends each host its part of a message, after everything posted to it earlier."""
        self.wake()
        loop = asyncio.get_running_loop()
        until = max(loop.time() + SEND_SECONDS, self._ends(message.run))
        self._put(_Outgoing(message, until))
        if self._unlocated and (self._locating is None or self._locating.done()):
            self._locating = self._tasks.spawn(self._locate())

    async def close(self) -> None:
        await self._tasks.close()
        if self._channel is not None:
            self._retired.append(self._channel)
        for channel in (*self._direct.values(), *self._retired):
            await channel.close()
        if self._server is not None:
            await stop_serving(self._server, 0)

    # --- locating hosts ---

    def _put(self, outgoing: _Outgoing) -> None:
        message = outgoing.message
        homes = [self._homes.get(party) for party in message.receivers.tolist()]
        for home in dict.fromkeys(homes):
            links = np.flatnonzero([other == home for other in homes])
            part = _Outgoing(message.select(links), outgoing.until)
            if home is None:
                self._unlocated.append(part)
            else:
                self._outbox(home).put_nowait(part)

    async def _locate(self) -> None:
        """Runs until the hosts of all waiting messages are known or the messages have expired."""
        while self._unlocated:
            await self._announced.wait()
            ids = np.unique(np.concatenate([one.message.receivers for one in self._unlocated]))
            for start in range(0, len(ids), MOST_LOCATED):
                for identity in await self._ask(ids[start : start + MOST_LOCATED]):
                    covered = ids[(ids >= identity.first) & (ids <= identity.last)]
                    self._homes |= dict.fromkeys(covered.tolist(), identity)
            waiting, self._unlocated = self._unlocated, []
            now = asyncio.get_running_loop().time()
            for one in waiting:
                if one.until < now and not self._homes.keys() & one.message.receivers.tolist():
                    log.error("%s cannot be located: nothing was sent", one.message.receiver)
                else:
                    self._put(one)
            if self._unlocated:
                await asyncio.sleep(RETRY_SECONDS)

    async def _ask(self, ids: NDArray[np.uint32]) -> list[Identity]:
        """Asks the coordinator for the hosts of these parties; returns those with a valid proof."""
        request = pb.Parties(parties=ids.astype("<u4").tobytes())
        try:
            reply = await CoordinatorStub(self._line).Locate(
                request, timeout=SEND_SECONDS, wait_for_ready=True
            )
        except grpc.aio.AioRpcError as error:
            log.warning("coordinator: %s; asking again", error.details())
            return []
        found = []
        for host in reply.hosts:
            identity = Identity(Role.PARTY, host.first, host.last)
            signed_key = SignedKey(identity, host.key, host.signature, host.certificate)
            try:
                now = dt.datetime.now(dt.UTC)
                verify_key(signed_key, self._party_authority, self._federation, now)
            except PeerError as error:
                log.error("refused: %s", error)
                continue
            self._hosts[identity] = _Host(signed_key, host.address)
            found.append(identity)
        return found

    @property
    def _line(self) -> grpc.aio.Channel:
        if self._channel is None:
            raise TypeError("the channel to the coordinator is not open yet")
        return self._channel

    # --- sending ---

    def _outbox(self, peer: Identity) -> asyncio.Queue[_Outgoing]:
        if peer not in self._outboxes:
            self._outboxes[peer] = asyncio.Queue()
            self._tasks.spawn(self._empty(peer, self._outboxes[peer]))
        return self._outboxes[peer]

    async def _empty(self, peer: Identity, outbox: asyncio.Queue[_Outgoing]) -> None:
        while True:
            outgoing = await outbox.get()
            for chunk in outgoing.message.chunks():
                now = asyncio.get_running_loop().time()
                until = max(outgoing.until, now + SEND_SECONDS)  # it may have queued for long
                await self._deliver(peer, chunk.encode(), until)

    async def _deliver(self, peer: Identity, data: bytes, until: float) -> None:
        """Retries a host that is away, at its latest address, until the time is up."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                receipt = await self._hand_over(self._hosts[peer], data, until - loop.time())
                break
            except PeerError as error:
                log.error("refused: %s; not delivered", error)
                return
            except grpc.aio.AioRpcError as error:
                reason = error.details()
                if not may_succeed_later(error) or loop.time() > until:
                    log.error("%s: %s; not delivered", peer.name, reason)
                    return
            log.warning("%s: %s; sending again", peer.name, reason)
            await asyncio.sleep(RETRY_SECONDS)
            await self._ask(np.array([peer.first], dtype=np.uint32))
        for refusal in receipt.refused:
            log.error("%s refused %s: %s", peer.name, refusal.sender, refusal.reason)

    async def _hand_over(self, host: _Host, data: bytes, seconds: float) -> pb.Receipt:
        identity = host.signed_key.identity
        if host.address and self._address:
            stub = PeerStub(self._direct_channel(identity, host.address))
            receipt: pb.Receipt = await stub.Send(
                pb.Parcel(message=data), timeout=max(1.0, seconds)
            )
            return receipt
        envelope = pb.Envelope(
            first=identity.first,
            last=identity.last,
            key=host.signed_key.key,
            sealed=self._sealed_channel(host.signed_key).seal(data),
        )
        forwarded: pb.Receipt = await RelayStub(self._line).Forward(envelope, timeout=SEND_SECONDS)
        return forwarded

    def _direct_channel(self, peer: Identity, address: str) -> grpc.aio.Channel:
        if (peer, address) not in self._direct:
            credentials = self._credentials.among_parties(self._party_authority)
            self._direct[peer, address] = open_channel(address, peer, credentials)
        return self._direct[peer, address]

    def _sealed_channel(self, signed_key: SignedKey) -> SealedChannel:
        """Kept for the lifetime of the process: a counter that restarts would allow replays."""
        known = self._sealed.get((signed_key.identity, signed_key.key))
        if known is None:
            me = self._credentials.identity
            known = SealedChannel(
                self._secret, me, signed_key.identity, signed_key.key, self._federation
            )
            self._sealed[signed_key.identity, signed_key.key] = known
        return known

    # --- receiving ---

    async def Send(self, request: pb.Parcel, context: Context) -> pb.Receipt:  # noqa: N802
        identity, message, _ = await received(request, context)
        try:
            outcome = await self._take(message, identity)
        except PeerError as error:
            log.warning("refused: %s", error)
            return await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
        except BufferError as error:
            return await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        return pb.Receipt(
            refused=[pb.Refusal(sender=r.sender, reason=r.reason) for r in outcome.refused]
        )

    async def _take(self, message: Message, sender: Identity) -> Reply:
        """Raises `PeerError` unless the message is the sender's own and is for this host."""
        if not message.between_parties or not sender.speaks_for(message):
            raise PeerError(sender.name, f"claims to be {message.sender}")
        if not np.isin(message.receivers, self._parties).all():
            raise PeerError(sender.name, f"{message.receiver} is not on this host")
        return await self._heard(message)

    async def _heard(self, message: Message) -> Reply:
        """Returns refusals if they are known soon: a sender need not wait while we are at work. It
        must wait while too many accepted bytes are unprocessed. Raises `BufferError`."""
        async with self._room:
            await self._room.wait_for(lambda: self._undone < MOST_UNDONE_BYTES)
            self._undone += message.wire_bytes
        task = self._tasks.begin(self._work(message))
        try:
            await asyncio.wait({task}, timeout=PROMPT_SECONDS)
        finally:
            if not task.done():  # even if the sender hangs up
                task.add_done_callback(_log_late)
        return task.result() if task.done() else Reply(message.run)

    async def _work(self, message: Message) -> Reply:
        try:
            return await self._hear(message)
        finally:
            async with self._room:
                self._undone -= message.wire_bytes
                self._room.notify_all()

    async def _stay_announced(self) -> None:
        """Listens to the relay for the lifetime of the process. The coordinator gives a host's
        address to others while the host listens, so the host announces itself again after every
        lost connection."""
        await self._listen()
        while True:
            try:
                stream = RelayStub(self._line).Receive(pb.Subscription(), wait_for_ready=True)
                await stream.initial_metadata()
                await self._announce()
                self._announced.set()
                async for envelope in stream:
                    await self._open(envelope)
            except grpc.aio.AioRpcError as error:
                log.warning("relay: %s; listening again", error.details())
            await asyncio.sleep(RETRY_SECONDS)

    async def _listen(self) -> None:
        """Listens for peers. A host that cannot is reached through the relay."""
        if self._server is not None:
            await self._server.stop(SEND_SECONDS)
        if not self._config.listens:
            return
        credentials = self._credentials.among_parties(self._party_authority)
        try:
            self._server, port = new_server(credentials, self._config.listen)
        except OSError as error:
            log.error("%s", error)
            return
        add_PeerServicer_to_server(self, self._server)
        await self._server.start()
        here = self._config.listen.rpartition(":")[0]
        self._address = self._config.advertise or f"{here}:{port}"

    async def _announce(self) -> None:
        key = self._secret.public_key().public_bytes_raw()
        signed_key = sign_key(key, self._credentials, self._federation)
        request = pb.Announcement(address=self._address, key=key, signature=signed_key.signature)
        await CoordinatorStub(self._line).Announce(request, timeout=SEND_SECONDS)

    async def _open(self, envelope: pb.Envelope) -> None:
        sender = Identity(Role.PARTY, envelope.first, envelope.last)
        if (sender, envelope.key) not in self._sealed:
            await self._ask(np.array([sender.first], dtype=np.uint32))
            host = self._hosts.get(sender)
            if host is not None:
                self._sealed_channel(host.signed_key)
        try:
            channel = self._sealed.get((sender, envelope.key))
            if channel is None:
                raise PeerError(sender.name, "it is not the host that was announced to others")
            plain = channel.open(envelope.sealed)
            outcome = await self._take(decode(plain, sender.name), sender)
        except (PeerError, BufferError) as error:
            log.error("refused: %s", error)
            return
        for refusal in outcome.refused:
            log.error("refused %s: %s", refusal.sender, refusal.reason)


def _log_late(work: asyncio.Future[Reply]) -> None:
    """Logs the refusals of a message that was acknowledged before it was processed."""
    if work.cancelled():
        return
    if (error := work.exception()) is not None:
        log.error("a message was not accepted: %s", error)
        return
    for refusal in work.result().refused:
        log.error("refused %s: %s", refusal.sender, refusal.reason)
