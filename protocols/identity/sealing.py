"""Sealing to a public key: only its owner can open a seal, and nobody learns who sealed it.

Uses an ephemeral X25519 key, HKDF-SHA256 and AES-128-GCM, like HPKE's base mode (RFC 9180) but
without its wire format. Every seal has its own key, so the nonce is constant. A sealed payload
names no sender and is not signed: whoever knows the public key can seal.
"""

import hashlib

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

SECRET_BYTES = 32
PUBLIC_BYTES = 32
TAG_BYTES = 16
OVERHEAD = PUBLIC_BYTES + TAG_BYTES
"""How much longer a sealed payload is."""

_NONCE = bytes(12)
USAGE_SEAL = b"tallyroom seal 1"
USAGE_PROBE = b"tallyroom probe "


class SealingKey:
    """The owner's key pair; `public` is its public half."""

    def __init__(self, secret: bytes) -> None:
        self._secret = X25519PrivateKey.from_private_bytes(secret)
        self.public = self._secret.public_key().public_bytes_raw()

    def __repr__(self) -> str:
        return "<SealingKey>"

    def open(self, sealed: bytes, context: bytes) -> bytes | None:
        """The payload; None if it was sealed to another key or context, or was changed."""
        if len(sealed) < OVERHEAD:
            return None
        ephemeral = sealed[:PUBLIC_BYTES]
        try:
            shared = self._secret.exchange(X25519PublicKey.from_public_bytes(ephemeral))
            cipher = _cipher(shared, ephemeral, self.public, context)
            return cipher.decrypt(_NONCE, sealed[PUBLIC_BYTES:], None)
        except (ValueError, InvalidTag):  # a point of low order; a forgery
            return None


class Recipient:
    """A public key to seal to.

    Raises `ValueError` on a point of low order: anybody could read what is sealed to it.
    """

    def __init__(self, public: bytes) -> None:
        self.public = public
        self._key = X25519PublicKey.from_public_bytes(public)
        try:
            X25519PrivateKey.from_private_bytes(USAGE_PROBE * 2).exchange(self._key)
        except ValueError:
            raise ValueError("invalid public key: a point of low order") from None

    def seal(self, payload: bytes, context: bytes, randomness: bytes) -> bytes:
        """`payload` sealed under 32 fresh random bytes, bound to a public `context`.

        The ephemeral key also depends on the payload: the same randomness with another payload
        gives another key, so a sender that is restarted cannot use one key twice.
        """
        if len(randomness) != SECRET_BYTES:
            raise ValueError(f"sealing takes {SECRET_BYTES} random bytes, not {len(randomness)}")
        bound = self.public + len(context).to_bytes(4, "little") + context + payload
        secret = hashlib.blake2s(bound, key=randomness, person=b"sealing ").digest()
        ephemeral = X25519PrivateKey.from_private_bytes(secret)
        public = ephemeral.public_key().public_bytes_raw()
        cipher = _cipher(ephemeral.exchange(self._key), public, self.public, context)
        return public + cipher.encrypt(_NONCE, payload, None)


def _cipher(shared: bytes, ephemeral: bytes, recipient: bytes, context: bytes) -> AESGCM:
    """The key depends on everything that was sent, so a point in another encoding opens nothing."""
    info = USAGE_SEAL + ephemeral + recipient + context
    return AESGCM(HKDF(SHA256(), 16, None, info).derive(shared))
