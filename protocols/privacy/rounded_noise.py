"""Continuous noise, rounded exactly to a public grid: Cauchy and Laplace without floating point.

`value + scale·η` for an ideal real η is rounded to the nearest multiple of the grid. Rounding is
post-processing of the ideal mechanism, so whatever is proved for real noise holds for the output,
whatever the grid. The samplers never round earlier: a real is a stream of random bits of which only
as many are drawn as the decision takes (the comparison, the rounding), so that the output has
exactly the ideal distribution. `value` and `scale` are rationals; the caller must prove that they
are private functions of the data. The time that a draw takes depends on what is drawn.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import Protocol

from tallyroom.protocols.privacy.laplace import geometric
from tallyroom.protocols.randomness import Randomness

BITS = 64
HALF = Fraction(1, 2)


class Real(Protocol):
    """A real number, known to as many digits as a decision needs."""

    def bounds(self) -> tuple[Fraction, Fraction]: ...
    def refine(self) -> None: ...


class Uniform:
    """Uniform in (0, 1): within [digits, digits + 1]/2^bits, and 64 bits more whenever asked."""

    def __init__(self, randomness: Randomness) -> None:
        self._randomness = randomness
        self.digits = self.bits = 0
        self.refine()

    def refine(self) -> None:
        self.digits = self.digits << BITS | int(self._randomness.words(1)[0])
        self.bits += BITS


class Cauchy:
    """V/U for a uniform point (U, V) of the half disc U > 0, U² + V² < 1 is a Cauchy variable."""

    def __init__(self, randomness: Randomness) -> None:
        self._negative = bool(randomness.bytes(1)[0] & 1)
        while True:
            self._u, self._v = Uniform(randomness), Uniform(randomness)
            while (inside := self._inside()) is None or not self._u.digits:
                if inside is False:
                    break
                self.refine()
            if inside:
                return

    def _inside(self) -> bool | None:
        """Whether the point is in the disc, once that is certain."""
        u, v, one = self._u.digits, self._v.digits, 1 << 2 * self._u.bits
        if (u + 1) ** 2 + (v + 1) ** 2 <= one:
            return True
        return False if u**2 + v**2 >= one else None

    def refine(self) -> None:
        self._u.refine()
        self._v.refine()

    def bounds(self) -> tuple[Fraction, Fraction]:
        low = Fraction(self._v.digits, self._u.digits + 1)
        high = Fraction(self._v.digits + 1, self._u.digits)
        return (-high, -low) if self._negative else (low, high)


class Laplace:
    """A sign times an exponential variable: a geometric integer and a fraction of density ∝ e^−x.

    The fraction is von Neumann's (1951): a uniform x is kept if the first rise in the sequence
    x, U₁, U₂, … comes at an odd place, which has probability e^−x.
    """

    def __init__(self, randomness: Randomness) -> None:
        self._negative = bool(randomness.bytes(1)[0] & 1)
        self._whole = int(geometric(1, Fraction(1), randomness)[0])
        while True:
            self._fraction = last = Uniform(randomness)
            place = 1
            while _less(following := Uniform(randomness), last):
                last = following
                place += 1
            if place % 2:
                return

    def refine(self) -> None:
        self._fraction.refine()

    def bounds(self) -> tuple[Fraction, Fraction]:
        unit = 1 << self._fraction.bits
        low = self._whole + Fraction(self._fraction.digits, unit)
        high = self._whole + Fraction(self._fraction.digits + 1, unit)
        return (-high, -low) if self._negative else (low, high)


def _less(left: Uniform, right: Uniform) -> bool:
    while True:
        while left.bits < right.bits:
            left.refine()
        while right.bits < left.bits:
            right.refine()
        if left.digits != right.digits:
            return left.digits < right.digits
        left.refine()


def rounded(
    value: Fraction,
    scale: Fraction,
    grid: Fraction,
    noise: Callable[[Randomness], Real],
    randomness: Randomness,
) -> int:
    """value + scale·η to the nearest multiple of `grid`, as that multiple; halves go up.

    Raises ValueError unless scale and grid are positive.
    """
    if scale <= 0 or grid <= 0:
        raise ValueError("the noise's scale and the grid must be positive")
    drawn = noise(randomness)
    while True:
        low, high = ((value + scale * bound) / grid + HALF for bound in drawn.bounds())
        if low.__floor__() == high.__floor__():
            return low.__floor__()
        drawn.refine()
