"""Codes for a kernel's outputs in which every string of bits stands for values that may come out.

A circuit's output bits reach the servers as XOR shares, and nobody can check what was garbled. In
two's complement, bits say more than honest records can: 3 bits for [0, 4] also say 7. A code closes
that gap. Whatever its bits are, they decode to outputs in their ranges, and two strings of bits
differ by at most `reach` in L1. So a pair moves a total by `reach` at most, whoever lies in it.

For an integer z in [0, R] with 2^k ≤ R + 1 < 2^(k+1), the bits have the weights 1, 2, …, 2^(k−1)
and R − 2^k + 1: together R, and every z has a code. Prio's successors encode a bounded sum in this
way (libprio's `SumVec`); here a circuit computes the code. The top bit t is that of 2^k in z, and
the others are z + t·c modulo 2^k with the constant c = 2^(k+1) − R − 1: an addition of k − 1 ANDs.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.garbling.circuit import Circuit
from tallyroom.protocols.garbling.circuit_builder import (
    ONE,
    ZERO,
    Builder,
    Word,
    constant,
    width_of,
)
from tallyroom.protocols.garbling.clear_evaluation import Bits, evaluate, from_bits, to_bits
from tallyroom.protocols.garbling.outputs import IntegerShares, UncheckedIntegers

Integers = NDArray[np.int64]
Range = tuple[int, int]


class Code(ABC):
    """`wires` bits stand for one integer in each of `ranges`."""

    ranges: tuple[Range, ...]

    @property
    @abstractmethod
    def wires(self) -> int: ...

    @property
    @abstractmethod
    def reach(self) -> int:
        """The most, in L1, by which the outputs of two strings of bits differ."""

    @abstractmethod
    def encoded(self, builder: Builder, outputs: tuple[Word, ...]) -> tuple[int, ...]:
        """The code's wires, from outputs that lie in their ranges. Others give any bits."""

    @abstractmethod
    def decoded(self, builder: Builder, wires: tuple[int, ...]) -> list[Word]:
        """Words of which the outputs are the combination by `weights`, plus `offsets`."""

    @property
    @abstractmethod
    def weights(self) -> tuple[tuple[int, ...], ...]:
        """How often each word counts in each output."""

    @property
    def offsets(self) -> tuple[int, ...]:
        return (0,) * len(self.ranges)

    @cached_property
    def _decoding(self) -> tuple[Circuit, IntegerShares]:
        builder = Builder(0, self.wires, shared_inputs=True)
        words = self.decoded(builder, builder.evaluator)
        form = UncheckedIntegers(tuple((len(word), word.signed) for word in words))
        return builder.circuit(words), form

    @property
    def circuit(self) -> Circuit:
        """The words, from XOR shares of the bits."""
        return self._decoding[0]

    @property
    def form(self) -> IntegerShares:
        """How the words come out of `circuit`."""
        return self._decoding[1]

    def totals(self, words: Vector, pairs: int) -> Vector:
        """Each output's total over so many pairs, modulo 2^64, from the totals of the words. Of
        shares, one side counts the pairs and all others none."""
        weights = np.array(self.weights, dtype=object) % 2**64
        offsets = np.array(self.offsets, dtype=object) * pairs % 2**64
        found: Vector = ((weights @ words.astype(object) + offsets) % 2**64).astype(np.uint64)
        return found

    def bits(self, values: Integers) -> Bits:
        """A code of (pairs, outputs) integers in the clear, (pairs, wires)."""
        widths = [(width_of(low, high), low < 0) for low, high in self.ranges]
        builder = Builder(sum(width for width, _ in widths), 0)
        words, start = [], 0
        for width, signed in widths:
            words.append(Word(builder.garbler[start : start + width], signed))
            start += width
        circuit = builder.circuit([Word(self.encoded(builder, tuple(words)))])
        columns = [to_bits(each, width) for each, (width, _) in zip(values.T, widths, strict=True)]
        nothing = np.zeros((len(values), 0), dtype=np.uint8)
        return evaluate(circuit, np.concatenate(columns, axis=1), nothing)

    def values(self, bits: Bits) -> Integers:
        """What (pairs, wires) bits stand for in the clear, (pairs, outputs)."""
        found = evaluate(self.circuit, bits, np.zeros_like(bits))
        words, start = [], 0
        for width, signed in self.form.words:
            words.append(from_bits(found[:, start : start + width], signed))
            start += width
        weights = np.array(self.weights, dtype=np.int64)
        values: Integers = np.stack(words, axis=1) @ weights.T + np.array(self.offsets)
        return values


