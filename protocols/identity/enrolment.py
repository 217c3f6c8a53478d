"""How a party becomes a member: with a one-time token, and a signing request for its own key.

A token carries the public key of the members' authority, so that its holder knows whom it talks to
before it has a certificate. This module does no I/O: keys, secrets and the time are arguments.
"""

import base64
import binascii
import datetime as dt
import hashlib
import struct
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tallyroom.protocols.errors import LocalError, PeerError
from tallyroom.protocols.identity.certificates import Identity, Trust, claimed_identity
from tallyroom.protocols.wire.messages import Role

SECRET_BYTES = 16
MAX_REQUEST_BYTES = 4096
_PREFIX = "tally1-"
_USAGE_TOKEN_DIGEST = b"tallyroom enrolment token digest"
_USAGE_RENEWAL = b"tallyroom renewal v1"
_BODY = struct.Struct(f">I33s{SECRET_BYTES}s")


@dataclass(frozen=True)
class Token:
    """`authority` is the public key of the members' authority, as a compressed point. It certifies
    the coordinator or registrar that enrols parties."""

    party: int
    authority: bytes
    secret: bytes = field(repr=False)

    def encode(self) -> str:
        body = _BODY.pack(self.party, self.authority, self.secret)
        return _PREFIX + base64.urlsafe_b64encode(body).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str) -> "Token":
        """Raises `LocalError` if the text is not a token; the message does not quote it."""
        try:
            body = text.removeprefix(_PREFIX)
            packed = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
            token = cls(*_BODY.unpack(packed))
            token.authority_key()
        except (ValueError, binascii.Error, struct.error):
            token = None
        if token is None or token.encode() != text:
            raise LocalError("this is not an enrolment token: copy the whole token")
        return token

    def authority_key(self) -> ec.EllipticCurvePublicKey:
        return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), self.authority)

    @property
    def digest(self) -> bytes:
        """What is stored of a token that was handed out. Its secret is uniform, so a plain hash is
        enough."""
        return hashlib.sha256(_USAGE_TOKEN_DIGEST + self.encode().encode()).digest()


def compressed(key: ec.EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.X962, serialization.PublicFormat.CompressedPoint)


def certificate_request(key: ec.EllipticCurvePrivateKey, party: int) -> bytes:
    """A request for a certificate as `party`, which proves possession of the key."""
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
        raise PeerError(peer, f"its signing request asks for something other than to be {peer}")
    return key


def sign_renewal(request: bytes, key: bytes) -> bytes:
    """Signs a renewal request with the old certificate's key, so that nobody in between can replace
    it."""
    private = serialization.load_pem_private_key(key, password=None)
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        raise TypeError("a participant's key must be an elliptic-curve key")
    return private.sign(_USAGE_RENEWAL + request, ec.ECDSA(hashes.SHA256()))


def check_renewal(
    trust: Trust, certificate: bytes, request: bytes, signature: bytes, now: dt.datetime
) -> int:
    """The party that asks for a renewal. Raises `PeerError` unless it may."""
    if max(map(len, (certificate, request, signature))) > MAX_REQUEST_BYTES:
        raise PeerError("unknown", f"its request is longer than {MAX_REQUEST_BYTES} bytes")
    identity = trust.identity_of(certificate)
    if identity.role is not Role.PARTY or identity.first != identity.last:
        raise PeerError(identity.name, "only a party's certificate is renewed here")
    parsed = x509.load_pem_x509_certificate(certificate)
    if not parsed.not_valid_before_utc <= now <= parsed.not_valid_after_utc:
        raise PeerError(identity.name, "its certificate has expired")
    key = parsed.public_key()
    try:
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise InvalidSignature
        key.verify(signature, _USAGE_RENEWAL + request, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        raise PeerError(identity.name, "its request is not signed with its certificate") from None
    return identity.first


def check_enroller(certificate: bytes, authority: ec.EllipticCurvePublicKey) -> Identity:
    """The identity of the member that enrols parties. Raises `PeerError` unless `authority` signed
    `certificate` for a coordinator or a registrar."""
    try:
        parsed = x509.load_pem_x509_certificate(certificate)
        algorithm = parsed.signature_hash_algorithm
        if not isinstance(algorithm, hashes.SHA256):
            raise ValueError("an unexpected signature algorithm")
        authority.verify(parsed.signature, parsed.tbs_certificate_bytes, ec.ECDSA(algorithm))
    except (ValueError, InvalidSignature, UnsupportedAlgorithm):
        raise PeerError("enrolment", "is not at the federation that issued the token") from None
    identity = claimed_identity(certificate)
    if identity not in (Identity(Role.COORDINATOR), Identity(Role.REGISTRAR)):
        raise PeerError("enrolment", "is at a member that does not enrol parties")
    return identity


def check_authority(certificate: bytes, key: ec.EllipticCurvePublicKey) -> None:
    """Raises `PeerError` unless `certificate` belongs to the authority that a token names."""
    try:
        same = x509.load_pem_x509_certificate(certificate).public_key() == key
    except (ValueError, UnsupportedAlgorithm):
        same = False
    if not same:
        raise PeerError("enrolment", "sent an authority that is not the token's")


def check_issued(
    certificate: bytes, key: ec.EllipticCurvePrivateKey, party: int, party_authority: bytes
) -> None:
    """Raises `PeerError` unless `party_authority` signed `certificate` for `party` and `key`."""
    identity = Trust(b"", party_authority).identity_of(certificate)
    same = identity == Identity(Role.PARTY, party, party)
    if not same or x509.load_pem_x509_certificate(certificate).public_key() != key.public_key():
        raise PeerError("enrolment", "sent a certificate that was not asked for")
