"""How a party becomes a member: a one-time token, and a signing request for a key of its own.

A token carries the members' authority's public key, so that its holder knows whom it talks to
before it has any certificate. Pure: keys, secrets and the time come in.
"""

import base64
import binascii
import hashlib
import struct
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from protocols.errors import LocalError, PeerError
from protocols.identity import Identity, identity_of
from protocols.messages import Role

SECRET_BYTES = 16
MAX_REQUEST_BYTES = 4096
_PREFIX = "tally1-"
_USAGE_TOKEN_DIGEST = b"tallyroom enrolment token digest"
_BODY = struct.Struct(f">I33s{SECRET_BYTES}s")


@dataclass(frozen=True)
class Token:
    """`authority` is the public key, a compressed point, that signed the coordinator."""

    party: int
    authority: bytes
    secret: bytes = field(repr=False)

    def encode(self) -> str:
        body = _BODY.pack(self.party, self.authority, self.secret)
        return _PREFIX + base64.urlsafe_b64encode(body).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str) -> "Token":
        """Raises `LocalError`, without a word of the token in it."""
        try:
            body = text.removeprefix(_PREFIX)
            packed = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
            token = cls(*_BODY.unpack(packed))
            token.authority_key()
        except (ValueError, binascii.Error, struct.error):
            token = None
        if token is None or token.encode() != text:
            raise LocalError("this is not an enrolment token: it must be copied whole")
        return token

    def authority_key(self) -> ec.EllipticCurvePublicKey:
        return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), self.authority)

    @property
    def digest(self) -> bytes:
        """What is kept of a token that was given out. The secret is uniform, so a hash will do."""
        return hashlib.sha256(_USAGE_TOKEN_DIGEST + self.encode().encode()).digest()


def compressed(key: ec.EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.X962, serialization.PublicFormat.CompressedPoint)


def certificate_request(key: ec.EllipticCurvePrivateKey, party: int) -> bytes:
    """Asks for a certificate as `party`, and proves possession of the key."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, Role.PARTY.named(party))])
    builder = x509.CertificateSigningRequestBuilder().subject_name(name)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def check_request(request: bytes, party: int) -> ec.EllipticCurvePublicKey:
    """The key to certify as `party`. Raises `PeerError` on a request for anything else."""
    peer = Role.PARTY.named(party)
    if len(request) > MAX_REQUEST_BYTES:
        raise PeerError(peer, f"its signing request is longer than {MAX_REQUEST_BYTES} bytes")
    try:
        parsed = x509.load_pem_x509_csr(request)
        key = parsed.public_key()
        proven = parsed.is_signature_valid
        asked = [attribute.rfc4514_string() for attribute in parsed.subject]
        extras = len(parsed.extensions) + len(parsed.attributes)
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.DuplicateExtension):
        raise PeerError(peer, "its signing request cannot be read") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise PeerError(peer, "its signing request has no P-256 key")
    if not proven:
        raise PeerError(peer, "its signing request does not prove possession of the key")
    if asked != [f"CN={peer}"] or extras:
        raise PeerError(peer, f"its signing request asks for more than to be {peer}")
    return key


def check_coordinator(certificate: bytes, authority: ec.EllipticCurvePublicKey) -> None:
    """Raises `PeerError` unless `authority` signed `certificate` for a coordinator."""
    try:
        parsed = x509.load_pem_x509_certificate(certificate)
        algorithm = parsed.signature_hash_algorithm
        if not isinstance(algorithm, hashes.SHA256):
            raise ValueError("an unexpected signature")
        authority.verify(parsed.signature, parsed.tbs_certificate_bytes, ec.ECDSA(algorithm))
    except (ValueError, InvalidSignature, UnsupportedAlgorithm):
        raise PeerError("coordinator", "is not of the federation that gave out the token") from None
    if identity_of(certificate) != Identity(Role.COORDINATOR):
        raise PeerError("coordinator", "is another member of the federation")


def check_authority(certificate: bytes, key: ec.EllipticCurvePublicKey) -> None:
    """Raises `PeerError` unless `certificate` is of the authority that a token names."""
    try:
        same = x509.load_pem_x509_certificate(certificate).public_key() == key
    except (ValueError, UnsupportedAlgorithm):
        same = False
    if not same:
        raise PeerError("coordinator", "sent another authority than the token's")


def check_issued(certificate: bytes, key: ec.EllipticCurvePrivateKey, party: int) -> None:
    """Raises `PeerError` unless `certificate` is for `party` and this `key`."""
    same = identity_of(certificate) == Identity(Role.PARTY, party, party)
    if not same or x509.load_pem_x509_certificate(certificate).public_key() != key.public_key():
        raise PeerError("coordinator", "sent a certificate that was not asked for")
