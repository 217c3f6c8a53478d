"""Choices of two servers on scores that they share: an index comes out, and nothing else.

Report noisy max (Dwork and Roth 2014, §3.3): add noise to every score, tell which is largest. With
one-sided geometric noise of scale s (P(g) ∝ exp(−g/s), g ≥ 0; Ding et al. 2021 show that
exponential noise makes this permute-and-flip, which never errs more than the exponential
mechanism), the k largest in order are

    2kΔ/s-private      if replacing a record moves every score by at most Δ, in whatever direction,
    (k + 1)Δ/s-private if it moves one score up, one down, and no other: counts of disjoint bins,
    kΔ/s-private       if it moves all of them the same way (monotone scores).

Proof, by coupling. Let x and x′ be adjacent and i_1, …, i_k be chosen under x and noise g. Add
δ_i = Δ + x_i − x′_i, which is within [0, 2Δ], to the noise of the chosen alone. Under x′ the chosen
then have x_i + g_i + Δ: their order is as it was, and any other has x′_j + g_j ≤ x_j + g_j + Δ. So
the same are chosen, ties going to the lower index as before. The shift is upwards, hence within the
noise's support, and costs Σδ_i/s ≤ 2kΔ/s. One up, one down: δ_i is 2Δ for the one that falls, at
most Δ for all others. Monotone: if scores only fall, take δ_i = x_i − x′_i, and if they only rise,
δ_i = Δ + x_i − x′_i; both are within [0, Δ].

The contest is a tournament: the first level adds up shares modulo 2^w and compares neighbours,
every next one compares winners, from XOR shares to XOR shares. A score of w bits costs about 4w
ANDs in all. The lower index wins a tie.
"""

from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError, PeerError
from tallyroom.protocols.garbling.circuit import Circuit
from tallyroom.protocols.garbling.circuit_builder import Builder, Word, width_of
from tallyroom.protocols.garbling.outputs import IntegerShares, OutputShares
from tallyroom.protocols.joint.computation import GARBLER, Program, Reveal
from tallyroom.protocols.joint.discerned import shared_together, twice_together
from tallyroom.protocols.joint.tasks import Part, in_messages, lowest_bits

MAX_WIDTH = 62


class Moved(Enum):
    """How a replaced record moves scores, each by at most Δ."""

    ANYHOW = auto()
    ONE_UP_ONE_DOWN = auto()
    ALIKE = auto()


def units_of_epsilon(picks: int, moved: Moved) -> int:
    """The privacy map: ε·s/Δ of the `picks` largest, in order, under noise of scale s."""
    if moved is Moved.ANYHOW:
        return 2 * picks
    return picks + (moved is Moved.ONE_UP_ONE_DOWN)


