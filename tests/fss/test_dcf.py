"""Two-server comparison: exhaustive when small, random when large."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallyroom.fss import dcf
from tallyroom.fss.ring import Z32, Z64, Bytes, Points, Ring
from tallyroom.fss.storage import KeyTable, Segment, level_major

RINGS = [Z32, Z64]


def randomness(count: int, seed: int = 7) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, (count, 32), dtype=np.uint8)


def random_points(count: int, bits: int, seed: int = 8) -> Points:
    high = (1 << bits) - 1
    return np.random.default_rng(seed).integers(0, high, count, dtype=np.uint64, endpoint=True)


@pytest.mark.parametrize("ring", RINGS)
@pytest.mark.parametrize("bits", range(1, 65))
def test_key_sizes(bits: int, ring: Ring) -> None:
    assert dcf.key_bytes(bits, ring) == (24 if ring == Z64 else 20) * bits


def test_shorter_than_the_published_size() -> None:
    """BCG+21 (eprint 2020/1392): n(λ + ℓ + 2) + λ + ℓ bits with λ = 128, ℓ = 64."""
    bits = 32
    published = (bits * (128 + 64 + 2) + 128 + 64) // 8
    assert published == 800
    assert dcf.key_bytes(bits, Z64) == 768


@pytest.mark.parametrize("ring", RINGS)
@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.usefixtures("implementation")
def test_every_alpha_at_every_threshold(bits: int, ring: Ring) -> None:
    domain = np.arange(1 << bits, dtype=np.uint64)
    keys = dcf.gen(domain, bits, ring, randomness(len(domain)))
    truth = (domain[:, None] <= domain[None, :]).astype(ring.dtype)
    matrix = [dcf.evaluate(server, keys[server], domain, bits, ring) for server in (0, 1)]
    assert matrix[0].dtype == ring.dtype
    assert np.array_equal(matrix[0] + matrix[1], truth)
    for server in (0, 1):
        expected = matrix[server].sum(axis=0, dtype=ring.dtype)
        assert np.array_equal(dcf.full_domain_sum(server, keys[server], bits, ring), expected)


@pytest.mark.parametrize("ring", RINGS)
@pytest.mark.parametrize("bits", [16, 32, 64])
def test_a_hundred_thousand_random_keys(bits: int, ring: Ring) -> None:
    alphas = random_points(100_000, bits)
    keys = dcf.gen(alphas, bits, ring, randomness(len(alphas)))
    edges = np.array([0, (1 << bits) - 1], dtype=np.uint64)
    thresholds = np.concatenate([edges, alphas[:6], alphas[:6] - np.uint64(alphas[:6].min() > 0)])
    shares = [dcf.evaluate_sum(b, keys[b], thresholds, bits, ring) for b in (0, 1)]
    truth = (alphas[None, :] <= thresholds[:, None]).sum(axis=1)
    assert np.array_equal(shares[0] + shares[1], truth.astype(ring.dtype))


@settings(max_examples=60, deadline=None)
@given(
    bits=st.integers(1, 64),
    ring=st.sampled_from(RINGS),
    data=st.data(),
)
def test_edges_and_sizes(bits: int, ring: Ring, data: st.DataObject) -> None:
    top = (1 << bits) - 1
    value = st.one_of(st.sampled_from([0, top, top >> 1]), st.integers(0, top))
    alphas = np.array(data.draw(st.lists(value, max_size=70)), dtype=np.uint64)
    thresholds = np.array(data.draw(st.lists(value, max_size=20)), dtype=np.uint64)
    keys = dcf.gen(alphas, bits, ring, randomness(len(alphas)))
    matrix = sum(dcf.evaluate(b, keys[b], thresholds, bits, ring) for b in (0, 1))
    assert np.array_equal(matrix, (alphas[:, None] <= thresholds[None, :]).astype(ring.dtype))
    sums = sum(dcf.evaluate_sum(b, keys[b], thresholds, bits, ring) for b in (0, 1))
    assert np.array_equal(sums, np.asarray(matrix).sum(axis=0, dtype=ring.dtype))


@pytest.mark.parametrize("ring", RINGS)
@pytest.mark.parametrize("bits", [1, 5, 16, 33, 64])
@pytest.mark.parametrize("count", [1, 63, 64, 65, 1500])
@pytest.mark.usefixtures("implementation")
def test_stored_keys_evaluate_as_uploaded_ones(count: int, bits: int, ring: Ring) -> None:
    form = dcf.shape(bits, ring)
    keys, _ = dcf.gen(random_points(count, bits), bits, ring, randomness(count))
    thresholds = random_points(9, bits, seed=3)
    segment = level_major(form, keys)
    table = KeyTable(form, (segment,)).append(level_major(form, keys[:5]))
    matrix = dcf.evaluate(0, keys, thresholds, bits, ring)
    assert np.array_equal(dcf.evaluate(0, segment, thresholds, bits, ring), matrix)
    stacked = np.concatenate([matrix, matrix[:5]])
    assert np.array_equal(dcf.evaluate(0, table, thresholds, bits, ring), stacked)
    sums = stacked.sum(axis=0, dtype=ring.dtype)
    assert np.array_equal(dcf.evaluate_sum(0, table, thresholds, bits, ring), sums)


@pytest.mark.usefixtures("implementation")
def test_mapped_keys_are_never_loaded_whole(tmp_path: Path) -> None:
    bits, block, blocks = 32, 2000, 20
    form = dcf.shape(bits, Z64)
    keys, _ = dcf.gen(random_points(block, bits), bits, Z64, randomness(block))
    path = tmp_path / "segments"
    path.write_bytes(level_major(form, keys).data.tobytes() * blocks)
    stored = np.memmap(path, dtype=np.uint8, mode="r")
    table = KeyTable(form)
    for segment in stored.reshape(blocks, -1):
        table = table.append(Segment(form, segment))
    assert table.count == block * blocks
    thresholds = random_points(3, bits, seed=5)
    tracemalloc.start()
    sums = dcf.evaluate_sum(0, table, thresholds, bits, Z64)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < stored.size / 4
    assert np.array_equal(
        sums, np.uint64(blocks) * dcf.evaluate_sum(0, keys, thresholds, bits, Z64)
    )


def test_wrong_input_is_refused() -> None:
    keys, _ = dcf.gen([1, 2], 8, Z64, randomness(2))
    with pytest.raises(ValueError, match="below 2\\^8"):
        dcf.gen([256], 8, Z64, randomness(1))
    with pytest.raises(ValueError, match="negative"):
        dcf.gen([-1], 8, Z64, randomness(1))
    with pytest.raises(ValueError, match="integers"):
        dcf.gen([0.5], 8, Z64, randomness(1))
    with pytest.raises(ValueError, match="randomness"):
        dcf.gen([1], 8, Z64, randomness(2))
    with pytest.raises(ValueError, match="uint8"):
        dcf.gen([1], 8, Z64, randomness(1).astype(np.int64))
    with pytest.raises(ValueError, match="shape"):
        dcf.evaluate(0, keys[:, :-1], [1], 8, Z64)
    with pytest.raises(ValueError, match="shape"):
        dcf.evaluate_sum(0, keys, [1], 9, Z64)
    with pytest.raises(ValueError, match="server"):
        dcf.evaluate(2, keys, [1], 8, Z64)
    with pytest.raises(ValueError, match="below"):
        dcf.evaluate(0, keys, [256], 8, Z64)
    with pytest.raises(ValueError, match="1 to 64"):
        dcf.key_bytes(65, Z64)
    with pytest.raises(ValueError, match="another domain"):
        dcf.evaluate(0, level_major(dcf.shape(8, Z64), keys), [1], 9, Z64)
