"""Correlated OT extension: the evaluator's input labels for 16 bytes a bit and no second message.

Ishai, Kilian, Nissim, Petrank, CRYPTO 2003, with the sender's secret s = Δ. Column i of t is a
keystream under the first key of base OT i, and the receiver sends u_i = t_i ⊕ t'_i ⊕ r, with t'_i
under the second key and r its choice bits. The sender, who holds one key of each pair, gets
q_i = t_i ⊕ s_i·r. Row j is then q_j = t_j ⊕ r_j·Δ: with q_j the label of 0, t_j is the label of
r_j. Rows are not hashed, since garbling wants exactly this correlation and hashes labels itself.

u hides r as long as AES-CTR is pseudorandom, from whatever sender. Both sides count the keystream
blocks they used: no position serves twice, since two masked r under one pad would show their XOR.

A receiver that deviates would put another r into each column and learn a bit of Δ from each row
that it can tell. So columns are checked, after Keller, Orsini and Scholl (CRYPTO 2015), in the form
of SoftSpokenOT (Roy, CRYPTO 2022), which hashes columns and not rows: Roy found the proof of the
former wanting, and proves the latter. Columns are extended by 128 random choices. With χ from a
hash of all that passed on the link, u included, and H a column's polynomial over GF(2^128) at χ,
its random part as the constant (`blocks.field_hash`), the receiver sends x = H(r) and a digest of
all H(t_i); the sender compares that of H(q_i) ⊕ s_i·x. Columns that hold different r pass by
chance, below blocks/2^128 for each hash that is tried, or where the receiver guessed the bits of Δ
in which they differ: c of them with probability 2^-c, and that much it has learnt then. Who fails
must not try again with the same Δ: its link is closed (`session`). It takes 2,096 bytes a request.
x and the digest tell nothing of r, which the random part masks.
"""

import hashlib
from typing import Final, NamedTuple

import numpy as np

from tallyroom.fss.ring import Bytes
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.garbling.links import Mask
from tallyroom.protocols.garbling.primitives import (
    BLOCK_BYTES,
    COLUMNS,
    field_hash,
    keystream,
    transpose,
)

DIGEST_BYTES: Final = 32
CHECK_BYTES: Final = BLOCK_BYTES + DIGEST_BYTES
_USAGE_CHECK: Final = b"tallyroom ot extension v1 check"
_USAGE_BRANCH: Final = b"tallyroom ot extension v1 branch"


