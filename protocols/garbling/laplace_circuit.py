"""Laplace noise inside a circuit, from coins of both sides.

G is geometric of scale s on 0 … 2^m − 1, P(g) ∝ exp(−g/s): its bits are independent, and bit j is
set with probability p_j = 1/(1 + exp(2^j/s)). A bit is a comparison of k uniform bits with the
constant round(2^k p_j). Each uniform bit is the XOR of a coin of either side, so one side that
keeps its coins to itself suffices, if the garbler garbles this circuit (nobody checks that), and
neither knows what was drawn. All coins are always used: a sampler that stops early
would tell by its length what it drew.

The noise is X = G or, with probability ½, the complement −G − 1. So X + ½ is symmetric with
P(X + ½ = t) ∝ exp(−|t|/s) on the half-integers; readers of the output add `OFFSET` publicly.
Moving the output by d costs exactly d/s, as with the discrete Laplace distribution on the integers,
whose zero would take a rejection. The variance is larger by ¼.

What the circuit draws is not quite that: G ends at 2^m and each p_j is rounded. The total variation
distance TV between the two is paid for in δ (Champion, shelat and Ullman 2019 draw biased coins to
the same end).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_UP, Context, Decimal, localcontext
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.garbling.circuit_builder import ZERO, Builder, Word
from tallyroom.protocols.randomness import Randomness

OFFSET = Fraction(1, 2)
"""What readers add to a noisy output; it makes the noise symmetric about zero."""

LEAST_DISTANCE = 2.0**-960
"""Of a sampler from its law: what doubles can account for, and coins of some thousand bits give."""

_MAX_MAGNITUDE_BITS = 60
_MAX_COIN_BITS = 1024


def digits_for(coin_bits: int) -> int:
    """Decimal digits in the probabilities: far below the rounding to so many bits, which is
    accounted for."""
    return max(60, math.ceil(coin_bits * math.log10(2)) + 22)


@dataclass(frozen=True)
class CircuitLaplace:
    """Noise of `scale`, cut at 2^magnitude_bits, with probabilities of coin_bits bits."""

    scale: Fraction
    magnitude_bits: int
    coin_bits: int

    def __post_init__(self) -> None:
        if self.scale <= 0:
            raise ValueError(f"noise has a positive scale, not {self.scale}")
        if not 0 < self.magnitude_bits <= _MAX_MAGNITUDE_BITS:
            raise LocalError(
                f"noise of {self.magnitude_bits} bits does not fit a circuit's outputs: "
                "take fewer bits for the data, or a larger epsilon"
            )
        if not 0 < self.coin_bits <= _MAX_COIN_BITS:
            raise ValueError(f"coins have 1 to {_MAX_COIN_BITS} bits, not {self.coin_bits}")

    @classmethod
    def spending(
        cls, epsilon: Fraction, delta: float, sensitivity: int, pairs: int, outputs: int
    ) -> "CircuitLaplace":
        """The noise for each output of each pair, when a record is in `pairs` pairs.

        The whole is (ε, δ)-private for that record. `sensitivity` is the most, in L1, that one
        pair's outputs move when one of its records is replaced.
        """
        if not 0 < delta < 1:
            raise LocalError(f"noise inside a circuit needs a delta between 0 and 1, not {delta:g}")
        scale = Fraction(sensitivity * pairs) / epsilon
        distance = delta / delta_per_distance(epsilon, pairs, outputs)
        check_distance(distance, epsilon / pairs, delta)
        # Half of the distance for the tail, half for the rounding.
        magnitude = max(1, math.ceil(math.log2(max(1.0, scale * math.log(2 / distance)))))
        coins = math.ceil(math.log2(magnitude / distance))
        return cls(scale, magnitude, coins)

    @property
    def _digits(self) -> int:
        return digits_for(self.coin_bits)

    @cached_property
    def _probabilities(self) -> tuple[Decimal, ...]:
        with localcontext(Context(prec=self._digits)):
            scale = Decimal(self.scale.numerator) / Decimal(self.scale.denominator)
            return tuple(1 / (1 + (2**j / scale).exp()) for j in range(self.magnitude_bits))

    @cached_property
    def thresholds(self) -> tuple[int, ...]:
        """The constants that coins are compared with: bit j is set when they are below it."""
        with localcontext(Context(prec=self._digits)):
            return tuple(int((p * 2**self.coin_bits).to_integral()) for p in self._probabilities)

    @cached_property
    def comparisons(self) -> tuple[tuple[int, int], ...]:
        """Of each bit of G, how many coins are compared, and with what.

        Where a threshold ends in zeros, the coins at their places decide nothing and are not asked
        for; where it is zero, none are.
        """
        k = self.coin_bits
        spare = [(each & -each).bit_length() - 1 if each else k for each in self.thresholds]
        pairs = zip(self.thresholds, spare, strict=True)
        return tuple((k - zeros, threshold >> zeros) for threshold, zeros in pairs)

    @property
    def coins(self) -> int:
        """How many coins each side gives for one output: those of each bit, then the sign."""
        return sum(count for count, _ in self.comparisons) + 1

    @cached_property
    def distance(self) -> float:
        """An upper bound of TV: what rounding moves of each bit, and the tail beyond 2^m."""
        with localcontext(Context(prec=self._digits, rounding=ROUND_UP)):
            rounding = Decimal(self.magnitude_bits) * Decimal(10) ** (2 - self._digits)
            for p, threshold in zip(self._probabilities, self.thresholds, strict=True):
                rounding += abs(p - Decimal(threshold) / 2**self.coin_bits)
            scale = Decimal(self.scale.numerator) / Decimal(self.scale.denominator)
            bound = float(rounding + (-(2**self.magnitude_bits) / scale).exp())
        return math.nextafter(bound, math.inf)

    def delta(self, epsilon: Fraction, pairs: int, outputs: int) -> float:
        """The δ of one record in `pairs` pairs of `outputs` outputs each.

        A pair is ε/P-private but for TV; (ε/P, (1 + e^{ε/P}) TV) then composes over P pairs.
        """
        return delta_per_distance(epsilon, pairs, outputs) * self.distance

    @property
    def variance(self) -> float:
        """That of X: 2q/(1 − q)² + ¼ with q = exp(−1/s)."""
        rate = 1 / float(self.scale)
        return 2 * math.exp(-rate) / math.expm1(-rate) ** 2 + 0.25

    @property
    def low(self) -> int:
        return -(1 << self.magnitude_bits)

    @property
    def high(self) -> int:
        return (1 << self.magnitude_bits) - 1

    def word(self, builder: Builder, ours: tuple[int, ...], theirs: tuple[int, ...]) -> Word:
        """X in two's complement, from `coins` wires of either side.

        At most m(k − 1) ANDs.
        """
        if not len(ours) == len(theirs) == self.coins:
            raise ValueError(f"noise takes {self.coins} coins of either side")
        coins = [builder.xor(a, b) for a, b in zip(ours, theirs, strict=True)]
        wires, sign, start = [], coins[-1], 0
        for count, threshold in self.comparisons:
            below_it = below(builder, coins[start : start + count], threshold)
            wires.append(builder.xor(below_it, sign))
            start += count
        return Word((*wires, sign), signed=True)

    def draw(self, shape: tuple[int, ...], randomness: Randomness) -> NDArray[np.int64]:
        """X as the circuit draws it, for a side that needs no other."""
        values = [self._draw_one(randomness) for _ in range(math.prod(shape))]
        return np.array(values, dtype=np.int64).reshape(shape)

    def _draw_one(self, randomness: Randomness) -> int:
        magnitude = 0
        for j, threshold in enumerate(self.thresholds):
            size = max(16, -(-self.coin_bits // 8))
            coins = int.from_bytes(randomness.bytes(size), "little") >> (8 * size - self.coin_bits)
            magnitude |= (coins < threshold) << j
        return -magnitude - 1 if randomness.bytes(1)[0] & 1 else magnitude

    def probabilities(self) -> NDArray[np.float64]:
        """What the circuit draws exactly: P(X = low), …, P(X = high). For small m."""
        half = np.array([0.5])
        for threshold in self.thresholds:
            p = threshold / 2**self.coin_bits
            half = np.concatenate([half * (1 - p), half * p])
        return np.concatenate([half[::-1], half])


def check_distance(distance: float, epsilon: Fraction, delta: float) -> None:
    """Raises `LocalError` where a sampler cannot be so close to its law."""
    if distance < LEAST_DISTANCE:
        raise LocalError(
            f"at epsilon {float(epsilon):g} the coins of noise inside a circuit would need over "
            f"{_MAX_COIN_BITS} bits to stay within delta {delta:g}: grant more of it, choose "
            "another --noise, or inf"
        )


def delta_per_distance(epsilon: Fraction, pairs: int, outputs: int) -> float:
    try:
        return pairs * outputs * (1 + math.exp(epsilon / pairs))
    except OverflowError:
        raise LocalError(
            f"epsilon {float(epsilon):g} is too large for noise inside a circuit: use inf"
        ) from None


def below(builder: Builder, bits: Sequence[int], threshold: int) -> int:
    """I[bits < threshold], lowest bit first, for a threshold below 2^bits.

    Going up, a bit of the threshold that is set decides "below" where ours is not, and one that is
    not set decides "not below" where ours is. The lowest that is set costs nothing, and every one
    above it an AND.
    """
    found = ZERO
    for i, bit in enumerate(bits):
        clear = builder.not_(bit)
        found = builder.or_(clear, found) if threshold >> i & 1 else builder.and_(clear, found)
    return found
