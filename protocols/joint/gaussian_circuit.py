"""Discrete Gaussian noise that two servers draw together: neither knows it.

A noise of σ² is Σ f_i·X_i with public factors 1 = f_0 < f_1 < …, where X_i is discrete Gaussian of
a small σ_i², drawn from a table (`GaussianTable`). Shares are added up and multiplied by public
numbers for nothing, so the circuit draws the X_i alone: of each, the size and a sign.

For X of b² and an independent T of τ², the sum X + K·T is not discrete Gaussian, but near to it
(Micciancio and Walter, CRYPTO 2017). With 1/s² = 1/b² + 1/(Kτ)², its chance of z is
exp(−z²/(2(b² + K²τ²))) times a sum of exp(−(K/s)²(y − θ)²/2) over all integers y. By Poisson's
formula that sum is a constant times a factor from 1 − 2r to 1 + 2r, where r = e^(−x)/(1 − e^(−x))
and x = 2π²(s/K)². So the total variation distance is below 4r.

So what is drawn is not quite the law of σ²: tables end, their chances are rounded, and r is not
zero. The total variation distance of one noise is at most `distance`. A release of N such noises
is within τ = N·`distance` of one that has its exact ρ; where that one is (ε, δ₀), it is
(ε, δ₀ + (1 + e^ε)τ). A ledger adds up ρ, so nobody knows beforehand at which ε it will be read.
What is charged as δ is therefore (1 + e^ε)τ for ε = `READ_UP_TO`, and no ρ that has a δ is read at
a larger ε (`PrivacyLoss.at`).
"""

import math
from dataclasses import dataclass
from decimal import ROUND_UP, Context, Decimal, localcontext
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.garbling.circuit import Circuit
from tallyroom.protocols.garbling.circuit_builder import Builder, Word
from tallyroom.protocols.garbling.laplace_circuit import check_distance, digits_for
from tallyroom.protocols.joint.noise_table import LEAST_EXPONENT, AliasTable
from tallyroom.protocols.privacy.loss import READ_UP_TO

MOST_TABLES = 16
_SMALLEST, _LARGEST = 3, 8
"""Bits of a table's sizes. A table of w bits takes some 2^w ANDs."""
_FINE = 64
"""Parameters of all tables but the last are multiples of 1/64."""


@dataclass(frozen=True)
class GaussianTable:
    """|X| of a discrete Gaussian X of σ² = `squared`, below 2^`bits`, with chances that are
    multiples of 2^−(bits + coin_bits), and a sign. `factor` is what X counts in the noise."""

    squared: Fraction
    bits: int
    coin_bits: int
    factor: int = 1

    @property
    def coins(self) -> int:
        """A place in the table, what is compared with its threshold, and the sign."""
        return self.bits + self.coin_bits + 1

    @cached_property
    def _chances(self) -> tuple[Decimal, ...]:
        """P(|X| = v) for every v below 2^bits, as if there were no others."""
        digits = digits_for(self.bits + self.coin_bits)
        with localcontext(Context(prec=digits, Emin=LEAST_EXPONENT)):
            twice = _decimal(2 * self.squared)
            weights = [(-Decimal(v * v) / twice).exp() for v in range(1 << self.bits)]
            whole = 2 * sum(weights) - 1
            return tuple((2 if v else 1) * each / whole for v, each in enumerate(weights))

    @cached_property
    def table(self) -> AliasTable:
        return AliasTable.of(self._chances, self.coin_bits)

    @cached_property
    def distance(self) -> Decimal:
        """An upper bound of the total variation distance from X: the rounding, and P(|X| ≥ 2^bits),
        which is at most 2·exp(−4^bits/(2σ²)), as X is subgaussian (Canonne, Kamath and Steinke
        2020)."""
        digits = digits_for(self.bits + self.coin_bits)
        with localcontext(Context(prec=digits, rounding=ROUND_UP, Emin=LEAST_EXPONENT)):
            unit = Decimal(2) ** -(self.bits + self.coin_bits)
            masses = zip(self._chances, self.table.masses, strict=True)
            off = (abs(chance - mass * unit) for chance, mass in masses)
            rounding = sum(off, Decimal(0)) / 2
            slack = Decimal(f"1e{6 - digits}")
            return rounding + slack + 2 * (-(1 << 2 * self.bits) / _decimal(2 * self.squared)).exp()

    def words(self, builder: Builder, coins: tuple[int, ...]) -> tuple[Word, Word]:
        """X as the sum of two integers: where the sign is set, the complement of |X|, and 1."""
        size = self.table.drawn(builder, coins[: self.bits], coins[self.bits : -1])
        sign = coins[-1]
        wires = tuple(builder.xor(wire, sign) for wire in size)
        return Word((*wires, sign), signed=True), Word((sign,))

    def probabilities(self) -> NDArray[np.float64]:
        """The exact law of what is drawn: P(X = −(2^bits − 1)), …, P(X = 2^bits − 1)."""
        sizes = np.array([float(mass) for mass in self.table.masses])
        half = sizes[1:] / 2
        law: NDArray[np.float64] = np.concatenate([half[::-1], sizes[:1], half])
        return law / 2.0 ** (self.bits + self.coin_bits)


