"""TurboSHAKE128 in numpy, all rows at once. The native loop must agree byte for byte."""

from collections.abc import Iterator
from functools import cache

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Lanes = NDArray[np.uint64]

RATE = 168
_ROUNDS = 12


@cache
def _round_constants() -> tuple[int, ...]:
    """The constants of the last 12 of 24 rounds, from the degree-8 LFSR (FIPS 202, Alg. 5)."""
    bits, register = [], 1
    for _ in range(255):
        bits.append(register & 1)
        register <<= 1
        if register & 0x100:
            register ^= 0x171
    words = [
        sum(bits[(j + 7 * index) % 255] << ((1 << j) - 1) for j in range(7)) for index in range(24)
    ]
    return tuple(words[-_ROUNDS:])


@cache
def _moves() -> tuple[tuple[int, int, int], ...]:
    """(from, to, left turn) of each lane under ρ and π (FIPS 202, sections 3.2.2 and 3.2.3)."""
    moves = [(0, 0, 0)]
    x, y = 1, 0
    for t in range(24):
        moves.append((x + 5 * y, y + 5 * ((2 * x + 3 * y) % 5), (t + 1) * (t + 2) // 2 % 64))
        x, y = y, (2 * x + 3 * y) % 5
    return tuple(moves)


def _turn(lanes: Lanes, bits: int) -> Lanes:
    if bits == 0:
        return lanes
    turned: Lanes = (lanes << np.uint64(bits)) | (lanes >> np.uint64(64 - bits))
    return turned


def _permute(state: Lanes) -> Lanes:
    """Keccak-p[1600, 12] on columns of 25 lanes, shape (25, rows)."""
    for constant in _round_constants():
        planes = state.reshape(5, 5, -1)
        column = np.bitwise_xor.reduce(planes, axis=0)
        mixed = np.roll(column, 1, axis=0) ^ _turn(np.roll(column, -1, axis=0), 1)
        before = (planes ^ mixed).reshape(25, -1)
        moved = np.empty_like(before)
        for source, target, bits in _moves():
            moved[target] = _turn(before[source], bits)
        planes = moved.reshape(5, 5, -1)
        after = planes ^ (~np.roll(planes, -1, axis=1) & np.roll(planes, -2, axis=1))
        state = after.reshape(25, -1)
        state[0] ^= np.uint64(constant)
    return state


def blocks(messages: Bytes, domain: int) -> Iterator[Bytes]:
    """The endless output for every row of (rows, length), RATE bytes per row at a time."""
    rows, length = messages.shape
    padded = np.zeros((rows, (length // RATE + 1) * RATE), dtype=np.uint8)
    padded[:, :length] = messages
    padded[:, length] = domain
    padded[:, -1] ^= 0x80
    words = padded.view("<u8").astype(np.uint64).reshape(rows, -1, RATE // 8)
    state = np.zeros((25, rows), dtype=np.uint64)
    for block in range(words.shape[1]):
        state[: RATE // 8] ^= words[:, block].T
        state = _permute(state)
    while True:
        lanes = np.ascontiguousarray(state[: RATE // 8].T).astype("<u8", copy=False)
        yield lanes.view(np.uint8)
        state = _permute(state)


def squeeze(messages: Bytes, domain: int, length: int) -> Bytes:
    """TurboSHAKE128(row, domain, length) for every row."""
    stream = blocks(messages, domain)
    count = max(1, -(-length // RATE))
    return np.concatenate([next(stream) for _ in range(count)], axis=1)[:, :length]
