"""What becomes of output wires: shares for both sides, and a check that the labels are right.

Neither side learns an output. `XOR`: the evaluator keeps the colour of its active label, the
garbler the colour that stands for 0; their XOR is the bit. `UNSIGNED`, `SIGNED`: additive shares in
Z_2^64 of Σ w_i·b_i, with w_i = 2^i but for −2^(O−1) at the top of a two's complement integer;
`IntegerShares`: the same for several integers, one after the other on the output wires;
`FieldIntegers`: the same modulo a prime. They come by projection: with h_c = H(label of colour c),
λ the colour of 0, the evaluator's word is

    y_0 = h_0    or    y_1 = h_1 + C,    with    C = w(1 − 2λ) + h_0 − h_1,

and the garbler's is r = wλ − h_0. Then y + r = w·b for either colour. The row of colour 0 needs no
ciphertext, and C is safe: an evaluator of colour 0 knows h_0 but not h_1, which masks C; one of
colour 1 knows h_1 and gets h_0 + w(1 − 2λ), where h_0 masks λ. Both masks are hashes of the
inactive label, pseudorandom by the robustness of H; each is used once, at its own tweak.

The check costs 8 bytes an output wire and 16 bytes a link and batch. The other half of H gives
k = g_0, which an evaluator of colour 1 gets as g_1 ⊕ (g_0 ⊕ g_1), masked in the same way; both
sides hash all k with the transcript. A label that is not the garbler's passes with probability
2^-64 a wire. To an honest evaluator the check says nothing new: every k is a function of what it
holds. A garbler that deviates can make it fail for chosen inputs and learn one bit from the
refusal. `UncheckedIntegers` do without the check.

A garbler that deviates can also put another weight than w_i into C, as large as it likes: where the
shares are summed and the total is released, that total then tells an output, and with another
circuit an input of the evaluator, past any noise. Nothing here notices. So outputs that are summed
leave a circuit as XOR shares of a code (`kernels.codes`), in which there is nothing to weigh, and
become sums by a conversion that is checked (`joint.conversion`).
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallyroom.fss.ring import Bytes
from tallyroom.protocols.algebra.field import Field
from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.garbling.primitives import OUTPUT_TWEAKS, hash_blocks

WORD_BYTES = 8
RING_BITS = 64

_ONE = np.uint64(1)


class OutputShares(Enum):
    """Shares of bits, (K, I, O), or of one integer of all output wires, (K, I)."""

    XOR = "xor"
    UNSIGNED = "unsigned"
    SIGNED = "signed"

    def check(self, wires: int) -> None:
        """Raises LocalError if so many bits are no such integer."""
        if self is not OutputShares.XOR:
            _check_bits(wires)

    def weights(self, wires: int) -> Vector | None:
        """What each wire counts, or None if nothing is added."""
        return None if self is OutputShares.XOR else _weights(wires, self is OutputShares.SIGNED)

    def gather(self, shares: Vector) -> Vector:
        """From shares of the wires, (K, I, O)."""
        total: Vector = shares if self is OutputShares.XOR else shares.sum(axis=2, dtype=np.uint64)
        return total


@dataclass(frozen=True)
class IntegerShares:
    """Shares of several integers, (K, I, integers): the bits of each, and whether it is signed."""

    words: tuple[tuple[int, bool], ...]

    def check(self, wires: int) -> None:
        """Raises LocalError if these integers are not all of a circuit's output wires."""
        for bits, _ in self.words:
            _check_bits(bits)
        total = sum(bits for bits, _ in self.words)
        if not self.words or total != wires:
            raise LocalError(f"integers of {total} bits together, but {wires} output wires")

    def weights(self, wires: int) -> Vector | None:
        return np.concatenate([_weights(bits, signed) for bits, signed in self.words])

    def gather(self, shares: Vector) -> Vector:
        starts = np.cumsum([0, *(bits for bits, _ in self.words[:-1])])
        totals: Vector = np.add.reduceat(shares, starts, axis=2)
        return totals


@dataclass(frozen=True)
class UncheckedIntegers(IntegerShares):
    """The same without the check of labels: for what is computed twice and compared."""


