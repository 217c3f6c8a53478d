"""The incremental DPF of the VDAF draft (draft-irtf-cfrg-vdaf, §8.3), written out for cross-checks.

Slow and plain. It shares only `hash_blocks` with the package: the draft's XofFixedKeyAes128 is the
same hash, under a key that TurboSHAKE derives.
"""

from collections.abc import Iterator
from itertools import count

import numpy as np

from tallyroom.fss.hash import hash_blocks

FIELD64 = 2**32 * 4294967295 + 1
FIELD255 = 2**255 - 19
VERSION = 18
USAGE_EXTEND, USAGE_CONVERT = 0, 1

Level = tuple[bytes, tuple[int, int], list[int]]
State = tuple[bytes, int]

_LANES = 2**64 - 1


def _round_constants() -> list[int]:
    """FIPS 202, Alg. 5 and 6."""
    bits, register = [], 1
    for _ in range(7 * 24):
        bits.append(register & 1)
        register = (register << 1) ^ (0x171 if register & 0x80 else 0)
    constants = []
    for round_index in range(24):
        chosen = bits[7 * round_index : 7 * round_index + 7]
        constants.append(sum(bit << (2**j - 1) for j, bit in enumerate(chosen)))
    return constants


def _rotate(lane: int, by: int) -> int:
    return ((lane << by) | (lane >> (64 - by))) & _LANES if by else lane


def _keccak_12(state: list[int]) -> list[int]:
    """The last 12 rounds of Keccak-f[1600]; lane (x, y) is at x + 5y."""
    for constant in _round_constants()[12:]:
        parity = [0] * 5
        for index, lane in enumerate(state):
            parity[index % 5] ^= lane
        mix = [parity[x - 1] ^ _rotate(parity[(x + 1) % 5], 1) for x in range(5)]
        state = [lane ^ mix[index % 5] for index, lane in enumerate(state)]
        moved = [0] * 25
        moved[0] = state[0]
        x, y = 1, 0
        for t in range(24):
            moved[y + 5 * ((2 * x + 3 * y) % 5)] = _rotate(
                state[x + 5 * y], (t + 1) * (t + 2) // 2 % 64
            )
            x, y = y, (2 * x + 3 * y) % 5
        state = [
            moved[i] ^ (~moved[i - i % 5 + (i + 1) % 5] & _LANES & moved[i - i % 5 + (i + 2) % 5])
            for i in range(25)
        ]
        state[0] ^= constant
    return state


