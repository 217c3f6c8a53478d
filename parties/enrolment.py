"""How a party gets and renews its certificate. The private key is made here and stays here."""

import asyncio
import datetime as dt
import logging
from dataclasses import replace

import grpc
import grpc.aio

from tallyroom.protocols.errors import LocalError, PeerError
from tallyroom.protocols.identity.certificates import Credentials, Identity, new_key, validity_of
from tallyroom.protocols.identity.enrolment import (
    Token,
    certificate_request,
    check_authority,
    check_enroller,
    check_issued,
    sign_renewal,
)
from tallyroom.protocols.wire.messages import Role
from tallyroom.protos import tally_pb2 as pb
from tallyroom.protos.channel import open_enrolment_channel
from tallyroom.protos.shown import shown_certificate
from tallyroom.protos.tally_pb2_grpc import EnrolmentStub

log = logging.getLogger(__name__)

CALL_SECONDS = 20.0
WAIT_SECONDS = 60.0


async def enrol(token: Token, target: str) -> Credentials:
    """Trades the token for a certificate. Raises `PeerError` if it is refused. Raises it before the
    token is shown if the process at `target` does not enrol parties for the token's federation."""
    certificate = await _shown_at(target)
    enroller = check_enroller(certificate, token.authority_key())
    key, pem = new_key()
    request = pb.EnrolRequest(token=token.encode(), request=certificate_request(key, token.party))
    async with open_enrolment_channel(target, enroller, certificate) as channel:
        try:
            certified = await EnrolmentStub(channel).Enrol(request, timeout=CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise PeerError(enroller.name, f"enrolment failed: {error.details()}") from None
    check_authority(certified.authority, token.authority_key())
    check_issued(certified.certificate, key, token.party, certified.party_authority)
    return Credentials(
        Identity(Role.PARTY, token.party, token.party),
        certified.certificate,
        certified.authority,
        pem,
        certified.party_authority,
    )


async def renew(credentials: Credentials, target: str) -> Credentials:
    """Gets a certificate for a new key pair of the same party. Raises `PeerError`."""
    certificate = await _shown_at(target)
    enroller = credentials.trust.identity_of(certificate)
    if enroller.role not in (Role.COORDINATOR, Role.REGISTRAR):
        raise PeerError(enroller.name, "does not enrol parties")
    key, pem = new_key()
    party = credentials.identity.first
    signing_request = certificate_request(key, party)
    request = pb.RenewRequest(
        request=signing_request,
        certificate=credentials.certificate,
        signature=sign_renewal(signing_request, credentials.key),
    )
    async with open_enrolment_channel(target, enroller, certificate) as channel:
        try:
            certified = await EnrolmentStub(channel).Renew(request, timeout=CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise PeerError(enroller.name, f"renewal failed: {error.details()}") from None
    check_issued(certified.certificate, key, party, credentials.party_authority)
    return replace(credentials, certificate=certified.certificate, key=pem)


def is_due(credentials: Credentials) -> bool:
    return validity_of(credentials.certificate).due(dt.datetime.now(dt.UTC))


async def _shown_at(target: str) -> bytes:
    """Returns the certificate shown at `target`, still unverified. Waits up to a minute for it."""
    host, _, port = target.rpartition(":")
    if not host or not port.isdigit():
        raise LocalError(f"{target!r} is not host:port")
    deadline = asyncio.get_running_loop().time() + WAIT_SECONDS
    while True:
        try:
            return await asyncio.to_thread(shown_certificate, host.strip("[]"), int(port))
        except OSError as error:
            if asyncio.get_running_loop().time() > deadline:
                raise PeerError("enrolment", f"nothing answers at {target}: {error}") from None
            log.info("no enrolment at %s yet", target)
        await asyncio.sleep(0.5)