@dataclass(frozen=True)
class FieldIntegers:
    """Shares of several integers in a prime field, (K, I, integers, limbs), a negative one as p
    less its size. A mask h is 64 bits longer than the field's elements and reduced: within 2^-64
    of uniform."""

    field: Field
    words: tuple[tuple[int, bool], ...]

    def check(self, wires: int) -> None:
        """Raises LocalError if these integers are not all of a circuit's output wires."""
        IntegerShares(self.words).check(wires)

    def weights(self, instances: int) -> Vector:
        """What each wire counts, as elements, instance after instance."""
        one = [
            -(1 << i) if signed and i == bits - 1 else 1 << i
            for bits, signed in self.words
            for i in range(bits)
        ]
        return np.tile(self.field.from_ints(one), (instances, 1))

    def masks(self, keys: Bytes, blocks: Bytes) -> Vector:
        """h of every block, (K, n, limbs)."""
        count = self.field.limbs // 2 + 1
        hashed = [hash_blocks(keys, blocks, OUTPUT_TWEAKS + 1 + i) for i in range(count)]
        words = _words(np.concatenate(hashed, axis=-1))[..., : self.field.limbs + 1]
        base = self.field.from_ints([1 << 64])
        total = self.field.zeros(*words.shape[:-1])
        for place in reversed(range(words.shape[-1])):
            total = self.field.add(self.field.mul(total, base), self._element(words[..., place]))
        return total

    def _element(self, words: Vector) -> Vector:
        element = self.field.zeros(*words.shape)
        element[..., 0] = words
        if self.field.limbs == 1:
            p = np.uint64(self.field.modulus)
            element[..., 0] = np.where(words >= p, words - p, words)
        return element

    def gather(self, shares: Vector) -> Vector:
        """From shares of the wires, (K, I, O, limbs)."""
        starts = np.cumsum([0, *(bits for bits, _ in self.words)])
        parts = [
            self.field.sum(shares[:, :, start:end], -2)
            for start, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)
        ]
        return np.stack(parts, axis=2)


@dataclass(frozen=True)
class UncheckedBits:
    """`OutputShares.XOR` without the check of labels: for what is computed twice and compared."""

    def check(self, wires: int) -> None:
        """Any wires are bits."""

    def weights(self, wires: int) -> Vector | None:
        return None

    def gather(self, shares: Vector) -> Vector:
        return shares


Form = OutputShares | IntegerShares | FieldIntegers | UncheckedBits


def ciphertext_bytes(output: Form, wires: int) -> int:
    """What one instance adds to the garbler's answer: the check, and the projection."""
    if isinstance(output, FieldIntegers):
        return wires * (WORD_BYTES + output.field.width)
    if isinstance(output, UncheckedBits):
        return 0
    checked = not isinstance(output, UncheckedIntegers)
    return wires * WORD_BYTES * (checked + (output is not OutputShares.XOR))


def _check_bits(bits: int) -> None:
    if not 1 <= bits <= RING_BITS:
        raise LocalError(f"an integer in Z_2^64 has 1 to 64 bits, not {bits}")


def _weights(bits: int, signed: bool) -> Vector:
    weights: Vector = _ONE << np.arange(bits, dtype=np.uint64)
    if signed:
        weights[-1:] = -weights[-1:]
    return weights


class Sealed(NamedTuple):
    """`ciphertexts` (K, bytes) go to the evaluator; `check` (K, bytes) only into the digest."""

    ciphertexts: Bytes
    check: Bytes
    shares: Vector

    def __repr__(self) -> str:
        return "<Sealed>"


class OpenedShares(NamedTuple):
    check: Bytes
    shares: Vector

    def __repr__(self) -> str:
        return "<OpenedShares>"


