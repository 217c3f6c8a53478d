"""Where party hosts are, as they said themselves: kept while they listen to the relay."""

import asyncio
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.identity.certificates import Identity
from tallyroom.protocols.wire.messages import Role
from tallyroom.protos import tally_pb2 as pb

KEY_BYTES = 32
MAX_ADDRESS = 260
MAX_SIGNATURE = 128
MOST_WAITING_BYTES = 16 << 20
"""What may wait for one host to fetch it: who sends more must wait himself."""
MOST_WAITING_OF_ONE = 8 << 20
"""What of that may be one sender's: it must not take the place of all others."""
MOST_SENT_BYTES = 32 << 20
"""What one sender may have waiting in all."""
LEAST_WAITING_BYTES = 1 << 10
"""What a small envelope counts for: a host must not fill the memory with empty ones either."""
MOST_WAITING_IN_ALL = 256 << 20


@dataclass(frozen=True)
class Announced:
    """A host that others may reach. Whether its signature holds, they check themselves."""

    identity: Identity
    address: str
    key: bytes
    signature: bytes
    certificate: bytes

    def to_wire(self) -> pb.Host:
        return pb.Host(
            first=self.identity.first,
            last=self.identity.last,
            address=self.address,
            key=self.key,
            signature=self.signature,
            certificate=self.certificate,
        )


class Mail:
    """Envelopes that wait for one subscriber, bounded by their bytes in all and for each sender;
    None ends it."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[pb.Envelope | None] = asyncio.Queue()
        self.sizes: dict[Identity, int] = {}
        self.size = 0

    def put(self, envelope: pb.Envelope) -> None:
        sender, weight = _sender(envelope), _weight(envelope)
        self.sizes[sender] = self.sizes.get(sender, 0) + weight
        self.size += weight
        self.queue.put_nowait(envelope)

    async def get(self) -> pb.Envelope | None:
        envelope = await self.queue.get()
        if envelope is not None:
            sender, weight = _sender(envelope), _weight(envelope)
            self.size -= weight
            self.sizes[sender] -= weight
            if not self.sizes[sender]:
                del self.sizes[sender]
        return envelope


def _sender(envelope: pb.Envelope) -> Identity:
    return Identity(Role.PARTY, envelope.first, envelope.last)


def _weight(envelope: pb.Envelope) -> int:
    return max(len(envelope.sealed), LEAST_WAITING_BYTES)


class HostRegister:
    """Who is announced, and what waits for them. A host is forgotten when its stream ends."""

    def __init__(self) -> None:
        self._announced: dict[Identity, Announced] = {}
        self._mail: dict[Identity, Mail] = {}
        self._changed = asyncio.Condition()

    def subscribe(self, identity: Identity) -> Mail:
        """A host that comes back before its old stream was seen to break takes its place."""
        self._announced.pop(identity, None)
        if (old := self._mail.get(identity)) is not None:
            old.queue.put_nowait(None)
        self._mail[identity] = Mail()
        return self._mail[identity]

    def unsubscribe(self, identity: Identity, mail: Mail) -> None:
        if self._mail.get(identity) is mail:
            del self._mail[identity]
            self._announced.pop(identity, None)

    async def announce(self, host: Announced) -> None:
        """Raises `LookupError` for one that does not listen: nobody could reach it."""
        if host.identity not in self._mail:
            raise LookupError("it does not listen to the relay")
        if len(host.key) != KEY_BYTES or len(host.signature) > MAX_SIGNATURE:
            raise ValueError("a host has a key of 32 bytes and its signature")
        if len(host.address) > MAX_ADDRESS or not host.address.isprintable():
            raise ValueError("a host has an address")
        self._announced[host.identity] = host
        async with self._changed:
            self._changed.notify_all()

    def find(self, identity: Identity) -> Announced | None:
        return self._announced.get(identity)

    async def locate(self, ids: NDArray[np.uint32], seconds: float) -> list[Announced]:
        """The hosts of these parties that are here; waits for the first of them for a while."""
        found: list[Announced] = []
        ids = np.unique(ids)
        try:
            async with asyncio.timeout(seconds), self._changed:
                while not (found := self._hosts_of(ids)):
                    await self._changed.wait()
        except TimeoutError:
            pass
        return found

    def _hosts_of(self, ids: NDArray[np.uint32]) -> list[Announced]:
        """Of ascending ids: a caller may name as many as fit a message, and everybody waits."""
        hosts = list(self._announced.values())
        starts = np.searchsorted(ids, [host.identity.first for host in hosts], side="left")
        ends = np.searchsorted(ids, [host.identity.last for host in hosts], side="right")
        return [host for host, any_ in zip(hosts, ends > starts, strict=True) if any_]

    def forward(self, sender: Identity, envelope: pb.Envelope) -> None:
        """Puts an envelope where its receiver fetches it.

        Raises `LookupError` if it is not here, or not with the key that was sealed for;
        `BufferError` if too much waits already.
        """
        source = self._announced.get(sender)
        receiver = Identity(Role.PARTY, envelope.first, envelope.last)
        target, mail = self._announced.get(receiver), self._mail.get(receiver)
        if source is None:
            raise LookupError("who forwards must be announced")
        if target is None or mail is None:
            raise LookupError(f"{receiver.name} is not here")
        if target.key != envelope.key:
            raise LookupError(f"{receiver.name} has another key by now")
        self._require_room(sender, receiver, mail, _weight(envelope))
        mail.put(
            pb.Envelope(
                first=sender.first, last=sender.last, key=source.key, sealed=envelope.sealed
            )
        )

    def _require_room(self, sender: Identity, receiver: Identity, mail: Mail, size: int) -> None:
        """Raises `BufferError`. What has no room in an empty mailbox goes alone."""
        theirs = mail.sizes.get(sender, 0)
        if theirs and theirs + size > MOST_WAITING_OF_ONE:
            raise BufferError(f"too much of {sender.name} waits for {receiver.name}")
        sent = sum(other.sizes.get(sender, 0) for other in self._mail.values())
        if sent + size > MOST_SENT_BYTES:
            raise BufferError(f"too much of {sender.name} waits for others")
        if mail.size + size > MOST_WAITING_BYTES:
            raise BufferError(f"too much waits for {receiver.name}")
        if sum(other.size for other in self._mail.values()) + size > MOST_WAITING_IN_ALL:
            raise BufferError("too much waits in all")
