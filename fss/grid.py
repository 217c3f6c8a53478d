"""Two-server keys that the servers can check, for a domain of which every point is asked.

`verified` works for any thresholds, and needs a proof at every leaf. Where all leaves of a level
are visited anyway, it is enough to have proofs at the nodes three levels above the leaves, and a
second, short key for the last three bits.

**Tree.** The tree of `verified`, down to the nodes of n − 3 bits, with proofs at those nodes only.
A node's state is stretched to eight words, one for each leaf below it. The level corrects them by
addition where t = 1, such that on α's path they differ by 1 at α's leaf and by 0 at the others. A
row holds, in blocks of 16 bytes,

    root | one correction for each of n − 3 levels | 2 of proofs | 4 of words | low part, 8

which makes 16(n + 12) bytes. The *low part* is a key of `verified` for the last three bits of α.

**Print.** Computed as in `verified`, from all corrections, from the proofs π ⊕ t·c' at all nodes of
n − 3 bits (256 bits each), and from everything that `verified` compares of the low part, the sum of
its values included. Eight more words enter it: the j-th is the sum over all nodes of their j-th
word, minus the low part's value at leaf j.

**Soundness.** By the argument of `verified`, and except with the chance stated there, at most one
node of n − 3 bits has different states at the two servers, and exactly one leaf of the low part has
weight, which is one. A node with equal states has equal words. So the servers' sums over all nodes
differ by the words of that one node. The differences to the low part are equal, word by word and
modulo 2^64, so these words are those of the low part: a one at one leaf, and zeros. Nothing is
multiplied, so Z_2^64 suffices. Proofs are longer than in `verified`, which makes the chance for the
long part smaller:

    2^-64 for all compared words of a key, and (q³ + q²) / 2^192 for the low part's proofs.

**Privacy.** As for `verified`. Words come from a permutation of their own, evaluated at s ⊕ 2j for
the j-th pair of them: circular correlation robustness covers such calls (H at the unknown offset,
moved by what the server knows). Comparing the eight words tells a server nothing either: for an
honest key both servers hold the same ones.

**Cost.** For 1024 leaves, a key takes 918 hash calls and 560 carry-less products. `verified` takes
3071 and 3120. A comparison without a check takes 893 hash calls over this domain, and 2045 at 1024
thresholds of a finer grid.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from tallyroom.fss import grid_twin, native
from tallyroom.fss.hash import BLOCK_BYTES
from tallyroom.fss.prg import expand_seeds
from tallyroom.fss.ring import Bytes, Points, as_bytes, as_points
from tallyroom.fss.verified import CHALLENGE_BYTES, Evaluate, Verified, hash_key
from tallyroom.fss.verified import RANDOMNESS_BYTES as PART_RANDOMNESS
from tallyroom.fss.verified_nodes import NODE_WEIGHTS

LOW_BITS: Final = 3
MIN_BITS: Final = LOW_BITS + 2
MAX_BITS: Final = 24

_PROOF_BLOCKS: Final = 2
_WORD_BLOCKS: Final = (1 << LOW_BITS) // 2


@dataclass(frozen=True)
class GridVisit:
    """The points to count at, and the weights of what is compared; the same at both servers."""

    points: Points
    correction_weights: Points
    weights: Points


@dataclass(frozen=True)
class GridKeys:
    """Keys for values of `bits` bits, counted in Z_2^64 and valid only in one `context`.

    Keys are (K, key_bytes) uint8 rows. Raises ValueError if `bits` is out of range.
    """

    bits: int
    context: bytes

    def __post_init__(self) -> None:
        if not MIN_BITS <= self.bits <= MAX_BITS:
            raise ValueError(f"grid keys compare {MIN_BITS} to {MAX_BITS} bits, not {self.bits}")

    @property
    def levels(self) -> int:
        return self.bits - LOW_BITS

    @property
    def low_block(self) -> int:
        """The block at which the low part begins."""
        return self.levels + 1 + _PROOF_BLOCKS + _WORD_BLOCKS

    @property
    def key_bytes(self) -> int:
        """The same for both servers."""
        return BLOCK_BYTES * self.low_block + self.low.key_bytes

    @property
    def randomness_bytes(self) -> int:
        return 2 * PART_RANDOMNESS

    @property
    def value_words(self) -> slice:
        """Which words of a row correct values of the long part."""
        first = 2 * (self.levels + 1 + _PROOF_BLOCKS)
        return slice(first, first + 2 * _WORD_BLOCKS)

    @cached_property
    def low(self) -> Verified:
        return Verified(LOW_BITS, self.context)

    @cached_property
    def hash_keys(self) -> bytes:
        """The hash keys of `verified`, and one for words."""
        return self.low.hash_keys + hash_key("words", self.context)

    def gen(
        self, alphas: npt.ArrayLike, randomness: Bytes, threads: int | None = None
    ) -> tuple[Bytes, Bytes]:
        """Both servers' rows. `randomness` is (K, 64) uint8: uniform, secret, never used again.

        Raises ValueError on a wrong shape or dtype, or on an α outside the domain.
        """
        alphas = as_points(alphas, self.bits, "alphas")
        randomness = as_bytes(randomness, self.randomness_bytes, "randomness")
        if len(randomness) != len(alphas):
            raise ValueError(f"{len(alphas)} alphas need as many rows of randomness")
        mine = np.ascontiguousarray(randomness[:, :PART_RANDOMNESS])
        size = BLOCK_BYTES * self.low_block
        parts = np.empty((2, len(alphas), size), dtype=np.uint8)
        code = native.instruction_set()
        if code is None:
            grid_twin.gen(self.levels, self.hash_keys, alphas, mine, parts[0], parts[1])
        else:

            def work(begin: int, end: int) -> None:
                native.compiled.grid_gen(
                    code,
                    self.bits,
                    self.hash_keys,
                    alphas[begin:end],
                    mine[begin:end],
                    parts[0, begin:end],
                    parts[1, begin:end],
                )

            native.over_blocks(work, len(alphas), threads)
        low = alphas & np.uint64((1 << LOW_BITS) - 1)
        lows = self.low.gen(low, randomness[:, PART_RANDOMNESS:], threads)
        rows = np.empty((2, len(alphas), self.key_bytes), dtype=np.uint8)
        for server in (0, 1):
            rows[server, :, :size] = parts[server]
            rows[server, :, size:] = lows[server]
        return rows[0], rows[1]

    def validate(self, server: int, rows: Bytes) -> npt.NDArray[np.bool_]:
        """Which rows are canonical: both roots' control bits are the server's number. The check
        covers everything else. Raises ValueError if the rows are not as long as keys."""
        rows = as_bytes(rows, self.key_bytes, "keys")
        roots = rows[:, [0, BLOCK_BYTES * self.low_block]]
        canonical: npt.NDArray[np.bool_] = ((roots & np.uint8(1)) == server).all(axis=1)
        return canonical

    def visit(self, points: npt.ArrayLike, challenge: bytes) -> GridVisit:
        """`challenge` is drawn when no key can change any more, and never for the keys of another
        run: whoever knows it earlier can make bad keys that pass."""
        if len(challenge) != CHALLENGE_BYTES:
            raise ValueError(f"a challenge has {CHALLENGE_BYTES} bytes, not {len(challenge)}")
        points = as_points(points, self.bits, "thresholds")
        first = 2 * (self.key_bytes // BLOCK_BYTES)
        nodes = (1 << self.levels) + (1 << LOW_BITS)
        seed = np.frombuffer(challenge, dtype=np.uint8)[None]
        words = expand_seeds(seed, first + NODE_WEIGHTS * nodes + 2 * _WORD_BLOCKS)[0]
        words[[0, 1, 2 * self.low_block, 2 * self.low_block + 1]] = 0  # roots differ by design
        return GridVisit(points, words[:first], words[first:])

    def at(self, points: npt.ArrayLike, challenge: bytes) -> Evaluate:
        """`evaluate_sum` at these points, as a function of a server and its rows."""
        visit = self.visit(points, challenge)
        return lambda server, rows: self.evaluate_sum(server, rows, visit)

    def evaluate_sum(
        self, server: int, rows: Bytes, visit: GridVisit, threads: int | None = None
    ) -> tuple[Points, Points]:
        """(T,) shares of the number of keys with α ≤ t, and the (K, 3) prints of all keys."""
        if server not in (0, 1):
            raise ValueError(f"a two-server key belongs to server 0 or 1, not {server}")
        rows = np.ascontiguousarray(as_bytes(rows, self.key_bytes, "keys"))
        prints = np.empty((len(rows), 3), dtype=np.uint64)
        sums = np.zeros(1 << self.bits, dtype=np.uint64)
        weights = visit.correction_weights, visit.weights
        code = native.instruction_set()
        if code is None:
            grid_twin.evaluate_sum(self.levels, self.hash_keys, rows, *weights, sums, prints)
        else:

            def work(begin: int, end: int) -> Points:
                part = np.zeros_like(sums)
                native.compiled.grid_sum(
                    code,
                    self.bits,
                    self.hash_keys,
                    rows[begin:end],
                    *weights,
                    part,
                    prints[begin:end],
                )
                return part

            for part in native.over_blocks(work, len(rows), threads):
                sums += part
        shares = np.cumsum(sums, dtype=np.uint64)[visit.points.astype(np.int64)]
        if server == 0:
            prints[:, 2] -= np.uint64(1)
            return shares, prints
        return np.negative(shares), prints
