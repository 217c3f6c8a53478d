"""Discrete Laplace noise that two servers draw together: neither knows it.

X is 0 with probability p_0 = (1 − q)/(1 + q), q = exp(−1/s), and otherwise G + 1 or −(G + 1), with
equal chances, where G is geometric of scale s (`protocols.garbling.laplace_circuit`: bits that are
compared with constants, from coins of both sides). That is the discrete Laplace distribution on the
integers, P(x) ∝ exp(−|x|/s), as a trusted curator draws it: same variance, no offset.

With the sign σ and Z = I[X ≠ 0], −(G + 1) is the complement of G, so

    X = Z·(G ⊕ σ, in two's complement)  +  Z·(1 − σ),

and as shares are added up anyway, the two terms are outputs of their own and no adder is needed:
at most (m + 1)(k − 1) + m + 2 ANDs.

What is drawn is not quite that: G ends at 2^m and probabilities are rounded to k bits. The total
variation distance of one noise is at most `distance`. A vector of N noises that would be ε-private
is (ε, (1 + e^ε)·N·distance)-private with them.
"""

import math
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.garbling.circuit import Circuit
from tallyroom.protocols.garbling.circuit_builder import Builder, Word
from tallyroom.protocols.garbling.laplace_circuit import (
    CircuitLaplace,
    below,
    check_distance,
    delta_per_distance,
    digits_for,
)
from tallyroom.protocols.joint.gaussian_circuit import JointGaussian
from tallyroom.protocols.privacy.gaussian import DiscreteGaussian
from tallyroom.protocols.privacy.mechanisms import DiscreteLaplace
from tallyroom.protocols.privacy.noise_law import NoiseLaw

DEFAULT_DELTA = 2.0**-40
"""What the sampler may cost if nobody grants another δ."""


@dataclass(frozen=True)
class JointLaplace:
    """Noise of `scale`, sizes cut at 2^magnitude_bits, probabilities of coin_bits bits."""

    scale: Fraction
    magnitude_bits: int
    coin_bits: int

    @classmethod
    def spending(
        cls, scale: Fraction, epsilon: Fraction, delta: float, noises: int
    ) -> "JointLaplace":
        """The cheapest sampler for a vector of `noises`, for which ε-private noise has this scale,
        that costs at most δ."""
        distance = least_distance(epsilon, delta, noises)
        # Half of the distance for the tail, half for the rounding.
        magnitude = max(1, math.ceil(math.log2(max(1.0, scale * math.log(2 / distance)))))
        coins = math.ceil(math.log2((magnitude + 1) / distance))
        return cls(scale, magnitude, coins)

    @property
    def _size(self) -> CircuitLaplace:
        """G, and a sign: a fair coin."""
        return CircuitLaplace(self.scale, self.magnitude_bits, self.coin_bits)

    @cached_property
    def _zero(self) -> Decimal:
        with localcontext(Context(prec=digits_for(self.coin_bits))):
            rate = Decimal(self.scale.denominator) / Decimal(self.scale.numerator)
            q = (-rate).exp()
            return (1 - q) / (1 + q)

    @cached_property
    def zero_threshold(self) -> int:
        """X is 0 where coins are below this; never for scales so large that it hardly ever is."""
        with localcontext(Context(prec=digits_for(self.coin_bits))):
            rounded = int((self._zero * 2**self.coin_bits).to_integral())
        most: int = 2**self.coin_bits - 1
        return min(rounded, most)

    @property
    def coins(self) -> int:
        """How many coins each side gives for one noise: of G, the sign, then of zero."""
        return self._size.coins + self.coin_bits

    @property
    def size(self) -> int:
        """How many coins or ANDs a noise takes at most."""
        return self.coins

    @cached_property
    def distance(self) -> float:
        """An upper bound of the total variation distance of one noise."""
        with localcontext(Context(prec=digits_for(self.coin_bits))):
            rounding = abs(self._zero - Decimal(self.zero_threshold) / 2**self.coin_bits)
        bound = float(rounding) + self._size.distance
        return math.nextafter(bound * (1 + 1e-12), math.inf)

    def delta(self, epsilon: Fraction, noises: int) -> float:
        """The δ of a vector of so many noises that is ε-private but for the sampler."""
        return delta_per_distance(epsilon, 1, noises) * self.distance

    @property
    def words(self) -> tuple[tuple[int, bool], ...]:
        """The integers that come out, bits and whether signed: their sum is the noise."""
        return ((self.magnitude_bits + 1, True), (1, False))

    @property
    def factors(self) -> tuple[int, ...]:
        """What each integer that comes out counts in the noise."""
        return 1, 1

    @cached_property
    def circuit(self) -> Circuit:
        """One noise, from `coins` coins of either side."""
        builder = Builder(0, self.coins, shared_inputs=True)
        coins = builder.evaluator
        size = self._size
        start, bits = 0, []
        for count, threshold in size.comparisons:
            bits.append(below(builder, coins[start : start + count], threshold))
            start += count
        sign = coins[start]
        some = builder.not_(below(builder, coins[start + 1 :], self.zero_threshold))
        signed = [builder.and_(some, builder.xor(bit, sign)) for bit in bits]
        word = Word((*signed, builder.and_(some, sign)), signed=True)
        return builder.circuit([word, Word((builder.and_(some, builder.not_(sign)),))])

    def probabilities(self) -> NDArray[np.float64]:
        """What the circuit draws exactly: P(X = −2^m), …, P(X = 2^m). For small m."""
        sizes = np.array([1.0])
        for threshold in self._size.thresholds:
            p = threshold / 2**self.coin_bits
            sizes = np.concatenate([sizes * (1 - p), sizes * p])
        zero = self.zero_threshold / 2**self.coin_bits
        side = (1 - zero) / 2 * sizes
        return np.concatenate([side[::-1], [zero], side])


