"""Binds a party's randomness to its data: a keyed fingerprint of the records that it holds.

The hash is the XOR MAC of Bellare, Guérin and Rogaway (CRYPTO 1995): the XOR over all words of
F(position, word), with F AES under a secret key of the column, and of F(id, number of records).
Two different holdings differ in a term that occurs in only one of them, so the XOR of their two
fingerprints is uniform, if F is a random function: they are equal with probability 2^-128, and AES
adds q²/2^129 for q words. The key is the party's own secret, derived for this purpose only, and no
fingerprint is ever sent. So nobody, not even a server that sees many submissions, can look for two
holdings that collide. It takes one AES block per word, for all parties of a block at once.
"""

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.randomness import Fingerprints, Ids, Randomness, encrypted
from tallyroom.protocols.records import Holdings


def bound_to_data(randomness: Randomness, holdings: Holdings) -> Randomness:
    """The generator of these parties; what each draws depends on all the data it holds."""
    return randomness.bound(holdings.ids, fingerprints(randomness.derive("data"), holdings))


def fingerprints(secret: Randomness, holdings: Holdings) -> Fingerprints:
    """One fingerprint per party, whatever block it is in. It also covers the names of columns."""
    position = np.arange(holdings.rows) - np.repeat(holdings.starts, holdings.counts)
    folded = np.zeros((holdings.rows, 2), dtype=np.uint64)
    for name, column in holdings.columns.items():
        blocks = np.stack([column.astype("<f8").view("<u8"), position.astype(np.uint64)], axis=1)
        folded ^= encrypted(secret.cipher(f"column {name}"), blocks)
    found = np.bitwise_xor.reduceat(folded, holdings.starts, axis=0)
    parties = np.stack([holdings.ids, holdings.counts], axis=1).astype(np.uint64)
    bound: Fingerprints = found ^ encrypted(secret.cipher("party"), parties)
    return bound


def bound_to_rows(randomness: Randomness, ids: Ids, rows: NDArray[np.uint64]) -> Randomness:
    """The same generator, also bound to a vector for each of these ids, so that what it draws is
    used for that vector only."""
    position = np.broadcast_to(np.arange(rows.shape[1], dtype=np.uint64), rows.shape)
    words = encrypted(randomness.cipher("vector"), np.stack([rows, position], axis=2))
    folded = np.bitwise_xor.reduce(words, axis=1)
    return randomness.bound(ids, randomness.places(ids) ^ folded)