@dataclass(frozen=True)
class Choice:
    """What is chosen of the counts that servers share.

    Without `ranks`: the `picks` largest counts, in order. With `ranks`: counts are of records
    at most each threshold, and for each rank r the threshold is chosen whose records' ranks are
    nearest to r; a count C_i, C_{i−1} before it, has the score −max(0, r − C_i, C_{i−1} + 1 − r),
    which is 0 at the quantile itself and moves by at most 1 when a record is replaced.
    With `tables`: a candidate is a table of so many counts, `classes` of them for each part of the
    records; its score is less the more pairs of different classes are in one part
    (`protocols.joint.discerned`).
    """

    candidates: int
    records: int
    picks: int = 1
    ranks: tuple[int, ...] = ()
    tables: tuple[int, ...] = ()
    classes: int = 1
    most: int = 0
    """Records that there can be, whatever the question says of them (`Query.choice`)."""

    def __post_init__(self) -> None:
        if self.candidates < 2:
            raise LocalError("there is nothing to choose from one candidate")
        if not 1 <= self.picks <= self.candidates:
            raise LocalError(f"{self.picks} of {self.candidates} cannot be chosen")
        if any(not 1 <= rank <= self.records for rank in self.ranks):
            raise LocalError(f"ranks are from 1 to {self.records}")
        whole = self.classes >= 1 and all(size > 0 == size % self.classes for size in self.tables)
        if self.tables and not (whole and len(self.tables) == self.candidates):
            raise LocalError("every candidate has a table of whole parts")

    @property
    def contests(self) -> int:
        return max(1, len(self.ranks))

    @property
    def noises(self) -> int:
        return self.contests * self.candidates

    @property
    def chosen(self) -> int:
        """How many indices come out."""
        return len(self.ranks) or self.picks

    @property
    def largest(self) -> int:
        """The largest count that scores have room for."""
        return max(self.records, self.most)

    @property
    def moves(self) -> int:
        """Δ: how far a replaced record moves a score at most. Pairs with it alone are together or
        apart by it, and a score counts each of them twice."""
        return 2 * max(1, self.largest - 1) if self.tables else 1

    def width(self, largest_noise: int) -> int:
        """Bits of a noisy score. All are at least 1: 0 is for what takes no part."""
        highest = self.largest**2 if self.tables else self.largest
        width = (highest + 1 + largest_noise).bit_length()
        if width > MAX_WIDTH:
            raise LocalError(f"scores of {width} bits are too long to compare")
        return width

    def program(self, index: int, counts: Vector, noise: Vector | None, width: int) -> Program:
        """One server's end: shares of what is chosen, from shares of counts and of noise."""
        return choose(self, index, counts, noise, width)

    def in_clear(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """What is chosen without noise."""
        if self.tables:
            together = twice_together(counts.astype(object), self.tables, self.classes)
            return np.array([int(np.argmin(together))], dtype=np.int64)
        if not self.ranks:
            return np.argsort(-counts, kind="stable")[: self.picks]
        before = np.concatenate([[0], counts[:-1]])
        scores = [-np.maximum(0, np.maximum(r - counts, before + 1 - r)) for r in self.ranks]
        return np.array([int(np.argmax(each)) for each in scores], dtype=np.int64)


def choose(choice: Choice, index: int, counts: Vector, noise: Vector | None, width: int) -> Program:
    """Shares of the indices, from shares of the counts and of noise, modulo 2^64.

    Raises `PeerError` where what the other server reveals makes no index, or one that was chosen
    before: among honest servers one that takes part is left, and beats all that do not.
    """
    if choice.ranks:
        scores = yield from _rank_scores(choice, index, counts)
    elif choice.tables:
        width_of_counts = choice.largest.bit_length()
        together = yield from shared_together(
            counts, choice.tables, choice.classes, width_of_counts
        )
        highest = np.uint64(choice.largest**2 if index == GARBLER else 0)
        scores = (highest - together).reshape(1, -1)
    else:
        scores = counts.reshape(1, -1).copy()
    if noise is not None:
        scores = scores + noise.reshape(scores.shape)
    if index == GARBLER:
        scores = scores + np.uint64(1)
    if choice.ranks or choice.picks == 1:
        found: Vector = yield from winners(scores, width)
        return found
    chosen, told = [], set[int]()
    for pick in range(choice.picks):
        share: Vector = yield from winners(scores, width)
        chosen.append(share)
        if pick < choice.picks - 1:
            winner = int((yield Reveal(share))[0])
            if winner >= choice.candidates or winner in told:
                raise PeerError("the other server", "revealed a share of what nobody can choose")
            told.add(winner)
            scores[0, winner] = 0
    return np.concatenate(chosen)


def winners(scores: Vector, width: int) -> Part:
    """Shares of the index of the largest of each row of shared scores, (contests,).

    Scores are below 2^width; the lower index wins a tie.
    """
    contests = len(scores)
    values = lowest_bits(scores, width)
    first, bits = True, 0
    places = np.zeros((*scores.shape, 0), dtype=np.uint8)
    while values.shape[1] > 1 or first:
        if values.shape[1] % 2:
            values = np.pad(values, ((0, 0), (0, 1), (0, 0)))
            places = np.pad(places, ((0, 0), (0, 1), (0, 0)))
        last = values.shape[1] == 2
        entries = np.concatenate([values, places], axis=2)
        pairs = entries.reshape(contests * entries.shape[1] // 2, -1)
        circuit = _level(width, bits, first, last)
        bits += 1
        if last:
            form = IntegerShares(((bits, False),))
            shares: Vector = yield from in_messages(circuit, form, pairs)
            return shares[:, 0]
        found = yield from in_messages(circuit, OutputShares.XOR, pairs)
        entries = found.astype(np.uint8).reshape(contests, -1, width + bits)
        values, places, first = entries[..., :width], entries[..., width:], False
    raise AssertionError("a tournament ends with its last level")


@lru_cache(maxsize=128)
def _level(width: int, bits: int, first: bool, last: bool) -> Circuit:
    """The larger of two, with `bits` bits of its place below and one more."""
    each = width + bits
    builder = Builder(2 * each, 2 * each)
    words = []
    for start in (0, each):
        ours, theirs = (side[start : start + each] for side in (builder.garbler, builder.evaluator))
        if first:
            total = builder.add(Word(ours[:width]), Word(theirs[:width]))
            words.append((total.fitted(width, signed=False), Word(())))
        else:
            wires = tuple(builder.xor(a, b) for a, b in zip(ours, theirs, strict=True))
            words.append((Word(wires[:width]), Word(wires[width:])))
    (left, left_place), (right, right_place) = words
    second = builder.greater(right, left)
    place = Word(
        (
            *(
                builder.mux(second, b, a)
                for a, b in zip(left_place.wires, right_place.wires, strict=True)
            ),
            second,
        )
    )
    if last:
        return builder.circuit([place])
    return builder.circuit([builder.select(second, right, left), place])


def _rank_scores(choice: Choice, index: int, counts: Vector) -> Part:
    """Shares of the largest count less the distance in rank, (ranks, candidates).

    With d_i = r − 1 − C_i the distance is p_i + n_{i−1}, where p_i = max(0, d_i + 1) and
    n_i = max(0, −d_i). The circuit gives e = max(0, d) and s = I[d < 0]: p = e + 1 − s, n = e − d.
    """
    width = width_of(-choice.largest, choice.largest)
    ours = index == GARBLER
    ranks = np.array(choice.ranks, dtype=np.uint64) - np.uint64(1)
    differences = (ranks if ours else np.zeros_like(ranks))[:, None] - counts
    bits = lowest_bits(differences, width).reshape(-1, width)
    shares = yield from in_messages(
        _positive(width), IntegerShares(((width - 1, False), (1, False))), bits
    )
    e, s = (shares[:, i].reshape(differences.shape) for i in (0, 1))
    below = e - s + np.uint64(ours)
    above = np.pad(e - differences, ((0, 0), (1, 0)))[:, :-1]
    return np.uint64(choice.largest if ours else 0) - below - above


@lru_cache(maxsize=16)
def _positive(width: int) -> Circuit:
    """max(0, d) and whether d is negative, from shares of d modulo 2^width."""
    builder = Builder(width, width)
    total = builder.add(Word(builder.garbler), Word(builder.evaluator)).wires[:width]
    sign = total[-1]
    positive = tuple(builder.and_(builder.not_(sign), wire) for wire in total[:-1])
    return builder.circuit([Word(positive), Word((sign,))])
