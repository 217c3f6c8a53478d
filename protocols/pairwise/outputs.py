"""What becomes of output wires: shares for both sides, and a check that the labels are right.

Neither side learns an output. `XOR`: the evaluator keeps the colour of its active label, the
garbler the colour that stands for 0; their XOR is the bit. `UNSIGNED`, `SIGNED`: additive shares in
Z_2^64 of Σ w_i·b_i, with w_i = 2^i but for −2^(O−1) at the top of a two's complement integer. They
come by projection: with h_c = H(label of colour c), λ the colour of 0, the evaluator's word is

    y_0 = h_0    or    y_1 = h_1 + C,    with    C = w(1 − 2λ) + h_0 − h_1,

and the garbler's is r = wλ − h_0. Then y + r = w·b for either colour. The row of colour 0 needs no
ciphertext, and C is safe: an evaluator of colour 0 knows h_0 but not h_1, which masks C; one of
colour 1 knows h_1 and gets h_0 + w(1 − 2λ), where h_0 masks λ. Both masks are hashes of the
inactive label, pseudorandom by the robustness of H; each is used once, at its own tweak.

The check costs 8 bytes an output wire and 16 bytes a link and batch. The other half of H gives
k = g_0, which an evaluator of colour 1 gets as g_1 ⊕ (g_0 ⊕ g_1), masked in the same way; both
sides hash all k with the transcript. A label that is not the garbler's passes with probability
2^-64 a wire. To an honest evaluator the check says nothing new: every k is a function of what it
holds. A garbler that deviates can make it fail for chosen inputs and learn, from the refusal, one
bit: the model is semi-honest.
"""

from enum import Enum
from typing import NamedTuple

import numpy as np

from fss.ring import Bytes
from protocols.errors import LocalError
from protocols.pairwise.blocks import OUTPUT_TWEAKS, hash_blocks
from protocols.ring import Vector

WORD_BYTES = 8
RING_BITS = 64

_ONE = np.uint64(1)


class Output(Enum):
    """The form of the shares."""

    XOR = "xor"
    UNSIGNED = "unsigned"
    SIGNED = "signed"

    def check(self, wires: int) -> None:
        """Raises LocalError if so many bits are no such integer."""
        if self is not Output.XOR and not 1 <= wires <= RING_BITS:
            raise LocalError(f"an integer in Z_2^64 has 1 to 64 bits, not {wires}")

    def ciphertext_bytes(self, wires: int) -> int:
        """What one instance adds to the garbler's answer: the check, and the projection."""
        return wires * WORD_BYTES * (1 if self is Output.XOR else 2)


class Sealed(NamedTuple):
    """`ciphertexts` (K, bytes) go to the evaluator; `check` (K, bytes) only into the digest."""

    ciphertexts: Bytes
    check: Bytes
    shares: Vector

    def __repr__(self) -> str:
        return "<Sealed>"


class Opened(NamedTuple):
    check: Bytes
    shares: Vector

    def __repr__(self) -> str:
        return "<Opened>"


def seal(output: Output, keys: Bytes, deltas: Bytes, labels: Bytes) -> Sealed:
    """The garbler's side, from the (K, I, O, 16) labels of 0."""
    links, instances, wires, _ = labels.shape
    flat = labels.reshape(links, instances * wires, 16)
    λ = flat[:, :, 0] & 1
    colour_0: Bytes = np.bitwise_xor(flat, λ[..., None] * deltas[:, None, :])
    h0 = _words(hash_blocks(keys, colour_0, OUTPUT_TWEAKS))
    h1 = _words(hash_blocks(keys, np.bitwise_xor(colour_0, deltas[:, None, :]), OUTPUT_TWEAKS))
    parts = [h0[..., 1] ^ h1[..., 1]]
    shares: Vector = λ.astype(np.uint64)
    if output is not Output.XOR:
        w = np.tile(_weights(output, wires), instances)
        parts.append(w - (w * shares << _ONE) + h0[..., 0] - h1[..., 0])
        shares = w * shares - h0[..., 0]
    return Sealed(
        np.hstack([_bytes(part) for part in parts]),
        _bytes(h0[..., 1]),
        _gather(output, shares.reshape(links, instances, wires)),
    )


def open_outputs(output: Output, keys: Bytes, labels: Bytes, ciphertexts: Bytes) -> Opened:
    """The evaluator's side, from its (K, I, O, 16) active labels. Whether they are right is for the
    caller to see from the check."""
    links, instances, wires, _ = labels.shape
    flat = labels.reshape(links, instances * wires, 16)
    parts = _words(ciphertexts.reshape(links, -1, WORD_BYTES * instances * wires))
    h = _words(hash_blocks(keys, flat, OUTPUT_TWEAKS))
    colour: Vector = (flat[:, :, 0] & 1).astype(np.uint64)
    shares = colour
    if output is not Output.XOR:
        shares = h[..., 0] + colour * parts[:, 1]
    return Opened(
        _bytes(h[..., 1] ^ colour * parts[:, 0]),
        _gather(output, shares.reshape(links, instances, wires)),
    )


def _weights(output: Output, wires: int) -> Vector:
    weights: Vector = _ONE << np.arange(wires, dtype=np.uint64)
    if output is Output.SIGNED:
        weights[-1:] = -weights[-1:]
    return weights


def _gather(output: Output, shares: Vector) -> Vector:
    total: Vector = shares if output is Output.XOR else shares.sum(axis=2, dtype=np.uint64)
    return total


def _words(data: Bytes) -> Vector:
    return np.ascontiguousarray(data).view("<u8")


def _bytes(words: Vector) -> Bytes:
    return np.ascontiguousarray(words).view(np.uint8)
