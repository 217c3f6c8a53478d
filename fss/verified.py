"""Two-server comparison keys that the servers can check without learning α.

A key shares the path of α in a binary tree, with weight 1 at every node of the path (an incremental
point function). Thresholds cut the domain into subtrees, the *leaves* of what is visited; the
number of α ≤ t is the sum over the leaves up to t. A key is right if exactly one leaf has weight,
and that weight is one. The servers find out by comparing one short *print* of each key. Each server
computes it from its own key, and the two must be equal: nothing is multiplied, nothing is opened.
Where all points of a small domain are asked, `grid` needs a third of the work.

**Tree** (Half-Tree: Guo, Yang, Wang, Zhang, Xie, Liu, Zhao, EUROCRYPT 2023, eprint 2022/1431). A
node's state s is a block whose lowest bit is its control bit t. With the level's correction c,

    left = H(s) ⊕ t·c,    right = left ⊕ s.

On α's path the servers' states differ by an offset, which is different for each key and has lowest
bit 1; off the path they are equal. Two children take one hash call, where `tree` takes two.

**Values and proofs.** Two more calls stretch a state to a value v of 64 bits and a proof π of 192
(the hash proofs of de Castro and Polychroniadou, EUROCRYPT 2022, eprint 2021/580, as in PLASMA and
Mastic, where they have 256 bits). A level corrects both where t = 1, v by addition and π by ⊕, such
that on the path values differ by 1 and proofs are equal. A row holds the root, for each level 16
bytes that correct states and, from the second level on, 32 that correct values and proofs: 48n − 16
bytes. No leaf is above the second level.

**Print.** After all keys are in, the servers draw a challenge and stretch it to a weight for each
word that they compare: the corrections, and the proofs π ⊕ t·c' at all leaves and at all other
visited nodes of a level that has leaves. The print is the sum of carry-less products of words and
weights, 128 bits that are not reduced, and the sum of all values (minus one at server 0).

**Soundness.** Suppose the prints are equal. Words that differ pass with a chance of 2^-64:
polynomials over GF(2) have no zero divisors, so at most one value of a weight makes up for the
rest. All words were fixed before the challenge was drawn, however a cheater chose them. Otherwise
both servers hold the same corrections, and all compared proofs are equal. Below a node with equal
states, states and values are equal. A node with different states can have equal proofs in two ways:
(a) its control bits are equal, and π collides; (b) they differ, and π(s₀) ⊕ π(s₁) is the level's
correction.

Suppose two nodes of a compared level differ, that is, have different states at the two servers. Let
δ = s₀ ⊕ s₁. The children's δ add up to their parent's, because right ⊕ left is the parent's state.
So a node that differs has a child that differs, and if the other child is equal, δ is handed down
unchanged. Take the lowest node p that has a differing node of that level, x and y, under each of
its children. Then δ(x) ⊕ δ(y) = δ(p) ≠ 0: the two pairs of states are not the same, and applying
(b) twice makes four proofs add up to zero that do not cancel out (or two, if x and y share a
state). How many such quadruples can a cheater try with q calls, backwards ones included? If x and y
are p's children and p's control bits differ, one server's children follow from its state of p, one
call; the other's are free by c, two calls: q³. If the control bits are both 1, p's two states and c
decide: q³ as well; if both are 0, q². If x and y are further down, each level between needs two
siblings to be equal with one c, which costs a coincidence of 128 bits. So there are at most q³
candidates, each with a chance of 2^-192, and except with a chance of

    2^-64 + (q³ + q²) / 2^192

at most one node of each compared level differs. Hence at most one leaf differs: of two at different
levels, the upper one and the lower one's ancestor at its level would both differ. That leaf has the
sum of all values, which is exactly one; no inverse is needed, so Z_2^64 suffices. The chance is
below 2^-40 for every cheater that makes up to 2^50 hash calls, whatever it computes between them.
Finding such proofs is a 3-XOR problem of 192 bits, for which no method far below 2^90 steps is
known. The hash keys depend on `context`: calls made before the run was named are worth nothing, and
keys of another run do not verify. As in `hash`, fixed-key AES is modelled as ideal permutations.

The first term counts once for each key and each batch of thresholds, the second once for all of
them: 2^23 bad keys, or one in 2^23 batches, still stay below 2^-40. Batches agree with each other.
If one batch has its leaf with weight where another has none, then in the other that place is below
a node that does not differ, or is a node without a child that differs; either way it does not
differ. So whatever is asked later of a key that passed, the key has one step at one α.

**Privacy.** To a server that lacks the other's offset all corrections are pseudorandom: H is
circular correlation robust (`hash`), and values and proofs come from permutations of their own. The
check reveals nothing more: an honest key has the same print at both servers, so each knows the
other's beforehand. A server that deviates therefore cannot make the check's outcome depend on α (no
selective failure), even if it chooses its part of the challenge last. It can have a party refused,
or have a party that it colludes with accepted, just as it can change its share of the sum.

**Why not a sketch.** Poplar's sketch (Boneh et al., S&P 2021) needs values in a field, products of
every value with two random numbers, and triples from the party; and one server that lies can make
its outcome depend on α. On one EPYC core a product in FIELD64 takes 2.2 ns and a hash call 1.0 ns.
A leaf of a full level takes 3 calls and 3 carry-less products here; a sketch would take 2 calls and
4.4 ns of products, and a second round. That is an estimate from these two costs; no sketch was
built. (Poplar1's test vectors therefore do not apply here; nor do Mastic's, whose proofs are longer
and over another tree.)
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from tallyroom.fss import native, verified_twin
from tallyroom.fss.hash import BLOCK_BYTES
from tallyroom.fss.prg import expand_seeds
from tallyroom.fss.ring import Bytes, Points, as_bytes, as_points
from tallyroom.fss.shape import MAX_BITS
from tallyroom.fss.verified_nodes import NODE_WEIGHTS, Nodes, blocks_of, visited

RANDOMNESS_BYTES: Final = 2 * BLOCK_BYTES
CHALLENGE_BYTES: Final = BLOCK_BYTES
MIN_BITS: Final = 2

_USAGES: Final = ("children", "value and proof", "proof")


def hash_key(usage: str, context: bytes) -> bytes:
    named = f"tallyroom fss verified v1 {usage}\0".encode()
    return hashlib.sha256(named + context).digest()[:BLOCK_BYTES]


@dataclass(frozen=True)
class Visit:
    """The nodes to visit, and the weights of what is compared; the same at both servers."""

    nodes: Nodes
    correction_weights: Points
    weights: Points


Evaluate = Callable[[int, Bytes], tuple[Points, Points]]
"""Takes a server's number and its rows; returns its shares and the prints of all keys."""


