"""How a party gets its certificate, and keeps it current. The key is made here and stays here."""

import asyncio
import datetime as dt
import logging
import socket
import ssl

import grpc
import grpc.aio

from protocols.enrolment import (
    Token,
    certificate_request,
    check_authority,
    check_coordinator,
    check_issued,
)
from protocols.errors import LocalError, PeerError
from protocols.identity import Credentials, Identity, new_key, passport_of
from protocols.messages import Role
from protos import tally_pb2 as pb
from protos.channel import open_channel, open_enrolment_channel
from protos.tally_pb2_grpc import DirectoryStub, EnrolmentStub

log = logging.getLogger(__name__)

CALL_SECONDS = 20.0
WAIT_SECONDS = 60.0


async def enrol(token: Token, target: str) -> Credentials:
    """Trades the token for a certificate. Raises `PeerError` if it is refused, or if the one at
    `target` is not the coordinator of the token's federation, before the token is shown."""
    certificate = await _coordinator_certificate(target)
    check_coordinator(certificate, token.authority_key())
    key, pem = new_key()
    request = pb.EnrolRequest(token=token.encode(), request=certificate_request(key, token.party))
    async with open_enrolment_channel(target, certificate) as channel:
        try:
            certified = await EnrolmentStub(channel).Enrol(request, timeout=CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise PeerError("coordinator", f"enrolment failed: {error.details()}") from None
    check_authority(certified.authority, token.authority_key())
    check_issued(certified.certificate, key, token.party)
    identity = Identity(Role.PARTY, token.party, token.party)
    return Credentials(identity, certified.certificate, certified.authority, pem)


async def renew(credentials: Credentials, coordinator: str) -> Credentials:
    """A new key pair and its certificate, for the same party. Raises `PeerError`."""
    key, pem = new_key()
    identity = credentials.identity
    request = pb.RenewRequest(request=certificate_request(key, identity.first))
    async with open_channel(coordinator, Identity(Role.COORDINATOR), credentials) as channel:
        try:
            certified = await DirectoryStub(channel).Renew(request, timeout=CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise PeerError("coordinator", f"renewal failed: {error.details()}") from None
    check_issued(certified.certificate, key, identity.first)
    return Credentials(identity, certified.certificate, credentials.authority, pem)


def is_due(credentials: Credentials) -> bool:
    return passport_of(credentials.certificate).due(dt.datetime.now(dt.UTC))


async def _coordinator_certificate(target: str) -> bytes:
    """What is shown at `target`, not yet believed. Waits a minute for a coordinator to come up."""
    host, _, port = target.rpartition(":")
    if not host or not port.isdigit():
        raise LocalError(f"{target!r} is not host:port")
    deadline = asyncio.get_running_loop().time() + WAIT_SECONDS
    while True:
        try:
            return await asyncio.to_thread(_shown_certificate, host.strip("[]"), int(port))
        except OSError as error:
            if asyncio.get_running_loop().time() > deadline:
                raise PeerError("coordinator", f"no enrolment at {target}: {error}") from None
            log.info("no enrolment at %s yet", target)
        await asyncio.sleep(0.5)


def _shown_certificate(host: str, port: int) -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # The token's authority is checked on the certificate itself, and gRPC then takes no other.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection((host, port), timeout=CALL_SECONDS) as connection,
        context.wrap_socket(connection) as secured,
    ):
        certificate = secured.getpeercert(binary_form=True)
    if certificate is None:
        raise OSError("no certificate is shown there")
    return ssl.DER_cert_to_PEM_cert(certificate).encode()
