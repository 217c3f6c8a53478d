"""Grid keys in numpy and `cryptography`. The native loops must agree with them bit for bit."""

import numpy as np

from tallyroom.fss.hash import hash_blocks
from tallyroom.fss.ring import Bytes, Points
from tallyroom.fss.twin import BLOCK_NODES
from tallyroom.fss.verified_nodes import NODE_WEIGHTS, visited
from tallyroom.fss.verified_twin import carryless, usages_of, visit_nodes

_ONE = np.uint64(1)
_LOW_BITS = 3
_WORDS = 1 << _LOW_BITS
_LOW_NODES = visited(np.arange(_WORDS, dtype=np.uint64), _LOW_BITS)


def gen(
    levels: int, hash_keys: bytes, alphas: Points, randomness: Bytes, rows0: Bytes, rows1: Bytes
) -> None:
    """Writes both servers' rows, without the low part."""
    children, first, second, words = usages_of(hash_keys)
    states = randomness.view("<u8").reshape(len(alphas), 2, 2).copy()
    states[:, :, 0] &= ~_ONE
    states[:, 1, 0] |= _ONE
    out = np.empty((len(alphas), rows0.shape[1] // 16, 2), dtype="<u8")
    roots = states.copy()
    for level in range(1, levels + 1):
        right = -((alphas >> np.uint64(levels + _LOW_BITS - level)) & _ONE)[:, None]
        hashed = hash_blocks(children, states)
        offset = states[:, 0] ^ states[:, 1]
        correction = hashed[:, 0] ^ hashed[:, 1] ^ (offset & ~right)
        control = states[:, :, :1] & _ONE
        states = hashed ^ (control * correction[:, None]) ^ (states & right[:, None])
        out[:, level] = correction
    for i, usage in enumerate((first, second)):
        proof = hash_blocks(usage, states)
        out[:, levels + 1 + i] = proof[:, 0] ^ proof[:, 1]
    stretched = _stretched(words, states)
    leaf = alphas & np.uint64(_WORDS - 1)
    target = (np.arange(_WORDS, dtype=np.uint64) == leaf[:, None]).astype(np.uint64)
    word = target - stretched[:, 0] + stretched[:, 1]
    signed = np.where(states[:, 1, :1] & _ONE, -word, word)
    out[:, levels + 3 : levels + 7] = signed.reshape(len(alphas), 4, 2)
    for server, rows in enumerate((rows0, rows1)):
        out[:, 0] = roots[:, server]
        rows[:] = out.view(np.uint8).reshape(rows.shape)


def evaluate_sum(
    levels: int,
    hash_keys: bytes,
    rows: Bytes,
    correction_weights: Points,
    weights: Points,
    sums: Points,
    prints: Points,
) -> None:
    """Adds every key's words to `sums`, one for each leaf, and writes every key's print."""
    nodes = 1 << levels
    of_nodes = weights[: NODE_WEIGHTS * nodes]
    of_low = weights[NODE_WEIGHTS * nodes : NODE_WEIGHTS * (nodes + _WORDS)]
    low_proofs = of_low.reshape(-1, NODE_WEIGHTS)[:, :3].reshape(-1)
    all_weights = np.concatenate([correction_weights, of_nodes, low_proofs, weights[-_WORDS:]])
    size = max(1, BLOCK_NODES // nodes)
    for begin in range(0, len(rows), size):
        part = slice(begin, begin + size)
        blocks = np.ascontiguousarray(rows[part]).view("<u8").reshape(-1, rows.shape[1] // 16, 2)
        words, proofs = _long_part(levels, hash_keys, blocks)
        low = blocks[:, levels + 7 :]
        values, beside = visit_nodes(hash_keys, low, _LOW_NODES)
        difference = words.sum(axis=1, dtype=np.uint64) - values
        compared = [blocks.reshape(len(blocks), -1), proofs, beside, difference]
        prints[part, :2] = carryless(np.hstack(compared), all_weights)
        prints[part, 2] = values.sum(axis=1, dtype=np.uint64)
        sums += words.sum(axis=0, dtype=np.uint64).reshape(-1)


def _long_part(levels: int, hash_keys: bytes, blocks: Points) -> tuple[Points, Points]:
    """(K, nodes, 8) corrected words, and the proofs of all nodes; one row per key."""
    children, first, second, words = usages_of(hash_keys)
    states = blocks[:, :1]
    for level in range(1, levels + 1):
        correction = (states[:, :, :1] & _ONE) * blocks[:, None, level]
        left = hash_blocks(children, states) ^ correction
        states = np.stack([left, left ^ states], axis=2).reshape(len(blocks), -1, 2)
    control = states[:, :, :1] & _ONE
    proofs = [
        hash_blocks(usage, states) ^ control * blocks[:, None, levels + 1 + i]
        for i, usage in enumerate((first, second))
    ]
    corrections = blocks[:, levels + 3 : levels + 7].reshape(len(blocks), 1, _WORDS)
    corrected = _stretched(words, states) + control * corrections
    return corrected, np.concatenate(proofs, axis=2).reshape(len(blocks), -1)


def _stretched(usage: bytes, states: Points) -> Points:
    """Stretches each state to eight words."""
    moved = np.repeat(states[..., None, :], _WORDS // 2, axis=-2)
    moved[..., 0] ^= np.arange(0, _WORDS, 2, dtype=np.uint64)
    return hash_blocks(usage, moved).reshape(*states.shape[:-1], _WORDS)