@dataclass(frozen=True)
class Verified:
    """Keys for values of `bits` bits, counted in Z_2^64 and valid only in one `context`.

    Keys are (K, key_bytes) uint8 rows. Raises ValueError if `bits` is out of range.
    """

    bits: int
    context: bytes

    def __post_init__(self) -> None:
        if not MIN_BITS <= self.bits <= MAX_BITS:
            raise ValueError(
                f"verified keys compare {MIN_BITS} to {MAX_BITS} bits, not {self.bits}"
            )

    @property
    def key_bytes(self) -> int:
        """The same for both servers."""
        return BLOCK_BYTES * blocks_of(self.bits)

    @property
    def randomness_bytes(self) -> int:
        return RANDOMNESS_BYTES

    @property
    def value_words(self) -> slice:
        """Which words of a row correct values: one in six, from the second level on."""
        return slice(6, None, 6)

    @cached_property
    def hash_keys(self) -> bytes:
        """Three keys, concatenated: for children, for the value and a third of the proof, and for
        the rest of the proof."""
        return b"".join(hash_key(usage, self.context) for usage in _USAGES)

    def gen(
        self, alphas: npt.ArrayLike, randomness: Bytes, threads: int | None = None
    ) -> tuple[Bytes, Bytes]:
        """Both servers' rows. `randomness` is (K, 32) uint8: uniform, secret, never used again.

        Raises ValueError on a wrong shape or dtype, or on an α outside the domain.
        """
        alphas = as_points(alphas, self.bits, "alphas")
        randomness = np.ascontiguousarray(as_bytes(randomness, RANDOMNESS_BYTES, "randomness"))
        if len(randomness) != len(alphas):
            raise ValueError(f"{len(alphas)} alphas need as many rows of randomness")
        rows0, rows1 = np.empty((2, len(alphas), self.key_bytes), dtype=np.uint8)
        code = native.instruction_set()
        if code is None:
            verified_twin.gen(self.bits, self.hash_keys, alphas, randomness, rows0, rows1)
            return rows0, rows1

        def work(begin: int, end: int) -> None:
            native.compiled.verified_gen(
                code,
                self.bits,
                self.hash_keys,
                alphas[begin:end],
                randomness[begin:end],
                rows0[begin:end],
                rows1[begin:end],
            )

        native.over_blocks(work, len(alphas), threads)
        return rows0, rows1

    def validate(self, server: int, rows: Bytes) -> npt.NDArray[np.bool_]:
        """Which rows are canonical: the root's control bit is the server's number. The check covers
        everything else. Raises ValueError if the rows are not as long as keys."""
        rows = as_bytes(rows, self.key_bytes, "keys")
        canonical: npt.NDArray[np.bool_] = (rows[:, 0] & np.uint8(1)) == server
        return canonical

    def visit(self, points: npt.ArrayLike, challenge: bytes) -> Visit:
        """`challenge` must be drawn after the last key can change, and used for one run only:
        whoever knows it earlier can make bad keys that pass."""
        if len(challenge) != CHALLENGE_BYTES:
            raise ValueError(f"a challenge has {CHALLENGE_BYTES} bytes, not {len(challenge)}")
        nodes = visited(as_points(points, self.bits, "thresholds"), self.bits)
        first = 2 * blocks_of(nodes.deepest)
        seed = np.frombuffer(challenge, dtype=np.uint8)[None]
        words = expand_seeds(seed, first + NODE_WEIGHTS * nodes.checks)[0]
        return Visit(nodes, words[:first], words[first:])

    def at(self, points: npt.ArrayLike, challenge: bytes) -> Evaluate:
        """`evaluate_sum` at these points, as a function of a server and its rows."""
        visit = self.visit(points, challenge)
        return lambda server, rows: self.evaluate_sum(server, rows, visit)

    def evaluate_sum(
        self, server: int, rows: Bytes, visit: Visit, threads: int | None = None
    ) -> tuple[Points, Points]:
        """(T,) shares of the number of keys with α ≤ t, and the (K, 3) prints of all keys."""
        if server not in (0, 1):
            raise ValueError(f"a two-server key belongs to server 0 or 1, not {server}")
        rows = np.ascontiguousarray(as_bytes(rows, self.key_bytes, "keys"))
        nodes = visit.nodes
        prints = np.empty((len(rows), 3), dtype=np.uint64)
        code = native.instruction_set()
        if code is None:
            sums = verified_twin.evaluate_sum(
                self.hash_keys, rows, nodes, visit.correction_weights, visit.weights, prints
            )
        else:

            def work(begin: int, end: int) -> Points:
                part = np.zeros(nodes.leaves, dtype=np.uint64)
                native.compiled.verified_sum(
                    code,
                    self.bits,
                    self.hash_keys,
                    rows[begin:end],
                    blocks_of(nodes.deepest),
                    nodes.kinds,
                    visit.correction_weights,
                    visit.weights,
                    part,
                    prints[begin:end],
                )
                return part

            sums = np.zeros(nodes.leaves, dtype=np.uint64)
            for part in native.over_blocks(work, len(rows), threads):
                sums += part
        shares = np.cumsum(sums, dtype=np.uint64)[nodes.ends]
        if server == 0:
            prints[:, 2] -= np.uint64(1)
            return shares, prints
        return np.negative(shares), prints
