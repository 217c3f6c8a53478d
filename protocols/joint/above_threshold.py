"""The sparse vector technique between two servers: which score is the first that reaches a
threshold comes out, and nothing else.

Above threshold (Dwork and Roth 2014, Algorithm 1): the first i with x_i + ν_i ≥ T + ρ, or that
there is none. Here ρ and every ν_i are geometric of one scale s and not negative, which has half
the variance of Laplace noise at the same price:

    3Δ/s-private   if replacing a record moves every score by at most Δ, in whatever direction,
    2Δ/s-private   if it moves all of them the same way (monotone scores).

These are the maps of Lyu, Su and Li (2017), Theorems 2 and 3, for equal scales: Δ/s for the
threshold, 2Δ/s or Δ/s for the one score above it. They hold for one-sided noise as well.

Proof, by coupling. Let x and x′ be adjacent and k the answer under x, ρ and ν. Take ρ′ = ρ + Δ and
ν′_k = ν_k + Δ + x_k − x′_k, all else as it is. Then x′_i + ν_i ≤ x_i + Δ + ν_i < T + ρ′ for i < k,
and x′_k + ν′_k = x_k + ν_k + Δ ≥ T + ρ′: the answer under x′ is k. Where the answer is that there
is none, ρ′ alone suffices. Both shifts are upwards, hence within the noise's support, and cost
Δ/s + 2Δ/s at most, as Δ + x_k − x′_k is within [0, 2Δ]. Monotone: if scores only rise, this is
within [0, Δ]; if they only fall, take ρ′ = ρ and ν′_k = ν_k + x_k − x′_k, which costs Δ/s.

Scores past the first one above the threshold cost nothing as nothing is told of them. All of them
are compared at once, under encryption, so neither time nor traffic depends on where it is.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.garbling.circuit import Circuit
from tallyroom.protocols.garbling.circuit_builder import Builder, Word, width_of
from tallyroom.protocols.garbling.outputs import IntegerShares, OutputShares
from tallyroom.protocols.joint.choice import MAX_WIDTH
from tallyroom.protocols.joint.computation import GARBLER, Bytes, Program
from tallyroom.protocols.joint.tasks import Part, in_messages, lowest_bits


def units_of_epsilon(contests: int, monotone: bool) -> int:
    """ε·s/Δ of so many searches on the same records, each with its own noise of scale s."""
    return contests * (2 if monotone else 3)


@dataclass(frozen=True)
class FirstAbove:
    """For every threshold a search of its own through `candidates` scores, which are counts of at
    most `records` records. What comes out is an index each, `candidates` where none is above."""

    candidates: int
    records: int
    thresholds: tuple[int, ...]
    most: int = 0
    """Records that there can be, whatever the question says of them (`Query.choice`)."""
    moves: ClassVar[int] = 1
    """How far a replaced record moves a score at most."""

    def __post_init__(self) -> None:
        if self.candidates < 1 or not self.thresholds:
            raise LocalError("there is nothing to compare with a threshold")
        for threshold in self.thresholds:
            if not 1 <= threshold <= self.records:
                raise LocalError(
                    f"a threshold is from 1 to the number of records, {self.records}, "
                    f"not {threshold}"
                )

    @property
    def contests(self) -> int:
        return len(self.thresholds)

    @property
    def noises(self) -> int:
        """Of every contest: that of the threshold first, then those of the scores."""
        return self.contests * (self.candidates + 1)

    @property
    def chosen(self) -> int:
        return self.contests

    def width(self, largest_noise: int) -> int:
        """Bits of x_i + ν_i − T − ρ, with its sign."""
        most = max(self.records, self.most) + largest_noise
        width = width_of(-most, most)
        if width > MAX_WIDTH:
            raise LocalError(f"scores of {width} bits are too long to compare")
        return width

    def in_clear(self, scores: NDArray[np.int64]) -> NDArray[np.int64]:
        """What is found without noise."""
        rows = scores.reshape(self.contests, self.candidates)
        above = rows >= np.array(self.thresholds, dtype=np.int64)[:, None]
        found: NDArray[np.int64] = np.where(
            above.any(axis=1), np.argmax(above, axis=1), self.candidates
        )
        return found

    def program(self, index: int, scores: Vector, noise: Vector | None, width: int) -> Program:
        """One server's end: shares of the indices, from shares of scores and of noise."""
        over = scores.reshape(self.contests, self.candidates).copy()
        if index == GARBLER:
            over -= np.array(self.thresholds, dtype=np.uint64)[:, None]
        if noise is not None:
            each = noise.reshape(self.contests, self.candidates + 1)
            over += each[:, 1:] - each[:, :1]
        bits = lowest_bits(over, width).reshape(-1, width)
        above = yield from in_messages(_not_negative(width), OutputShares.XOR, bits)
        return (yield from first(above.astype(np.uint8).reshape(over.shape)))


def first(found: Bytes) -> Part:
    """Shares of the index of the first bit that is set in each row of XOR-shared bits, (rows,); of
    the length of a row where none is.

    A tournament: of two neighbours the left one goes on if it has found something.
    """
    rows, candidates = found.shape
    entries = found[..., None]
    bits = 0
    while True:
        if entries.shape[1] % 2:
            entries = np.pad(entries, ((0, 0), (0, 1), (0, 0)))
        last = entries.shape[1] == 2
        circuit = _level(bits, last)
        pairs = entries.reshape(rows * entries.shape[1] // 2, -1)
        bits += 1
        if last:
            form = IntegerShares(((bits, False), (1, False)))
            shares: Vector = yield from in_messages(circuit, form, pairs)
            return shares[:, 0] + shares[:, 1] * np.uint64(candidates)
        winners = yield from in_messages(circuit, OutputShares.XOR, pairs)
        entries = winners.astype(np.uint8).reshape(rows, -1, 1 + bits)


@lru_cache(maxsize=64)
def _not_negative(width: int) -> Circuit:
    """I[d ≥ 0] from shares of d modulo 2^width: width − 1 ANDs."""
    builder = Builder(width, width)
    total = builder.add(Word(builder.garbler), Word(builder.evaluator)).wires[:width]
    return builder.circuit([Word((builder.not_(total[-1]),))])


@lru_cache(maxsize=64)
def _level(bits: int, last: bool) -> Circuit:
    """Of two entries, each whether something was found and `bits` bits of where, the first that
    has; one more bit tells which. The last level's place is 0 where nothing was found, and it tells
    so in a word of its own."""
    each = 1 + bits
    builder = Builder(2 * each, 2 * each)
    wires = [builder.xor(a, b) for a, b in zip(builder.garbler, builder.evaluator, strict=True)]
    (left, *left_place), (right, *right_place) = wires[:each], wires[each:]
    found = builder.or_(left, right)
    places = zip(left_place, right_place, strict=True)
    place = (*(builder.mux(left, a, b) for a, b in places), builder.not_(left))
    if not last:
        return builder.circuit([Word((found,)), Word(place)])
    masked = Word(tuple(builder.and_(found, wire) for wire in place))
    return builder.circuit([masked, Word((builder.not_(found),))])