def seal(output: Form, keys: Bytes, deltas: Bytes, labels: Bytes) -> Sealed:
    """The garbler's side, from the (K, I, O, 16) labels of 0."""
    links, instances, wires, _ = labels.shape
    flat = labels.reshape(links, instances * wires, 16)
    λ = flat[:, :, 0] & 1
    colour_0: Bytes = np.bitwise_xor(flat, λ[..., None] * deltas[:, None, :])
    if isinstance(output, UncheckedBits):
        nothing = flat[:, 0, :0]
        return Sealed(nothing, nothing, λ.astype(np.uint64).reshape(links, instances, wires))
    h0 = _words(hash_blocks(keys, colour_0, OUTPUT_TWEAKS))
    h1 = _words(hash_blocks(keys, np.bitwise_xor(colour_0, deltas[:, None, :]), OUTPUT_TWEAKS))
    parts = [h0[..., 1] ^ h1[..., 1]]
    if isinstance(output, FieldIntegers):
        projected, elements = _seal_in_field(output, keys, deltas, colour_0, λ, instances)
        return Sealed(
            np.hstack([_bytes(parts[0]), projected]),
            _bytes(h0[..., 1]),
            output.gather(elements.reshape(links, instances, wires, -1)),
        )
    shares: Vector = λ.astype(np.uint64)
    weights = output.weights(wires)
    if weights is not None:
        w = np.tile(weights, instances)
        parts.append(w - (w * shares << _ONE) + h0[..., 0] - h1[..., 0])
        shares = w * shares - h0[..., 0]
    if isinstance(output, UncheckedIntegers):
        sealed = output.gather(shares.reshape(links, instances, wires))
        return Sealed(_bytes(parts[1]), _bytes(h0[:, :0, 1]), sealed)
    return Sealed(
        np.hstack([_bytes(part) for part in parts]),
        _bytes(h0[..., 1]),
        output.gather(shares.reshape(links, instances, wires)),
    )


def open_outputs(output: Form, keys: Bytes, labels: Bytes, ciphertexts: Bytes) -> OpenedShares:
    """The evaluator's side, from its (K, I, O, 16) active labels. Whether they are right is for the
    caller to see from the check."""
    links, instances, wires, _ = labels.shape
    flat = labels.reshape(links, instances * wires, 16)
    colour: Vector = (flat[:, :, 0] & 1).astype(np.uint64)
    if isinstance(output, UncheckedBits):
        return OpenedShares(flat[:, 0, :0], colour.reshape(links, instances, wires))
    h = _words(hash_blocks(keys, flat, OUTPUT_TWEAKS))
    if isinstance(output, FieldIntegers):
        checks, projected = np.hsplit(ciphertexts, [WORD_BYTES * instances * wires])
        elements = _open_in_field(output, keys, flat, colour, projected)
        return OpenedShares(
            _bytes(h[..., 1] ^ colour * _words(checks)),
            output.gather(elements.reshape(links, instances, wires, -1)),
        )
    parts = _words(ciphertexts.reshape(links, -1, WORD_BYTES * instances * wires))
    if isinstance(output, UncheckedIntegers):
        opened = h[..., 0] + colour * parts[:, 0]
        gathered = output.gather(opened.reshape(links, instances, wires))
        return OpenedShares(_bytes(h[:, :0, 1]), gathered)
    shares = colour
    if output is not OutputShares.XOR:
        shares = h[..., 0] + colour * parts[:, 1]
    return OpenedShares(
        _bytes(h[..., 1] ^ colour * parts[:, 0]),
        output.gather(shares.reshape(links, instances, wires)),
    )


def _seal_in_field(
    form: FieldIntegers,
    keys: Bytes,
    deltas: Bytes,
    colour_0: Bytes,
    λ: NDArray[np.integer[Any]],
    instances: int,
) -> tuple[Bytes, Vector]:
    """C of every wire, (K, bytes), and the garbler's r."""
    field = form.field
    h0 = form.masks(keys, colour_0)
    h1 = form.masks(keys, np.bitwise_xor(colour_0, deltas[:, None, :]))
    w = form.weights(instances)
    swapped = λ[..., None] == 1
    counted = np.where(swapped, field.neg(w), w)
    projected = field.add(counted, field.sub(h0, h1))
    return field.encode(projected), field.sub(np.where(swapped, w, field.zeros()), h0)


def _open_in_field(
    form: FieldIntegers, keys: Bytes, labels: Bytes, colour: Vector, projected: Bytes
) -> Vector:
    """The evaluator's y. An element that is not below p would not be one of the garbler's: it
    counts as 0, and the digest of the answer covers what the garbler sent."""
    field = form.field
    given = field.unchecked(projected)
    given = np.where(field.canonical(given)[..., None], given, field.zeros())
    return field.add(form.masks(keys, labels), np.where(colour[..., None] == 1, given, 0))


def _words(data: Bytes) -> Vector:
    return np.ascontiguousarray(data).view("<u8")


def _bytes(words: Vector) -> Bytes:
    return np.ascontiguousarray(words).view(np.uint8)
