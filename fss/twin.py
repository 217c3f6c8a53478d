"""Tree keys in numpy and `cryptography`. The native loops must agree with them bit for bit.

Both servers' algorithms are deterministic functions of their arguments. Time depends on public
sizes and thresholds only, never on α or on a key's content.
"""

import numpy as np

from tallyroom.fss.hash import USAGE_LEFT, USAGE_RIGHT, USAGE_VALUE, hash_blocks
from tallyroom.fss.ring import Bytes, Points, Words
from tallyroom.fss.shape import CONTROL_MASK, SEED_BYTES, TreeShape
from tallyroom.fss.storage import KeyRows, Segment

# How many tree nodes are computed together: this bounds memory and fits the second-level cache.
BLOCK_NODES = 1 << 14

_SEED = np.array([~np.uint64(CONTROL_MASK), ~np.uint64(0)], dtype=np.uint64)
_ONE = np.uint64(1)


def gen(shape: TreeShape, alphas: Points, randomness: Bytes) -> tuple[Bytes, Bytes]:
    """Both servers' rows for functions with special points `alphas`."""
    rows0 = np.empty((len(alphas), shape.key_bytes), dtype=np.uint8)
    rows1 = np.empty_like(rows0)
    for begin in range(0, len(alphas), BLOCK_NODES):
        end = begin + BLOCK_NODES
        rows = rows0[begin:end]
        roots1 = _gen_block(shape, alphas[begin:end], randomness[begin:end], rows)
        rows1[begin:end] = rows
        rows1[begin:end, :SEED_BYTES] = roots1
    return rows0, rows1


def _gen_block(shape: TreeShape, alphas: Points, randomness: Bytes, rows: Bytes) -> Bytes:
    """Writes server 0's rows and returns server 1's root seeds; the rest of its rows is equal."""
    count = len(alphas)
    seeds = np.ascontiguousarray(randomness).view("<u8").reshape(count, 2, 2) & _SEED
    roots = seeds.view(np.uint8).reshape(count, 2, SEED_BYTES)
    rows[:, :SEED_BYTES] = roots[:, 0]
    control = np.tile(np.array([0, 1], dtype=np.uint64), (count, 1))
    for level in range(shape.levels):
        bit = (alphas >> np.uint64(shape.bits - 1 - level)) & _ONE
        start = shape.level_offset(level)
        if shape.step:
            value = hash_blocks(USAGE_VALUE, seeds)[..., 0]
            word = _correct_word(bit, value, control)
            _put(rows, start + SEED_BYTES, shape.ring.reduce(word), shape)
        left, right = hash_blocks(USAGE_LEFT, seeds), hash_blocks(USAGE_RIGHT, seeds)
        difference = left ^ right
        keep = left ^ (difference & -bit[:, None, None])
        lose = keep ^ difference
        # Off the path both servers' seeds and control bits become equal; on it, the kept
        # child's control bits become different. Bit 0 is the left child's, bit 1 the right's.
        correction: Points = np.bitwise_xor(lose[:, 0], lose[:, 1])
        kept_bit: Points = _ONE << bit
        correction[:, 0] &= ~kept_bit
        correction[:, 0] |= ~(keep[:, 0, 0] ^ keep[:, 1, 0]) & kept_bit
        _put(rows, start, correction.view(shape.ring.dtype), shape)
        keep ^= correction[:, None, :] * control[..., None]
        control = (keep[..., 0] >> bit[:, None]) & _ONE
        seeds = keep & _SEED
    last = alphas & np.uint64((1 << shape.terminal_bits) - 1)
    for word_index in range(shape.words):
        here = np.uint64(word_index)
        target = (here < last) if shape.step else (here == last)
        word = _correct_word(
            target.astype(np.uint64), _terminal_words(shape, seeds, word_index), control
        )
        offset = shape.words_offset + word_index * shape.ring.bytes
        _put(rows, offset, shape.ring.reduce(word), shape)
    return roots[:, 1]


def _correct_word(target: Points, values: Points, control: Points) -> Points:
    """W with values[0] − values[1] + (t₀ − t₁)·W = target."""
    word = target - values[:, 0] + values[:, 1]
    return np.where(control[:, 1].astype(bool), -word, word)


