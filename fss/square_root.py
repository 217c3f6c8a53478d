"""Comparison among three servers, private against any two, with keys of about 2^(n/2).

After the multi-party DPF of Boyle–Gilboa–Ishai (Eurocrypt 2015), with two changes of our own: a
step instead of a point, and additive shares in Z_2^k instead of XOR.

The domain is a grid. Write x = (ρ, col) and α = (γ, δ); then
    f_α(x) = [γ < ρ] + [γ = ρ]·[δ ≤ col].
The first term is a table over rows, shared as in `seed_table`. For the second, every row has
twelve slots. Slot j of row ρ has a seed s_j, given to the servers that hold the slot, and each
holder i has a coefficient c_ij; twelve correction vectors W_j are given to everybody. Server i adds
    c_ij·(W_j[col] + G(s_j)[col])   over the slots j of row ρ that it holds.
In a row ρ ≠ γ the coefficients of each slot sum to zero over the servers, so everything cancels. In
row γ they sum to z_j, and the W_j are uniform but for Σ_j z_j·(W_j + G(s_j)) = the step at δ.

Why twelve. BGI15 gives seeds by the parity of subsets, which cancels in characteristic 2 only. Over
Z_2^k we need two families of slots, `OFF_PATH` with zero sums and `ON_PATH` with sums that need not
vanish, such that no two servers can tell one family from the other. Bounded integer coefficients
cannot do that (E[(Σc)²] involves two servers at a time, and is 0 off the path and positive on it),
but coefficients uniform among the odd (O) or even (E) elements can; `–` is a slot not held:

    OFF_PATH                                   ON_PATH
    1  (–, –, –)                               3  (O, –, –) and permutations
    3  (o, −o, –) and permutations             3  (O, o, −o) and permutations
    6  (E, O, O), sum 0, permutations, twice   6  (O, E, E) independent, permutations, twice
    2  (E, E, E), sum 0

Of the first column servers 2 and 3 see, line by line: nothing; (O, –), (–, O), (o, −o); independent
(O, O), (E, O), (O, E), each twice; independent (E, E) twice. Of the second column they see the same
twelve, and by symmetry so do the other pairs of servers; slots are shuffled in every row. A test
counts both families' views over a small ring. Nor can two servers compute the constraint on the
W_j: it involves G of the seed in the slot (O, –, –) of the third server, with a unit factor.

    key bytes over Z_2^64, the largest of the servers' keys
    n = 14   41,088      n = 16   82,176      n = 20   328,704      about 321·2^(n/2)
compared with 24n between two servers, and 8·2^n for the server that holds a `seed_table`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from tallyroom.fss import native, seed_table
from tallyroom.fss.hash import USAGE_COLUMN, hash_blocks
from tallyroom.fss.prg import expand_seeds
from tallyroom.fss.ring import Bytes, Points, Ring, Words, as_bytes, as_points
from tallyroom.fss.seed_table import SeedTable
from tallyroom.fss.shape import SEED_BYTES

SERVERS: Final = 3
SLOTS: Final = 12
HELD: Final = 10
MAX_BITS: Final = 32

_BLOCK_ENTRIES: Final = 1 << 17
_NATIVE_COLUMNS: Final = 32
"""The native loop computes this many columns at a time."""
_NATIVE_KEYS: Final = 16
"""The native loop reads this many keys at a time: some megabytes."""


@dataclass(frozen=True)
class Slot:
    """The servers' coefficients, as integer combinations of random ring elements.

    `odd[v]` says whether element v is odd or even. `weights[i][v]` is server i's multiple of it; a
    server whose weights are all zero does not hold the slot.
    """

    odd: tuple[bool, ...]
    weights: tuple[tuple[int, ...], ...]


def _rotations(odd: tuple[bool, ...], first: tuple[tuple[int, ...], ...]) -> list[Slot]:
    return [Slot(odd, first[-turn:] + first[:-turn]) for turn in range(SERVERS)]


OFF_PATH: Final[tuple[Slot, ...]] = (
    Slot((), ((), (), ())),
    *_rotations((True,), ((1,), (-1,), (0,))),
    *2 * _rotations((True, True), ((-1, -1), (1, 0), (0, 1))),
    *2 * (Slot((False, False), ((1, 0), (0, 1), (-1, -1))),),
)
ON_PATH: Final[tuple[Slot, ...]] = (
    *_rotations((True,), ((1,), (0,), (0,))),
    *_rotations((True, True), ((1, 0), (0, 1), (0, -1))),
    *2 * _rotations((True, False, False), ((1, 0, 0), (0, 1, 0), (0, 0, 1))),
)
ELEMENTS: Final = 3


def held(slots: tuple[Slot, ...]) -> npt.NDArray[np.bool_]:
    """(slots, servers): whether each server holds each slot."""
    return np.array([[any(row) for row in slot.weights] for slot in slots])


@dataclass(frozen=True)
class SquareRoot:
    bits: int
    ring: Ring

    def __post_init__(self) -> None:
        if not 2 <= self.bits <= MAX_BITS:
            raise ValueError(f"a square-root key covers 2 to {MAX_BITS} bits, not {self.bits}")

    @property
    def servers(self) -> int:
        return SERVERS

    @cached_property
    def row_bits(self) -> int:
        """How many bits select a row: the split for which the three keys together are shortest."""
        return min(
            range(1, min(self.bits, seed_table.MAX_BITS + 1)),
            key=lambda rows: sum(self._key_bytes(server, rows) for server in range(SERVERS)),
        )

    @property
    def rows(self) -> int:
        return 1 << self.row_bits

    @property
    def columns(self) -> int:
        return 1 << (self.bits - self.row_bits)

    @property
    def entry_bytes(self) -> int:
        """Bytes of a held slot: its number, its seed and the server's coefficient."""
        return 1 + SEED_BYTES + self.ring.bytes

    @property
    def randomness_bytes(self) -> int:
        return SEED_BYTES

    def key_bytes(self, server: int) -> int:
        if not 0 <= server < SERVERS:
            raise ValueError(f"there are servers 0 to {SERVERS - 1}, not {server}")
        return self._key_bytes(server, self.row_bits)

    def gen(self, alphas: npt.ArrayLike, randomness: Bytes) -> list[Bytes]:
        """One (K, key_bytes(j)) array for each server j."""
        alphas = as_points(alphas, self.bits, "alphas")
        randomness = as_bytes(randomness, self.randomness_bytes, "randomness")
        if len(randomness) != len(alphas):
            raise ValueError(f"{len(alphas)} alphas need as many rows of randomness")
        keys = [
            np.empty((len(alphas), self.key_bytes(server)), dtype=np.uint8)
            for server in range(SERVERS)
        ]
        for index, alpha in enumerate(alphas):
            self._gen_one(int(alpha), randomness[index : index + 1], [k[index] for k in keys])
        return keys

    def validate(self, server: int, keys: Bytes) -> npt.NDArray[np.bool_]:
        """Which keys name ten different slots in every row, in ascending order. Raises ValueError
        if keys do not have the right length."""
        keys = as_bytes(keys, self.key_bytes(server), "keys")
        first = self._row_table.key_bytes(server)
        entries = keys[:, first : first + self.rows * HELD * self.entry_bytes]
        numbers = entries[:, :: self.entry_bytes].reshape(len(keys), self.rows, HELD)
        ascending = np.all(numbers[..., 1:] > numbers[..., :-1], axis=(1, 2))
        known = np.all(numbers[..., -1] < SLOTS, axis=1)
        return np.asarray(ascending & known, dtype=np.bool_)

    def evaluate(self, server: int, keys: Bytes, thresholds: npt.ArrayLike) -> Words:
        """(K, T) shares. Raises ValueError if `validate` refuses a key."""
        keys = as_bytes(keys, self.key_bytes(server), "keys")
        points = as_points(thresholds, self.bits, "thresholds")
        out = np.empty((len(keys), len(points)), dtype=self.ring.dtype)
        for index, key in enumerate(keys):
            for begin, end in _tiles(len(points)):
                out[index, begin:end] = self._evaluate_one(server, key, points[begin:end])
        return out

    def evaluate_sum(self, server: int, keys: Bytes, thresholds: npt.ArrayLike) -> Words:
        """(T,) column sums of `evaluate`, over all keys, in the memory of one key."""
        keys = as_bytes(keys, self.key_bytes(server), "keys")
        points = as_points(thresholds, self.bits, "thresholds")
        code = native.instruction_set()
        if code is not None and self.ring.bytes == 8 and self.columns % _NATIVE_COLUMNS == 0:
            return self._native_sum(code, server, keys, points)
        total = np.zeros(len(points), dtype=self.ring.dtype)
        for key in keys:
            for begin, end in _tiles(len(points)):
                total[begin:end] += self._evaluate_one(server, key, points[begin:end])
        return total

    def _native_sum(self, code: int, server: int, keys: Bytes, points: Points) -> Words:
        """Evaluates whole rows at a time, because the seeds of a row serve all of its columns."""
        if not self.validate(server, keys).all():
            raise ValueError("a square-root key names slots that do not exist, or out of order")
        table_bytes = self._row_table.key_bytes(server)
        wanted, place = np.unique(
            points >> np.uint64(self.bits - self.row_bits), return_inverse=True
        )

        def work(begin: int, end: int) -> Points:
            part = np.zeros((len(wanted), self.columns), dtype=np.uint64)
            for at in range(begin, end, _NATIVE_KEYS):
                block = np.ascontiguousarray(keys[at : min(at + _NATIVE_KEYS, end)])
                native.compiled.square_root_sum(
                    code, USAGE_COLUMN, block, table_bytes, self.rows, self.columns, wanted, part
                )
            return part

        parts = native.over_blocks(work, len(keys), keys_per_thread=_NATIVE_KEYS)
        tables = np.ascontiguousarray(keys[:, :table_bytes])
        sums = self._row_table.evaluate_sum(server, tables, wanted)
        columns = (points & np.uint64(self.columns - 1)).astype(np.intp)
        total: Words = sum(part[place, columns] for part in parts) + sums[place]
        return total

    def _key_bytes(self, server: int, row_bits: int) -> int:
        rows, columns = 1 << row_bits, 1 << (self.bits - row_bits)
        table = SeedTable(row_bits, self.ring, SERVERS).key_bytes(server)
        return table + rows * HELD * self.entry_bytes + SLOTS * columns * self.ring.bytes

    @cached_property
    def _row_table(self) -> SeedTable:
        return SeedTable(self.row_bits, self.ring, SERVERS)

    def _gen_one(self, alpha: int, seed: Bytes, keys: list[Bytes]) -> None:
        gamma, delta = divmod(alpha, self.columns)
        stream = _Stream(seed, self.rows * (SLOTS * (1 + 2 + ELEMENTS)) + SLOTS * self.columns + 4)
        # [γ < ρ] is [γ + 1 ≤ ρ]: a step one row later, or the zero function after the last row.
        table_seeds = stream.take(4).view(np.uint8).reshape(1, 2 * SEED_BYTES)
        tables = self._row_table.gen(np.array([gamma]), table_seeds)
        tables[-1].view(self.ring.dtype)[0, gamma] -= self.ring.dtype.type(1)

        order = np.argsort(stream.take(self.rows * SLOTS).reshape(self.rows, SLOTS), axis=1)
        seeds = stream.take(self.rows * SLOTS * 2).reshape(self.rows, SLOTS, 2)
        elements = stream.take(self.rows * SLOTS * ELEMENTS).reshape(self.rows, SLOTS, ELEMENTS)
        coefficients = _coefficients(OFF_PATH, elements)
        coefficients[gamma] = _coefficients(ON_PATH, elements[gamma : gamma + 1])[0]
        holders = np.broadcast_to(held(OFF_PATH), (self.rows, SLOTS, SERVERS)).copy()
        holders[gamma] = held(ON_PATH)
        coefficients = np.take_along_axis(coefficients, order[..., None], axis=1)
        holders = np.take_along_axis(holders, order[..., None], axis=1)

        corrections = stream.take(SLOTS * self.columns).reshape(SLOTS, self.columns)
        sums = coefficients[gamma].sum(axis=1, dtype=np.uint64)
        columns = np.arange(self.columns, dtype=np.uint64)
        expanded = np.stack([self._columns(seeds[gamma, j], columns) for j in range(SLOTS)])
        # ON_PATH's first slot is held by one server, with an odd coefficient: solve for it.
        free = int(np.flatnonzero(order[gamma] == 0)[0])
        corrections[free] = 0
        rest = (sums[:, None] * (corrections + expanded)).sum(axis=0, dtype=np.uint64)
        step = (columns >= np.uint64(delta)).astype(np.uint64)
        inverse = np.uint64(pow(int(sums[free]), -1, 1 << 64))
        corrections[free] = inverse * (step - rest)

        for server, key in enumerate(keys):
            rows, slots = np.nonzero(holders[..., server])
            table, entries, vectors = self._split(server, key)
            table[:] = tables[server][0]
            entries = entries.reshape(self.rows * HELD, self.entry_bytes)
            entries[:, 0] = slots
            entries[:, 1 : 1 + SEED_BYTES] = seeds[rows, slots].view(np.uint8)
            own = self.ring.reduce(coefficients[rows, slots, server])
            entries[:, 1 + SEED_BYTES :] = own.view(np.uint8).reshape(len(own), self.ring.bytes)
            vectors[:] = self.ring.reduce(corrections).view(np.uint8).reshape(-1)

    def _split(self, server: int, key: Bytes) -> tuple[Bytes, Bytes, Bytes]:
        table = self._row_table.key_bytes(server)
        vectors = len(key) - SLOTS * self.columns * self.ring.bytes
        entries = key[table:vectors].reshape(self.rows, HELD, self.entry_bytes)
        return key[:table], entries, key[vectors:]

    def _columns(self, seed: Points, columns: Points) -> Points:
        """G(seed) at some columns; seeds and columns broadcast. The caller reduces to the ring."""
        shape = np.broadcast_shapes(seed.shape[:-1], columns.shape)
        blocks = np.empty((*shape, 2), dtype=np.uint64)
        blocks[:] = seed
        blocks[..., 0] ^= columns >> np.uint64(1)
        hashed = hash_blocks(USAGE_COLUMN, blocks)
        odd = (columns & np.uint64(1)).astype(bool)
        words: Points = np.where(odd, hashed[..., 1], hashed[..., 0])
        return words

    def _evaluate_one(self, server: int, key: Bytes, points: Points) -> Words:
        if not self.validate(server, key[None])[0]:
            raise ValueError("a square-root key names slots that do not exist, or out of order")
        table, entries, vectors = self._split(server, key)
        rows = (points >> np.uint64(self.bits - self.row_bits)).astype(np.intp)
        columns = points & np.uint64(self.columns - 1)
        shares = self._row_table.evaluate(server, table[None], rows)[0].astype(np.uint64)
        corrections = vectors.view(self.ring.dtype).reshape(SLOTS, self.columns)
        chosen = entries[rows]
        slots = chosen[..., 0].astype(np.intp)
        seeds = np.ascontiguousarray(chosen[..., 1 : 1 + SEED_BYTES]).view("<u8")
        own = np.ascontiguousarray(chosen[..., 1 + SEED_BYTES :]).view(self.ring.dtype)[..., 0]
        column = columns[:, None]
        vector = corrections[slots, column.astype(np.intp)].astype(np.uint64)
        terms = own.astype(np.uint64) * (vector + self._columns(seeds, column))
        return self.ring.reduce(shares + terms.sum(axis=1, dtype=np.uint64))


class _Stream:
    """Hands out the words of one seed's expansion, one after another."""

    def __init__(self, seed: Bytes, words: int) -> None:
        self._words: Points = expand_seeds(seed, words)[0]
        self._taken = 0

    def take(self, words: int) -> Points:
        start = self._taken
        self._taken += words
        return np.array(self._words[start : self._taken], dtype=np.uint64)


def _coefficients(slots: tuple[Slot, ...], elements: Points) -> Points:
    """(rows, slots, servers) coefficients from (rows, slots, elements) uniform words."""
    out = np.zeros((*elements.shape[:2], SERVERS), dtype=np.uint64)
    for j, slot in enumerate(slots):
        for v, odd in enumerate(slot.odd):
            element = (elements[:, j, v] & ~np.uint64(1)) | np.uint64(odd)
            for server, weights in enumerate(slot.weights):
                if weights[v]:
                    out[:, j, server] += element if weights[v] > 0 else -element
    return out


def _tiles(count: int) -> Iterator[tuple[int, int]]:
    step = _BLOCK_ENTRIES // HELD
    for begin in range(0, count, step):
        yield begin, min(begin + step, count)
