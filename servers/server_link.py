"""The coordinator's connection to one server."""

import logging
from collections.abc import AsyncIterator, Sequence

import grpc
import grpc.aio

from tallyroom.protocols.errors import PeerError
from tallyroom.protocols.identity.certificates import Credentials, Identity
from tallyroom.protocols.wire.messages import RUN_BYTES, Message, Role, decode
from tallyroom.protos import tally_pb2 as pb
from tallyroom.protos.channel import open_channel
from tallyroom.protos.tally_pb2_grpc import MessagesStub
from tallyroom.servers.message_service import CERTIFICATE

log = logging.getLogger(__name__)

GRACE_SECONDS = 10.0
"""How long a server may take over a call that gives it nothing to compute."""
AWAY_SECONDS = 1.0
"""How long to wait for a server that was connected before and is away when it is called."""


class ServerLink:
    """`away` says why the server is not connected; None while it is."""

    def __init__(
        self, index: int, target: str, credentials: Credentials, all_servers: Sequence[str] = ()
    ) -> None:
        self._all_servers = all_servers
        self.identity = Identity(Role.SERVER, index, index)
        self.target = target
        self.channel = open_channel(target, self.identity, credentials)
        self._post = MessagesStub(self.channel)
        self.certificate = b""
        """The certificate of the connected process: the analyst checks whose it is."""
        self.last_signed = pb.Subscription()
        """Its last receipt, and the run it is of: shown to it whenever it connects."""
        self.away: str | None = "cannot be reached"
        self._heard = False
        self._stream: grpc.aio.UnaryStreamCall[pb.Subscription, pb.Parcel] | None = None

    @property
    def is_gone(self) -> bool:
        """Whether it was connected before, and is not now."""
        return self._heard and self.away is not None

    @property
    def index(self) -> int:
        return self.identity.first

    @property
    def name(self) -> str:
        return self.identity.name

    async def send(self, message: Message, seconds: float = 0.0) -> list[str]:
        """Delivers a message; returns the reasons if it was refused. Raises `AioRpcError`.

        The server answers when it has done the work, for which it has `seconds`.
        """
        reasons = []
        for chunk in message.chunks():
            receipt = await self._post.Send(
                pb.Parcel(message=chunk.encode()),
                timeout=AWAY_SECONDS if self.is_gone else max(GRACE_SECONDS, seconds),
                wait_for_ready=True,
            )
            reasons += [refusal.reason for refusal in receipt.refused]
        return reasons

    async def subscribe(self) -> AsyncIterator[tuple[Message, bytes]]:
        """Yields the server's messages once it can be reached. Raises `AioRpcError` when it is
        gone, `PeerError` when it speaks for another role."""
        if self._stream is not None:  # maybe still open: a server speaks to one listener at a time
            self._stream.cancel()
        subscription = pb.Subscription(servers=self._all_servers)
        subscription.MergeFrom(self.last_signed)
        self._stream = stream = self._post.Receive(subscription, wait_for_ready=True)
        for key, value in await stream.initial_metadata() or ():
            if key == CERTIFICATE and isinstance(value, bytes):
                self.certificate = value
        self.away = None
        self._heard = True

        async def messages() -> AsyncIterator[tuple[Message, bytes]]:
            async for parcel in stream:
                message = decode(parcel.message, self.name)
                if not self.identity.speaks_for(message):
                    raise PeerError(self.name, f"claims to be {message.sender}")
                yield message, parcel.message

        return messages()

    async def accounts(self, run: bytes) -> pb.AccountList:
        """Returns the server's accounts; none if it is gone, since the answer is already there."""
        try:
            accounts: pb.AccountList = await self._post.Accounts(
                pb.RunRef(run=run), timeout=GRACE_SECONDS
            )
        except grpc.aio.AioRpcError as error:
            log.warning("%s sent no accounts: %s", self.name, error.details())
            return pb.AccountList()
        return accounts

    async def forget(self, run: bytes) -> None:
        """Raises `AioRpcError` if the server did not forget the run for good."""
        await self._post.Forget(pb.RunRef(run=run), timeout=GRACE_SECONDS)

    async def kept(self) -> list[bytes]:
        """Returns the runs that the server keeps data of. Raises `AioRpcError`."""
        listed: pb.RunList = await self._post.Kept(pb.Subscription(), timeout=GRACE_SECONDS)
        return [run for run in listed.runs if len(run) == RUN_BYTES]

    async def status(self, run: bytes) -> pb.RunStatus:
        try:
            status: pb.RunStatus = await self._post.Status(
                pb.RunRef(run=run), timeout=GRACE_SECONDS
            )
            return status
        except grpc.aio.AioRpcError:
            return pb.RunStatus()
