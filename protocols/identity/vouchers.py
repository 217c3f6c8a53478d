"""Short signatures of parties, for other parties, with the keys of their certificates.

A voucher is the part of a party's certificate that others need: which parties its holder speaks
for, until when, with which key, and the authority's signature on that. It is an extension of the
certificate (`Authority.sign`), with 113 bytes instead of 600. A proof is a voucher and a signature
by its key: whoever knows the party authority can check it, no matter who relayed it.

A revoked party can still make valid proofs until its certificate expires, because parties do not
see the revocation list. Servers and the coordinator do, and accept nothing from it.
"""

import datetime as dt
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)

from tallyroom.protocols.errors import LocalError

SIGNATURE_BYTES = 64
_STATED = struct.Struct(">IIQ33s")
VOUCHER_BYTES = _STATED.size + SIGNATURE_BYTES
PROOF_BYTES = VOUCHER_BYTES + SIGNATURE_BYTES
EXTENSION = x509.ObjectIdentifier("2.25.305186291474628311254126190571329407284")
"""The certificate extension that holds the voucher: an object identifier from a random UUID."""

_USAGE_VOUCHER = b"tallyroom voucher v1"

# Signatures are deterministic (RFC 6979), so a party that is restarted in mid-run sends exactly
# what it sent before. Otherwise it would contradict itself.
_ECDSA = ec.ECDSA(hashes.SHA256(), deterministic_signing=True)

Clock = Callable[[], dt.datetime]


def make_voucher(
    authority: ec.EllipticCurvePrivateKey,
    first: int,
    last: int,
    ends: dt.datetime,
    key: ec.EllipticCurvePublicKey,
) -> bytes:
    point = key.public_bytes(
        serialization.Encoding.X962, serialization.PublicFormat.CompressedPoint
    )
    stated = _STATED.pack(first, last, int(ends.timestamp()), point)
    return stated + sign_raw(authority, _USAGE_VOUCHER + stated)


def sign_raw(key: ec.EllipticCurvePrivateKey, statement: bytes) -> bytes:
    """A signature of fixed size, so that its cost on the wire does not vary."""
    r, s = decode_dss_signature(key.sign(statement, _ECDSA))
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")


def holds_raw(key: ec.EllipticCurvePublicKey, statement: bytes, signature: bytes) -> bool:
    if len(signature) != SIGNATURE_BYTES:
        return False
    r, s = (int.from_bytes(half, "big") for half in (signature[:32], signature[32:]))
    try:
        key.verify(encode_dss_signature(r, s), statement, _ECDSA)
    except InvalidSignature:
        return False
    return True


@dataclass(frozen=True)
class _Voucher:
    first: int
    last: int
    ends: int
    key: ec.EllipticCurvePublicKey


@lru_cache(maxsize=8192)
def _opened(authority: bytes, voucher: bytes) -> _Voucher | None:
    """The voucher's content; None unless the authority, a PEM, signed it. Cached, because a party
    uses its voucher in many runs."""
    signer = x509.load_pem_x509_certificate(authority).public_key()
    stated, signature = voucher[: _STATED.size], voucher[_STATED.size :]
    if not isinstance(signer, ec.EllipticCurvePublicKey):
        return None
    if not holds_raw(signer, _USAGE_VOUCHER + stated, signature):
        return None
    first, last, ends, point = _STATED.unpack(stated)
    try:
        key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point)
    except ValueError:
        return None
    return _Voucher(first, last, ends, key)


class Vouchers:
    """Checks the proofs of parties of one federation. `authority` certifies them, as PEM.

    Without a `clock`, expiry is not checked. At a server TLS checks it, and messages from its
    journal must be accepted again after a restart.
    """

    def __init__(self, authority: bytes, clock: Clock | None = None) -> None:
        self._authority = authority
        self._clock = clock

    def fault(self, party: int, statement: bytes, proof: bytes) -> str | None:
        """Why `proof` does not prove that `party` signed `statement`; None if it does."""
        voucher = _opened(self._authority, proof[:VOUCHER_BYTES])
        if voucher is None:
            return "its certificate was not issued by this federation"
        if not voucher.first <= party <= voucher.last:
            return "its certificate is another party's"
        if self._clock is not None and self._clock().timestamp() > voucher.ends:
            return "its certificate has expired"
        if not holds_raw(voucher.key, statement, proof[VOUCHER_BYTES:]):
            return "its signature is invalid"
        return None


class PartySigner(Vouchers):
    """Also signs, for the parties of one host. The key is secret and never shows in `repr`."""

    def __init__(
        self, authority: bytes, certificate: bytes, key: bytes, clock: Clock | None = None
    ) -> None:
        """Raises `LocalError` if the certificate has no voucher, or the key is not on a curve."""
        super().__init__(authority, clock)
        private = serialization.load_pem_private_key(key, password=None)
        if not isinstance(private, ec.EllipticCurvePrivateKey):
            raise LocalError("a participant's key must be an elliptic-curve key")
        self._key = private
        self._voucher = voucher_in(certificate)

    def __repr__(self) -> str:
        return "<PartySigner>"

    def prove(self, statement: bytes) -> bytes:
        return self._voucher + sign_raw(self._key, statement)


def voucher_in(certificate: bytes) -> bytes:
    """The voucher of a certificate. Raises `LocalError` if it has none."""
    parsed = x509.load_pem_x509_certificate(certificate)
    try:
        found = parsed.extensions.get_extension_for_oid(EXTENSION).value
    except x509.ExtensionNotFound:
        raise LocalError("the certificate has no voucher for other parties: enrol again") from None
    if not isinstance(found, x509.UnrecognizedExtension) or len(found.value) != VOUCHER_BYTES:
        raise LocalError("the certificate has no voucher for other parties: enrol again")
    return found.value
