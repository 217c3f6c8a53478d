"""Two-server point functions."""

import numpy as np
import pytest

from tallyroom.fss import dcf, dpf
from tallyroom.fss.ring import Z32, Z64, Bytes, Ring


def randomness(count: int) -> Bytes:
    return np.random.default_rng(7).integers(0, 256, (count, 32), dtype=np.uint8)


@pytest.mark.parametrize("ring", [Z32, Z64])
@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.usefixtures("implementation")
def test_every_alpha_at_every_point(bits: int, ring: Ring) -> None:
    size = 1 << bits
    keys = dpf.gen(np.arange(size), bits, ring, randomness(size))
    whole = [dpf.evaluate(b, keys[b], np.arange(size), bits, ring) for b in (0, 1)]
    assert np.array_equal(whole[0] + whole[1], np.eye(size, dtype=ring.dtype))
    points = np.array([0, size - 1, size // 2, 0])
    for b in (0, 1):
        assert np.array_equal(dpf.evaluate(b, keys[b], points, bits, ring), whole[b][:, points])


@pytest.mark.parametrize("ring", [Z32, Z64])
def test_prefix_sums_count_as_comparisons_do(ring: Ring) -> None:
    bits, count = 12, 3000
    alphas = np.random.default_rng(1).integers(0, 1 << bits, count)
    keys = dpf.gen(alphas, bits, ring, randomness(count))
    cells = [dpf.full_domain_sum(b, keys[b], bits, ring) for b in (0, 1)]
    prefix = [np.cumsum(each, dtype=ring.dtype) for each in cells]
    steps = dcf.gen(alphas, bits, ring, randomness(count))
    counts = [dcf.full_domain_sum(b, steps[b], bits, ring) for b in (0, 1)]
    assert np.array_equal(prefix[0] + prefix[1], counts[0] + counts[1])
    assert (prefix[0] + prefix[1])[-1] == count


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_random_points(bits: int) -> None:
    top = (1 << bits) - 1
    alphas = np.random.default_rng(3).integers(0, top, 10_000, dtype=np.uint64, endpoint=True)
    keys = dpf.gen(alphas, bits, Z64, randomness(len(alphas)))
    points = np.concatenate([alphas[:50], alphas[:50] ^ np.uint64(1)])
    sums = [dpf.evaluate_sum(b, keys[b], points, bits, Z64) for b in (0, 1)]
    assert np.array_equal(sums[0] + sums[1], (alphas == points[:, None]).sum(axis=1))


@pytest.mark.parametrize("bits", range(4, 65))
def test_key_sizes(bits: int) -> None:
    assert dpf.key_bytes(bits, Z64) == 16 * bits + 32
    assert dpf.key_bytes(bits, Z32) == 16 * bits + 16


def test_a_domain_too_large_to_enumerate_is_refused() -> None:
    keys = dpf.gen([1], 25, Z64, randomness(1))
    with pytest.raises(ValueError, match="24 bits"):
        dpf.full_domain_sum(0, keys[0], 25, Z64)
