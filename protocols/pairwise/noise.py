"""Laplace noise inside a circuit, from coins of both sides.

G is geometric of scale s on 0 … 2^m − 1, P(g) ∝ exp(−g/s): its bits are independent, and bit j is
set with probability p_j = 1/(1 + exp(2^j/s)). A bit is a comparison of k uniform bits with the
constant round(2^k p_j). Each uniform bit is the XOR of a coin of either side, so one honest side
suffices, and neither knows what was drawn. All coins are always used: a sampler that stops early
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
from dataclasses import dataclass
from decimal import ROUND_UP, Context, Decimal, localcontext
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from protocols.errors import LocalError
from protocols.pairwise.builder import ONE, ZERO, Builder, Word

OFFSET = Fraction(1, 2)
"""What readers add to a noisy output; it makes the noise symmetric about zero."""

_MAX_MAGNITUDE_BITS = 60
_DIGITS = 60
"""Decimal digits in the probabilities: far below the rounding to k bits that is accounted for."""


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
        if not 0 < self.coin_bits <= 128:
            raise ValueError(f"coins have 1 to 128 bits, not {self.coin_bits}")

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
        distance = delta / _delta_per_distance(epsilon, pairs, outputs)
        if distance < 2.0**-120:
            raise LocalError(f"delta {delta:g} is too small for noise inside a circuit")
        # Half of the distance for the tail, half for the rounding.
        magnitude = max(1, math.ceil(math.log2(max(1.0, scale * math.log(2 / distance)))))
        coins = math.ceil(math.log2(magnitude / distance))
        return cls(scale, magnitude, coins)

    @cached_property
    def _probabilities(self) -> tuple[Decimal, ...]:
        with localcontext(Context(prec=_DIGITS)):
            scale = Decimal(self.scale.numerator) / Decimal(self.scale.denominator)
            return tuple(1 / (1 + (2**j / scale).exp()) for j in range(self.magnitude_bits))

    @cached_property
    def thresholds(self) -> tuple[int, ...]:
        """The constants that coins are compared with: bit j is set when they are below it."""
        with localcontext(Context(prec=_DIGITS)):
            return tuple(int((p * 2**self.coin_bits).to_integral()) for p in self._probabilities)

    @property
    def coins(self) -> int:
        """How many coins each side gives for one output."""
        return self.magnitude_bits * self.coin_bits + 1

    @cached_property
    def distance(self) -> float:
        """An upper bound of TV: what rounding moves of each bit, and the tail beyond 2^m."""
        with localcontext(Context(prec=_DIGITS, rounding=ROUND_UP)):
            rounding = Decimal(self.magnitude_bits) * Decimal(10) ** (2 - _DIGITS)
            for p, threshold in zip(self._probabilities, self.thresholds, strict=True):
                rounding += abs(p - Decimal(threshold) / 2**self.coin_bits)
            scale = Decimal(self.scale.numerator) / Decimal(self.scale.denominator)
            bound = float(rounding + (-(2**self.magnitude_bits) / scale).exp())
        return math.nextafter(bound, math.inf)

    def delta(self, epsilon: Fraction, pairs: int, outputs: int) -> float:
        """The δ of one record in `pairs` pairs of `outputs` outputs each.

        A pair is ε/P-private but for TV; (ε/P, (1 + e^{ε/P}) TV) then composes over P pairs.
        """
        return _delta_per_distance(epsilon, pairs, outputs) * self.distance

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
        sign, k = coins[-1], self.coin_bits
        wires = []
        for j, threshold in enumerate(self.thresholds):
            below = _below(builder, coins[j * k : (j + 1) * k], threshold)
            wires.append(builder.xor(below, sign))
        return Word((*wires, sign), signed=True)

    def probabilities(self) -> NDArray[np.float64]:
        """What the circuit draws exactly: P(X = low), …, P(X = high). For small m."""
        half = np.array([0.5])
        for threshold in self.thresholds:
            p = threshold / 2**self.coin_bits
            half = np.concatenate([half * (1 - p), half * p])
        return np.concatenate([half[::-1], half])


def _delta_per_distance(epsilon: Fraction, pairs: int, outputs: int) -> float:
    try:
        return pairs * outputs * (1 + math.exp(epsilon / pairs))
    except OverflowError:
        raise LocalError(
            f"epsilon {float(epsilon):g} is too large for noise inside a circuit: use inf"
        ) from None


def _below(builder: Builder, bits: list[int], threshold: int) -> int:
    """I[bits < threshold], lowest bit first: an AND for each bit above the threshold's lowest one.

    Going up, a bit of the threshold that is set decides "below" where ours is not, and one that is
    not set decides "not below" where ours is.
    """
    if threshold >> len(bits):
        return ONE
    below = ZERO
    for i, bit in enumerate(bits):
        clear = builder.not_(bit)
        below = builder.or_(clear, below) if threshold >> i & 1 else builder.and_(clear, below)
    return below
