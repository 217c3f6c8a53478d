"""Seeds stretched by AES-CTR: against `cryptography` itself, and every implementation alike."""

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from tallyroom.fss.prg import expand_seeds, expand_seeds_sum
from tallyroom.fss.ring import Bytes


def seeds(count: int) -> Bytes:
    return np.random.default_rng(1).integers(0, 256, (count, 16), dtype=np.uint8)


@pytest.mark.parametrize("words", [0, 1, 2, 31, 32, 33, 100])
@pytest.mark.parametrize("count", [0, 1, 3, 1030])
@pytest.mark.usefixtures("implementation")
def test_rows_are_the_ctr_keystream_and_sums_their_sums(count: int, words: int) -> None:
    rows = expand_seeds(seeds(count), words)
    assert rows.shape == (count, words)
    for seed, row in zip(seeds(count)[:5], rows, strict=False):
        encryptor = Cipher(algorithms.AES(seed.tobytes()), modes.CTR(bytes(16))).encryptor()
        assert row.astype("<u8").tobytes() == encryptor.update(bytes(8 * words))
    total = rows.sum(axis=0, dtype=np.uint64)
    assert np.array_equal(expand_seeds_sum(seeds(count), words), total)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (np.zeros((2, 15), dtype=np.uint8), 4),
        (np.zeros(16, dtype=np.uint8), 4),
        (np.zeros((2, 16), dtype=np.int8), 4),
        (np.zeros((2, 16), dtype=np.uint8), -1),
    ],
)
def test_wrong_seeds_are_refused(bad: Bytes, words: int) -> None:
    with pytest.raises(ValueError, match=r"seeds|words"):
        expand_seeds(bad, words)
    with pytest.raises(ValueError, match=r"seeds|words"):
        expand_seeds_sum(bad, words)
