"""Verified keys: right shares, equal prints of honest keys, other prints of every forgery."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chi2

from tallyroom.fss import native, verified_nodes
from tallyroom.fss.ring import Bytes, Points
from tallyroom.fss.verified import CHALLENGE_BYTES, Verified, Visit
from tallyroom.fss.verified_nodes import NodeKind, visited
from tallyroom.fss.verified_twin import carryless
from tests.fss.forged_keys import Pair, as_blocks, stepping_thrice, weighted

CHALLENGE = bytes(range(CHALLENGE_BYTES))
needs_native = pytest.mark.skipif(
    native.compiled is None or native.compiled.best() == 0, reason="no native module here"
)


def randomness(count: int, seed: int = 1) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, (count, 32), dtype=np.uint8)


def some_points(bits: int, count: int, seed: int = 2) -> Points:
    generator = np.random.default_rng(seed)
    return generator.integers(0, (1 << bits) - 1, count, dtype=np.uint64, endpoint=True)


def both(keys: Verified, pair: Pair, visit: Visit) -> tuple[Points, Points, Points]:
    """What the shares open to, and both servers' prints."""
    (shares0, prints0), (shares1, prints1) = (
        keys.evaluate_sum(server, pair[server], visit) for server in (0, 1)
    )
    return shares0 + shares1, prints0, prints1


def caught(keys: Verified, pair: Pair, points: Points) -> np.typing.NDArray[np.bool]:
    _, prints0, prints1 = both(keys, pair, keys.visit(points, CHALLENGE))
    different: np.typing.NDArray[np.bool] = (prints0 != prints1).any(axis=1)
    return different


# --- honest keys ---


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_every_value_at_many_sets_of_thresholds(bits: int, implementation: str) -> None:
    keys, domain = Verified(bits, b"run"), np.arange(1 << bits, dtype=np.uint64)
    pair = keys.gen(domain, randomness(len(domain)))
    chosen = range(1, 1 << (1 << bits), {2: 1, 3: 3, 4: 2999}[bits])
    for subset in chosen:
        points = domain[(subset >> domain.astype(int)) & 1 == 1]
        counts, prints0, prints1 = both(keys, pair, keys.visit(points, CHALLENGE))
        assert counts.tolist() == (points + 1).tolist()
        assert np.array_equal(prints0, prints1)


