"""How a party becomes a member: a one-time token, and a signing request for a key of its own.

A token carries the members' authority's public key, so that its holder knows whom it talks to
before it has any certificate. Pure: keys, secrets and the time come in.
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
    """`authority` is the public key, a compressed point, that signed who enrols parties."""

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


def sign_renewal(request: bytes, key: bytes) -> bytes:
    """The old certificate's key asks for the new one: nobody in between can ask for another."""
    private = serialization.load_pem_private_key(key, password=None)
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        raise TypeError("a participant's key is on an elliptic curve")
    return private.sign(_USAGE_RENEWAL + request, ec.ECDSA(hashes.SHA256()))


def check_renewal(
    trust: Trust, certificate: bytes, request: bytes, signature: bytes, now: dt.datetime
) -> int:
    """Which party asks to stay the party that it is. Raises `PeerError` on anybody else."""
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
        raise PeerError(identity.name, "its request is not signed by its certificate") from None
    return identity.first


def check_enroller(certificate: bytes, authority: ec.EllipticCurvePublicKey) -> Identity:
    """Who enrols parties there. Raises `PeerError` unless `authority` signed `certificate` for a
    coordinator or a registrar."""
    try:
        parsed = x509.load_pem_x509_certificate(certificate)
        algorithm = parsed.signature_hash_algorithm
        if not isinstance(algorithm, hashes.SHA256):
            raise ValueError("an unexpected signature")
        authority.verify(parsed.signature, parsed.tbs_certificate_bytes, ec.ECDSA(algorithm))
    except (ValueError, InvalidSignature, UnsupportedAlgorithm):
        raise PeerError("enrolment", "is not of the federation that gave out the token") from None
    identity = claimed_identity(certificate)
    if identity not in (Identity(Role.COORDINATOR), Identity(Role.REGISTRAR)):
        raise PeerError("enrolment", "is at another member of the federation")
    return identity


def check_authority(certificate: bytes, key: ec.EllipticCurvePublicKey) -> None:
    """Raises `PeerError` unless `certificate` is of the authority that a token names."""
    try:
        same = x509.load_pem_x509_certificate(certificate).public_key() == key
    except (ValueError, UnsupportedAlgorithm):
        same = False
    if not same:
        raise PeerError("enrolment", "sent another authority than the token's")


def check_issued(
    certificate: bytes, key: ec.EllipticCurvePrivateKey, party: int, party_authority: bytes
) -> None:
    """Raises `PeerError` unless `party_authority` signed `certificate` for `party` and `key`."""
    identity = Trust(b"", party_authority).identity_of(certificate)
    same = identity == Identity(Role.PARTY, party, party)
    if not same or x509.load_pem_x509_certificate(certificate).public_key() != key.public_key():
        raise PeerError("enrolment", "sent a certificate that was not asked for")
