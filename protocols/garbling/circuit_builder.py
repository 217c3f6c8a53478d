"""Builds circuits: gates with constants folded and common terms shared, then words of wires.

Costs are counted in ANDs, for XOR and NOT are free under garbling. Comparisons and additions use
the carry c' = c ⊕ (x ⊕ c)(y ⊕ c), one AND a bit (Kolesnikov, Sadeghi and Schneider 2009).
"""

from dataclasses import dataclass

import numpy as np

from tallyroom.protocols.garbling.circuit import AND, NOT, XOR, Circuit

ZERO, ONE = -1, -2
"""Wires whose value is public. They vanish by folding, unless they are outputs."""


def width_of(low: int, high: int) -> int:
    """Bits that hold all integers of [low, high]: two's complement if low is negative."""
    if low > high:
        raise ValueError(f"no integer lies in [{low}, {high}]")
    if low < 0:
        return max((~low).bit_length(), high.bit_length() if high > 0 else 0) + 1
    return max(1, high.bit_length())


@dataclass(frozen=True)
class Word:
    """Wires of an integer, least significant first; the last one is the sign if `signed`."""

    wires: tuple[int, ...]
    signed: bool = False

    def __len__(self) -> int:
        return len(self.wires)

    @property
    def sign(self) -> int:
        return self.wires[-1] if self.signed else ZERO

    def extended(self, width: int) -> "Word":
        """The same integer, signed, in at least `width` bits."""
        wires = self.wires if self.signed else (*self.wires, ZERO)
        return Word(wires + (self.sign,) * (width - len(wires)), signed=True)

    def fitted(self, width: int, signed: bool) -> "Word":
        """The same integer in `width` bits, given that it fits: what is above them is dropped."""
        return Word((self.wires + (self.sign,) * (width - len(self)))[:width], signed)

    def shifted(self, places: int) -> "Word":
        """Times 2^places."""
        return Word((ZERO,) * places + self.wires, self.signed)


def constant(value: int) -> Word:
    width = width_of(value, value)
    return Word(tuple(ONE if value >> i & 1 else ZERO for i in range(width)), value < 0)


