"""The coordinator process: `tally coordinator`."""

from collections.abc import AsyncIterator

import grpc

from tallyroom.protocols.wire.messages import Role
from tallyroom.protos import tally_pb2 as pb
from tallyroom.protos.channel import Context, caller, new_server, serving, stop_signal
from tallyroom.protos.tally_pb2_grpc import (
    RelayServicer,
    add_CoordinatorServicer_to_server,
    add_DirectoryServicer_to_server,
    add_MessagesServicer_to_server,
    add_RelayServicer_to_server,
    add_RevocationServicer_to_server,
)
from tallyroom.servers.coordinator_service import CoordinatorConfig, CoordinatorService
from tallyroom.servers.enrolment import FederationDirectory, enrolling, registrar_of
from tallyroom.servers.hosts import HostRegister
from tallyroom.servers.metrics import Metrics
from tallyroom.servers.process import Ready
from tallyroom.servers.revocation import Revocations, RevocationService, Screen


class Relay(RelayServicer):
    """Relays sealed envelopes between party hosts: it sees sizes, and who speaks to whom."""

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


async def run_coordinator(config: CoordinatorConfig, ready: Ready) -> None:
    """Serves until the process is stopped. With a store it resumes its unfinished runs."""
    service = CoordinatorService(config)
    credentials = config.credentials
    kept = None if config.store is None else config.store / "revoked.pem"
    revocations = Revocations(credentials.party_authority, kept)
    metrics = Metrics(lambda: credentials)
    service.watch(metrics)
    calls = [metrics, Screen(revocations)]
    server, port = new_server(credentials, config.listen, calls, service.health.service)
    add_MessagesServicer_to_server(service.post, server)
    add_CoordinatorServicer_to_server(service, server)
    add_RelayServicer_to_server(Relay(service.hosts), server)
    add_RevocationServicer_to_server(RevocationService(revocations), server)
    add_DirectoryServicer_to_server(
        FederationDirectory(service.coordinator, service.durable), server
    )
    async with registrar_of(config.enrolment) as registrar:
        enrolment = enrolling(
            config.enrolment,
            registrar,
            credentials,
            revocations,
            [link.channel for link in service.servers],
        )
        async with enrolment, serving(server), service.health.watched():
            try:
                service.runs.resume()
                service.dispatch.listen_to_servers()
                with metrics.serving(config.metrics):
                    ready(port)
                    await stop_signal()
            finally:
                await service.close()
