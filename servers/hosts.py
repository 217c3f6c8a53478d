"""The addresses that party hosts announced, kept while they listen to the relay."""

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
"""How many bytes may wait for one host; beyond that its senders must wait."""
MOST_WAITING_OF_ONE = 8 << 20
"""One sender's share of these bytes: it must not take the place of all others."""
MOST_SENT_BYTES = 32 << 20
"""How many bytes of one sender may wait in all."""
LEAST_WAITING_BYTES = 1 << 10
"""The least that an envelope counts for: a host must not fill the memory with empty ones either."""
MOST_WAITING_IN_ALL = 256 << 20


@dataclass(frozen=True)
class Announced:
    """A host that others may reach. They check its signature themselves."""

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
    """Envelopes that wait for one subscriber, with limits on bytes in total and per sender; None
    ends the stream."""

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
    """The announced hosts, and their waiting envelopes. A host is forgotten when its stream
    ends."""

    def __init__(self) -> None:
        self._announced: dict[Identity, Announced] = {}
        self._mail: dict[Identity, Mail] = {}
        self._changed = asyncio.Condition()

    def subscribe(self, identity: Identity) -> Mail:
        """A host that returns before its old stream was seen to break replaces that stream."""
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
        """Raises `LookupError` for a host that does not listen: nobody could reach it."""
        if host.identity not in self._mail:
            raise LookupError("the host does not listen to the relay")
        if len(host.key) != KEY_BYTES or len(host.signature) > MAX_SIGNATURE:
            raise ValueError("a host must have a key of 32 bytes and a signature")
        if len(host.address) > MAX_ADDRESS or not host.address.isprintable():
            raise ValueError("a host must have an address")
        self._announced[host.identity] = host
        async with self._changed:
            self._changed.notify_all()

    def find(self, identity: Identity) -> Announced | None:
        return self._announced.get(identity)

    async def locate(self, ids: NDArray[np.uint32], seconds: float) -> list[Announced]:
        """Returns the announced hosts of these parties; waits a while if there are none yet."""
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
        """Expects ascending ids: a call may name as many as fit a message, and must stay fast."""
        hosts = list(self._announced.values())
        starts = np.searchsorted(ids, [host.identity.first for host in hosts], side="left")
        ends = np.searchsorted(ids, [host.identity.last for host in hosts], side="right")
        return [host for host, any_ in zip(hosts, ends > starts, strict=True) if any_]

    def forward(self, sender: Identity, envelope: pb.Envelope) -> None:
        """Puts an envelope into its receiver's mailbox.

        Raises `LookupError` if the receiver is not here or has another key than the one that the
        envelope was sealed for, and `BufferError` if too many bytes are waiting already.
        """
        source = self._announced.get(sender)
        receiver = Identity(Role.PARTY, envelope.first, envelope.last)
        target, mail = self._announced.get(receiver), self._mail.get(receiver)
        if source is None:
            raise LookupError("the sender must be announced")
        if target is None or mail is None:
            raise LookupError(f"{receiver.name} is not here")
        if target.key != envelope.key:
            raise LookupError(f"{receiver.name} has a different key by now")
        self._require_room(sender, receiver, mail, _weight(envelope))
        mail.put(
            pb.Envelope(
                first=sender.first, last=sender.last, key=source.key, sealed=envelope.sealed
            )
        )

    def _require_room(self, sender: Identity, receiver: Identity, mail: Mail, size: int) -> None:
        """Raises `BufferError`. An envelope larger than a mailbox is accepted by an empty one."""
        theirs = mail.sizes.get(sender, 0)
        if theirs and theirs + size > MOST_WAITING_OF_ONE:
            raise BufferError(f"too many bytes from {sender.name} wait for {receiver.name}")
        sent = sum(other.sizes.get(sender, 0) for other in self._mail.values())
        if sent + size > MOST_SENT_BYTES:
            raise BufferError(f"too many bytes from {sender.name} wait for other hosts")
        if mail.size + size > MOST_WAITING_BYTES:
            raise BufferError(f"too many bytes wait for {receiver.name}")
        if sum(other.size for other in self._mail.values()) + size > MOST_WAITING_IN_ALL:
            raise BufferError("too many bytes wait in total")
