"""A table from which a circuit draws: Walker's alias method (1977), on whole numbers.

A table of 2^w places is drawn from in two steps: a place i, by w coins, then its own value i if k
further coins are below its threshold, else its alias. Place i stands for the mass 2^k, of 2^(w + k)
in all, so a chance is any multiple of 2^−(w + k).

In a circuit, products of the first coins tell the place, which takes some 2^w ANDs. Each bit of a
threshold and of an alias is a XOR of some of these products, which is free. The comparison takes k
ANDs, and the choice of the value w.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext

from tallyroom.protocols.garbling.circuit_builder import ONE, ZERO, Builder, Word
from tallyroom.protocols.garbling.laplace_circuit import digits_for

LEAST_EXPONENT = -(10**9)
"""The least exponent of a chance: that of a value far out underflows the default one."""


@dataclass(frozen=True)
class AliasTable:
    """The threshold of every place, below 2^`coin_bits`, and its alias."""

    thresholds: tuple[int, ...]
    aliases: tuple[int, ...]
    coin_bits: int

    @classmethod
    def of(cls, chances: Sequence[Decimal], coin_bits: int) -> "AliasTable":
        """Of values 0, 1, … with these chances, as many as a power of two. Each is rounded to a
        multiple of the least mass; the likeliest value takes what is then too much or too little.
        """
        whole = len(chances) << coin_bits
        with localcontext(Context(prec=digits_for(whole.bit_length()), Emin=LEAST_EXPONENT)):
            masses = [int((chance * whole).to_integral_value()) for chance in chances]
        masses[masses.index(max(masses))] += whole - sum(masses)
        return cls._filled(masses, coin_bits)

    @classmethod
    def _filled(cls, masses: list[int], coin_bits: int) -> "AliasTable":
        """Every place gets what is left of its own value, and is filled up from a value that has
        more than one place."""
        room = 1 << coin_bits
        thresholds, aliases = [0] * len(masses), list(range(len(masses)))
        short = [i for i, mass in enumerate(masses) if mass < room]
        long = [i for i, mass in enumerate(masses) if mass > room]
        left = list(masses)
        while short:
            place, value = short.pop(), long[-1]
            thresholds[place], aliases[place] = left[place], value
            left[value] -= room - left[place]
            if left[value] <= room:
                long.pop()
                if left[value] < room:
                    short.append(value)
        return cls(tuple(thresholds), tuple(aliases), coin_bits)

    @property
    def masses(self) -> tuple[int, ...]:
        """How many of all coins draw each value."""
        found = list(self.thresholds)
        for threshold, alias in zip(self.thresholds, self.aliases, strict=True):
            found[alias] += (1 << self.coin_bits) - threshold
        return tuple(found)

    def drawn(self, builder: Builder, place: Sequence[int], coins: Sequence[int]) -> list[int]:
        """The wires of the value that is drawn, lowest bit first."""
        at = _products(builder, place)
        width = len(place)

        def looked_up(values: Sequence[int], bits: int) -> list[int]:
            return [
                _either(builder, [at[i] for i, value in enumerate(values) if value >> bit & 1])
                for bit in range(bits)
            ]

        threshold = Word(tuple(looked_up(self.thresholds, self.coin_bits)))
        own = builder.greater(threshold, Word(tuple(coins)))
        aliases = looked_up(self.aliases, width)
        pairs = zip(place, aliases, strict=True)
        return [builder.mux(own, bit, alias) for bit, alias in pairs]


def _products(builder: Builder, bits: Sequence[int]) -> list[int]:
    """For every number of so many bits, whether it is the one that they say."""
    found = [ONE]
    for bit in bits:
        set_ = [builder.and_(each, bit) for each in found]
        found = [builder.xor(each, one) for each, one in zip(found, set_, strict=True)] + set_
    return found


def _either(builder: Builder, wires: Sequence[int]) -> int:
    """The XOR of all of them, of which one at most is set."""
    found = ZERO
    for wire in wires:
        found = builder.xor(found, wire)
    return found
