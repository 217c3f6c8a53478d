"""Verified keys that cheat, made by somebody who knows the construction."""

import numpy as np

from tallyroom.fss.hash import hash_blocks
from tallyroom.fss.ring import Bytes, Points
from tallyroom.fss.verified import Verified
from tallyroom.fss.verified_nodes import blocks_of, state_block

Pair = tuple[Bytes, Bytes]

_ONE = np.uint64(1)


def as_blocks(rows: Bytes) -> Points:
    """The rows' blocks as words, (K, blocks, 2); writing to them writes to the rows."""
    assert rows.flags.c_contiguous
    return rows.view("<u8").reshape(len(rows), -1, 2)


def weighted(keys: Verified, pair: Pair, more: int) -> Pair:
    """Weight 1 + more, or 1 − more where server 1 holds the control bit on the path."""
    forged = pair[0].copy(), pair[1].copy()
    for rows in forged:
        for level in range(2, keys.bits + 1):
            as_blocks(rows)[:, state_block(level) + 1, 0] += np.uint64(more % 2**64)
    return forged


def stepping_thrice(keys: Verified, seed: int) -> Pair:
    """One key of 4 bits with weight 2 at 00, −2 at 010 and 1 at 0110, each with the right proof.

    A wrong correction below 0 makes 00 and 01 differ, but 01 with equal control bits, where there
    is no correction; hence both of its children differ, with different ones. Then 0111 is made
    equal. So three leaves at three levels differ, and 01 beside the first of them.
    """
    children = keys.hash_keys[:16]
    generator = np.random.default_rng(seed)
    while True:
        row = generator.integers(0, 2**64, (blocks_of(keys.bits), 2), dtype=np.uint64)
        states = generator.integers(0, 2**64, (2, 2), dtype=np.uint64)
        states[:, 0] = states[:, 0] & ~_ONE | np.array([0, 1], dtype=np.uint64)
        roots = states.copy()
        states, row[state_block(1)] = _along(children, states)
        left, right = _children(children, states, row[state_block(2)])
        below = _children(children, right, row[state_block(3)])
        if _differ(left) and _differ(below[0]) and _differ(below[1]):
            break
    _words(row, 2, keys.hash_keys, left, 2)
    _words(row, 3, keys.hash_keys, below[0], -2)
    last, row[state_block(4)] = _along(children, below[1])
    _words(row, 4, keys.hash_keys, last, 1)
    forged = np.stack([row, row])
    forged[:, 0] = roots
    rows = forged.view(np.uint8).reshape(2, 1, -1)
    return rows[0], rows[1]


def _differ(states: Points) -> bool:
    """Whether the servers' control bits do."""
    return bool((states[0, 0] ^ states[1, 0]) & _ONE)


def _children(usage: bytes, states: Points, correction: Points) -> tuple[Points, Points]:
    left = hash_blocks(usage, states) ^ (states[:, :1] & _ONE) * correction
    return left, left ^ states


def _along(usage: bytes, states: Points) -> tuple[Points, Points]:
    """The left child of both servers, the right one becoming equal, and the correction for that."""
    hashed = hash_blocks(usage, states)
    correction = hashed[0] ^ hashed[1] ^ states[0] ^ states[1]
    return _children(usage, states, correction)[0], correction


def _words(row: Points, level: int, hash_keys: bytes, states: Points, weight: int) -> None:
    value, proof = hash_blocks(hash_keys[16:32], states), hash_blocks(hash_keys[32:], states)
    word = np.array([weight % 2**64], dtype=np.uint64) - value[:1, 0] + value[1:, 0]
    at = state_block(level)
    row[at + 1, 0] = (-word if states[1, 0] & _ONE else word)[0]
    row[at + 1, 1] = value[0, 1] ^ value[1, 1]
    row[at + 2] = proof[0] ^ proof[1]
