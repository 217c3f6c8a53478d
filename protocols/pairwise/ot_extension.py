"""Correlated OT extension: the evaluator's input labels for 16 bytes a bit and no second message.

Ishai, Kilian, Nissim, Petrank, CRYPTO 2003, with the sender's secret s = Δ. Column i of t is a
keystream under the first key of base OT i, and the receiver sends u_i = t_i ⊕ t'_i ⊕ r, with t'_i
under the second key and r its choice bits. The sender, who holds one key of each pair, gets
q_i = t_i ⊕ s_i·r. Row j is then q_j = t_j ⊕ r_j·Δ: with q_j the label of 0, t_j is the label of
r_j. Rows are not hashed, since garbling wants exactly this correlation and hashes labels itself.

Security is semi-honest: u hides r as long as AES-CTR is pseudorandom, and the receiver knows
nothing of s but its public lowest bit. A receiver with inconsistent columns could learn bits of Δ.
Both sides count the keystream blocks they used: no position serves twice, since two masked r under
one pad would show their XOR.
"""

import numpy as np

from fss.ring import Bytes
from protocols.errors import LocalError
from protocols.pairwise.blocks import BLOCK_BYTES, COLUMNS, keystream, transpose
from protocols.pairwise.links import Mask


def column_bytes(bits: int) -> int:
    return -(-bits // 8)


def request_bytes(bits: int) -> int:
    """Of u, for one link: 16 a bit where `bits` is a multiple of 8."""
    return COLUMNS * column_bytes(bits)


class Receiver:
    """Chooses; holds both keys of every base OT, (K, 128, 2, 16)."""

    def __init__(self, pairs: Bytes) -> None:
        if pairs.shape[1:] != (COLUMNS, 2, BLOCK_BYTES):
            raise LocalError("a link has 128 pairs of keys of 16 bytes")
        self._pairs = np.ascontiguousarray(pairs.swapaxes(1, 2))
        self.position = 0

    def extend(self, choices: Bytes) -> tuple[Bytes, Bytes]:
        """(K, m) choice bits to u, (K, 128·⌈m/8⌉), and the chosen labels, (K, m, 16)."""
        links, bits = choices.shape
        streams = _streams(self._pairs, self.position, bits)
        self.position += _blocks(bits)
        t = streams[:, 0]
        u = t ^ streams[:, 1]
        u ^= np.packbits(choices, axis=1, bitorder="little")[:, None, :]
        labels = transpose(t)[:, :bits]
        return u.reshape(links, request_bytes(bits)), labels

    def keep(self, chosen: Mask) -> None:
        """Go on with some of the links."""
        self._pairs = self._pairs[chosen]


class Sender:
    """Holds Δ, (K, 16), and for each of its bits the key that the bit chose, (K, 128, 16)."""

    def __init__(self, keys: Bytes, deltas: Bytes) -> None:
        if keys.shape[1:] != (COLUMNS, BLOCK_BYTES) or deltas.shape != (len(keys), BLOCK_BYTES):
            raise LocalError("a link has 128 keys of 16 bytes, and one Δ")
        self._keys = keys
        self.deltas = deltas
        self.position = 0

    def extend(self, u: Bytes, bits: int) -> Bytes:
        """The labels of 0, (K, m, 16), from the receiver's message."""
        streams = _streams(self._keys, self.position, bits)
        self.position += _blocks(bits)
        columns = u.reshape(len(u), COLUMNS, column_bytes(bits))
        streams ^= columns * bits_of(self.deltas)[:, :, None]
        return transpose(streams)[:, :bits]

    def keep(self, chosen: Mask) -> None:
        """Go on with some of the links."""
        self._keys, self.deltas = self._keys[chosen], self.deltas[chosen]


def bits_of(blocks: Bytes) -> Bytes:
    """(K, 16) to (K, 128), bit 0 of a byte first: bit i of Δ is the choice in base OT i."""
    return np.unpackbits(blocks, axis=1, bitorder="little")


def _blocks(bits: int) -> int:
    return -(-bits // (8 * BLOCK_BYTES))


def _streams(keys: Bytes, position: int, bits: int) -> Bytes:
    """The next bytes of every key's stream; keys may have any leading axes."""
    flat = keystream(keys.reshape(-1, BLOCK_BYTES), position, _blocks(bits))
    width = column_bytes(bits)
    return flat.reshape(*keys.shape[:-1], _blocks(bits) * BLOCK_BYTES)[..., :width]
