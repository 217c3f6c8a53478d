"""A stream on which nothing is said for long must not be cut: pings are not abuse."""

import asyncio
import datetime as dt

import pytest

from tallyroom.protocols.identity.certificates import Authority, Identity
from tallyroom.protocols.wire.messages import Role
from tallyroom.protos import channel
from tallyroom.protos import tally_pb2 as pb
from tallyroom.protos.channel import Context, new_server, open_channel, serving
from tallyroom.protos.tally_pb2_grpc import (
    MessagesServicer,
    MessagesStub,
    add_MessagesServicer_to_server,
)

SERVER = Identity(Role.SERVER, 0, 0)
DAY = dt.timedelta(days=1)


class Silent(MessagesServicer):
    async def Receive(self, request: pb.Subscription, context: Context) -> None:  # noqa: N802
        await context.send_initial_metadata(())
        await asyncio.Event().wait()


def test_a_silent_stream_outlives_its_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ping a second for seven: a server left at gRPC's defaults hangs up after the third."""

    async def listen() -> None:
        now = dt.datetime.now(dt.UTC)
        authority = Authority.create("pings", now, DAY)
        server, port = new_server(authority.issue(SERVER, now, DAY), "127.0.0.1:0")
        add_MessagesServicer_to_server(Silent(), server)
        hasty = [("grpc.keepalive_time_ms", 1_000), ("grpc.http2.max_pings_without_data", 0)]
        monkeypatch.setattr(channel, "_LIMITS", hasty)
        party = authority.issue(Identity(Role.PARTY, 0, 0), now, DAY)
        async with serving(server), open_channel(f"127.0.0.1:{port}", SERVER, party) as line:
            stream = MessagesStub(line).Receive(pb.Subscription(), wait_for_ready=True)
            await stream.initial_metadata()
            with pytest.raises(TimeoutError):  # nothing was said, and nobody hung up
                await asyncio.wait_for(stream.read(), 7.0)

    asyncio.run(listen())
