"""Stretches a seed to ring words: the AES-128-CTR keystream under the seed, from counter zero.

Unlike the fixed-key hash, this assumes only that AES is a pseudorandom permutation; the price is a
key schedule for each seed. Never use a seed for two purposes: the stream carries no label.
"""

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from tallyroom.fss import native
from tallyroom.fss.ring import Bytes, Points, as_bytes
from tallyroom.fss.shape import SEED_BYTES

_COUNTER_START = bytes(16)


def expand_seeds(seeds: Bytes, words: int, threads: int | None = None) -> Points:
    """(K, words) uint64 from seeds, which must be (K, 16) uint8: raises ValueError otherwise."""
    seeds = _checked(seeds, words)
    out = np.empty((len(seeds), words), dtype=np.uint64)
    code = native.instruction_set()
    if code is None:
        for row, seed in zip(out, seeds, strict=True):
            row[:] = _keystream(seed, words)
        return out

    def work(begin: int, end: int) -> None:
        native.compiled.expand_seeds(code, seeds[begin:end], words, out[begin:end])

    native.over_blocks(work, len(seeds), threads)
    return out


def expand_seeds_sum(seeds: Bytes, words: int, threads: int | None = None) -> Points:
    """The column sums of `expand_seeds` modulo 2^64. Each thread needs memory for one row only."""
    seeds = _checked(seeds, words)
    total = np.zeros(words, dtype=np.uint64)
    code = native.instruction_set()
    if code is None:
        for seed in seeds:
            total += _keystream(seed, words)
        return total

    def work(begin: int, end: int) -> Points:
        part = np.zeros(words, dtype=np.uint64)
        native.compiled.expand_seeds_sum(code, seeds[begin:end], words, part)
        return part

    for part in native.over_blocks(work, len(seeds), threads):
        total += part
    return total


def _checked(seeds: Bytes, words: int) -> Bytes:
    if words < 0:
        raise ValueError(f"cannot expand to {words} words")
    return np.ascontiguousarray(as_bytes(seeds, SEED_BYTES, "seeds"))


def _keystream(seed: Bytes, words: int) -> Points:
    cipher = Cipher(algorithms.AES(seed.tobytes()), modes.CTR(_COUNTER_START))
    return np.frombuffer(cipher.encryptor().update(bytes(8 * words)), dtype="<u8")
