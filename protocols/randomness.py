"""Randomness as an argument: a keyed generator whose key shells take from the system or a seed.

The generator is AES-128 in counter mode, as a stream (`bytes`, `words`) and as a function of ids
(`rows`, `streams`), so that what a party draws does not depend on the block it is computed in.

What a party draws must also depend on its data. If masks followed from the run and the query alone,
a party that is restarted in mid-run with other data would use them twice: a server that saw both
submissions could subtract them and would have the exact difference of the party's vectors. So a
party's randomness is `bound`: the 128-bit fingerprint of its records (`protocols.records`)
takes the place of its id in every AES block. The same data give the same bytes again, so sending
them again is harmless; other data give independent ones. Blocks of two parties, or of one party
with two data sets, collide with probability 2^-128 per pair. Among 2^30 blocks under one key, as
for a million parties with vectors of 2000, a collision has probability below 2^-68, as for any use
of AES.
"""

import hashlib
import os

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

KEY_BYTES = 16
BLOCK_BYTES = 16

Ids = NDArray[np.uint32] | NDArray[np.uint64]
Fingerprints = NDArray[np.uint64]
"""Two words for each id, shape (n, 2)."""


class Randomness:
    """A secret generator. Whoever knows its key knows everything drawn from it."""

    def __init__(self, key: bytes, bound: tuple[Ids, Fingerprints] | None = None) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"a key has {KEY_BYTES} bytes, not {len(key)}")
        self._key = key
        self._bound = bound
        self._stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()

    def __repr__(self) -> str:
        return "<Randomness>"

    @classmethod
    def for_role(cls, seed: int | None, role: str) -> "Randomness":
        """The generator that a shell gives its role, from the operating system or a run's seed."""
        return cls(os.urandom(KEY_BYTES)) if seed is None else cls.from_seed(seed, role)

    @classmethod
    def from_seed(cls, seed: int, role: str) -> "Randomness":
        """The stream of one role under a run's seed: reproducible, hence not private."""
        return cls(_subkey(hashlib.sha256(f"tallyroom seed {seed}".encode()).digest(), role))

    @classmethod
    def public(cls, name: bytes) -> "Randomness":
        """Public coins, the same for all who know a run's name: for what need not be secret."""
        return cls(hashlib.blake2s(name, digest_size=KEY_BYTES, person=b"tallycns").digest())

    def derive(self, label: str) -> "Randomness":
        """An independent generator for one purpose; the same for the same label."""
        return Randomness(_subkey(self._key, label), self._bound)

    def bound(self, ids: Ids, fingerprints: Fingerprints) -> "Randomness":
        """The same generator, for these ids only, each replaced by its fingerprint."""
        order = np.argsort(ids)
        return Randomness(self._key, (ids[order], fingerprints[order]))

    def along(self, links: NDArray[np.uint64], ends: NDArray[np.uint32]) -> "Randomness":
        """The generator for links, each bound to the data of the party at our end of it."""
        if self._bound is None:
            return self
        inputs = self.places(ends)
        inputs[:, 0] ^= links
        return self.bound(links, encrypted(self.cipher("links"), inputs))

    def of(self, label: str, party: int) -> "Randomness":
        """The generator of one party for one purpose, bound to the party's data."""
        return Randomness(self.rows(label, np.array([party], np.uint32), KEY_BYTES).tobytes())

    def bytes(self, count: int) -> bytes:
        """Bytes that depend on the key only: not for hiding a party's data."""
        return self._stream.update(bytes(count))

    def words(self, count: int) -> NDArray[np.uint64]:
        return np.frombuffer(self.bytes(8 * count), dtype="<u8")

    def rows(self, label: str, ids: Ids, width: int) -> NDArray[np.uint8]:
        """`width` bytes for every id, shape (len(ids), width). They depend on the label and on the
        id, or its fingerprint if this generator is bound."""
        blocks = -(-width // BLOCK_BYTES)
        places = self.places(ids)
        inputs = np.empty((len(ids), blocks, 2), dtype="<u8")
        np.bitwise_xor(places[:, :1], np.arange(blocks, dtype=np.uint64), out=inputs[:, :, 0])
        inputs[:, :, 1] = places[:, 1:]
        drawn = encrypted(self.cipher(label), inputs).view(np.uint8)
        return drawn.reshape(len(ids), BLOCK_BYTES * blocks)[:, :width]

    def streams(self, label: str, ids: Ids, count: int) -> "Streams":
        """`count` streams for every id. Each depends on its number and on what `rows` depend on."""
        return Streams(self.cipher(label), self.places(ids), count)

    def cipher(self, label: str) -> CipherContext:
        """AES under the key of one purpose, a block at a time."""
        return Cipher(algorithms.AES(_subkey(self._key, label)), modes.ECB()).encryptor()

    def places(self, ids: Ids) -> Fingerprints:
        """The first AES block of each id: its fingerprint, or the id itself if not bound."""
        if self._bound is None:
            places = np.zeros((len(ids), 2), dtype=np.uint64)
            places[:, 1] = ids
            return places
        known, fingerprints = self._bound
        at = np.minimum(np.searchsorted(known, ids), len(known) - 1)
        if not np.array_equal(known[at], ids):
            raise ValueError("this randomness is not bound to the data of one of these parties")
        bound: Fingerprints = fingerprints[at]
        return bound


class Streams:
    """Many streams of 64-bit words: `count` for the first id, then `count` for the next, …"""

    def __init__(self, cipher: CipherContext, places: Fingerprints, count: int) -> None:
        self._cipher = cipher
        self._places = places
        self._count = count
        self._steps = np.zeros(len(places) * count, dtype=np.uint64)

    def __len__(self) -> int:
        return len(self._steps)

    def pairs(self, which: NDArray[np.intp]) -> NDArray[np.uint64]:
        """The next two words of each of these streams, shape (n, 2). No stream may occur twice."""
        row, place = np.divmod(which, self._count)
        steps = self._steps[which]
        inputs = self._places[row]
        inputs[:, 0] ^= place.astype(np.uint64) | steps << np.uint64(32)
        self._steps[which] = steps + np.uint64(1)
        return encrypted(self._cipher, inputs)

    def words(self, which: NDArray[np.intp]) -> NDArray[np.uint64]:
        """The next word of each of these streams; the second word of its block is skipped."""
        return self.pairs(which)[:, 0]


def encrypted(cipher: CipherContext, blocks: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Encrypts blocks of two words one by one, and keeps the shape."""
    data = np.ascontiguousarray(blocks, dtype="<u8").view(np.uint8).data
    return np.frombuffer(cipher.update(data), dtype="<u8").reshape(blocks.shape)


def _subkey(key: bytes, label: str) -> bytes:
    return hashlib.blake2s(label.encode(), key=key, digest_size=KEY_BYTES).digest()