def column_bytes(bits: int) -> int:
    return -(-bits // 8)


def columns_bytes(bits: int) -> int:
    """Of u, for one link: 16 a bit where `bits` is a multiple of 8, and as much for 128 more."""
    return COLUMNS * (column_bytes(bits) + BLOCK_BYTES)


def request_bytes(bits: int) -> int:
    """Of u and its check."""
    return columns_bytes(bits) + CHECK_BYTES


class Extension(NamedTuple):
    """u goes to the sender; `labels` (K, m, 16) are the chosen ones; `columns` are for `check`."""

    u: Bytes
    labels: Bytes
    columns: Bytes

    def __repr__(self) -> str:
        return "<Extension>"


class Receiver:
    """Chooses; holds both keys of every base OT, (K, 128, 2, 16)."""

    def __init__(self, pairs: Bytes) -> None:
        if pairs.shape[1:] != (COLUMNS, 2, BLOCK_BYTES):
            raise LocalError("a link has 128 pairs of keys of 16 bytes")
        self._pairs = np.ascontiguousarray(pairs.swapaxes(1, 2))
        self.position = 0

    def extend(self, choices: Bytes, masks: Bytes) -> Extension:
        """From (K, m) choice bits, and (K, 16) random bytes that nothing else is derived from."""
        links, bits = choices.shape
        streams = _streams(self._pairs, self.position, bits)
        self.position += _blocks(bits)
        width = column_bytes(bits)
        columns = np.zeros((links, COLUMNS + 1, streams.shape[-1]), dtype=np.uint8)
        columns[:, :COLUMNS] = streams[:, 0]
        columns[:, COLUMNS, :width] = np.packbits(choices, axis=1, bitorder="little")
        columns[:, COLUMNS, -BLOCK_BYTES:] = masks
        u = streams[:, 0] ^ streams[:, 1] ^ columns[:, COLUMNS:]
        labels = transpose(columns[:, :COLUMNS, :width])[:, :bits]
        return Extension(_packed(u, bits).reshape(links, columns_bytes(bits)), labels, columns)

    def keep(self, chosen: Mask) -> None:
        """Go on with some of the links."""
        self._pairs = self._pairs[chosen]

    def branch(self, label: bytes) -> "Receiver":
        """One whose keys follow from these and the label, and tell nothing of these."""
        return Receiver(_branched(self._pairs, label).swapaxes(1, 2))


class Sender:
    """Holds Δ, (K, 16), and for each of its bits the key that the bit chose, (K, 128, 16)."""

    def __init__(self, keys: Bytes, deltas: Bytes) -> None:
        if keys.shape[1:] != (COLUMNS, BLOCK_BYTES) or deltas.shape != (len(keys), BLOCK_BYTES):
            raise LocalError("a link has 128 keys of 16 bytes, and one Δ")
        self._keys = keys
        self.deltas = deltas
        self.position = 0

    def extend(self, u: Bytes, bits: int, challenges: Bytes, checks: Bytes) -> tuple[Bytes, Mask]:
        """The labels of 0, (K, m, 16), from the receiver's message, and which links are consistent.
        Nothing is used up unless all are."""
        streams = _streams(self._keys, self.position, bits)
        width = column_bytes(bits)
        columns = u.reshape(len(u), COLUMNS, width + BLOCK_BYTES)
        chosen = bits_of(self.deltas)[:, :, None]
        streams[..., :width] ^= columns[..., :width] * chosen
        streams[..., -BLOCK_BYTES:] ^= columns[..., width:] * chosen
        hashed = field_hash(challenges, streams) ^ checks[:, None, :BLOCK_BYTES] * chosen
        consistent: Mask = (_digests(hashed) == checks[:, BLOCK_BYTES:]).all(axis=1)
        if consistent.all():
            self.position += _blocks(bits)
        return transpose(streams[..., :width])[:, :bits], consistent

    def keep(self, chosen: Mask) -> None:
        """Go on with some of the links."""
        self._keys, self.deltas = self._keys[chosen], self.deltas[chosen]

    def branch(self, label: bytes) -> "Sender":
        """The other end of what the receiver's `branch` is. Δ is the same."""
        return Sender(_branched(self._keys, label), self.deltas)


def check(columns: Bytes, challenges: Bytes) -> Bytes:
    """What the receiver says of its columns at the (K, 16) points χ: (K, 48)."""
    hashed = field_hash(challenges, columns)
    return np.hstack([hashed[:, COLUMNS], _digests(hashed[:, :COLUMNS])])


def bits_of(blocks: Bytes) -> Bytes:
    """(K, 16) to (K, 128), bit 0 of a byte first: bit i of Δ is the choice in base OT i."""
    return np.unpackbits(blocks, axis=1, bitorder="little")


def _branched(keys: Bytes, label: bytes) -> Bytes:
    """SHA-256 as a random oracle: keys of different labels are independent."""
    flat = keys.reshape(-1, BLOCK_BYTES)
    usage = _USAGE_BRANCH + len(label).to_bytes(4, "little") + label
    digests = [hashlib.sha256(usage + key.tobytes()).digest()[:BLOCK_BYTES] for key in flat]
    return np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(keys.shape)


def _blocks(bits: int) -> int:
    """For the choices, and one for the mask."""
    return -(-bits // (8 * BLOCK_BYTES)) + 1


def _streams(keys: Bytes, position: int, bits: int) -> Bytes:
    """The next blocks of every key's stream, zero where no choice is; keys may have any leading
    axes."""
    flat = keystream(keys.reshape(-1, BLOCK_BYTES), position, _blocks(bits))
    streams = flat.reshape(*keys.shape[:-1], _blocks(bits) * BLOCK_BYTES)
    streams[..., column_bytes(bits) : -BLOCK_BYTES] = 0
    return streams


def _packed(columns: Bytes, bits: int) -> Bytes:
    """Without what lies between the choices and the mask."""
    width = column_bytes(bits)
    return np.concatenate([columns[..., :width], columns[..., -BLOCK_BYTES:]], axis=-1)


def _digests(hashed: Bytes) -> Bytes:
    digests = [hashlib.sha256(_USAGE_CHECK + link.tobytes()).digest() for link in hashed]
    return np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(len(hashed), DIGEST_BYTES)
