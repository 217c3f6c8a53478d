"""What one server holds looks uniform, whatever α is.

Each test sums evidence into one statistic and rejects at ALPHA. The generator is seeded, so a run
is reproducible; over seeds, a right program fails all these tests together less than once in a
million.
"""

import numpy as np
import pytest
from scipy.stats import chi2, norm

from tallyroom.fss import dcf
from tallyroom.fss.comparison import Comparison
from tallyroom.fss.ring import Z32, Z64, Bytes, Ring
from tallyroom.fss.seed_table import SeedTable
from tallyroom.fss.shape import CONTROL_MASK
from tallyroom.fss.square_root import SquareRoot

ALPHA = 1e-8
KEYS = 4000


def randomness(width: int, seed: int) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, (KEYS, width), dtype=np.uint8)


def bytes_look_uniform(data: Bytes) -> bool:
    counts = np.bincount(data.reshape(-1), minlength=256)
    expected = data.size / 256
    statistic = float(((counts - expected) ** 2 / expected).sum())
    return bool(chi2.sf(statistic, 255) > ALPHA)


def bits_look_fair(rows: Bytes) -> bool:
    """No bit position is set too often or too seldom over the rows (Bonferroni)."""
    bits = np.unpackbits(rows, axis=1)
    z = (bits.sum(axis=0) - len(rows) / 2) / np.sqrt(len(rows) / 4)
    return bool(2 * norm.sf(np.abs(z).max()) * bits.shape[1] > ALPHA)


def test_the_tests_can_fail() -> None:
    data = randomness(64, 0)
    assert bytes_look_uniform(data)
    assert bits_look_fair(data)
    biased = data.copy()
    biased[: KEYS // 5, 10] |= 1
    biased[:, 11] &= 0xFE
    assert not bits_look_fair(biased)
    assert not bytes_look_uniform(data & np.uint8(0xFE))


@pytest.mark.parametrize("ring", [Z32, Z64])
@pytest.mark.parametrize("alpha", [0, 1, 0x5555_5555, (1 << 32) - 1])
@pytest.mark.parametrize("server", [0, 1])
def test_a_single_key_and_its_evaluations(server: int, alpha: int, ring: Ring) -> None:
    bits = 32
    alphas = np.full(KEYS, alpha, dtype=np.uint64)
    keys = dcf.gen(alphas, bits, ring, randomness(32, alpha % 1000 + server))[server]
    assert not (keys[:, 0] & CONTROL_MASK).any()
    # The root's two control bits are always clear; the rest of the key is free.
    assert bytes_look_uniform(keys[:, 1:])
    free = np.concatenate([keys[:, :1] | (randomness(1, 99) & CONTROL_MASK), keys[:, 1:]], axis=1)
    assert bits_look_fair(free)
    near = [0, 1, alpha, max(alpha, 1) - 1, min(alpha + 1, (1 << bits) - 1), 1 << 31]
    # At the very last threshold no server holds a random word: the answer there is public.
    shares = dcf.evaluate(server, keys, np.unique(near)[:-1], bits, ring)
    assert bytes_look_uniform(shares.view(np.uint8))
    assert bits_look_fair(np.ascontiguousarray(shares).view(np.uint8))


@pytest.mark.parametrize("ring", [Z32, Z64])
@pytest.mark.parametrize("servers", [3, 4])
def test_the_table_and_the_sum_of_all_keys_but_one(servers: int, ring: Ring) -> None:
    scheme = SeedTable(5, ring, servers)
    keys = scheme.gen(np.full(KEYS, 9), randomness(scheme.randomness_bytes, servers))
    for missing in range(servers):
        others = [j for j in range(servers) if j != missing]
        shares = [scheme.evaluate(j, keys[j], np.arange(32)) for j in others]
        total = np.sum(shares, axis=0, dtype=ring.dtype)
        assert bytes_look_uniform(total.view(np.uint8))
        assert bits_look_fair(total.view(np.uint8))


def test_the_square_root_corrections_and_the_sum_of_two_servers() -> None:
    scheme = SquareRoot(6, Z64)
    alphas = np.full(1000, 37)
    keys = scheme.gen(alphas, randomness(scheme.randomness_bytes, 1)[:1000])
    vectors = keys[0][:, -12 * scheme.columns * 8 :]
    assert bytes_look_uniform(vectors)
    assert bits_look_fair(np.ascontiguousarray(vectors))
    row = 37 // scheme.columns * scheme.columns
    for first, second in ((0, 1), (0, 2), (1, 2)):
        points = [row, row + 1, (row + scheme.columns) % 64]
        pair = scheme.evaluate(first, keys[first], points)
        pair += scheme.evaluate(second, keys[second], points)
        assert bits_look_fair(pair.view(np.uint8))


def test_comparisons_of_every_kind_use_fresh_words() -> None:
    """Two keys for one α share no bytes: the randomness alone makes them."""
    for bits, servers in [(32, 2), (8, 3), (14, 3), (8, 4)]:
        comparison = Comparison(bits, Z64, servers)
        random = randomness(comparison.randomness_bytes, 3)[:2]
        for server, keys in enumerate(comparison.gen([7, 7], random)):
            equal = np.mean(keys[0] == keys[1])
            assert equal < 0.2, (bits, servers, server)