@needs_native
@pytest.mark.parametrize("count", [1, 2, 16, 131])
@pytest.mark.parametrize("bits", [2, 3, 5, 17, 32, 64])
def test_every_implementation_gives_the_same_bytes(
    bits: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, alphas, points = Verified(bits, b"run"), some_points(bits, count), some_points(bits, 5, 3)
    points = np.concatenate([points, points[:1]])  # in no order, and one twice
    found: list[tuple[Bytes | Points, ...]] = []
    for code in (None, *range(native.AES_NI, native.compiled.best() + 1)):
        monkeypatch.setattr(native, "instruction_set", lambda code=code: code)
        pair = keys.gen(alphas, randomness(count))
        counts, prints0, prints1 = both(keys, pair, keys.visit(points, CHALLENGE))
        assert counts.tolist() == [int((alphas <= point).sum()) for point in points]
        assert np.array_equal(prints0, prints1)
        shares, _ = keys.evaluate_sum(1, pair[1], keys.visit(points, CHALLENGE))
        found.append((*pair, shares, prints0))
    for other in found[1:]:
        assert all(np.array_equal(ours, its) for ours, its in zip(found[0], other, strict=True))


@needs_native
def test_none_of_ten_thousand_honest_keys_is_refused() -> None:
    keys, alphas = Verified(10, b"run"), some_points(10, 10_000)
    points = np.arange(1, 1 << 10, 7, dtype=np.uint64)
    pair = keys.gen(alphas, randomness(len(alphas)))
    counts, prints0, prints1 = both(keys, pair, keys.visit(points, CHALLENGE))
    assert np.array_equal(prints0, prints1)
    assert np.array_equal(counts, (alphas[:, None] <= points).sum(axis=0))


def test_keys_take_at_most_48_bytes_a_level() -> None:
    for bits in range(2, 65):
        assert Verified(bits, b"").key_bytes == 48 * bits - 16
    for bits in (1, 65):
        with pytest.raises(ValueError, match="2 to 64 bits"):
            Verified(bits, b"")


def test_products_are_those_of_polynomials() -> None:
    """Against Python's integers, one bit after the other."""
    words = some_points(64, 20).reshape(10, 2)
    for seed in range(5):
        weights = np.array([(1 << 63) + seed, *some_points(64, 1, seed)], dtype=np.uint64)
        for row, (low, high) in zip(words.tolist(), carryless(words, weights), strict=True):
            total = 0
            for word, weight in zip(row, weights.tolist(), strict=True):
                for bit in range(64):
                    total ^= (word << bit) * (weight >> bit & 1)
            assert total == int(low) | int(high) << 64


# --- which nodes are compared ---


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_leaves_tile_the_domain_and_end_at_every_threshold(bits: int) -> None:
    for subset in range(1, 1 << (1 << bits), 1 if bits < 4 else 251):
        points = np.flatnonzero([(subset >> i) & 1 for i in range(1 << bits)]).astype(np.uint64)
        nodes = visited(points, bits)
        leaf = nodes.kinds == NodeKind.LEAF
        sizes = 1 << (bits - nodes.levels[leaf].astype(int))
        starts = nodes.prefixes[leaf].astype(int) * sizes
        assert starts.tolist() == [0, *np.cumsum(sizes)[:-1].tolist()]
        assert sizes.sum() == 1 << bits
        assert (starts + sizes - 1)[nodes.ends.astype(int)].tolist() == points.tolist()
        with_leaves = set(nodes.levels[leaf].tolist())
        assert min(with_leaves) >= 2
        for kind, level in zip(nodes.kinds.tolist(), nodes.levels.tolist(), strict=True):
            assert (kind != NodeKind.INNER) == (level in with_leaves)


# --- forgeries ---

GRID = np.arange(3, 64, 4, dtype=np.uint64)
BATCHES = [GRID, np.array([17], dtype=np.uint64), np.array([5, 6, 40], dtype=np.uint64)]


def forge(change: Callable[[Points, Points], None]) -> Pair:
    """Some keys of 6 bits, changed; row 0 is left as it is."""
    pair = Verified(6, b"run").gen(some_points(6, 40), randomness(40))
    change(as_blocks(pair[0])[1:], as_blocks(pair[1])[1:])
    return pair


def flip(block: int, half: int, bit: int, servers: tuple[int, ...]) -> Callable[..., None]:
    def change(*rows: Points) -> None:
        for server in servers:
            rows[server][:, block, half] ^= np.uint64(1 << bit)

    return change


def random_corrections(*rows: Points) -> None:
    rows[0][:, 1:] = np.random.default_rng(5).integers(0, 2**64, rows[0][:, 1:].shape, np.uint64)
    rows[1][:, 1:] = rows[0][:, 1:]


def random_roots(*rows: Points) -> None:
    rows[1][:, 0] = np.random.default_rng(5).integers(0, 2**64, rows[1][:, 0].shape, np.uint64)


def proofs_of_others(*rows: Points) -> None:
    for blocks in rows:
        for level in range(2, 7):
            at = verified_nodes.state_block(level)
            blocks[:, at + 1, 1] = np.roll(blocks[:, at + 1, 1], 1)
            blocks[:, at + 2] = np.roll(blocks[:, at + 2], 1, axis=0)


def one_server_only(*rows: Points) -> None:
    """A whole other key, with a step of its own, at server 1."""
    other = Verified(6, b"run").gen(some_points(6, 39, 8), randomness(39, 9))[1]
    rows[1][:] = as_blocks(other)


@pytest.mark.parametrize("points", BATCHES, ids=len)
@pytest.mark.parametrize(
    "change", [random_corrections, random_roots, proofs_of_others, one_server_only]
)
def test_a_forgery_is_caught_and_an_honest_key_beside_it_is_not(
    change: Callable[[Points, Points], None], points: Points, implementation: str
) -> None:
    assert caught(Verified(6, b"run"), forge(change), points).tolist() == [False] + [True] * 39


@pytest.mark.parametrize("servers", [(0,), (1,), (0, 1)])
def test_every_single_changed_bit_of_a_correction_is_caught(servers: tuple[int, ...]) -> None:
    """Of those that are used: at the finest thresholds, all. Where both servers hold the same wrong
    correction, it shows only at visited nodes with a control bit: some key has one everywhere."""
    keys, every = Verified(6, b"run"), np.arange(64, dtype=np.uint64)
    compared = [1, *(verified_nodes.state_block(level) for level in range(2, 7)), 15, 16]
    for block in compared:
        for half, bit in ((0, 0), (0, 63), (1, 0), (1, 63)):
            pair = forge(flip(block, half, bit, servers))
            assert caught(keys, pair, every).tolist() == [False] + [True] * 39


@pytest.mark.parametrize("more", [1, 2, -1, -2, 1 << 63, 1000])
def test_another_weight_is_caught(more: int, implementation: str) -> None:
    """One more is 2 or 0, two more are 3 or −1; 2^63 is what a sketch over Z_2^64 would miss."""
    keys = Verified(6, b"run")
    pair = weighted(keys, keys.gen(some_points(6, 40), randomness(40)), more)
    for points in BATCHES:
        assert caught(keys, pair, points).all()
    last = np.array([63], dtype=np.uint64)
    weights = set()
    for key in range(40):
        one = pair[0][key : key + 1], pair[1][key : key + 1]
        weights.add(int(both(keys, one, keys.visit(last, CHALLENGE))[0][0]))
    assert weights == {(1 + more) % 2**64, (1 - more) % 2**64}


def test_several_steps_at_several_levels_are_caught_by_what_is_compared_beside_them() -> None:
    """The strongest forgery we know. Leaves alone would pass; the node beside one does not."""
    keys = Verified(4, b"run")
    points = np.array([3, 5, 6], dtype=np.uint64)  # leaves 00, 010, 0110, 0111, 10 and 11
    visit = keys.visit(points, CHALLENGE)
    beside = (visit.nodes.levels == 2) & (visit.nodes.kinds == NodeKind.CHECKED)
    assert visit.nodes.prefixes[beside].tolist() == [1]
    for seed in range(10):
        pair = stepping_thrice(keys, seed)
        counts, prints0, prints1 = both(keys, pair, blind_to_inner_nodes(visit))
        assert counts.tolist() == [2, 0, 1]
        assert np.array_equal(prints0, prints1)
        assert caught(keys, pair, points).all()


def blind_to_inner_nodes(visit: Visit) -> Visit:
    kinds = visit.nodes.kinds.copy()
    kinds[kinds == NodeKind.CHECKED] = NodeKind.INNER
    nodes = replace(visit.nodes, kinds=kinds)
    return replace(visit, nodes=nodes, weights=visit.weights[: 4 * nodes.checks])


def test_a_key_of_another_run_is_caught(implementation: str) -> None:
    pair = Verified(6, b"run").gen(some_points(6, 40), randomness(40))
    assert caught(Verified(6, b"another run"), pair, GRID).all()


def test_only_a_root_with_the_servers_bit_is_canonical() -> None:
    keys = Verified(6, b"run")
    pair = keys.gen(some_points(6, 5), randomness(5))
    for server in (0, 1):
        assert keys.validate(server, pair[server]).all()
        assert not keys.validate(1 - server, pair[server]).any()
    with pytest.raises(ValueError, match="must have shape"):
        keys.validate(0, pair[0][:, 1:])


# --- what the native loops refuse ---


@needs_native
@pytest.mark.parametrize(
    "kinds",
    [
        [],
        [2],
        [0, 2, 2],
        [0, 0, 2, 2, 0, 2],
        [0, 0, 2, 2, 0, 2, 2, 2],
        [0, 0, 2, 2, 0, 2, 3],
        [0, 1, 2, 2, 0, 2, 2],
        [0, 0, 2, 2, 0, 2, 0, 2, 2],
    ],
)
def test_nodes_that_are_no_tree_are_refused(kinds: list[int]) -> None:
    keys = Verified(2, b"run")
    rows = keys.gen(np.array([1]), randomness(1))[0]
    array = np.array(kinds, dtype=np.uint8)
    leaves, checks = int((array == 2).sum()), int((array != 0).sum())
    code = native.instruction_set()
    assert code is not None
    with pytest.raises(ValueError, match="do not fit"):
        native.compiled.verified_sum(
            code,
            2,
            keys.hash_keys,
            rows,
            5,
            array,
            np.zeros(10, dtype=np.uint64),
            np.zeros(4 * checks, dtype=np.uint64),
            np.zeros(leaves, dtype=np.uint64),
            np.zeros(3, dtype=np.uint64),
        )


# --- what one server sees ---


@pytest.mark.parametrize("alpha", [0, 0x15, 0x3F])
@pytest.mark.parametrize("server", [0, 1])
def test_a_key_its_shares_and_its_print_look_uniform(server: int, alpha: int) -> None:
    """Chi-squared over bytes, six tests at 10^-8 each."""
    keys, count = Verified(6, b"run"), 3000
    alphas = np.full(count, alpha, dtype=np.uint64)
    rows = keys.gen(alphas, randomness(count, alpha + server))[server]
    visit = keys.visit(np.array([alpha], dtype=np.uint64), CHALLENGE)
    prints = np.concatenate(
        [keys.evaluate_sum(server, rows[i : i + 1], visit)[1] for i in range(9)]
    )
    assert len(np.unique(prints[:, 0])) == 9
    _, prints = keys.evaluate_sum(server, rows, visit)
    # A product of two polynomials of degree 63 has degree 126: the top bit is never set.
    bits = np.unpackbits(np.ascontiguousarray(prints).view(np.uint8), axis=1, bitorder="little")
    assert not bits[:, 127].any()
    for data in (rows[:, 1:], prints[:, [0, 2]].copy().view(np.uint8)):
        counts = np.bincount(data.reshape(-1), minlength=256)
        expected = data.size / 256
        assert chi2.sf(((counts - expected) ** 2 / expected).sum(), 255) > 1e-8
