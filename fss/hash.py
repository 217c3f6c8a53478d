"""The fixed-key hash H_k(x) = π_k(σ(x)) ⊕ σ(x), with π_k AES-128 under a public constant key.

σ(hi ‖ lo) = (hi ⊕ lo) ‖ hi is a linear orthomorphism: σ and x ↦ σ(x) ⊕ x are both permutations.
Guo, Katz, Wang, Yu (IEEE S&P 2020, eprint 2019/074, §7.3) prove this form circular correlation
robust when π_k is a random permutation. That is the assumption here: fixed-key AES behaves as an
ideal permutation, one independent permutation for each key below. This is stronger than "AES is a
pseudorandom permutation", and the bound weakens with the number of keys in existence: the hash is
not salted, so an attacker who collects K keys of n levels and makes q calls offline hits one of
their seeds with probability about q·K·n / 2^126 (seeds have 126 free bits, see `shape.py`).
"""

import hashlib
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from tallyroom.fss.ring import Points

BLOCK_BYTES: Final = 16


def _fixed_key(usage: str) -> bytes:
    return hashlib.sha256(f"tallyroom fss v1 {usage}".encode()).digest()[:BLOCK_BYTES]


USAGE_LEFT: Final = _fixed_key("left child")
USAGE_RIGHT: Final = _fixed_key("right child")
USAGE_VALUE: Final = _fixed_key("value")
USAGE_COLUMN: Final = _fixed_key("column")

TREE_KEYS: Final = USAGE_LEFT + USAGE_RIGHT + USAGE_VALUE


def hash_blocks(usage: bytes, blocks: Points) -> Points:
    """Hashes every block; a block is a pair (lo, hi) of uint64 on the last axis."""
    sigma = np.empty(blocks.shape, dtype="<u8")
    sigma[..., 0] = blocks[..., 1]
    np.bitwise_xor(blocks[..., 0], blocks[..., 1], out=sigma[..., 1])
    # OpenSSL needs one spare block after the output.
    buffer = np.empty(sigma.nbytes + BLOCK_BYTES, dtype=np.uint8)
    encryptor = Cipher(algorithms.AES(usage), modes.ECB()).encryptor()
    encryptor.update_into(sigma.reshape(-1).view(np.uint8).data, buffer.data)
    hashed = buffer[: sigma.nbytes].view("<u8").reshape(sigma.shape)
    hashed ^= sigma
    return hashed
