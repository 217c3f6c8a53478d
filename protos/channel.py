"""How channels and servers are opened: mutual TLS, bounded messages, certified callers."""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from multiprocessing import parent_process
from types import CoroutineType

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2_grpc

from tallyroom.protocols.errors import PeerError
from tallyroom.protocols.identity.certificates import Credentials, Identity, claimed_identity
from tallyroom.protocols.wire.messages import MAX_WIRE_BYTES, Message, decode
from tallyroom.protos import TLS13_ONLY
from tallyroom.protos import tally_pb2 as pb
from tallyroom.protos.certified import Certified
from tallyroom.protos.certified import Context as Context
from tallyroom.protos.certified import certificate_of as certificate_of
from tallyroom.protos.descriptors import most_connections
from tallyroom.protos.strict import Strict
from tallyroom.protos.version import USER_AGENT, SameVersion

log = logging.getLogger(__name__)

_LIMITS: list[tuple[str, str | int]] = [
    ("grpc.max_receive_message_length", MAX_WIRE_BYTES + (64 << 10)),
    ("grpc.max_send_message_length", MAX_WIRE_BYTES + (64 << 10)),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # A stream may be silent for as long as a computation takes: pings go on all the while, and a
    # server that is left at gRPC's defaults takes the third of them for abuse and hangs up.
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
]

HANDSHAKE_SECONDS = 10
"""How long a connection may take to become one. gRPC would wait for two minutes, and whoever opens
a thousand and says nothing would keep all others out for as long."""
ENDING_SECONDS = 2.0
"""How long calls that were cut off may take to end."""


def open_channel(target: str, expected: Identity, credentials: Credentials) -> grpc.aio.Channel:
    """A channel to `target`, which must prove that it is `expected`."""
    return grpc.aio.secure_channel(target, _client_tls(credentials), _client_options(expected))


def open_blocking_channel(
    target: str, expected: Identity, credentials: Credentials
) -> grpc.Channel:
    """The same for callers without an event loop: scripts and notebooks."""
    return grpc.secure_channel(target, _client_tls(credentials), _client_options(expected))


def _client_tls(credentials: Credentials) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(
        credentials.authority, credentials.key, credentials.certificate
    )


def _client_options(expected: Identity) -> list[tuple[str, str | int]]:
    return [
        ("grpc.ssl_target_name_override", expected.tls_name),
        ("grpc.primary_user_agent", USER_AGENT),
        *_LIMITS,
    ]


def new_server(
    credentials: Credentials,
    listen: str,
    interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
    health_service: health.aio.HealthServicer | None = None,
) -> tuple[grpc.aio.Server, int]:
    """A server that only certified callers reach, with the health service, and its port.

    Raises `OSError` if it cannot listen there.
    """
    server = grpc.aio.server(
        options=[*_LIMITS, *_guard(), ("grpc.max_concurrent_streams", 64)],
        interceptors=[
            SameVersion(),
            Certified(credentials.trust),
            *interceptors,
            Strict(),
        ],
    )
    tls = grpc.ssl_server_credentials(
        [(credentials.key, credentials.certificate)],
        root_certificates=credentials.authority + credentials.party_authority,
        require_client_auth=True,
    )
    port = _bind(server, listen, tls)
    health_pb2_grpc.add_HealthServicer_to_server(
        health_service or health.aio.HealthServicer(), server
    )
    return server, port


def _guard() -> list[tuple[str, str | int]]:
    """Against those who connect and say nothing: not for long, and never all there is."""
    if not TLS13_ONLY:
        log.warning("gRPC was imported before Tallyroom: TLS 1.2 is not refused")
    return [
        ("grpc.server_handshake_timeout_ms", 1000 * HANDSHAKE_SECONDS),
        ("grpc.max_allowed_incoming_connections", most_connections()),
        ("grpc.so_reuseport", 0),
    ]


def new_enrolment_server(credentials: Credentials, listen: str) -> tuple[grpc.aio.Server, int]:
    """A server that anybody may call: small messages, few calls at a time. Raises `OSError`."""
    options: list[tuple[str, str | int]] = [
        ("grpc.max_receive_message_length", 16 << 10),
        ("grpc.max_concurrent_streams", 4),
        ("grpc.max_connection_idle_ms", 30_000),
        *_guard(),
    ]
    server = grpc.aio.server(
        options=options, interceptors=[SameVersion(), Strict()], maximum_concurrent_rpcs=64
    )
    tls = grpc.ssl_server_credentials([(credentials.key, credentials.certificate)])
    return server, _bind(server, listen, tls)


def open_enrolment_channel(target: str, expected: Identity, certificate: bytes) -> grpc.aio.Channel:
    """A channel to somebody whose very certificate is known; the caller shows none."""
    tls = grpc.ssl_channel_credentials(certificate)
    return grpc.aio.secure_channel(target, tls, _client_options(expected))


def _bind(server: grpc.aio.Server, listen: str, tls: grpc.ServerCredentials) -> int:
    try:
        return server.add_secure_port(listen, tls)
    except RuntimeError:
        reason = "the port is taken or the address is not of this machine"
        raise OSError(f"cannot listen on {listen}: {reason}") from None


async def caller(context: Context) -> Identity:
    """Who is calling, as its certificate says: `Certified` let nobody through whose certificate
    is not signed by an authority that may say so. Ends the call where it says nothing."""
    try:
        return claimed_identity(certificate_of(context))
    except PeerError as error:
        return await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))


async def received(parcel: pb.Parcel, context: Context) -> tuple[Identity, Message, bytes]:
    """Who is calling, the message it hands over, and that as it came: every look into a parcel
    copies its content. Ends the call where there is none."""
    identity = await caller(context)
    data = parcel.message
    try:
        return identity, decode(data, identity.name), data
    except PeerError as error:
        log.warning("refused: %s", error)
        return await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))


@asynccontextmanager
async def serving(server: grpc.aio.Server, grace: float = 2.0) -> AsyncIterator[None]:
    await server.start()
    try:
        yield
    finally:
        await stop_serving(server, grace)


async def stop_serving(server: grpc.aio.Server, grace: float) -> None:
    """Returns when the calls that were cut off have ended as well, which `stop` does not wait for:
    an event loop that closes before they have ends with their tracebacks on standard error."""
    await server.stop(grace)
    calls = [
        task for task in asyncio.all_tasks() if not isinstance(task.get_coro(), CoroutineType)
    ]  # grpc's own tasks are compiled
    if calls:
        await asyncio.wait(calls, timeout=ENDING_SECONDS)


async def stop_signal() -> None:
    """Returns when the process gets SIGTERM or SIGINT, or when the one that started it dies."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    parent = parent_process()
    if parent is not None:
        loop.add_reader(parent.sentinel, stopped.set)
    await stopped.wait()