@dataclass(frozen=True)
class JointGeometric:
    """One-sided noise, P(g) ∝ exp(−g/scale) for g ≥ 0, cut and rounded likewise: G alone."""

    scale: Fraction
    magnitude_bits: int
    coin_bits: int

    @classmethod
    def spending(
        cls, scale: Fraction, epsilon: Fraction, delta: float, noises: int
    ) -> "JointGeometric":
        """As `JointLaplace.spending`."""
        found = JointLaplace.spending(scale, epsilon, delta, noises)
        return cls(scale, found.magnitude_bits, found.coin_bits)

    @property
    def _size(self) -> CircuitLaplace:
        return CircuitLaplace(self.scale, self.magnitude_bits, self.coin_bits)

    @property
    def coins(self) -> int:
        return self._size.coins - 1

    @property
    def size(self) -> int:
        """As `JointLaplace.size`."""
        return self.coins

    @property
    def largest(self) -> int:
        return (1 << self.magnitude_bits) - 1

    @property
    def distance(self) -> float:
        return self._size.distance

    def delta(self, epsilon: Fraction, noises: int) -> float:
        """As `JointLaplace.delta`."""
        return delta_per_distance(epsilon, 1, noises) * self.distance

    @property
    def words(self) -> tuple[tuple[int, bool], ...]:
        return ((self.magnitude_bits, False),)

    @property
    def factors(self) -> tuple[int, ...]:
        return (1,)

    @cached_property
    def circuit(self) -> Circuit:
        """One noise, from `coins` coins of either side."""
        builder = Builder(0, self.coins, shared_inputs=True)
        coins = builder.evaluator
        start, bits = 0, []
        for count, threshold in self._size.comparisons:
            bits.append(below(builder, coins[start : start + count], threshold))
            start += count
        return builder.circuit([Word(tuple(bits))])

    def probabilities(self) -> NDArray[np.float64]:
        """P(0), …, P(2^m − 1), as it is drawn. For small m."""
        sizes = np.array([1.0])
        for threshold in self._size.thresholds:
            p = threshold / 2**self.coin_bits
            sizes = np.concatenate([sizes * (1 - p), sizes * p])
        return sizes


JointNoise = JointLaplace | JointGeometric | JointGaussian


def in_circuit(
    law: NoiseLaw, epsilon: Fraction, delta: float, noises: int
) -> JointLaplace | JointGaussian:
    """The cheapest sampler of a vector of so many noises of a law that costs at most δ. Raises
    `LocalError`."""
    match law:
        case DiscreteLaplace(scale=scale):
            return JointLaplace.spending(scale, epsilon, delta, noises)
        case DiscreteGaussian(squared=squared, shares=1):
            return JointGaussian.spending(squared, epsilon, delta, noises)
    raise LocalError(f"noise inside a circuit is laplace or gaussian, not {law.name}")


def least_distance(epsilon: Fraction, delta: float, noises: int) -> float:
    """How far from its law one of so many noises may be. Raises `LocalError`."""
    if not 0 < delta < 1:
        raise LocalError(f"noise inside a circuit needs a delta between 0 and 1, not {delta:g}")
    distance = delta / delta_per_distance(epsilon, 1, noises)
    check_distance(distance, epsilon, delta)
    return distance