@dataclass(frozen=True)
class _Span:
    """An integer in [0, high]: `low_bits` binary digits, and a top bit that counts `top`, where
    digits alone do not end at `high`."""

    high: int

    @property
    def low_bits(self) -> int:
        return (self.high + 1).bit_length() - 1

    @property
    def top(self) -> int:
        return self.high + 1 - (1 << self.low_bits)

    @property
    def wires(self) -> int:
        return self.low_bits + (self.top > 0)

    def encoded(self, builder: Builder, z: Word, carry: int) -> tuple[int, ...]:
        """The code of z + carry, for z in binary."""
        k = self.low_bits
        z = z.fitted(k + 1, signed=False)
        low = Word(z.wires[:k])
        if not self.top:
            return builder.sum_within(low, constant(0).fitted(k, signed=False), carry).wires
        more = (1 << k) - self.top  # the constant c
        top = z.wires[k]
        if carry != ZERO:
            # The carry may lead from 2^k − 1 to 2^k: the top bit is set from 2^k − 2^j on, which
            # is at least what it counts for.
            close = ONE
            for wire in low.wires[more.bit_length() - 1 :]:
                close = builder.and_(close, wire)
            top = builder.or_(top, close)
        added = Word(tuple(top if more >> i & 1 else ZERO for i in range(k)))
        return (*builder.sum_within(low, added, carry).wires, top)


@dataclass(frozen=True)
class RangeCode(Code):
    """Integers in ranges of their own, each coded by itself."""

    ranges: tuple[Range, ...]

    @cached_property
    def _spans(self) -> tuple[_Span, ...]:
        return tuple(_Span(high - low) for low, high in self.ranges)

    @property
    def wires(self) -> int:
        return sum(span.wires for span in self._spans)

    @property
    def reach(self) -> int:
        return sum(span.high for span in self._spans)

    def encoded(self, builder: Builder, outputs: tuple[Word, ...]) -> tuple[int, ...]:
        wires: list[int] = []
        for word, span, (low, _) in zip(outputs, self._spans, self.ranges, strict=True):
            from_zero = word if low == 0 else builder.subtract(word, constant(low))
            wires += span.encoded(builder, from_zero, ZERO)
        return tuple(wires)

    def encoded_sum(self, builder: Builder, z: Word, carry: int) -> tuple[int, ...]:
        """The code of z + carry in a single range from 0: the carry costs next to nothing."""
        (span,) = self._spans
        return span.encoded(builder, z, carry)

    def decoded(self, builder: Builder, wires: tuple[int, ...]) -> list[Word]:
        words, start = [], 0
        for span in self._spans:
            own = wires[start : start + span.wires]
            words.append(Word(own[: span.low_bits]))
            if span.top:
                words.append(Word(own[span.low_bits :]))
            start += span.wires
        return words

    @property
    def weights(self) -> tuple[tuple[int, ...], ...]:
        counts = [[1, span.top] if span.top else [1] for span in self._spans]
        total = sum(map(len, counts))
        rows, start = [], 0
        for own in counts:
            rows.append((0,) * start + tuple(own) + (0,) * (total - start - len(own)))
            start += len(own)
        return tuple(rows)

    @property
    def offsets(self) -> tuple[int, ...]:
        return tuple(low for low, _ in self.ranges)


@dataclass(frozen=True)
class MixedSignCode(Code):
    """A sign, and whether it may differ from 0: the outcomes (0, 0), (0, 1), (1, 1) and (−1, 1) of
    `auc`, two of which differ by 2 at most, where ranges would allow 3. Two bits, one code each."""

    ranges: tuple[Range, ...] = ((-1, 1), (0, 1))

    @property
    def wires(self) -> int:
        return 2

    @property
    def reach(self) -> int:
        return 2

    def encoded(self, builder: Builder, outputs: tuple[Word, ...]) -> tuple[int, ...]:
        """Whether the sign is not 0; then whether it is −1, else whether it might have been."""
        (decided, negative), (mixed,) = (each.wires for each in outputs)
        return decided, builder.mux(decided, negative, mixed)

    def decoded(self, builder: Builder, wires: tuple[int, ...]) -> list[Word]:
        decided, other = wires
        negative = builder.and_(decided, other)
        mixed = builder.xor(builder.xor(decided, other), negative)
        return [Word((decided, negative), signed=True), Word((mixed,))]

    @property
    def weights(self) -> tuple[tuple[int, ...], ...]:
        return ((1, 0), (0, 1))


@dataclass(frozen=True)
class TiedSignCode(Code):
    """A sign doubled, and whether either of two columns differs: 0 unless both do. The outcomes of
    `kendall-tau --tau b`, two of which differ by 4 at most, where ranges would allow 6."""

    ranges: tuple[Range, ...] = ((-2, 2), (0, 1), (0, 1))

    @property
    def wires(self) -> int:
        return 3

    @property
    def reach(self) -> int:
        return 4

    def encoded(self, builder: Builder, outputs: tuple[Word, ...]) -> tuple[int, ...]:
        doubled, (x_differs,), (y_differs,) = (each.wires for each in outputs)
        return doubled[2], x_differs, y_differs

    def decoded(self, builder: Builder, wires: tuple[int, ...]) -> list[Word]:
        discordant, x_differs, y_differs = wires
        untied = builder.and_(x_differs, y_differs)
        sign = Word((untied, builder.and_(untied, discordant)), signed=True)
        return [sign, Word((x_differs,)), Word((y_differs,))]

    @property
    def weights(self) -> tuple[tuple[int, ...], ...]:
        return ((2, 0, 0), (0, 1, 0), (0, 0, 1))
