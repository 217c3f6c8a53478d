"""Encrypted messages between two party hosts, through a relay that must not read them.

Each host makes an X25519 key when it starts and signs it with its certificate's key. Two hosts
agree on one AES-256-GCM key per direction; a message is a counter and a ciphertext. Both
identities, both keys and the federation enter the key derivation, so a message sealed for one pair,
direction or federation cannot be opened in another.

This protects against an eavesdropper and a curious relay, who learn only sizes and who speaks to
whom. The keys live exactly as long as the process. Whoever can issue certificates for parties can
impersonate one: in a deployment that is the coordinator, if it holds the party authority's key. It
would have to certify an impostor, which leaves a certificate with its own serial number behind;
otherwise it cannot read the messages.
"""

import datetime as dt
import struct
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tallyroom.protocols.errors import PeerError
from tallyroom.protocols.identity.certificates import Credentials, Identity, Trust
from tallyroom.protocols.wire.messages import Role

KEY_BYTES = 32
_COUNTER = struct.Struct(">Q")
_USAGE_KEY = b"tallyroom peer key v1"
_USAGE_DIRECTION = b"tallyroom relay direction v1"
_ECDSA = ec.ECDSA(hashes.SHA256())


@dataclass(frozen=True)
class SignedKey:
    """A host's public key for sealing, and the proof that the key belongs to it."""

    identity: Identity
    key: bytes
    signature: bytes
    certificate: bytes = b""


def fingerprint(authority: bytes) -> bytes:
    """Identifies a federation by the digest of its members' authority."""
    return x509.load_pem_x509_certificate(authority).fingerprint(hashes.SHA256())


def sign_key(key: bytes, credentials: Credentials, federation: bytes) -> SignedKey:
    """Signs a public key with the certificate's key. `federation` is its fingerprint."""
    private = serialization.load_pem_private_key(credentials.key, password=None)
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        raise TypeError("a participant's key must be an elliptic-curve key")
    identity = credentials.identity
    signature = private.sign(_statement(identity, key, federation), _ECDSA)
    return SignedKey(identity, key, signature, credentials.certificate)


def verify_key(
    signed_key: SignedKey, party_authority: bytes, federation: bytes, now: dt.datetime
) -> None:
    """Raises `PeerError` unless the party authority certified the host, which signed the key."""
    name = signed_key.identity.name
    certified = Trust(b"", party_authority).identity_of(signed_key.certificate)
    if certified != signed_key.identity or certified.role is not Role.PARTY:
        raise PeerError(name, "its certificate belongs to somebody else")
    certificate = x509.load_pem_x509_certificate(signed_key.certificate)
    public = certificate.public_key()
    if len(signed_key.key) != KEY_BYTES or not isinstance(public, ec.EllipticCurvePublicKey):
        raise PeerError(name, "invalid public key")
    if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
        raise PeerError(name, "its certificate is not valid now")
    try:
        public.verify(
            signed_key.signature,
            _statement(signed_key.identity, signed_key.key, federation),
            _ECDSA,
        )
    except InvalidSignature:
        raise PeerError(name, "its key is not signed with its certificate's key") from None


def _statement(identity: Identity, key: bytes, federation: bytes) -> bytes:
    return _packed(_USAGE_KEY, federation, identity.uri.encode(), key)


def _packed(*parts: bytes) -> bytes:
    """Encodes unambiguously: no two lists of parts give the same bytes."""
    return b"".join(struct.pack(">I", len(part)) + part for part in parts)


class SealedChannel:
    """One host's end of the channel to another: seals what it sends, opens what it receives.

    Counters only go up for the lifetime of both keys: a repeated message is refused, and so is one
    that arrives out of order. Missing messages are left for the protocol to notice.
    """

    def __init__(
        self,
        private: X25519PrivateKey,
        me: Identity,
        peer: Identity,
        peer_key: bytes,
        federation: bytes,
    ) -> None:
        """Raises `PeerError` on a key that yields the same secret with every other key."""
        self._name = peer.name
        mine = End(me, private.public_key().public_bytes_raw())
        theirs = End(peer, peer_key)
        try:
            secret = private.exchange(X25519PublicKey.from_public_bytes(peer_key))
        except ValueError:
            raise PeerError(peer.name, "invalid public key") from None
        self._outgoing = AESGCM(direction_key(secret, mine, theirs, federation))
        self._incoming = AESGCM(direction_key(secret, theirs, mine, federation))
        self._sent = 0
        self._received = 0

    def seal(self, plain: bytes) -> bytes:
        self._sent += 1
        counter = _COUNTER.pack(self._sent)
        return counter + self._outgoing.encrypt(_nonce(counter), plain, None)

    def open(self, sealed: bytes) -> bytes:
        """Raises `PeerError` if the peer did not seal this for us, or sealed it before the last."""
        counter, ciphertext = sealed[: _COUNTER.size], sealed[_COUNTER.size :]
        if len(counter) < _COUNTER.size:
            raise PeerError(self._name, "its sealed message is cut off")
        number = _COUNTER.unpack(counter)[0]
        if number <= self._received:
            raise PeerError(self._name, "a message was repeated or arrived too late")
        try:
            plain = self._incoming.decrypt(_nonce(counter), ciphertext, None)
        except InvalidTag:
            raise PeerError(self._name, "its sealed message was altered") from None
        self._received = number
        return plain


@dataclass(frozen=True)
class End:
    """One end of a channel: its identity and its public key."""

    identity: Identity
    key: bytes = field(repr=False)


def direction_key(secret: bytes, sender: End, receiver: End, federation: bytes) -> bytes:
    """The key for messages from `sender` to `receiver`; the other direction has its own."""
    info = _packed(
        _USAGE_DIRECTION,
        sender.identity.uri.encode(),
        sender.key,
        receiver.identity.uri.encode(),
        receiver.key,
    )
    return HKDF(hashes.SHA256(), KEY_BYTES, salt=federation, info=info).derive(secret)


def _nonce(counter: bytes) -> bytes:
    """A nonce is never used twice under one key: counters only go up, and every process makes new
    keys."""
    return bytes(12 - len(counter)) + counter