def turboshake128(message: bytes, domain: int) -> Iterator[int]:
    """RFC 9861, §2: an endless stream of bytes."""
    rate = 168
    padded = bytearray(message + bytes([domain]))
    padded += bytes(-len(padded) % rate)
    padded[-1] ^= 0x80
    state = [0] * 25
    for start in range(0, len(padded), rate):
        for lane in range(rate // 8):
            at = start + 8 * lane
            state[lane] ^= int.from_bytes(padded[at : at + 8], "little")
        state = _keccak_12(state)
    while True:
        yield from b"".join(lane.to_bytes(8, "little") for lane in state[: rate // 8])
        state = _keccak_12(state)


def _take(stream: Iterator[int], length: int) -> bytes:
    return bytes(next(stream) for _ in range(length))


def fixed_key_xof(seed: bytes, dst: bytes, binder: bytes) -> Iterator[int]:
    key = _take(turboshake128(len(dst).to_bytes(2, "little") + dst + binder, 2), 16)
    for index in count():
        block = int.from_bytes(seed, "little") ^ index
        words = np.array([block & _LANES, block >> 64], dtype=np.uint64)
        yield from hash_blocks(key, words).tobytes()


def turboshake_xof(seed: bytes, dst: bytes, binder: bytes) -> Iterator[int]:
    head = len(dst).to_bytes(2, "little") + dst + bytes([len(seed)]) + seed
    return turboshake128(head + binder, 1)


def next_vector(stream: Iterator[int], modulus: int, length: int) -> list[int]:
    """Rejection sampling of field elements."""
    size, mask = (modulus.bit_length() + 7) // 8, (1 << modulus.bit_length()) - 1
    vector: list[int] = []
    while len(vector) < length:
        element = int.from_bytes(_take(stream, size), "little") & mask
        if element < modulus:
            vector.append(element)
    return vector


class ReferenceIdpf:
    def __init__(self, bits: int, length: int, ctx: bytes, nonce: bytes) -> None:
        self.bits, self.length, self.ctx, self.nonce = bits, length, ctx, nonce

    def modulus(self, level: int) -> int:
        return FIELD64 if level < self.bits - 1 else FIELD255

    def _xof(self, level: int, seed: bytes, usage: int) -> Iterator[int]:
        dst = bytes([VERSION, 1]) + (0).to_bytes(4, "big") + usage.to_bytes(2, "big") + self.ctx
        xof = fixed_key_xof if level < self.bits - 1 else turboshake_xof
        return xof(seed, dst, self.nonce)

    def _extend(self, level: int, seed: bytes) -> list[State]:
        stream = self._xof(level, seed, USAGE_EXTEND)
        children = [_take(stream, 16), _take(stream, 16)]
        return [(bytes([c[0] & 0xFE]) + c[1:], c[0] & 1) for c in children]

    def _convert(self, level: int, seed: bytes) -> tuple[bytes, list[int]]:
        stream = self._xof(level, seed, USAGE_CONVERT)
        return _take(stream, 16), next_vector(stream, self.modulus(level), self.length)

    def gen(self, alpha: list[int], beta: list[list[int]], seeds: list[bytes]) -> list[Level]:
        states: list[State] = [(seeds[0], 0), (seeds[1], 1)]
        public = []
        for level, keep in enumerate(alpha):
            p = self.modulus(level)
            children = [self._extend(level, seed) for seed, _ in states]
            lose = 1 - keep
            seed_cw = _xor(children[0][lose][0], children[1][lose][0])
            ctrl_cw = (
                children[0][0][1] ^ children[1][0][1] ^ keep ^ 1,
                children[0][1][1] ^ children[1][1][1] ^ keep,
            )
            values, following = [], []
            for (_, control), child in zip(states, children, strict=True):
                seed, bit = child[keep]
                if control:
                    seed, bit = _xor(seed, seed_cw), bit ^ ctrl_cw[keep]
                seed, value = self._convert(level, seed)
                following.append((seed, bit))
                values.append(value)
            states = following
            sign = -1 if states[1][1] else 1
            word = [
                sign * (b - v0 + v1) % p for b, v0, v1 in zip(beta[level], *values, strict=True)
            ]
            public.append((seed_cw, ctrl_cw, word))
        return public

    def evaluate(self, server: int, public: list[Level], seed: bytes, path: list[int]) -> list[int]:
        """One server's share at a prefix."""
        control, value = server, [0] * self.length
        for level, turn in enumerate(path):
            seed_cw, ctrl_cw, word = public[level]
            child, bit = self._extend(level, seed)[turn]
            if control:
                child, bit = _xor(child, seed_cw), bit ^ ctrl_cw[turn]
            seed, value = self._convert(level, child)
            control = bit
            if control:
                value = [v + w for v, w in zip(value, word, strict=True)]
        p = self.modulus(len(path) - 1)
        return [(-v if server else v) % p for v in value]

    def encode(self, public: list[Level]) -> bytes:
        flags = [bit for _, ctrl_cw, _ in public for bit in ctrl_cw]
        out = sum(bit << i for i, bit in enumerate(flags)).to_bytes((len(flags) + 7) // 8, "little")
        out += b"".join(seed_cw for seed_cw, _, _ in public)
        for level, (_, _, word) in enumerate(public):
            size = 8 if level < self.bits - 1 else 32
            out += b"".join(w.to_bytes(size, "little") for w in word)
        return out


def _xor(a: bytes, b: bytes) -> bytes:
    return bytes(x ^ y for x, y in zip(a, b, strict=True))
