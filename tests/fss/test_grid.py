"""Grid keys: right shares, equal prints of honest keys, other prints of every forgery."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import chi2

from tallyroom.fss import native
from tallyroom.fss.grid import LOW_BITS, GridKeys
from tallyroom.fss.hash import hash_blocks
from tallyroom.fss.ring import Bytes, Points
from tallyroom.fss.verified import CHALLENGE_BYTES
from tests.fss.forged_keys import Pair, as_blocks

CHALLENGE = bytes(range(CHALLENGE_BYTES))
KEYS = GridKeys(6, b"run")
LEVELS = KEYS.levels
PROOFS, WORDS, LOW = LEVELS + 1, LEVELS + 3, KEYS.low_block
EVERY = np.arange(64, dtype=np.uint64)
needs_native = pytest.mark.skipif(
    native.compiled is None or native.compiled.best() == 0, reason="no native module here"
)


def randomness(count: int, seed: int = 1) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, (count, 64), dtype=np.uint8)


def some_points(bits: int, count: int, seed: int = 2) -> Points:
    return np.random.default_rng(seed).integers(0, 1 << bits, count, dtype=np.uint64)


def both(keys: GridKeys, pair: Pair, points: Points) -> tuple[Points, Points, Points]:
    """What the shares open to, and both servers' prints."""
    evaluate = keys.at(points, CHALLENGE)
    (shares0, prints0), (shares1, prints1) = (evaluate(i, pair[i]) for i in (0, 1))
    return shares0 + shares1, prints0, prints1


def caught(pair: Pair) -> list[bool]:
    _, prints0, prints1 = both(KEYS, pair, EVERY)
    different: list[bool] = (prints0 != prints1).any(axis=1).tolist()
    return different


# --- honest keys ---


@pytest.mark.parametrize("bits", [5, 6])
def test_every_value_at_every_threshold(bits: int, implementation: str) -> None:
    keys, domain = GridKeys(bits, b"run"), np.arange(1 << bits, dtype=np.uint64)
    pair = keys.gen(domain, randomness(len(domain)))
    for alpha in range(1 << bits):
        one = pair[0][alpha : alpha + 1], pair[1][alpha : alpha + 1]
        counts, prints0, prints1 = both(keys, one, domain)
        assert counts.tolist() == (alpha <= domain).astype(int).tolist()
        assert np.array_equal(prints0, prints1)


