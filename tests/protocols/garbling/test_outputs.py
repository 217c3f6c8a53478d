"""Shares of outputs add up for every value and every colour, and each alone says nothing."""

import numpy as np
import pytest

from tallyroom.fss.ring import Bytes
from tallyroom.protocols.algebra.ring import signed
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.garbling.outputs import (
    Form,
    IntegerShares,
    OpenedShares,
    OutputShares,
    Sealed,
    ciphertext_bytes,
    open_outputs,
    seal,
)
from tests.goodness import ALPHA, uniform_bytes_p
from tests.protocols.pairwise.dealing import random_bytes, random_deltas


def shared(output: Form, bits: Bytes, seed: int) -> tuple[Sealed, OpenedShares]:
    """Both sides' results for (K, I, O) output bits under random labels."""
    links = len(bits)
    keys, deltas = random_bytes(seed, links, 16), random_deltas(seed + 1, links)
    labels = random_bytes(seed + 2, *bits.shape, 16)
    sealed = seal(output, keys, deltas, labels)
    active: Bytes = np.bitwise_xor(labels, bits[..., None] * deltas[:, None, None, :])
    return sealed, open_outputs(output, keys, active, sealed.ciphertexts)


def every_value(wires: int, links: int) -> Bytes:
    values = (np.arange(1 << wires)[:, None] >> np.arange(wires)) & 1
    return np.broadcast_to(values.astype(np.uint8), (links, 1 << wires, wires))


@pytest.mark.parametrize("wires", [1, 2, 3, 5])
@pytest.mark.parametrize("output", list(OutputShares))
def test_every_value_comes_back(output: OutputShares, wires: int) -> None:
    """On 40 links, so that every colour of every wire is among them."""
    bits = every_value(wires, 40)
    sealed, opened = shared(output, bits, wires)
    assert np.array_equal(sealed.check, opened.check)
    assert sealed.ciphertexts.shape[1] == ciphertext_bytes(output, wires) << wires
    values = np.arange(1 << wires)
    if output is OutputShares.XOR:
        assert np.array_equal(sealed.shares ^ opened.shares, bits)
    elif output is OutputShares.UNSIGNED:
        assert (sealed.shares + opened.shares == values.astype(np.uint64)).all()
    else:
        negative = values >> (wires - 1)
        total = signed(sealed.shares + opened.shares)
        assert (total == values - (negative << wires)).all()


@pytest.mark.parametrize("output", [OutputShares.UNSIGNED, OutputShares.SIGNED])
def test_integers_of_64_bits(output: OutputShares) -> None:
    words = random_bytes(9, 3, 50, 8)
    bits = np.unpackbits(words, axis=2, bitorder="little")
    sealed, opened = shared(output, bits, 4)
    assert np.array_equal(sealed.shares + opened.shares, words.view("<u8")[..., 0])


def test_several_integers_come_back_one_by_one() -> None:
    """3 bits signed, 1 bit, 2 bits signed and 2 bits: all 256 values, on 40 links."""
    form = IntegerShares(((3, True), (1, False), (2, True), (2, False)))
    sealed, opened = shared(form, every_value(8, 40), 6)
    totals = signed(sealed.shares + opened.shares)
    values = np.arange(256)
    parts = [values & 7, values >> 3 & 1, values >> 4 & 3, values >> 6]
    parts[0] = parts[0] - (parts[0] >> 2 << 3)
    parts[2] = parts[2] - (parts[2] >> 1 << 2)
    assert totals.shape == (40, 256, 4)
    assert (totals == np.stack(parts, axis=1)).all()
    assert np.array_equal(sealed.check, opened.check)


def test_integers_fill_the_output_wires() -> None:
    IntegerShares(((64, True), (1, False))).check(65)
    for words, wires in (
        ((), 0),
        (((3, True),), 4),
        (((0, False), (4, True)), 4),
        (((65, True),), 65),
    ):
        with pytest.raises(LocalError):
            IntegerShares(words).check(wires)


def test_integers_have_1_to_64_bits() -> None:
    for output in (OutputShares.UNSIGNED, OutputShares.SIGNED):
        output.check(1)
        output.check(64)
        for wires in (0, 65):
            with pytest.raises(LocalError):
                output.check(wires)
    OutputShares.XOR.check(0)
    OutputShares.XOR.check(1000)


def test_a_wrong_label_gives_another_check() -> None:
    keys, deltas = random_bytes(1, 1, 16), random_deltas(2, 1)
    labels = random_bytes(3, 1, 4, 3, 16)
    sealed = seal(OutputShares.SIGNED, keys, deltas, labels)
    for index in range(0, labels.size, 5):
        wrong = labels.copy()
        wrong.reshape(-1)[index] ^= 1 << (index % 8)
        opened = open_outputs(OutputShares.SIGNED, keys, wrong, sealed.ciphertexts)
        assert not np.array_equal(opened.check, sealed.check)


@pytest.mark.parametrize("value", [0, 1])
def test_words_and_ciphertexts_are_uniform_for_either_value(value: int) -> None:
    """n = 2^17 bytes of each kind, 256 cells, alpha = 1e-9."""
    bits = np.full((4, 4096, 1), value, dtype=np.uint8)
    sealed, opened = shared(OutputShares.UNSIGNED, bits, 10 + value)
    for kind in (sealed.shares, opened.shares, sealed.ciphertexts, sealed.check):
        assert uniform_bytes_p(kind.tobytes()) > ALPHA
    assert repr(sealed) == "<Sealed>"
    assert repr(opened) == "<OpenedShares>"