def _put(rows: Bytes, offset: int, words: Words, shape: TreeShape) -> None:
    """Writes ring words, one or more per row; every field starts at a multiple of a word."""
    start = offset // shape.ring.bytes
    columns = words.reshape(len(rows), -1)
    rows.view(shape.ring.dtype)[:, start : start + columns.shape[1]] = columns


def _terminal_words(shape: TreeShape, seeds: Points, word_index: int) -> Points:
    """One word of each terminal node, before correction; the caller drops the high bits."""
    block, position = divmod(word_index, SEED_BYTES // shape.ring.bytes)
    numbered = seeds | np.array([block, 0], dtype=np.uint64)
    half, shift = divmod(position * shape.ring.bits, 64)
    return hash_blocks(USAGE_VALUE, numbered)[..., half] >> np.uint64(shift)


def evaluate_block(
    shape: TreeShape, server: int, part: KeyRows | Segment, begin: int, end: int, points: Points
) -> Points:
    """(points, keys) words S_b at sorted distinct `points`; the caller reduces them to the ring.

    Goes breadth-first over the trie of the points' prefixes, so each prefix is computed once per
    key. A threshold that only turns right from some level on meets no more values: it is settled.
    """
    count = end - begin
    everything, waiting = np.empty((len(points), count), dtype=np.uint64), np.arange(len(points))
    root = part.field(0, SEED_BYTES, begin, end).view("<u8").reshape(1, count, 2)
    seeds = root & _SEED
    control = np.full((1, count), server, dtype=np.uint64)
    total = np.zeros((1, count), dtype=np.uint64)
    prefixes = np.zeros(1, dtype=np.uint64)
    for level in range(shape.levels):
        if shape.step:
            rest = np.uint64((1 << (shape.bits - level)) - 1)
            settled = (points & rest) == rest
            nodes = (
                points[settled] >> np.uint64(shape.bits - level) if level else points[settled] * 0
            )
            everything[waiting[settled]] = total[np.searchsorted(prefixes, nodes)]
            points, waiting = points[~settled], waiting[~settled]
            if not len(points):
                return everything
        start = shape.level_offset(level)
        correction = part.field(start, SEED_BYTES, begin, end).view("<u8")
        children = _distinct(points >> np.uint64(shape.bits - 1 - level))
        parents = np.searchsorted(prefixes, children >> _ONE)
        bits = children & _ONE
        lefts, rights = np.flatnonzero(bits == 0), np.flatnonzero(bits)
        next_seeds = np.empty((len(children), count, 2), dtype=np.uint64)
        next_total = total[parents]
        for usage, chosen in ((USAGE_LEFT, lefts), (USAGE_RIGHT, rights)):
            if len(chosen):
                above = parents[chosen]
                corrected = correction * control[above][..., None]
                next_seeds[chosen] = hash_blocks(usage, seeds[above]) ^ corrected
        if shape.step and len(lefts):
            above = parents[lefts]
            width = shape.ring.bytes
            word = part.field(start + SEED_BYTES, width, begin, end).view(shape.ring.dtype)[:, 0]
            value = hash_blocks(USAGE_VALUE, seeds[above])[..., 0]
            next_total[lefts] += value + word.astype(np.uint64) * control[above]
        control = (next_seeds[..., 0] >> bits[:, None]) & _ONE
        seeds = next_seeds & _SEED
        total, prefixes = next_total, children
    parents = np.searchsorted(prefixes, points >> np.uint64(shape.terminal_bits))
    last = points & np.uint64((1 << shape.terminal_bits) - 1)
    out = total[parents]
    for word_index in range(shape.words):
        chosen = np.flatnonzero(last == word_index)
        if not len(chosen):
            continue
        above = parents[chosen]
        offset = shape.words_offset + word_index * shape.ring.bytes
        word = part.field(offset, shape.ring.bytes, begin, end).view(shape.ring.dtype)[:, 0]
        value = _terminal_words(shape, seeds[above], word_index)
        out[chosen] += value + word.astype(np.uint64) * control[above]
    everything[waiting] = out
    return everything


def _distinct(ascending: Points) -> Points:
    """`ascending` without repetitions."""
    keep = np.ones(len(ascending), dtype=bool)
    np.not_equal(ascending[1:], ascending[:-1], out=keep[1:])
    return ascending[keep]