class Builder:
    """Adds gates to a circuit. Wires are numbers, good for this builder alone. With
    `shared_inputs`, both sides bring XOR shares of what is on the evaluator's wires."""

    def __init__(
        self, garbler_inputs: int, evaluator_inputs: int, shared_inputs: bool = False
    ) -> None:
        self.shared_inputs = shared_inputs
        self.garbler_inputs = garbler_inputs
        self.evaluator_inputs = evaluator_inputs
        self.garbler = tuple(range(garbler_inputs))
        self.evaluator = tuple(range(garbler_inputs, garbler_inputs + evaluator_inputs))
        self._gates: list[tuple[int, int, int]] = []
        self._known: dict[tuple[int, int, int], int] = {}
        self._complement = {ZERO: ONE, ONE: ZERO}

    # Gates

    def _gate(self, kind: int, left: int, right: int) -> int:
        key = (kind, min(left, right), max(left, right))
        if key not in self._known:
            self._known[key] = self.garbler_inputs + self.evaluator_inputs + len(self._gates)
            self._gates.append(key)
        return self._known[key]

    def not_(self, x: int) -> int:
        if x not in self._complement:
            self._complement[x] = self._gate(NOT, x, x)
            self._complement[self._complement[x]] = x
        return self._complement[x]

    def xor(self, x: int, y: int) -> int:
        if x == y:
            return ZERO
        if x < 0 or y < 0:
            x, y = max(x, y), min(x, y)
            return (ONE if x < 0 else x) if y == ZERO or x < 0 else self.not_(x)
        return ONE if self._complement.get(x) == y else self._gate(XOR, x, y)

    def and_(self, x: int, y: int) -> int:
        if ZERO in (x, y) or self._complement.get(x) == y:
            return ZERO
        if x == y or y == ONE:
            return x
        return y if x == ONE else self._gate(AND, x, y)

    def or_(self, x: int, y: int) -> int:
        return self.not_(self.and_(self.not_(x), self.not_(y)))

    def mux(self, choice: int, x: int, y: int) -> int:
        """x if `choice`, else y. One AND."""
        return self.xor(y, self.and_(choice, self.xor(x, y)))

    # Words

    def _carry(self, x: int, y: int, carry: int) -> int:
        """The majority of three bits. One AND."""
        return self.xor(carry, self.and_(self.xor(x, carry), self.xor(y, carry)))

    def _carries(self, x: Word, y: Word, carry: int) -> list[int]:
        """The carries of x + y + carry, from the one that enters to the one that leaves."""
        carries = [carry]
        for left, right in zip(x.wires, y.wires, strict=True):
            carries.append(self._carry(left, right, carries[-1]))
        return carries

    def _inverted(self, x: Word) -> Word:
        return Word(tuple(map(self.not_, x.wires)), x.signed)

    def _aligned(self, x: Word, y: Word) -> tuple[Word, Word]:
        """Both in the same width and the same form."""
        if not x.signed and not y.signed:
            width = max(len(x), len(y))
            return x.fitted(width, signed=False), y.fitted(width, signed=False)
        width = max(len(x) + (not x.signed), len(y) + (not y.signed))
        return x.extended(width), y.extended(width)

    def _sum(self, x: Word, y: Word, carry: int) -> Word:
        """x + y + carry for words of one width and form, one bit wider."""
        carries = self._carries(x, y, carry)
        x, y = x.fitted(len(carries), x.signed), y.fitted(len(carries), y.signed)
        bits = zip(x.wires, y.wires, carries, strict=True)
        return Word(tuple(self.xor(self.xor(a, b), c) for a, b, c in bits), x.signed)

    def sum_within(self, x: Word, y: Word, carry: int) -> Word:
        """x + y + carry modulo 2^w, for unsigned words of w bits: w − 1 ANDs."""
        if not len(x):
            return x
        last = self._carries(Word(x.wires[:-1]), Word(y.wires[:-1]), carry)
        bits = zip(x.wires, y.wires, last, strict=True)
        return Word(tuple(self.xor(self.xor(a, b), c) for a, b, c in bits))

    def add(self, x: Word, y: Word) -> Word:
        """x + y, one bit wider. Two words of w bits: w ANDs."""
        x, y = self._aligned(x, y)
        return self._sum(x, y, ZERO)

    def subtract(self, x: Word, y: Word) -> Word:
        """x − y, signed and one bit wider. Two words of w bits: w ANDs."""
        x, y = self._aligned(x, y)
        total = self._sum(x, self._inverted(y), ONE)
        if x.signed:
            return total
        # x + (2^w − 1 − y) + 1 is 2^w too much.
        return Word((*total.wires[:-1], self.not_(total.wires[-1])), signed=True)

    def negate(self, x: Word) -> Word:
        return self.subtract(constant(0), x)

    def _ordered(self, x: Word, y: Word) -> tuple[Word, Word]:
        """Unsigned words in the same order as x and y: adding 2^(w−1) is flipping the sign."""
        x, y = self._aligned(x, y)
        if not x.signed:
            return x, y
        return (
            Word((*x.wires[:-1], self.not_(x.wires[-1]))),
            Word((*y.wires[:-1], self.not_(y.wires[-1]))),
        )

    def greater(self, x: Word, y: Word) -> int:
        """I[x > y]. Two words of w bits: w ANDs."""
        x, y = self._ordered(x, y)
        return self._carries(x, self._inverted(y), ZERO)[-1]

    def greater_unless_equal(self, x: Word, y: Word) -> int:
        """I[x > y] where x ≠ y, and anything where x = y. Two words of w bits: w − 1 ANDs.

        Where the lowest bits differ, x has the larger one if it is set; so x_0 itself is the
        carry, and where they agree and all else does, nobody looks.
        """
        x, y = self._ordered(x, y)
        rest = self._inverted(Word(y.wires[1:]))
        return self._carries(Word(x.wires[1:]), rest, x.wires[0])[-1]

    def equal(self, x: Word, y: Word) -> int:
        """I[x = y]. Two words of w bits: w − 1 ANDs."""
        x, y = self._aligned(x, y)
        same = ONE
        for left, right in zip(x.wires, y.wires, strict=True):
            same = self.and_(same, self.not_(self.xor(left, right)))
        return same

    def select(self, choice: int, x: Word, y: Word) -> Word:
        """x if `choice`, else y. Two words of w bits: w ANDs."""
        x, y = self._aligned(x, y)
        pairs = zip(x.wires, y.wires, strict=True)
        return Word(tuple(self.mux(choice, a, b) for a, b in pairs), x.signed)

    def confined(self, x: Word, low: int, high: int) -> Word:
        """x where it lies in [low, high], else some number that does, in the bits of that range.

        Nothing where all that the bits can say lies within. Else, for words of w bits, at most
        w − 1 ANDs from 0, and 3w from any other number.
        """
        x = x.fitted(width_of(low, high), low < 0)
        above = self.greater(x, constant(high))
        if low == 0:
            # What is above has the highest bit set, as `high` has; without it, it is below.
            return Word((*x.wires[:-1], self.xor(x.wires[-1], above)))
        outside = self.or_(above, self.greater(constant(low), x))
        return self.select(outside, constant(low), x).fitted(len(x), x.signed)

    def absolute(self, x: Word) -> Word:
        """|x|, unsigned. A signed word of w bits: w − 1 ANDs."""
        if not x.signed:
            return x
        carry, bits = x.sign, []
        for wire in x.wires:
            flipped = self.xor(wire, x.sign)
            bits.append(self.xor(flipped, carry))
            carry = self.and_(flipped, carry)
        return Word(tuple(bits))

    def absolute_difference_less_sign(self, x: Word, y: Word) -> tuple[Word, int]:
        """|x − y| less s, unsigned, and s, which is I[x < y]. Two words of w bits: w ANDs, and
        w bits."""
        x, y = self._ordered(x, y)
        difference = self.subtract(x, y)
        sign = difference.sign
        return Word(tuple(self.xor(wire, sign) for wire in difference.wires[: len(x)])), sign

    def absolute_difference(self, x: Word, y: Word) -> Word:
        """|x − y|, unsigned. Two words of w bits: 2w − 1 ANDs, and w bits."""
        x, y = self._ordered(x, y)
        return self.absolute(self.subtract(x, y)).fitted(len(x), signed=False)

    def multiply(self, x: Word, y: Word) -> Word:
        """x · y, as wide as both together: a row of ANDs for each bit of y."""
        total = constant(0)
        for place, bit in enumerate(y.wires):
            row = Word(tuple(self.and_(wire, bit) for wire in x.wires), x.signed).shifted(place)
            top = y.signed and place == len(y) - 1
            total = self.subtract(total, row) if top else self.add(total, row)
        signed = x.signed or y.signed
        return total.fitted(len(x) + len(y), signed)

    def square(self, x: Word) -> Word:
        """x², for half of the ANDs of `multiply`, as each x_i x_j is there once, doubled."""
        x = self.absolute(x)
        total = constant(0)
        for i, bit in enumerate(x.wires):
            cross = [self.and_(bit, other) for other in x.wires[i + 1 :]]
            total = self.add(total, Word((bit, ZERO, *cross)).shifted(2 * i))
        return total.fitted(2 * len(x), signed=False)

    # The circuit

    def circuit(self, words: list[Word]) -> Circuit:
        """The circuit whose outputs are these words, without the gates that none of them needs."""
        inputs = self.garbler_inputs + self.evaluator_inputs
        gates = list(self._gates)
        outputs = [wire for word in words for wire in word.wires]
        if min(outputs, default=0) < 0:
            if not inputs:
                raise ValueError("a circuit without inputs has nothing to compute")
            gates += [(XOR, 0, 0), (NOT, inputs + len(gates), inputs + len(gates))]
            public = {ZERO: inputs + len(gates) - 2, ONE: inputs + len(gates) - 1}
            outputs = [public.get(wire, wire) for wire in outputs]
        needed = np.zeros(inputs + len(gates), dtype=bool)
        needed[outputs] = True
        for at in range(len(gates) - 1, -1, -1):
            if needed[inputs + at]:
                needed[[gates[at][1], gates[at][2]]] = True
        needed[:inputs] = True
        number = np.cumsum(needed) - 1
        kept = np.array(gates, dtype=np.int64).reshape(-1, 3)[needed[inputs:]]
        kept[:, 1:] = number[kept[:, 1:]]
        return Circuit(
            self.garbler_inputs,
            self.evaluator_inputs,
            kept.astype(np.uint32),
            number[np.array(outputs, dtype=np.int64)].astype(np.uint32),
            self.shared_inputs,
        )
