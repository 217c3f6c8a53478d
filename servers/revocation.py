"""Refuses certificates that TLS accepts: revoked ones, and those that have expired.

TLS checks a certificate when a connection opens. Here every call is checked, and open streams again
every other second, so a revoked party is out within seconds, not at its next connection.
"""

import datetime as dt
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc
import grpc.aio
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec

from tallyroom.protocols.errors import PeerError
from tallyroom.protocols.identity.certificates import validity_of
from tallyroom.protocols.wire.messages import Role
from tallyroom.protos import tally_pb2 as pb
from tallyroom.protos.certified import Context, Handler, certificate_of, guarded
from tallyroom.protos.channel import caller
from tallyroom.protos.identity_files import write_public
from tallyroom.protos.tally_pb2_grpc import RevocationServicer

log = logging.getLogger(__name__)

RECHECK_SECONDS = 1.0
MAX_LIST_BYTES = 3 << 20


class Revocations:
    """The newest list that the party authority signed. It is kept in the file `path`, where an
    operator may also put one by hand; with None it is kept in memory."""

    def __init__(self, party_authority: bytes, path: Path | None = None) -> None:
        self._authority = party_authority
        self._path = path
        self._stamp: int | None = None
        self._looked = -1.0
        self.number = 0
        self._serials: frozenset[int] = frozenset()
        self._read()

    def update(self, revoked: bytes) -> None:
        """Accepts a list unless it is older than ours. Raises `PeerError` if it is forged."""
        number, serials = self._parse(revoked)
        if number <= self.number:
            return
        if self._path is not None:
            write_public(self._path, revoked)
        self.number, self._serials = number, serials
        log.info("revocation list %d, certificates revoked: %d", number, len(serials))

    def refuses(self, certificate: bytes, now: dt.datetime) -> str | None:
        """Returns why a certificate is refused, or None."""
        self._read()
        validity = validity_of(certificate)
        if validity.serial in self._serials:
            return "its certificate is revoked"
        if now > validity.ends:
            return "its certificate has expired"
        return None

    def _read(self) -> None:
        if self._path is None or time.monotonic() < self._looked + RECHECK_SECONDS:
            return
        self._looked = time.monotonic()
        try:
            stamp = self._path.stat().st_mtime_ns
            if stamp == self._stamp:
                return
            self._stamp = stamp
            number, serials = self._parse(self._path.read_bytes())
        except FileNotFoundError:
            return
        except (OSError, PeerError) as error:
            log.error("the revocation list %s cannot be used: %s", self._path, error)
            return
        if number > self.number:
            self.number, self._serials = number, serials

    def _parse(self, revoked: bytes) -> tuple[int, frozenset[int]]:
        try:
            if len(revoked) > MAX_LIST_BYTES:
                raise ValueError("too long")
            key = x509.load_pem_x509_certificate(self._authority).public_key()
            parsed = x509.load_pem_x509_crl(revoked)
            if not isinstance(key, ec.EllipticCurvePublicKey) or not parsed.is_signature_valid(key):
                raise ValueError("not signed by this federation's party authority")
            number = parsed.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
            return number, frozenset(entry.serial_number for entry in parsed)
        except (ValueError, TypeError, x509.ExtensionNotFound, UnsupportedAlgorithm) as error:
            raise PeerError("enrolment", f"malformed revocation list: {error}") from None


class RevocationService(RevocationServicer):
    """Takes the list from the process that enrols parties: it is signed, and only grows."""

    def __init__(self, revocations: Revocations) -> None:
        self._revocations = revocations

    async def Update(  # noqa: N802
        self, request: pb.RevocationList, context: Context
    ) -> pb.RevocationState:
        identity = await caller(context)
        if identity.role not in (Role.COORDINATOR, Role.REGISTRAR):
            await context.abort(
                grpc.StatusCode.PERMISSION_DENIED,
                "only the process that enrols parties may do this",
            )
        if request.list:
            try:
                self._revocations.update(request.list)
            except PeerError as error:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            except OSError as error:
                await context.abort(
                    grpc.StatusCode.UNAVAILABLE, f"cannot store the revocation list: {error}"
                )
        return pb.RevocationState(number=self._revocations.number)


class Screen(grpc.aio.ServerInterceptor):
    """Checks the caller's certificate before every call and during streams."""

    def __init__(self, revocations: Revocations) -> None:
        self._revocations = revocations

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        handler = await continuation(handler_call_details)
        return None if handler is None else guarded(handler, self._check, RECHECK_SECONDS)

    async def _check(self, context: Context) -> None:
        try:
            now = dt.datetime.now(dt.UTC)
            reason = self._revocations.refuses(certificate_of(context), now)
        except PeerError as error:
            reason = error.reason
        if reason is not None:
            log.warning("refused a caller: %s", reason)
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, reason)
