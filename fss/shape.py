"""How a two-server key is laid out, for comparison functions and for point functions.

A key is a binary tree of seeds, followed from the most significant bit of x. Its row holds

    root seed                       16 bytes
    for each of the `levels`        16 bytes that correct the seeds of both children
                                    and, for a comparison, one ring word that corrects the value
    for the terminal nodes          `words` ring words

The tree stops `terminal_bits` before the leaves (early termination, Boyle–Gilboa–Ishai, CCS
2016): a terminal node's seed is stretched to the values of all leaves below it.

A comparison's inner node at depth d carries 1 if it lies on the path of α and α turns right there;
x < α exactly if x leaves α's path to the left at such a node (the comparison from an incremental
DPF: eprint 2022/866, Alg. 7, and Google's `distributed_comparison_function`). A value is therefore
needed only where x turns left. The last leaf below a terminal node is never smaller than α inside
that node, so its word may be left out. With that a comparison takes exactly

    Z_2^64:  16 + 24(n−3) + 8·7  = 24n bytes (n ≥ 3),  16 + 24(n−1) + 8 = 24n (n < 3)
    Z_2^32:  16 + 20(n−4) + 4·16 = 20n bytes (n ≥ 4),  16 + 20(n−1) + 4 = 20n (n < 4)

against n(λ + ℓ + 2) + λ + ℓ bits, 800 bytes at n = 32 over Z_2^64, for the comparison of BCG+21
(eprint 2020/1392, λ = 128).

Control bits live in the two lowest bits of a corrected seed: bit 0 is the left child's, bit 1 the
right child's, and both are cleared before the seed is hashed. That keeps a correction at 16 bytes,
but leaves seeds of 126 bits, hence at most 126 bits of security. The cleared bits also number the
four hash calls that stretch a terminal node.
"""

from dataclasses import dataclass
from typing import Final

from tallyroom.fss.ring import Ring

SEED_BYTES: Final = 16
CONTROL_MASK: Final = 3
MAX_BITS: Final = 64


@dataclass(frozen=True)
class TreeShape:
    """Sizes and offsets of one kind of two-server key.

    The domain has 2^`bits` points, `bits` from 1 to 64. `step` is true for a comparison and false
    for a point function.
    """

    bits: int
    ring: Ring
    step: bool

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= MAX_BITS:
            raise ValueError(f"a domain has 1 to {MAX_BITS} bits, not {self.bits}")

    @property
    def terminal_bits(self) -> int:
        """Depth of the subtrees that early termination cuts off: as many leaves as four hash calls
        give words, if the domain is large enough."""
        four_blocks = 3 if self.ring.bits == 64 else 4
        if not self.step:
            return min(self.bits, four_blocks)
        return four_blocks if self.bits >= four_blocks else 1

    @property
    def words(self) -> int:
        """How many words of a terminal node are corrected; the leaves after them hold zero."""
        if not self.step:
            return 1 << self.terminal_bits
        return {1: 1, 3: 7, 4: 16}[self.terminal_bits]

    @property
    def levels(self) -> int:
        return self.bits - self.terminal_bits

    @property
    def level_bytes(self) -> int:
        return SEED_BYTES + (self.ring.bytes if self.step else 0)

    @property
    def key_bytes(self) -> int:
        return self.words_offset + self.words * self.ring.bytes

    @property
    def words_offset(self) -> int:
        return self.level_offset(self.levels)

    def level_offset(self, level: int) -> int:
        """Where a level's seed correction starts; its value correction follows it."""
        return SEED_BYTES + level * self.level_bytes

    def fields(self) -> list[tuple[int, int]]:
        """(offset, width) of every field, in order; together they cover the row."""
        pairs = [(0, SEED_BYTES)]
        for level in range(self.levels):
            start = self.level_offset(level)
            pairs.append((start, SEED_BYTES))
            if self.step:
                pairs.append((start + SEED_BYTES, self.ring.bytes))
        for word in range(self.words):
            pairs.append((self.words_offset + word * self.ring.bytes, self.ring.bytes))
        return pairs
