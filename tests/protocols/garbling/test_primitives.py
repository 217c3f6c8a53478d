"""The hash, the keystream and the transpose: their formulas, and native equal to twin."""

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from tallyroom.protocols.garbling import native
from tallyroom.protocols.garbling.primitives import (
    OUTPUT_TWEAKS,
    field_hash,
    hash_blocks,
    keystream,
    transpose,
)
from tests.protocols.pairwise.dealing import random_bytes

CODES: list[int | None] = [None]
if native.compiled is not None:
    CODES += list(range(1, native.compiled.best() + 1))


@pytest.fixture(params=CODES, ids=str)
def code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int | None:
    """Runs the test with the twin and with every instruction set of this machine."""
    monkeypatch.setattr(native, "instruction_set", lambda: request.param)
    chosen: int | None = request.param
    return chosen


def aes(key: bytes, block: bytes) -> bytes:
    return Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(block)


@pytest.mark.parametrize("count", [0, 1, 2, 7, 8, 9, 33])
def test_the_hash_is_the_formula(code: int | None, count: int) -> None:
    keys, blocks = random_bytes(1, 3, 16), random_bytes(2, 3, count, 16)
    for domain in (0, 5, OUTPUT_TWEAKS):
        hashed = hash_blocks(keys, blocks, domain)
        assert hashed.shape == blocks.shape
        for link in range(3):
            for j in range(count):
                key = keys[link].tobytes()
                inner = int.from_bytes(aes(key, blocks[link, j].tobytes()), "little")
                outer = aes(key, (inner ^ (domain << 64 | j)).to_bytes(16, "little"))
                expected = int.from_bytes(outer, "little") ^ inner
                assert hashed[link, j].tobytes() == expected.to_bytes(16, "little")


@pytest.mark.parametrize(("start", "blocks"), [(0, 1), (0, 17), (3, 9), (2**40, 4), (5, 0)])
def test_the_keystream_can_be_entered_anywhere(code: int | None, start: int, blocks: int) -> None:
    seeds = random_bytes(3, 5, 16)
    stream = keystream(seeds, start, blocks)
    assert stream.shape == (5, blocks, 16)
    for seed, row in zip(seeds, stream, strict=True):
        for index, block in enumerate(row):
            assert block.tobytes() == aes(seed.tobytes(), (start + index).to_bytes(16, "big"))


@pytest.mark.parametrize("width", [0, 1, 2, 3, 16, 21])
def test_the_transpose_moves_every_bit(code: int | None, width: int) -> None:
    columns = random_bytes(4, 2, 128, width)
    rows = transpose(columns)
    assert rows.shape == (2, 8 * width, 16)
    for link in range(2):
        before = np.unpackbits(columns[link], axis=1, bitorder="little")
        after = np.unpackbits(rows[link], axis=1, bitorder="little")
        assert np.array_equal(after, before.T)


def field_product(a: int, b: int) -> int:
    """In GF(2^128), from the definition."""
    product = 0
    for bit in range(128):
        product ^= (a << bit) * (b >> bit & 1)
    for bit in range(255, 127, -1):
        product ^= ((1 << 128 | 0x87) << (bit - 128)) * (product >> bit & 1)
    return product


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 129])
@pytest.mark.parametrize("width", [0, 1, 2, 5])
def test_the_field_hash_is_a_polynomial_at_a_point(
    code: int | None, count: int, width: int
) -> None:
    points, columns = random_bytes(7, 2, 16), random_bytes(8, 2, count, 16 * width)
    points[1] = 255
    hashed = field_hash(points, columns)
    assert hashed.shape == (2, count, 16)
    for link in range(2):
        x = int.from_bytes(points[link].tobytes(), "little")
        for column, found in zip(columns[link], hashed[link], strict=True):
            total = 0
            for block in column.reshape(-1, 16):
                total = field_product(total, x) ^ int.from_bytes(block.tobytes(), "little")
            assert found.tobytes() == total.to_bytes(16, "little")


@pytest.mark.skipif(native.compiled is None, reason="no native module here")
def test_the_native_module_refuses_what_does_not_fit() -> None:
    best, blocks, keys = native.compiled.best(), random_bytes(5, 4, 16), random_bytes(6, 2, 16)
    with pytest.raises(ValueError, match="instruction set"):
        native.compiled.hash_blocks(best + 1, keys, 0, blocks, blocks.copy())
    with pytest.raises(ValueError, match="fit"):
        native.compiled.hash_blocks(best, keys, 0, blocks[:2], blocks.copy())
    with pytest.raises(ValueError, match="fit"):
        native.compiled.field_hash(best, keys, blocks, 2, blocks.copy())
    with pytest.raises(ValueError, match="instruction set"):
        native.compiled.field_hash(best + 1, keys, blocks, 1, blocks.copy())
    with pytest.raises(ValueError, match="fit"):
        native.compiled.hash_blocks(best, keys[:, :15].copy(), 0, blocks, blocks.copy())
    with pytest.raises(ValueError, match="fit"):
        native.compiled.keystream(best, keys, 0, blocks[:3].copy())
    with pytest.raises(ValueError, match="fit"):
        native.compiled.transpose(blocks, 1, blocks.copy())
    with pytest.raises(ValueError, match="fit"):
        native.compiled.transpose(random_bytes(1, 128), -1, random_bytes(1, 128))
