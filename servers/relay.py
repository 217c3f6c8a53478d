"""Relays sealed envelopes between party hosts: it sees sizes, and who speaks to whom."""

from collections.abc import AsyncIterator

import grpc

from tallyroom.protocols.wire.messages import Role
from tallyroom.protos import tally_pb2 as pb
from tallyroom.protos.channel import Context, caller
from tallyroom.protos.tally_pb2_grpc import RelayServicer
from tallyroom.servers.hosts import HostRegister


class Relay(RelayServicer):
    def __init__(self, hosts: HostRegister) -> None:
        self._hosts = hosts

    async def Forward(self, request: pb.Envelope, context: Context) -> pb.Receipt:  # noqa: N802
        identity = await caller(context)
        if identity.role is not Role.PARTY:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "the relay is for parties")
        try:
            self._hosts.forward(identity, request)
        except LookupError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error.args[0]))
        except BufferError as error:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        return pb.Receipt()

    async def Receive(  # noqa: N802
        self, request: pb.Subscription, context: Context
    ) -> AsyncIterator[pb.Envelope]:
        identity = await caller(context)
        if identity.role is not Role.PARTY:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "the relay is for parties")
        mail = self._hosts.subscribe(identity)
        await context.send_initial_metadata(())
        try:
            while (envelope := await mail.get()) is not None:
                yield envelope
        finally:
            self._hosts.unsubscribe(identity, mail)
