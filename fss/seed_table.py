"""Comparison among m ≥ 2 servers, private against any m − 1 of them: seeds plus one table.

All servers but the last hold a 16-byte seed; the last holds the step function's 2^n values minus
the seeds' expansions. Any m − 1 servers lack either a seed, whose expansion hides the table, or the
table itself. The keys are additive shares of the whole function, so the only assumption is that AES
is pseudorandom; in return the last key doubles with every bit:

    key bytes     two servers, tree   m servers, seeds and table (last server's; the others' is 16)
    n = 8         192                 2,048
    n = 10        240                 8,192
    n = 16        384                 524,288
    n = 20        480                 8,388,608          all over Z_2^64; half over Z_2^32
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tallyroom.fss.prg import expand_seeds, expand_seeds_sum
from tallyroom.fss.ring import Bytes, Points, Ring, Words, as_bytes, as_points
from tallyroom.fss.shape import SEED_BYTES

MAX_BITS: Final = 20

_BLOCK_WORDS: Final = 1 << 20


@dataclass(frozen=True)
class SeedTable:
    bits: int
    ring: Ring
    servers: int

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= MAX_BITS:
            raise ValueError(f"a shared table covers 1 to {MAX_BITS} bits, not {self.bits}")
        if self.servers < 2:
            raise ValueError(f"a function is shared among at least 2 servers, not {self.servers}")

    @property
    def size(self) -> int:
        return 1 << self.bits

    @property
    def randomness_bytes(self) -> int:
        return SEED_BYTES * (self.servers - 1)

    def key_bytes(self, server: int) -> int:
        self._check_server(server)
        return self.size * self.ring.bytes if self._holds_table(server) else SEED_BYTES

    def gen(self, alphas: npt.ArrayLike, randomness: Bytes) -> list[Bytes]:
        """One (K, key_bytes(j)) array for each server j."""
        alphas = as_points(alphas, self.bits, "alphas")
        randomness = as_bytes(randomness, self.randomness_bytes, "randomness")
        if len(randomness) != len(alphas):
            raise ValueError(f"{len(alphas)} alphas need as many rows of randomness")
        seeds = randomness.reshape(len(alphas), self.servers - 1, SEED_BYTES)
        table = np.empty((len(alphas), self.size), dtype=self.ring.dtype)
        domain = np.arange(self.size, dtype=np.uint64)
        for begin, end in self._blocks(len(alphas)):
            words = (alphas[begin:end, None] <= domain).astype(np.uint64)
            for server in range(self.servers - 1):
                words -= expand_seeds(seeds[begin:end, server], self.size)
            table[begin:end] = self.ring.reduce(words)
        keys = [np.ascontiguousarray(seeds[:, server]) for server in range(self.servers - 1)]
        return [*keys, table.view(np.uint8)]

    def validate(self, server: int, keys: Bytes) -> npt.NDArray[np.bool_]:
        """All true, because every row of the right length is a key. Raises ValueError on another
        length."""
        return np.ones(len(as_bytes(keys, self.key_bytes(server), "keys")), dtype=bool)

    def evaluate(self, server: int, keys: Bytes, thresholds: npt.ArrayLike) -> Words:
        keys, points = self._checked(server, keys, thresholds)
        out = np.empty((len(keys), len(points)), dtype=self.ring.dtype)
        for begin, end in self._blocks(len(keys)):
            out[begin:end] = self._table(server, keys[begin:end])[:, points.astype(np.intp)]
        return out

    def evaluate_sum(self, server: int, keys: Bytes, thresholds: npt.ArrayLike) -> Words:
        keys, points = self._checked(server, keys, thresholds)
        if self._holds_table(server):
            total = np.zeros(self.size, dtype=self.ring.dtype)
            for begin, end in self._blocks(len(keys)):
                total += self._table(server, keys[begin:end]).sum(axis=0, dtype=self.ring.dtype)
        else:
            total = self.ring.reduce(expand_seeds_sum(keys, self.size))
        return total[points.astype(np.intp)]

    def _table(self, server: int, keys: Bytes) -> Words:
        if self._holds_table(server):
            return np.ascontiguousarray(keys).view(self.ring.dtype)
        # Over Z_2^32 half of the keystream is dropped, so that `expand_seeds_sum` may carry.
        return self.ring.reduce(expand_seeds(keys, self.size))

    def _checked(self, server: int, keys: Bytes, thresholds: npt.ArrayLike) -> tuple[Bytes, Points]:
        keys = as_bytes(keys, self.key_bytes(server), "keys")
        return keys, as_points(thresholds, self.bits, "thresholds")

    def _holds_table(self, server: int) -> bool:
        return server == self.servers - 1

    def _check_server(self, server: int) -> None:
        if not 0 <= server < self.servers:
            raise ValueError(f"there are servers 0 to {self.servers - 1}, not {server}")

    def _blocks(self, count: int) -> Iterator[tuple[int, int]]:
        step = max(1, _BLOCK_WORDS // self.size)
        for begin in range(0, count, step):
            yield begin, min(begin + step, count)
