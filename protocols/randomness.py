"""Randomness as an argument: a keyed stream that shells draw from the system or from a seed.

AES-128 in counter mode is the generator, as a stream (`bytes`, `words`) and as a function of ids
(`rows`), so that what a party draws does not depend on the block it is computed in.
"""

import hashlib
import os

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

KEY_BYTES = 16


class Randomness:
    """A secret generator. Whoever knows its key knows all that was drawn from it."""

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"a key has {KEY_BYTES} bytes, not {len(key)}")
        self._key = key
        self._stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()

    def __repr__(self) -> str:
        return "<Randomness>"

    @classmethod
    def for_role(cls, seed: int | None, role: str) -> "Randomness":
        """What a shell gives its role: from the operating system, or from a run's seed."""
        return cls(os.urandom(KEY_BYTES)) if seed is None else cls.from_seed(seed, role)

    @classmethod
    def from_seed(cls, seed: int, role: str) -> "Randomness":
        """The stream of one role under a run's seed: reproducible, hence not private."""
        return cls(_subkey(hashlib.sha256(f"tallyroom seed {seed}".encode()).digest(), role))

    def derive(self, label: str) -> "Randomness":
        """An independent generator for one purpose; the same for the same label."""
        return Randomness(_subkey(self._key, label))

    def bytes(self, count: int) -> bytes:
        return self._stream.update(bytes(count))

    def words(self, count: int) -> NDArray[np.uint64]:
        return np.frombuffer(self.bytes(8 * count), dtype="<u8")

    def rows(
        self, label: str, ids: NDArray[np.uint32] | NDArray[np.uint64], width: int
    ) -> NDArray[np.uint8]:
        """`width` bytes for every id, shape (len(ids), width): a function of label and id alone."""
        blocks = -(-width // 16)
        counters = np.empty((len(ids), blocks, 2), dtype="<u8")
        counters[:, :, 0] = np.arange(blocks, dtype=np.uint64)
        counters[:, :, 1] = ids[:, None]
        cipher = Cipher(algorithms.AES(_subkey(self._key, label)), modes.ECB()).encryptor()
        drawn = np.frombuffer(cipher.update(counters.tobytes()), dtype=np.uint8)
        return drawn.reshape(len(ids), 16 * blocks)[:, :width]


def _subkey(key: bytes, label: str) -> bytes:
    return hashlib.blake2s(label.encode(), key=key, digest_size=KEY_BYTES).digest()