@needs_native
@pytest.mark.parametrize("count", [1, 2, 3, 64, 131])
@pytest.mark.parametrize("bits", [5, 7, 10])
def test_every_implementation_gives_the_same_bytes(
    bits: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, alphas, points = GridKeys(bits, b"run"), some_points(bits, count), some_points(bits, 9, 3)
    found: list[tuple[Bytes | Points, ...]] = []
    for code in (None, *range(native.AES_NI, native.compiled.best() + 1)):
        monkeypatch.setattr(native, "instruction_set", lambda code=code: code)
        pair = keys.gen(alphas, randomness(count))
        counts, prints0, prints1 = both(keys, pair, points)
        assert counts.tolist() == [int((alphas <= point).sum()) for point in points]
        assert np.array_equal(prints0, prints1)
        found.append((*pair, keys.at(points, CHALLENGE)(1, pair[1])[0], prints0))
    for other in found[1:]:
        assert all(np.array_equal(ours, its) for ours, its in zip(found[0], other, strict=True))


@needs_native
def test_hostile_bytes_are_evaluated_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(4).integers(0, 256, (70, KEYS.key_bytes), dtype=np.uint8)
    found = []
    for code in (None, *range(native.AES_NI, native.compiled.best() + 1)):
        monkeypatch.setattr(native, "instruction_set", lambda code=code: code)
        found.append([part.tolist() for part in KEYS.at(EVERY, CHALLENGE)(1, rows)])
    assert all(other == found[0] for other in found)


def test_none_of_ten_thousand_honest_keys_is_refused() -> None:
    keys, alphas = GridKeys(10, b"run"), some_points(10, 10_000)
    points = np.arange(1 << 10, dtype=np.uint64)
    counts, prints0, prints1 = both(keys, keys.gen(alphas, randomness(10_000)), points)
    assert np.array_equal(prints0, prints1)
    assert np.array_equal(counts, np.cumsum(np.bincount(alphas.astype(int), minlength=1 << 10)))


def test_sizes() -> None:
    for bits in range(6, 25):
        assert GridKeys(bits, b"").key_bytes == 16 * (bits + 12) <= 48 * bits
    for bits in (4, 25):
        with pytest.raises(ValueError, match="5 to 24 bits"):
            GridKeys(bits, b"")


# --- forgeries: row 0 is left as it is ---


def forge(change: Callable[[Points, Points], None]) -> Pair:
    pair = KEYS.gen(some_points(6, 40), randomness(40))
    change(as_blocks(pair[0])[1:], as_blocks(pair[1])[1:])
    return pair


def at_both(change: Callable[[Points], None]) -> Callable[[Points, Points], None]:
    def both_of(*rows: Points) -> None:
        for blocks in rows:
            change(blocks)

    return both_of


def weights(more: int) -> Callable[[Points, Points], None]:
    """One word more at every leaf of the path's node: 1 ± more at α, and ± more elsewhere."""

    def change(blocks: Points) -> None:
        blocks[:, WORDS : WORDS + 4] += np.uint64(more % 2**64)

    return at_both(change)


def weight_at_alpha(weight: int) -> Callable[[Points, Points], None]:
    """A key that counts `weight` at α and nothing elsewhere, the low part being honest."""
    alphas = some_points(6, 40)[1:]

    def change(*rows: Points) -> None:
        signs = path_signs(rows[0], rows[1], alphas)
        for blocks in rows:
            words = blocks[:, WORDS : WORDS + 4].reshape(len(blocks), 8)
            index = (np.arange(len(blocks)), (alphas & np.uint64(7)).astype(int))
            words[index] += signs * np.uint64((weight - 1) % 2**64)
            blocks[:, WORDS : WORDS + 4] = words.reshape(-1, 4, 2)

    return change


def moved_words(*rows: Points) -> None:
    """The step in another leaf of the same node than in the low part."""
    alphas = some_points(6, 40)[1:]
    signs = path_signs(rows[0], rows[1], alphas)
    leaf = (alphas & np.uint64(7)).astype(int)
    for blocks in rows:
        words = blocks[:, WORDS : WORDS + 4].reshape(len(blocks), 8)
        words[np.arange(len(blocks)), leaf] -= signs
        words[np.arange(len(blocks)), (leaf + 1) % 8] += signs
        blocks[:, WORDS : WORDS + 4] = words.reshape(-1, 4, 2)


def path_signs(rows0: Points, rows1: Points, alphas: Points) -> Points:
    """1 where server 0 holds the control bit at the last node of the path, and else −1."""
    states = [rows0[:, 0].copy(), rows1[:, 0].copy()]
    for level in range(1, LEVELS + 1):
        right = ((alphas >> np.uint64(KEYS.bits - level)) & np.uint64(1))[:, None]
        for server, blocks in enumerate((rows0, rows1)):
            state = states[server]
            hashed = hash_blocks(KEYS.hash_keys[:16], state)
            left = hashed ^ (state[:, :1] & np.uint64(1)) * blocks[:, level]
            states[server] = left ^ right * state
    signs: Points = np.where(states[0][:, 0] & np.uint64(1), 1, -1).astype(np.int64).view(np.uint64)
    return signs


def random_blocks(first: int, last: int) -> Callable[[Points, Points], None]:
    def change(*rows: Points) -> None:
        drawn = np.random.default_rng(5).integers(
            0, 2**64, rows[0][:, first:last].shape, dtype=np.uint64
        )
        for blocks in rows:
            blocks[:, first:last] = drawn

    return change


def of_another_key(first: int, last: int) -> Callable[[Points, Points], None]:
    """These blocks of each key from the key before it."""

    def change(blocks: Points) -> None:
        blocks[:, first:last] = np.roll(blocks[:, first:last], 1, axis=0)

    return at_both(change)


def one_server_only(*rows: Points) -> None:
    """A whole other key, with a step of its own, at server 1."""
    rows[1][:] = as_blocks(KEYS.gen(some_points(6, 39, 8), randomness(39, 9))[1])


def another_root(*rows: Points) -> None:
    rows[1][:, 0, 1] ^= np.uint64(1)


FORGERIES: dict[str, Callable[[Points, Points], None]] = {
    **{f"more {more}": weights(more) for more in (1, -1, 1 << 63, 1000)},
    **{f"weight {weight}": weight_at_alpha(weight) for weight in (2, 0, -1, 1000, 1 + (1 << 63))},
    "a step that the low part has elsewhere": moved_words,
    "random corrections": random_blocks(1, LOW),
    "random states": random_blocks(1, LEVELS + 1),
    "random proofs": random_blocks(PROOFS, WORDS),
    "random words": random_blocks(WORDS, LOW),
    "proofs of another key": of_another_key(PROOFS, WORDS),
    "low part of another key": of_another_key(LOW, LOW + 8),
    "long part of another key": of_another_key(0, LOW),
    "a step at one server": one_server_only,
    "another root": another_root,
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_caught_and_an_honest_key_beside_it_is_not(
    name: str, implementation: str
) -> None:
    found = caught(forge(FORGERIES[name]))
    assert not found[0]
    expected = np.ones(39, dtype=bool)
    if "part of another key" in name:  # which is the right one where the low bits are the same
        low = some_points(6, 40)[1:] & np.uint64(7)
        expected = low != np.roll(low, 1)
        assert expected.sum() > 20
    assert found[1:] == expected.tolist()


@pytest.mark.parametrize("weight", [2, 0, -1])
def test_these_weights_are_what_an_unchecked_count_would_have(weight: int) -> None:
    counts, _, _ = both(KEYS, forge(weight_at_alpha(weight)), np.array([63], dtype=np.uint64))
    assert counts.tolist() == [(1 + 39 * weight) % 2**64]


@pytest.mark.parametrize("servers", [(0,), (1,), (0, 1)])
def test_every_changed_block_is_caught(servers: tuple[int, ...]) -> None:
    """One bit of each; where both servers hold it, some key has a control bit to show it."""
    for block in range(1, KEYS.key_bytes // 16):
        if block == LOW and servers == (0, 1):
            continue  # the low part's roots: both changed alike is another honest offset, or none

        def change(*rows: Points, block: int = block) -> None:
            for server in servers:
                rows[server][:, block, 1] ^= np.uint64(1 << 17)

        found = caught(forge(change))
        assert not found[0]
        unused = block in (LOW + 3, LOW + 4) and servers == (0, 1)  # proofs above the low leaves
        assert any(found[1:]) != unused
        if len(servers) == 1:
            assert all(found[1:])


def test_two_nodes_with_right_words_are_caught_by_their_proofs() -> None:
    """A wrong last correction makes both children of the path's last node but one differ: a key
    that has two places to count at."""

    def change(blocks: Points) -> None:
        blocks[:, LEVELS] ^= np.uint64(6)

    assert caught(forge(at_both(change))) == [False] + [True] * 39


def test_a_key_of_another_run_is_caught(implementation: str) -> None:
    pair = GridKeys(6, b"another run").gen(some_points(6, 40), randomness(40))
    assert all(caught(pair))


def test_only_roots_with_the_servers_bit_are_canonical() -> None:
    pair = KEYS.gen(some_points(6, 5), randomness(5))
    for server in (0, 1):
        assert KEYS.validate(server, pair[server]).all()
        for root in (0, 16 * LOW):
            changed = pair[server].copy()
            changed[:, root] ^= 1
            assert not KEYS.validate(server, changed).any()


@needs_native
def test_buffers_that_do_not_fit_are_refused() -> None:
    rows = KEYS.gen(some_points(6, 3), randomness(3))[0]
    visit = KEYS.visit(EVERY, CHALLENGE)
    sums, prints = np.zeros(64, dtype=np.uint64), np.zeros((3, 3), dtype=np.uint64)
    first, weights = visit.correction_weights, visit.weights
    code = native.instruction_set()
    assert code is not None
    call = native.compiled.grid_sum
    keys = KEYS.hash_keys
    call(code, 6, keys, rows, first, weights, sums, prints)
    for wrong in (
        (rows.reshape(-1)[1:], first, weights, sums, prints),
        (rows, first[1:], weights, sums, prints),
        (rows, first, weights[1:], sums, prints),
        (rows, first, weights, sums[1:], prints),
        (rows, first, weights, sums, prints[1:]),
    ):
        with pytest.raises(ValueError, match="do not fit"):
            call(code, 6, keys, *wrong)
    with pytest.raises(ValueError, match="no such grid keys"):
        call(code, 4, keys, rows, first, weights, sums, prints)


@pytest.mark.parametrize("alpha", [0, 0x15, 0x3F])
@pytest.mark.parametrize("server", [0, 1])
def test_a_key_looks_uniform(server: int, alpha: int) -> None:
    """Chi-squared over bytes, six tests at 10^-8 each; LOW_BITS tells the roots' fixed bits."""
    assert LOW_BITS == 3
    alphas = np.full(3000, alpha, dtype=np.uint64)
    rows = KEYS.gen(alphas, randomness(3000, alpha + server))[server]
    data = np.delete(rows, [0, 16 * LOW], axis=1)
    counts = np.bincount(data.reshape(-1), minlength=256)
    expected = data.size / 256
    assert chi2.sf(((counts - expected) ** 2 / expected).sum(), 255) > 1e-8
