"""Two-server comparison keys: shares of f_α(x) = 1 if α ≤ x else 0.

Each server adds up its shares over all keys; the two sums at a threshold t add up to the number of
keys with α ≤ t. Privacy holds against one server: it learns the number of keys and nothing about
any α. A client that deviates can share any function, for instance one that counts twice.
"""

import numpy as np
import numpy.typing as npt

from tallyroom.fss import tree
from tallyroom.fss.ring import Bytes, Ring, Words
from tallyroom.fss.shape import TreeShape
from tallyroom.fss.storage import Keys

RANDOMNESS_BYTES = tree.RANDOMNESS_BYTES

# With more bits, the answer at every threshold of the domain would alone take gigabytes.
MAX_FULL_DOMAIN_BITS = 24


def shape(bits: int, ring: Ring) -> TreeShape:
    return TreeShape(bits, ring, step=True)


def key_bytes(bits: int, ring: Ring) -> int:
    """24·bits over Z_2^64, 20·bits over Z_2^32; the same for both servers."""
    return shape(bits, ring).key_bytes


def gen(
    alphas: npt.ArrayLike, bits: int, ring: Ring, randomness: Bytes, threads: int | None = None
) -> tuple[Bytes, Bytes]:
    """Both servers' keys; `tree.gen` states what `randomness` must be."""
    return tree.gen(shape(bits, ring), alphas, randomness, threads)


def evaluate(
    server: int,
    keys: Keys,
    thresholds: npt.ArrayLike,
    bits: int,
    ring: Ring,
    threads: int | None = None,
) -> Words:
    """(K, T) shares; the sum of both servers' shares is f_α(t) for each key and threshold."""
    words = tree.evaluate(shape(bits, ring), server, keys, thresholds, threads)
    return words if server else np.subtract(ring.dtype.type(1), words)


def evaluate_sum(
    server: int,
    keys: Keys,
    thresholds: npt.ArrayLike,
    bits: int,
    ring: Ring,
    threads: int | None = None,
) -> Words:
    """(T,) shares of the number of keys with α ≤ t, in memory that does not grow with K."""
    form = shape(bits, ring)
    words = tree.evaluate_sum(form, server, keys, thresholds, threads)
    if server:
        return words
    total = ring.reduce(np.array([tree.count(form, keys)], dtype=np.uint64))
    return np.subtract(total, words)


def full_domain_sum(
    server: int, keys: Keys, bits: int, ring: Ring, threads: int | None = None
) -> Words:
    """`evaluate_sum` at every threshold 0 … 2^bits − 1; 0.9 hash calls per leaf over Z_2^64."""
    return evaluate_sum(server, keys, full_domain(bits), bits, ring, threads)


def full_domain(bits: int) -> npt.NDArray[np.uint64]:
    if bits > MAX_FULL_DOMAIN_BITS:
        raise ValueError(f"a full domain has at most {MAX_FULL_DOMAIN_BITS} bits, not {bits}")
    return np.arange(1 << bits, dtype=np.uint64)
