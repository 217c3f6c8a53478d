"""Native and twin agree bit for bit, and the native module refuses what does not fit."""

import numpy as np
import pytest

from tallyroom.fss import native, tree
from tallyroom.fss.hash import TREE_KEYS
from tallyroom.fss.ring import Z32, Z64, Bytes, Points, Ring
from tallyroom.fss.shape import TreeShape
from tallyroom.fss.storage import level_major

needs_native = pytest.mark.skipif(
    native.compiled is None or native.compiled.best() == 0, reason="no native module here"
)

SHAPES = [
    TreeShape(bits, ring, step)
    for bits in (1, 2, 3, 4, 5, 8, 17, 32, 63, 64)
    for ring in (Z32, Z64)
    for step in (False, True)
]


def inputs(shape: TreeShape, count: int) -> tuple[Points, Bytes, Points]:
    generator = np.random.default_rng(shape.bits)
    top = (1 << shape.bits) - 1
    alphas = generator.integers(0, top, count, dtype=np.uint64, endpoint=True)
    randomness = generator.integers(0, 256, (count, 32), dtype=np.uint8)
    points = generator.integers(0, top, 40, dtype=np.uint64, endpoint=True)
    return alphas, randomness, np.concatenate([points, points[:3], points[:1] * 0])


@needs_native
@pytest.mark.parametrize("count", [1, 2, 7, 16, 64, 131])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_implementation_gives_the_same_bytes(
    shape: TreeShape, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    alphas, randomness, points = inputs(shape, count)
    results = []
    for code in (None, *range(native.AES_NI, native.compiled.best() + 1)):
        monkeypatch.setattr(native, "instruction_set", lambda code=code: code)
        keys = tree.gen(shape, alphas, randomness)
        found = [keys[0], keys[1]]
        for server in (0, 1):
            segment = level_major(shape, keys[server])
            for form in (keys[server], segment):
                found.append(tree.evaluate(shape, server, form, points).view(np.uint8))
                found.append(tree.evaluate_sum(shape, server, form, points).view(np.uint8))
        results.append(found)
    for other in results[1:]:
        for ours, theirs in zip(results[0], other, strict=True):
            assert np.array_equal(ours, theirs)


@needs_native
def test_arbitrary_bytes_are_evaluated_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hostile key moves no read: whatever its bytes, every implementation gives one answer."""
    shape = TreeShape(20, Z64, True)
    generator = np.random.default_rng(1)
    rows = generator.integers(0, 256, (70, shape.key_bytes), dtype=np.uint8)
    answers = []
    for code in (None, *range(native.AES_NI, native.compiled.best() + 1)):
        monkeypatch.setattr(native, "instruction_set", lambda code=code: code)
        answers.append(tree.evaluate(shape, 1, rows, [0, 1, 77, (1 << 20) - 1]))
    assert all(np.array_equal(answers[0], answer) for answer in answers)


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_threads_do_not_change_the_answer(threads: int) -> None:
    shape = TreeShape(16, Z64, True)
    alphas, randomness, points = inputs(shape, 5000)
    one, many = (tree.gen(shape, alphas, randomness, t)[0] for t in (1, threads))
    assert np.array_equal(one, many)
    expected = tree.evaluate_sum(shape, 0, one, points, 1)
    assert np.array_equal(tree.evaluate_sum(shape, 0, one, points, threads), expected)
    matrix = tree.evaluate(shape, 0, one, points, threads)
    assert np.array_equal(matrix.sum(axis=0, dtype=np.uint64), expected)


def test_the_environment_forces_the_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLYROOM_NATIVE", "0")
    assert native.implementation() == "pure"
    monkeypatch.delenv("TALLYROOM_NATIVE")
    assert native.implementation() in {"pure", *native.NAMES.values()}


@needs_native
@pytest.mark.parametrize("ring", [Z32, Z64])
def test_buffers_that_do_not_fit_are_refused(ring: Ring) -> None:
    shape = TreeShape(8, ring, True)
    good = (8, shape.terminal_bits, shape.words, ring.bytes, 1)
    rows = np.zeros((3, shape.key_bytes), dtype=np.uint8)
    points, out = np.array([1, 5], dtype=np.uint64), np.zeros(2, dtype=np.uint64)
    call = native.compiled.tree_sum
    call(native.AES_NI, good, TREE_KEYS, 0, rows, False, 0, 3, points, out)
    flat = rows.reshape(-1)
    wrong = [
        (9, good, TREE_KEYS, 0, rows, False, 0, 3, points, out),
        (1, (0, 1, 1, 8, 1), TREE_KEYS, 0, rows, False, 0, 3, points, out),
        (1, (65, 3, 7, 8, 1), TREE_KEYS, 0, rows, False, 0, 3, points, out),
        (1, (8, 3, 9, 8, 1), TREE_KEYS, 0, rows, False, 0, 3, points, out),
        (1, (8, 5, 16, 4, 1), TREE_KEYS, 0, rows, False, 0, 3, points, out),
        (1, good, TREE_KEYS[:-1], 0, rows, False, 0, 3, points, out),
        (1, good, TREE_KEYS, 2, rows, False, 0, 3, points, out),
        (1, good, TREE_KEYS, 0, flat[:-1], False, 0, 2, points, out),
        (1, good, TREE_KEYS, 0, rows, False, 0, 4, points, out),
        (1, good, TREE_KEYS, 0, rows, True, -1, 3, points, out),
        (1, good, TREE_KEYS, 0, rows, True, 2, 1, points, out),
        (1, good, TREE_KEYS, 0, rows, False, 0, 3, points[::-1].copy(), out),
        (1, good, TREE_KEYS, 0, rows, False, 0, 3, points + np.uint64(256), out),
        (1, good, TREE_KEYS, 0, rows, False, 0, 3, points, out[:1]),
    ]
    for arguments in wrong:
        with pytest.raises(ValueError, match=r"\w"):
            call(*arguments)
    with pytest.raises(ValueError, match="fit"):
        native.compiled.tree_matrix(1, good, TREE_KEYS, 0, rows, False, 0, 3, points, out)
    with pytest.raises(ValueError, match="fit"):
        native.compiled.tree_gen(1, good, TREE_KEYS, points, rows, rows, rows)
    with pytest.raises(ValueError, match="fit"):
        native.compiled.expand_seeds(1, np.zeros((2, 16), dtype=np.uint8), 3, out)


@needs_native
@pytest.mark.parametrize("ring", [Z32, Z64])
def test_coarse_grids_read_as_much_of_a_key_as_they_need(
    ring: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every depth down to the leaves, with holes and without; keys as rows, of which only the
    top is copied."""
    for bits in (5, 9):
        shape = TreeShape(bits, ring, step=True)
        alphas, randomness, _ = inputs(shape, 70)
        rows, _ = tree.gen(shape, alphas, randomness)
        for depth in range(bits + 1):
            points = (
                np.arange(1, (1 << depth) + 1, dtype=np.uint64) << np.uint64(bits - depth)
            ) - np.uint64(1)
            holes = points[np.random.default_rng(depth).random(len(points)) < 0.6]
            for grid in (points, holes):
                found = []
                for code in (None, *range(native.AES_NI, native.compiled.best() + 1)):
                    monkeypatch.setattr(native, "instruction_set", lambda code=code: code)
                    found.append(tree.evaluate_sum(shape, 0, rows, grid).tolist())
                assert all(other == found[0] for other in found)


@needs_native
@pytest.mark.parametrize("count", [1, 64, 131])
@pytest.mark.parametrize("ring", [Z32, Z64])
def test_rows_beside_a_header_are_read_where_they_are(
    ring: Ring, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Submissions begin with a header: the keys in them are columns of a wider table. Rows that run
    backwards, overlap or are not whole are nothing that a kernel may be pointed at."""
    shape = TreeShape(12, ring, True)
    alphas, randomness, _ = inputs(shape, count)
    points = np.array([0, 255, 511, 512, 1023, 4095], dtype=np.uint64)
    rows = tree.gen(shape, alphas, randomness)[1]
    table = np.full((2 * count, shape.key_bytes + 8), 0xAB, dtype=np.uint8)
    table[::2, 8:] = rows
    submitted = np.ascontiguousarray(table[::2])
    forms = [submitted[:, 8:], table[::2, 8:], np.asfortranarray(rows), rows[::-1][::-1]]
    monkeypatch.setattr(native, "instruction_set", lambda: None)
    expected = tree.evaluate(shape, 1, rows, points)
    for code in range(native.AES_NI, native.compiled.best() + 1):
        monkeypatch.setattr(native, "instruction_set", lambda code=code: code)
        for form in forms:
            assert np.array_equal(tree.evaluate(shape, 1, form, points), expected)
            found = tree.evaluate_sum(shape, 1, form, points)
            assert np.array_equal(found, shape.ring.reduce(expected.sum(axis=0, dtype=np.uint64)))
        backwards = tree.evaluate(shape, 1, rows[::-1], points)
        assert np.array_equal(backwards, expected[::-1])
    good = (12, shape.terminal_bits, shape.words, ring.bytes, 1)
    out = np.zeros(len(points), dtype=np.uint64)
    overlapping = np.lib.stride_tricks.as_strided(submitted, (2, shape.key_bytes), (1, 1))
    for wrong in (np.zeros((2, shape.key_bytes), np.uint8)[::-1], overlapping, submitted):
        with pytest.raises(ValueError, match="no keys that fit"):
            native.compiled.tree_sum(1, good, TREE_KEYS, 0, wrong, False, 0, 1, points, out)
