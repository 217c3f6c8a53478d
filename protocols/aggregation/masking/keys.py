"""Keys between two parties of a masked sum: agreement, seals, confirmations, masks.

Everything derived for a pair is bound to the run and to both public keys, and is the same at both
ends. So a block that computes both ends can do the agreement once.
"""

import hashlib
import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tallyroom.protocols.identity.vouchers import PROOF_BYTES

PUBLIC_BYTES = 32
KEYS_BYTES = 2 * PUBLIC_BYTES
"""A party's two public keys: for the channel and for the masks."""
SIGNED_KEYS_BYTES = KEYS_BYTES + PROOF_BYTES
SEED_BYTES = 16
SECRETS_BYTES = 32
SEALED_BYTES = SECRETS_BYTES + 16
CONFIRMATION_BYTES = 16

# BLAKE2s personalisation: one name per purpose, so that derivations never coincide.
USAGE_MASK_KEY = b"mask key"
USAGE_MASK = b"mask"
USAGE_CHANNEL = b"channel"
USAGE_CONFIRM = b"confirm"

_USAGE_KEYS = b"tallyroom masking keys v1"

_PROBE = X25519PrivateKey.from_private_bytes(bytes([1] * 32))


class KeyPair:
    """An X25519 key pair. The private half never shows in `repr`."""

    def __init__(self, private: bytes) -> None:
        self._private = X25519PrivateKey.from_private_bytes(private)
        self.public = self._private.public_key().public_bytes_raw()

    def __repr__(self) -> str:
        return "<KeyPair>"

    @classmethod
    def for_masks(cls, seed: bytes) -> "KeyPair":
        """The mask key of a 128-bit seed: whoever opens the seed has the key."""
        return cls(hashlib.blake2s(seed, digest_size=32, person=USAGE_MASK_KEY).digest())

    def agree(self, peer: bytes) -> bytes:
        """Raises `ValueError` on a peer's key of low order, for which the secret would be 0."""
        return self._private.exchange(X25519PublicKey.from_public_bytes(peer))


class Agreements:
    """Agreed secrets, each computed only once if both ends are in this block.

    They are looked up by both public keys, so a substituted key finds nothing.
    """

    def __init__(self) -> None:
        self._secrets: dict[tuple[bytes, bytes], bytes] = {}

    def __repr__(self) -> str:
        return f"<Agreements of {len(self._secrets)} pairs>"

    def secret(self, own: KeyPair, peer: bytes) -> bytes:
        """Raises `ValueError` on a peer's key of low order."""
        pair = (own.public, peer) if own.public < peer else (peer, own.public)
        found = self._secrets.pop(pair, None)  # two ends, two uses
        if found is None:
            found = self._secrets[pair] = own.agree(peer)
        return found


def keys_statement(run: bytes, party: int, keys: bytes) -> bytes:
    """The statement that a party signs: these keys are its own, for this run only."""
    return _USAGE_KEYS + run + struct.pack("<I", party) + keys


def low_order(public: bytes) -> bool:
    """Whether agreement with this key is impossible. Private keys are multiples of the cofactor, so
    if one of them gives 0, all do."""
    try:
        _PROBE.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        return True
    return False


def mask_seed(secret: bytes, run: bytes, one: bytes, other: bytes) -> bytes:
    """The seed of the mask of two parties with these public mask keys."""
    return _derive(secret, USAGE_MASK, run, one, other, SEED_BYTES)


def channel_keys(secret: bytes, run: bytes, one: bytes, other: bytes) -> tuple[bytes, bytes]:
    """The keys that two parties seal and confirm with."""
    both = _derive(secret, USAGE_CHANNEL, run, one, other, 32)
    return both[:16], both[16:]


def _derive(secret: bytes, usage: bytes, run: bytes, one: bytes, other: bytes, size: int) -> bytes:
    pair = run + min(one, other) + max(one, other)
    return hashlib.blake2s(pair, key=secret, digest_size=size, person=usage).digest()


def seal(key: bytes, dealer: int, holder: int, secrets: bytes) -> bytes:
    """AES-128-GCM. A key seals one message per direction, and the nonce names the direction."""
    return AESGCM(key).encrypt(struct.pack("<III", dealer, holder, 0), secrets, None)


def unseal(key: bytes, dealer: int, holder: int, sealed: bytes) -> bytes | None:
    """The sealed secrets; None unless this dealer sealed them for this holder."""
    try:
        return AESGCM(key).decrypt(struct.pack("<III", dealer, holder, 0), sealed, None)
    except InvalidTag:
        return None


def confirm(key: bytes, sender: int, members: bytes) -> bytes:
    """A MAC that confirms that `sender` was told these members."""
    said = struct.pack("<I", sender) + members
    return hashlib.blake2s(
        said, key=key, digest_size=CONFIRMATION_BYTES, person=USAGE_CONFIRM
    ).digest()