@dataclass(frozen=True)
class JointGaussian:
    """The noise is the sum of what each table draws, times its factor."""

    tables: tuple[GaussianTable, ...]

    @classmethod
    def spending(
        cls, squared: Fraction, epsilon: Fraction, delta: float, noises: int
    ) -> "JointGaussian":
        """The cheapest sampler for a vector of `noises` of this σ² that costs at most δ. Raises
        `LocalError`."""
        if not 0 < delta < 1:
            raise LocalError(f"noise inside a circuit needs a delta between 0 and 1, not {delta:g}")
        if epsilon > READ_UP_TO:
            raise LocalError(
                f"epsilon {float(epsilon):g} is too large for gaussian noise inside a circuit: "
                f"{READ_UP_TO} at most, or inf"
            )
        distance = delta / (_per_distance() * noises)
        check_distance(distance, Fraction(READ_UP_TO), delta)
        return cheapest(squared, distance)

    @property
    def coins(self) -> int:
        """How many coins each side gives for one noise."""
        return sum(each.coins for each in self.tables)

    @property
    def size(self) -> int:
        """How many ANDs a noise takes at most, which are more than its coins."""
        return sum((1 << each.bits) + each.coins for each in self.tables)

    @property
    def factors(self) -> tuple[int, ...]:
        """What each integer that comes out counts in the noise."""
        return tuple(each.factor for each in self.tables for _ in range(2))

    @property
    def words(self) -> tuple[tuple[int, bool], ...]:
        """The integers that come out, bits and whether signed."""
        return tuple(word for each in self.tables for word in ((each.bits + 1, True), (1, False)))

    @cached_property
    def distance(self) -> float:
        """An upper bound of the total variation distance of one noise."""
        bound = float(sum(each.distance for each in self.tables))
        tail = self.tables[-1].squared * self.tables[-1].factor ** 2
        for lower, upper in zip(self.tables[-2::-1], self.tables[:0:-1], strict=True):
            bound += _apart(lower.squared * lower.factor**2, tail, upper.factor)
            tail += lower.squared * lower.factor**2
        return math.nextafter(bound * (1 + 1e-9), math.inf)

    def delta(self, epsilon: Fraction, noises: int) -> float:
        """The δ of a vector of so many noises, at whatever ε up to `READ_UP_TO` it is read."""
        return _per_distance() * noises * self.distance

    @cached_property
    def circuit(self) -> Circuit:
        """One noise, from `coins` coins of either side."""
        builder = Builder(0, self.coins, shared_inputs=True)
        words: list[Word] = []
        start = 0
        for table in self.tables:
            words += table.words(builder, builder.evaluator[start : start + table.coins])
            start += table.coins
        return builder.circuit(words)


def _per_distance() -> float:
    return 1 + math.exp(READ_UP_TO)


def _decimal(number: Fraction) -> Decimal:
    return Decimal(number.numerator) / Decimal(number.denominator)


def _apart(lower: Fraction, upper: Fraction, factor: int) -> float:
    """4r, of noise of `lower` and noise of `upper` on the multiples of `factor`, where what `lower`
    is drawn on are integers, or multiples of one number that is taken out of all three."""
    narrow = float(lower * upper / (lower + upper)) / factor**2
    exponent = 2 * math.pi**2 * narrow * (1 - 1e-9)
    return 4 * math.exp(-exponent) / -math.expm1(-exponent)


@lru_cache(maxsize=64)
def cheapest(squared: Fraction, distance: float) -> JointGaussian:
    """The sampler of a noise of this σ² within `distance` of its law that takes the fewest ANDs and
    coins. Raises `LocalError`."""
    each = distance / (8 * MOST_TABLES)
    coin_bits = math.ceil(-math.log2(each))
    found = [
        _with_tables(squared, each, bits, coin_bits) for bits in range(_SMALLEST, _LARGEST + 1)
    ]
    possible = [JointGaussian(tables) for tables in found if tables]
    if not possible:
        raise LocalError("noise of this scale is too large for a circuit: take another --noise")
    return min(possible, key=lambda noise: sum(2**t.bits + 2 * t.coins for t in noise.tables))


def _with_tables(
    squared: Fraction, distance: float, bits: int, coin_bits: int
) -> tuple[GaussianTable, ...]:
    """Tables of up to `bits` bits, each within `distance`, and their sum too; none where so small
    ones cannot be put together."""
    reach = 2 * math.log(2 / distance)  # a table of σ² up to 4^bits / reach is long enough
    smooth = (math.log(4 / distance) + 1) / (2 * math.pi**2)  # of (s/K)², so that 4r is small
    tables: list[GaussianTable] = []
    factor = 1
    while float(squared) * reach > 4**bits:
        fits = Fraction(math.floor(_FINE * 4**bits / reach), _FINE)
        lower = min(fits, squared / 2)
        between = lower * (1 - lower / squared)
        step = math.isqrt(math.floor(float(between) / smooth))
        if step < 2 or len(tables) == MOST_TABLES - 1:
            return ()
        tables.append(GaussianTable(lower, bits, coin_bits, factor))
        factor *= step
        squared = (squared - lower) / step**2
    last = next(b for b in range(1, bits + 1) if float(squared) * reach <= 4**b)
    return (*tables, GaussianTable(squared, last, coin_bits, factor))
