"""Two-server point functions: shares of f_α(x) = 1 if x = α else 0.

Where every point of a small domain is wanted, this costs less than a comparison: over Z_2^64, 0.75
hash calls per leaf instead of 0.875, and a shorter key. Prefix sums give the counts of α ≤ t.
"""

import numpy as np
import numpy.typing as npt

from tallyroom.fss import tree
from tallyroom.fss.dcf import full_domain
from tallyroom.fss.ring import Bytes, Ring, Words
from tallyroom.fss.shape import TreeShape
from tallyroom.fss.storage import Keys

RANDOMNESS_BYTES = tree.RANDOMNESS_BYTES


def shape(bits: int, ring: Ring) -> TreeShape:
    return TreeShape(bits, ring, step=False)


def key_bytes(bits: int, ring: Ring) -> int:
    """16·bits + 32 over Z_2^64, 16·bits + 16 over Z_2^32, from 3 and 4 bits on."""
    return shape(bits, ring).key_bytes


def gen(
    alphas: npt.ArrayLike, bits: int, ring: Ring, randomness: Bytes, threads: int | None = None
) -> tuple[Bytes, Bytes]:
    """Both servers' keys; `tree.gen` states what `randomness` must be."""
    return tree.gen(shape(bits, ring), alphas, randomness, threads)


def evaluate(
    server: int,
    keys: Keys,
    points: npt.ArrayLike,
    bits: int,
    ring: Ring,
    threads: int | None = None,
) -> Words:
    """(K, T) shares; the sum of both servers' shares is f_α(x) for each key and point."""
    words = tree.evaluate(shape(bits, ring), server, keys, points, threads)
    return np.negative(words) if server else words


def evaluate_sum(
    server: int,
    keys: Keys,
    points: npt.ArrayLike,
    bits: int,
    ring: Ring,
    threads: int | None = None,
) -> Words:
    """(T,) shares of the number of keys with α = x, in memory that does not grow with K."""
    words = tree.evaluate_sum(shape(bits, ring), server, keys, points, threads)
    return np.negative(words) if server else words


def full_domain_sum(
    server: int, keys: Keys, bits: int, ring: Ring, threads: int | None = None
) -> Words:
    """(2^bits,) shares of the histogram of the keys' α."""
    return evaluate_sum(server, keys, full_domain(bits), bits, ring, threads)
