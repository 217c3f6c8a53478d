"""Gen and evaluation of two-server tree keys, on the implementation that `native` chooses.

Evaluation returns each server's plain word S_b; the function's value is S_0 − S_1. `dcf` and `dpf`
turn these words into additive shares of a comparison or a point function.
"""

import numpy as np
import numpy.typing as npt

from tallyroom.fss import native, twin
from tallyroom.fss.hash import TREE_KEYS
from tallyroom.fss.ring import Bytes, Points, Words, as_bytes, as_points
from tallyroom.fss.shape import CONTROL_MASK, SEED_BYTES, TreeShape
from tallyroom.fss.storage import KeyRows, Keys, Segment, blocks, parts

RANDOMNESS_BYTES = 2 * SEED_BYTES


def gen(
    shape: TreeShape, alphas: npt.ArrayLike, randomness: Bytes, threads: int | None = None
) -> tuple[Bytes, Bytes]:
    """Both servers' rows, each (K, key_bytes).

    `randomness` is (K, 32) uint8: uniform, secret, and never used again, because it determines both
    keys. Raises ValueError on a wrong shape or dtype, or on an α outside the domain.
    """
    alphas = as_points(alphas, shape.bits, "alphas")
    randomness = as_bytes(randomness, RANDOMNESS_BYTES, "randomness")
    if len(randomness) != len(alphas):
        raise ValueError(f"{len(alphas)} alphas need as many rows of randomness")
    code = native.instruction_set()
    if code is None:
        return twin.gen(shape, alphas, randomness)
    randomness = np.ascontiguousarray(randomness)
    # One allocation for both: the allocator keeps a single one for the next call, but returns two
    # to the system, and faulting their pages in again costs more than filling them.
    rows0, rows1 = np.empty((2, len(alphas), shape.key_bytes), dtype=np.uint8)

    def work(begin: int, end: int) -> None:
        native.compiled.tree_gen(
            code,
            _native_shape(shape),
            TREE_KEYS,
            alphas[begin:end],
            randomness[begin:end],
            rows0[begin:end],
            rows1[begin:end],
        )

    native.over_blocks(work, len(alphas), threads)
    return rows0, rows1


def validate(shape: TreeShape, rows: Bytes) -> npt.NDArray[np.bool_]:
    """Which rows are canonical: the root's two control bits must be clear.

    Every canonical row is a key of some function, possibly of one that counts twice; a server alone
    cannot tell. Raises ValueError if the rows are not as long as the shape's keys.
    """
    rows = as_bytes(rows, shape.key_bytes, "keys")
    canonical: npt.NDArray[np.bool_] = (rows[:, 0] & np.uint8(CONTROL_MASK)) == 0
    return canonical


def evaluate(
    shape: TreeShape, server: int, keys: Keys, points: npt.ArrayLike, threads: int | None = None
) -> Words:
    """(K, T) words, one for each key and point."""
    _check_server(server)
    points = as_points(points, shape.bits, "thresholds")
    pieces = parts(shape, keys)
    distinct, inverse = np.unique(points, return_inverse=True)
    matrix = np.empty((sum(piece.count for piece in pieces), len(distinct)), dtype=np.uint64)
    code = native.instruction_set()
    first = 0
    for piece in pieces:
        out = matrix[first : first + piece.count]
        first += piece.count
        if code is None:
            _twin_matrix(shape, server, piece, distinct, out)
        else:
            _native_matrix(code, shape, server, piece, distinct, out, threads)
    reduced = shape.ring.reduce(matrix)
    if len(distinct) == len(points) and np.array_equal(distinct, points):
        return reduced
    return np.ascontiguousarray(reduced[:, inverse])


def evaluate_sum(
    shape: TreeShape, server: int, keys: Keys, points: npt.ArrayLike, threads: int | None = None
) -> Words:
    """(T,) column sums of `evaluate`, over all keys, in memory that does not grow with K."""
    _check_server(server)
    points = as_points(points, shape.bits, "thresholds")
    pieces = parts(shape, keys)
    distinct, inverse = np.unique(points, return_inverse=True)
    total = np.zeros(len(distinct), dtype=np.uint64)
    code = native.instruction_set()
    for piece in pieces:
        if code is None:
            _twin_sum(shape, server, piece, distinct, total)
        else:
            total += _native_sum(code, shape, server, piece, distinct, threads)
    return shape.ring.reduce(total[inverse])


def count(shape: TreeShape, keys: Keys) -> int:
    """How many keys there are, as rows, a segment or a table."""
    return sum(piece.count for piece in parts(shape, keys))


def _check_server(server: int) -> None:
    if server not in (0, 1):
        raise ValueError(f"a two-server key belongs to server 0 or 1, not {server}")


def _tiles(points: Points) -> list[slice]:
    size = twin.BLOCK_NODES
    return [slice(begin, begin + size) for begin in range(0, len(points), size)]


def _twin_matrix(
    shape: TreeShape, server: int, piece: KeyRows | Segment, points: Points, out: Points
) -> None:
    for tile in _tiles(points):
        size = max(1, twin.BLOCK_NODES // len(points[tile]))
        for begin, end in blocks(piece, size):
            block = twin.evaluate_block(shape, server, piece, begin, end, points[tile])
            out[begin:end, tile] = block.T


def _twin_sum(
    shape: TreeShape, server: int, piece: KeyRows | Segment, points: Points, total: Points
) -> None:
    for tile in _tiles(points):
        size = max(1, twin.BLOCK_NODES // len(points[tile]))
        for begin, end in blocks(piece, size):
            block = twin.evaluate_block(shape, server, piece, begin, end, points[tile])
            total[tile] += block.sum(axis=1, dtype=np.uint64)


def _native_shape(shape: TreeShape) -> tuple[int, int, int, int, int]:
    return shape.bits, shape.terminal_bits, shape.words, shape.ring.bytes, int(shape.step)


def _native_data(piece: KeyRows | Segment) -> tuple[Bytes, bool]:
    if isinstance(piece, Segment):
        return piece.data, True
    # Rows are read in place, even next to a header: a copy would double the memory.
    row, byte = piece.rows.strides
    in_place = byte == 1 and row >= piece.shape.key_bytes
    return piece.rows if in_place else np.ascontiguousarray(piece.rows), False


def _native_matrix(
    code: int,
    shape: TreeShape,
    server: int,
    piece: KeyRows | Segment,
    points: Points,
    out: Points,
    threads: int | None,
) -> None:
    data, level_major = _native_data(piece)

    def work(begin: int, end: int) -> None:
        native.compiled.tree_matrix(
            code,
            _native_shape(shape),
            TREE_KEYS,
            server,
            data,
            level_major,
            begin,
            end,
            points,
            out[begin:end],
        )

    native.over_blocks(work, piece.count, threads)


def _native_sum(
    code: int,
    shape: TreeShape,
    server: int,
    piece: KeyRows | Segment,
    points: Points,
    threads: int | None,
) -> Points:
    data, level_major = _native_data(piece)

    def work(begin: int, end: int) -> Points:
        part = np.zeros(len(points), dtype=np.uint64)
        native.compiled.tree_sum(
            code,
            _native_shape(shape),
            TREE_KEYS,
            server,
            data,
            level_major,
            begin,
            end,
            points,
            part,
        )
        return part

    total = np.zeros(len(points), dtype=np.uint64)
    for part in native.over_blocks(work, piece.count, threads):
        total += part
    return total
