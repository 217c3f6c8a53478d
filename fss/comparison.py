"""Comparison functions by number of servers: the one entry that an aggregator needs.

Keys give shares of f_α(x) = 1 if α ≤ x else 0, additive in the ring over all servers, and private
against all servers but one. Public sizes alone decide the construction:

    servers   bits               construction                   largest key over Z_2^64
    2         1 … 64             tree (`dcf`)                   24·bits
    3         1 … 13             seeds and a table              8·2^bits
    3         14 … 32            square root                    about 320·2^(bits/2)
    4 …       1 … 20             seeds and a table              8·2^bits
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from tallyroom.fss import dcf, seed_table, square_root, tree
from tallyroom.fss.ring import Bytes, Ring, Words, as_bytes
from tallyroom.fss.seed_table import SeedTable
from tallyroom.fss.square_root import SquareRoot
from tallyroom.fss.storage import Keys

# From this size on, three square-root keys together are shorter than two seeds and a table.
SQUARE_ROOT_BITS: Final = 14


@dataclass(frozen=True)
class Comparison:
    """Keys for values of `bits` bits among `servers` servers, counted in `ring`.

    Raises ValueError if there is no construction for these sizes. Keys are (K, key_bytes(server))
    uint8 rows, which may be a memory map; two servers' keys may also be a `Segment` or `KeyTable`.
    """

    bits: int
    ring: Ring
    servers: int = 2

    def __post_init__(self) -> None:
        if self.servers < 2:
            raise ValueError(f"a function is shared among at least 2 servers, not {self.servers}")
        if self.servers > 255:
            raise ValueError(f"at most 255 servers share a function, not {self.servers}")
        if self.servers > 3 and self.bits > seed_table.MAX_BITS:
            raise ValueError(
                f"{self.servers} servers compare values of at most {seed_table.MAX_BITS} bits,"
                f" not {self.bits}; two servers go to 64 bits, three to {square_root.MAX_BITS}"
            )
        self.key_bytes(0)

    @cached_property
    def _shared(self) -> SeedTable | SquareRoot | None:
        """The construction for three or more servers; None for two servers, which use the tree."""
        if self.servers == 2:
            return None
        if self.servers == 3 and self.bits >= SQUARE_ROOT_BITS:
            return SquareRoot(self.bits, self.ring)
        return SeedTable(self.bits, self.ring, self.servers)

    @property
    def randomness_bytes(self) -> int:
        """How many uniform secret bytes `gen` takes per key."""
        return dcf.RANDOMNESS_BYTES if self._shared is None else self._shared.randomness_bytes

    def key_bytes(self, server: int) -> int:
        if self._shared is not None:
            return self._shared.key_bytes(server)
        self._check_server(server)
        return dcf.key_bytes(self.bits, self.ring)

    def gen(
        self, alphas: npt.ArrayLike, randomness: Bytes, threads: int | None = None
    ) -> list[Bytes]:
        """One (K, key_bytes(j)) array for each server j, from (K, randomness_bytes) uint8.

        The randomness determines every key: draw it from a CSPRNG, once, and forget it.
        """
        if self._shared is not None:
            return self._shared.gen(alphas, randomness)
        return list(dcf.gen(alphas, self.bits, self.ring, randomness, threads))

    def validate(self, server: int, keys: Bytes) -> npt.NDArray[np.bool_]:
        """Which rows are well formed. Raises ValueError if rows do not have the length of a key.

        A well-formed row may still share a function that is not a step, for instance one that
        counts twice: a single server cannot see that.
        """
        if self._shared is not None:
            return self._shared.validate(server, keys)
        self._check_server(server)
        return tree.validate(dcf.shape(self.bits, self.ring), keys)

    def evaluate(
        self, server: int, keys: Keys, thresholds: npt.ArrayLike, threads: int | None = None
    ) -> Words:
        """(K, T) shares of f_α(t)."""
        if self._shared is not None:
            return self._shared.evaluate(server, self._rows(server, keys), thresholds)
        return dcf.evaluate(server, keys, thresholds, self.bits, self.ring, threads)

    def evaluate_sum(
        self, server: int, keys: Keys, thresholds: npt.ArrayLike, threads: int | None = None
    ) -> Words:
        """(T,) shares of the number of keys with α ≤ t; memory does not grow with their number."""
        if self._shared is not None:
            return self._shared.evaluate_sum(server, self._rows(server, keys), thresholds)
        return dcf.evaluate_sum(server, keys, thresholds, self.bits, self.ring, threads)

    def full_domain_sum(self, server: int, keys: Keys, threads: int | None = None) -> Words:
        """`evaluate_sum` at every threshold 0 … 2^bits − 1; ValueError past 24 bits."""
        return self.evaluate_sum(server, keys, dcf.full_domain(self.bits), threads)

    def _rows(self, server: int, keys: Keys) -> Bytes:
        if not isinstance(keys, np.ndarray):
            raise ValueError("only two servers' keys are stored level-major")
        return as_bytes(keys, self.key_bytes(server), "keys")

    def _check_server(self, server: int) -> None:
        if not 0 <= server < self.servers:
            raise ValueError(f"there are servers 0 to {self.servers - 1}, not {server}")
