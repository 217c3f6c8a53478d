"""Verified keys in numpy and `cryptography`. The native loops must agree with them bit for bit."""

import numpy as np

from tallyroom.fss.hash import BLOCK_BYTES, hash_blocks
from tallyroom.fss.ring import Bytes, Points
from tallyroom.fss.twin import BLOCK_NODES
from tallyroom.fss.verified_nodes import NODE_WEIGHTS, NodeKind, Nodes, blocks_of, state_block

_ONE = np.uint64(1)
_PROOF_WORDS = 3


def usages_of(hash_keys: bytes) -> list[bytes]:
    return [hash_keys[i : i + BLOCK_BYTES] for i in range(0, len(hash_keys), BLOCK_BYTES)]


def gen(
    bits: int, hash_keys: bytes, alphas: Points, randomness: Bytes, rows0: Bytes, rows1: Bytes
) -> None:
    """Writes both servers' rows."""
    children, first, second, *_ = usages_of(hash_keys)
    states = randomness.view("<u8").reshape(len(alphas), 2, 2).copy()
    states[:, :, 0] &= ~_ONE
    states[:, 1, 0] |= _ONE
    out = np.empty((len(alphas), blocks_of(bits), 2), dtype="<u8")
    roots = states.copy()
    for level in range(1, bits + 1):
        right = -((alphas >> np.uint64(bits - level)) & _ONE)[:, None]
        offset = states[:, 0] ^ states[:, 1]
        hashed = hash_blocks(children, states)
        correction = hashed[:, 0] ^ hashed[:, 1] ^ (offset & ~right)
        control = states[:, :, :1] & _ONE
        states = hashed ^ (control * correction[:, None]) ^ (states & right[:, None])
        block = state_block(level)
        out[:, block] = correction
        if level > 1:
            value, proof = hash_blocks(first, states), hash_blocks(second, states)
            word = _ONE - value[:, 0, 0] + value[:, 1, 0]
            out[:, block + 1, 0] = np.where(states[:, 1, 0] & _ONE, -word, word)
            out[:, block + 1, 1] = value[:, 0, 1] ^ value[:, 1, 1]
            out[:, block + 2] = proof[:, 0] ^ proof[:, 1]
    for server, rows in enumerate((rows0, rows1)):
        out[:, 0] = roots[:, server]
        rows[:] = out.view(np.uint8).reshape(rows.shape)


def evaluate_sum(
    hash_keys: bytes,
    rows: Bytes,
    nodes: Nodes,
    correction_weights: Points,
    weights: Points,
    prints: Points,
) -> Points:
    """Returns the sums over all keys at each leaf, and writes every key's print."""
    sums = np.zeros(nodes.leaves, dtype=np.uint64)
    compared = weights.reshape(-1, NODE_WEIGHTS)[:, :_PROOF_WORDS].reshape(-1)
    all_weights = np.concatenate([correction_weights[2:], compared])
    size = max(1, BLOCK_NODES // nodes.checks)
    for begin in range(0, len(rows), size):
        part = slice(begin, begin + size)
        blocks = np.ascontiguousarray(rows[part]).view("<u8").reshape(-1, rows.shape[1] // 16, 2)
        values, proofs = visit_nodes(hash_keys, blocks, nodes)
        corrections = blocks[:, 1 : len(correction_weights) // 2].reshape(len(blocks), -1)
        prints[part, :2] = carryless(np.hstack([corrections, proofs]), all_weights)
        prints[part, 2] = values.sum(axis=1, dtype=np.uint64)
        sums += values.sum(axis=0, dtype=np.uint64)
    return sums


def visit_nodes(hash_keys: bytes, blocks: Points, nodes: Nodes) -> tuple[Points, Points]:
    """Corrected values at the leaves, and proofs at the compared nodes; one row per key."""
    children, first, second, *_ = usages_of(hash_keys)
    values: list[Points] = []
    proofs: list[Points] = []
    pending = [blocks[:, 0]]  # states of the nodes still to be visited
    for kind, level in zip(nodes.kinds.tolist(), nodes.levels.tolist(), strict=True):
        state = pending.pop()
        control = state[:, 0] & _ONE
        if kind != NodeKind.INNER:
            words, rest = (blocks[:, state_block(level) + i] for i in (1, 2))
            value, proof = hash_blocks(first, state), hash_blocks(second, state)
            proofs.append(value[:, 1] ^ control * words[:, 1])
            proofs += [proof[:, half] ^ control * rest[:, half] for half in (0, 1)]
        if kind == NodeKind.LEAF:
            values.append(value[:, 0] + control * words[:, 0])
            continue
        left = hash_blocks(children, state) ^ control[:, None] * blocks[:, state_block(level + 1)]
        pending += [left ^ state, left]
    return np.stack(values, axis=1), np.stack(proofs, axis=1)


def carryless(words: Points, weights: Points) -> Points:
    """(K, 2) low and high words of Σ words[:, i]·weights[i], with words as polynomials over
    GF(2)."""
    out = np.zeros((len(words), 2), dtype=np.uint64)
    for bit in range(64):
        chosen = words[:, (weights >> np.uint64(bit)) & _ONE == 1]
        folded = np.bitwise_xor.reduce(chosen, axis=1)
        out[:, 0] ^= folded << np.uint64(bit)
        if bit:
            out[:, 1] ^= folded >> np.uint64(64 - bit)
    return out
