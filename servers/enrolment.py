"""Enrolment: parties trade tokens for certificates, renew them, and have them revoked.

It runs in the coordinator, or in a process of its own (servers/registrar_process.py); in that case
the coordinator has no key that could certify parties.
"""

import asyncio
import datetime as dt
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import grpc
import grpc.aio
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from tallyroom.protocols.errors import LocalError, PeerError
from tallyroom.protocols.identity.certificates import (
    Authority,
    Credentials,
    Identity,
    Trust,
    validity_of,
)
from tallyroom.protocols.identity.enrolment import Token, check_renewal, check_request
from tallyroom.protocols.wire.messages import Role
from tallyroom.protos import tally_pb2 as pb
from tallyroom.protos.channel import Context, caller, new_enrolment_server, serving
from tallyroom.protos.tally_pb2_grpc import (
    DirectoryServicer,
    EnrolmentServicer,
    RevocationStub,
    add_EnrolmentServicer_to_server,
)
from tallyroom.servers.federation_folder import read_authority, signed_revocations
from tallyroom.servers.registry import Registry, Signed
from tallyroom.servers.revocation import Revocations

log = logging.getLogger(__name__)

PARTY_LIFETIME = dt.timedelta(days=30)
FAILURES = 20
FAILURES_SECONDS = 60.0
REVOCATION_SECONDS = 1.0
CALL_SECONDS = 5.0


@dataclass(frozen=True)
class EnrolmentConfig:
    """`folder` holds the party authority and the registry; `ready` receives the port."""

    folder: Path
    listen: str = "127.0.0.1:0"
    lifetime: dt.timedelta = PARTY_LIFETIME
    ready: Callable[[int], None] = lambda _: None


class Registrar:
    """Signs for parties. A certificate is in the registry before anybody receives it."""

    def __init__(self, authority: Authority, registry: Registry, lifetime: dt.timedelta) -> None:
        self._authority = authority
        self._registry = registry
        self._lifetime = lifetime
        self._lock = asyncio.Lock()

    async def enrol(self, token: str, request: bytes) -> bytes:
        """Raises `PeerError` on a bad token or a signing request for another party."""
        try:
            digest = Token.decode(token).digest
        except LocalError as error:
            raise PeerError("unknown", str(error)) from None
        now = dt.datetime.now(dt.UTC)
        async with self._lock:
            return await asyncio.to_thread(
                self._registry.redeem, digest, now, lambda party: self._sign(request, party, now)
            )

    async def renew(self, certificate: bytes, request: bytes, signature: bytes) -> bytes:
        """Raises `PeerError` unless a party asks for a certificate for itself."""
        now = dt.datetime.now(dt.UTC)
        trust = Trust(b"", self._authority.pem)
        party = check_renewal(trust, certificate, request, signature, now)
        async with self._lock:
            return await asyncio.to_thread(
                self._registry.renew,
                party,
                validity_of(certificate).serial,
                lambda party: self._sign(request, party, now),
            )

    @property
    def authority(self) -> bytes:
        """The party authority's certificate."""
        return self._authority.pem

    async def revocations(self) -> tuple[int, bytes]:
        """Returns the number of the revocation list, and the signed list."""
        async with self._lock:
            number = len(await asyncio.to_thread(self._registry.revoked))
            return number, signed_revocations(self._registry, self._authority)

    async def revocation_number(self) -> int:
        async with self._lock:
            return len(await asyncio.to_thread(self._registry.revoked))

    def _sign(self, request: bytes, party: int, now: dt.datetime) -> Signed:
        key = check_request(request, party)
        identity = Identity(Role.PARTY, party, party)
        certificate = self._authority.sign(key, identity, now, self._lifetime)
        parsed = x509.load_pem_x509_certificate(certificate)
        spki = key.public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return Signed(certificate, parsed.serial_number, spki, parsed.not_valid_after_utc)


class Attempts:
    """Limits how often an address may fail, within bounded memory."""

    def __init__(self, most: int = 4096) -> None:
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._most = most

    def exhausted(self, address: str) -> bool:
        count, since = self._failures.get(address, (0, 0.0))
        return count >= FAILURES and time.monotonic() < since + FAILURES_SECONDS

    def failed(self, address: str) -> None:
        count, since = self._failures.pop(address, (0, time.monotonic()))
        if time.monotonic() > since + FAILURES_SECONDS:
            count, since = 0, time.monotonic()
        self._failures[address] = (count + 1, since)
        while len(self._failures) > self._most:
            self._failures.popitem(last=False)


