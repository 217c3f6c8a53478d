"""One contract for every construction: two to four servers, both rings, small domains whole."""

from typing import Any

import numpy as np
import pytest

from tallyroom.fss.comparison import SQUARE_ROOT_BITS, Comparison
from tallyroom.fss.interval import evaluate as interval_evaluate
from tallyroom.fss.interval import evaluate_sum as interval_sum
from tallyroom.fss.ring import Z32, Z64, Bytes, Ring, Words
from tallyroom.fss.seed_table import SeedTable
from tallyroom.fss.square_root import SquareRoot

RINGS = [Z32, Z64]
Construction = Comparison | SeedTable | SquareRoot


def randomness(construction: Construction, count: int, seed: int = 5) -> Bytes:
    shape = (count, construction.randomness_bytes)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def opened(shares: list[Words]) -> Words:
    total = shares[0].copy()
    for share in shares[1:]:
        total += share
    return total


def check_every_alpha_at_every_threshold(construction: Construction) -> None:
    domain = np.arange(1 << construction.bits, dtype=np.uint64)
    keys = construction.gen(domain, randomness(construction, len(domain)))
    servers = range(construction.servers)
    assert [key.shape[1] for key in keys] == [construction.key_bytes(j) for j in servers]
    truth = (domain[:, None] <= domain).astype(construction.ring.dtype)
    assert all(construction.validate(j, keys[j]).all() for j in servers)
    matrix = [construction.evaluate(j, keys[j], domain) for j in servers]
    assert np.array_equal(opened(matrix), truth)
    sums = [construction.evaluate_sum(j, keys[j], domain) for j in servers]
    for share, rows in zip(sums, matrix, strict=True):
        assert np.array_equal(share, rows.sum(axis=0, dtype=construction.ring.dtype))


@pytest.mark.parametrize("ring", RINGS)
@pytest.mark.parametrize("servers", [2, 3, 4])
@pytest.mark.parametrize("bits", range(1, 9))
def test_every_alpha_at_every_threshold(bits: int, servers: int, ring: Ring) -> None:
    check_every_alpha_at_every_threshold(Comparison(bits, ring, servers))


@pytest.mark.parametrize("ring", RINGS)
@pytest.mark.parametrize("bits", range(2, 9))
def test_the_square_root_construction_whole(bits: int, ring: Ring) -> None:
    check_every_alpha_at_every_threshold(SquareRoot(bits, ring))


@pytest.mark.parametrize("ring", RINGS)
@pytest.mark.parametrize(
    ("bits", "servers"), [(64, 2), (12, 3), (SQUARE_ROOT_BITS, 3), (20, 3), (12, 4), (12, 7)]
)
def test_larger_domains(bits: int, servers: int, ring: Ring) -> None:
    comparison = Comparison(bits, ring, servers)
    top = (1 << bits) - 1
    random = np.random.default_rng(2).integers(0, top, 5, dtype=np.uint64, endpoint=True)
    alphas = np.concatenate([random, np.array([0, top], dtype=np.uint64)])
    thresholds = np.concatenate([alphas, np.maximum(alphas, 1) - np.uint64(1)])
    keys = comparison.gen(alphas, randomness(comparison, len(alphas)))
    shares = [comparison.evaluate(j, keys[j], thresholds) for j in range(servers)]
    assert np.array_equal(opened(shares), alphas[:, None] <= thresholds)


@pytest.mark.parametrize("servers", [2, 3, 4])
def test_the_full_domain_counts(servers: int) -> None:
    comparison = Comparison(9, Z64, servers)
    alphas = np.random.default_rng(3).integers(0, 512, 300, dtype=np.uint64)
    keys = comparison.gen(alphas, randomness(comparison, len(alphas)))
    counts = opened([comparison.full_domain_sum(j, keys[j]) for j in range(servers)])
    assert np.array_equal(counts, np.cumsum(np.bincount(alphas.astype(int), minlength=512)))


@pytest.mark.parametrize("servers", [2, 3])
def test_intervals_whole(servers: int) -> None:
    comparison = Comparison(4, Z32, servers)
    domain = np.arange(16, dtype=np.uint64)
    lefts, rights = (ends.ravel() for ends in np.meshgrid(domain, domain))
    lefts, rights = lefts[lefts <= rights], rights[lefts <= rights]
    keys = comparison.gen(domain, randomness(comparison, 16))
    truth = (lefts <= domain[:, None]) & (domain[:, None] <= rights)
    shares = [interval_evaluate(comparison, j, keys[j], lefts, rights) for j in range(servers)]
    assert np.array_equal(opened(shares), truth)
    sums = [interval_sum(comparison, j, keys[j], lefts, rights) for j in range(servers)]
    assert np.array_equal(opened(sums), rights - lefts + 1)
    with pytest.raises(ValueError, match="left end"):
        interval_sum(comparison, 0, keys[0], [5], [4])
    with pytest.raises(ValueError, match="match"):
        interval_sum(comparison, 0, keys[0], [5], [6, 7])


def test_sizes_that_have_no_construction_are_refused() -> None:
    for bits, servers in [(0, 2), (65, 2), (0, 3), (33, 3), (21, 4), (8, 1), (8, 256)]:
        with pytest.raises(ValueError, match=r"\d"):
            Comparison(bits, Z64, servers)
    with pytest.raises(ValueError, match="32 or 64"):
        Ring(16)


@pytest.mark.parametrize(("bits", "servers"), [(8, 2), (8, 3), (SQUARE_ROOT_BITS, 3), (8, 4)])
def test_malformed_keys_are_refused(bits: int, servers: int) -> None:
    comparison = Comparison(bits, Z64, servers)
    keys = comparison.gen([1, 2], randomness(comparison, 2))
    for server in range(servers):
        bad: Any
        for bad in (keys[server][:, :-1], keys[server][0], keys[server].astype(np.int64)):
            with pytest.raises(ValueError, match="keys"):
                comparison.validate(server, bad)
            with pytest.raises(ValueError, match="keys"):
                comparison.evaluate_sum(server, bad, [0])
    with pytest.raises(ValueError, match="servers 0 to"):
        comparison.validate(servers, keys[0])


def test_a_root_with_control_bits_is_not_canonical() -> None:
    comparison = Comparison(8, Z64)
    keys = comparison.gen([1, 2, 3], randomness(comparison, 3))
    keys[0][1, 0] |= 2
    assert comparison.validate(0, keys[0]).tolist() == [True, False, True]