class EnrolmentService(EnrolmentServicer):
    """Open to anybody: sizes, attempts and concurrent calls are bounded."""

    def __init__(self, registrar: Registrar, authority: bytes) -> None:
        self._registrar = registrar
        self._authority = authority
        self._attempts = Attempts()

    async def Enrol(self, request: pb.EnrolRequest, context: Context) -> pb.Certified:  # noqa: N802
        address = context.peer().rpartition(":")[0]
        try:
            certificate = await self._registrar.enrol(request.token, request.request)
        except PeerError as error:
            await self._slow_down(address, context)
            log.warning("enrolment refused: %s", error)
            return await context.abort(grpc.StatusCode.PERMISSION_DENIED, error.reason)
        log.info("enrolled a party, certificate %x", validity_of(certificate).serial)
        return self._certified(certificate)

    async def _slow_down(self, address: str, context: Context) -> None:
        """An address that failed too often is no longer told why, and its failures are not logged.
        A good token from the same address still works: it may belong to somebody else behind the
        same router, and guessing a token is hopeless anyway."""
        if self._attempts.exhausted(address):
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many failed attempts")
        self._attempts.failed(address)

    async def Renew(self, request: pb.RenewRequest, context: Context) -> pb.Certified:  # noqa: N802
        address = context.peer().rpartition(":")[0]
        try:
            certificate = await self._registrar.renew(
                request.certificate, request.request, request.signature
            )
        except PeerError as error:
            await self._slow_down(address, context)
            log.warning("renewal refused: %s", error)
            return await context.abort(grpc.StatusCode.PERMISSION_DENIED, error.reason)
        log.info("renewed a party, certificate %x", validity_of(certificate).serial)
        return self._certified(certificate)

    def _certified(self, certificate: bytes) -> pb.Certified:
        return pb.Certified(
            certificate=certificate,
            authority=self._authority,
            party_authority=self._registrar.authority,
        )


class EnrollingCoordinator(Protocol):
    """What the directory needs of a coordinator."""

    servers: int
    parties: int

    @property
    def enrolled(self) -> int: ...

    @property
    def most_records(self) -> int: ...

    @property
    def all_records(self) -> int: ...


class FederationDirectory(DirectoryServicer):
    def __init__(self, room: EnrollingCoordinator, durable: bool = False) -> None:
        self._room = room
        self._durable = durable

    async def Describe(  # noqa: N802
        self, request: pb.DescribeRequest, context: Context
    ) -> pb.Description:
        await caller(context)
        room = self._room
        return pb.Description(
            servers=room.servers,
            parties=room.parties,
            present=room.enrolled,
            most_records=room.most_records,
            records=room.all_records,
            durable=self._durable,
        )


async def tell_revocations(
    registrar: Registrar, ours: Revocations | None, stations: Sequence[grpc.aio.Channel]
) -> None:
    """Sends the list to this process and to every station, now and whenever it changes."""
    stubs = [RevocationStub(channel) for channel in stations]
    while True:
        number = await registrar.revocation_number()
        if ours is not None and number > ours.number:
            ours.update((await registrar.revocations())[1])
        await asyncio.gather(*(_tell(stub, number, registrar) for stub in stubs))
        await asyncio.sleep(REVOCATION_SECONDS)


async def _tell(station: RevocationStub, number: int, registrar: Registrar) -> None:
    try:
        state = await station.Update(pb.RevocationList(), timeout=CALL_SECONDS)
        if state.number < number:
            revoked = (await registrar.revocations())[1]
            await station.Update(pb.RevocationList(list=revoked), timeout=CALL_SECONDS)
    except grpc.aio.AioRpcError as error:
        log.debug("a station did not take the revocation list: %s", error.details())


@asynccontextmanager
async def registrar_of(config: EnrolmentConfig | None) -> AsyncIterator[Registrar | None]:
    if config is None:
        yield None
        return
    registry = Registry(config.folder / "registry.sqlite")
    try:
        yield Registrar(read_authority(config.folder), registry, config.lifetime)
    finally:
        registry.close()


@asynccontextmanager
async def enrolling(
    config: EnrolmentConfig | None,
    registrar: Registrar | None,
    credentials: Credentials,
    ours: Revocations | None,
    stations: Sequence[grpc.aio.Channel],
) -> AsyncIterator[None]:
    """Serves enrolment on its own port, and keeps every station's revocation list current."""
    if config is None or registrar is None:
        yield
        return
    server, port = new_enrolment_server(credentials, config.listen)
    add_EnrolmentServicer_to_server(EnrolmentService(registrar, credentials.authority), server)
    telling = asyncio.create_task(tell_revocations(registrar, ours, stations))
    try:
        async with serving(server):
            config.ready(port)
            yield
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)
