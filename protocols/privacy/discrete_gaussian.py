"""Exact discrete Gaussian noise, vectorised: P(x) proportional to exp(−x²/(2σ²)) on the integers.

It is drawn as by Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy"
(2020), Algorithm 3: a candidate y is discrete Laplace of a scale t near σ, and is kept with
probability exp(−(|y| − σ²/t)²/(2σ²)).

Every decision compares a uniform real with some exp(−γ) for a rational γ: |y| is how many k ≥ 1
have U < exp(−k/t). Of the real, as many bits are drawn as decide the comparison. Nearly always 63
of them do, against a double; where that is too close to call, exp(−γ) is computed in as many digits
as it takes (`LazyReal`). So no rounding decides anything, and the law is that of the rational σ².

Where t is large, |y| = 2^k·q + r: q is geometric of scale t/2^k, and r, uniform below 2^k, is kept
with probability exp(−r/t).

As with every sampler by rejection, how long it takes depends on what it draws.
"""

import decimal
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.privacy.laplace import Integers, Words
from tallyroom.protocols.randomness import Randomness

Which = NDArray[np.intp]
Coins = NDArray[np.uint64]

_BLOCK = 1 << 14
"""Samples worked on together: they fit the cache."""
_BITS = 63
_COARSE = 16
"""Bits of a scale that q has; the others are those of r."""
DOUBT = 2.0**-40
"""Doubles are this near to what they stand for: exp(−γ) absolutely, and −ln U but for the bits of U
that are not drawn yet. With x = |y|/σ, γ is off by some 2^-51·(x + 1)², hence exp(−γ) by less than
10·2^-51; logarithms are below 44, and functions are right to a few units in their last place."""
MAX_SQUARED = 1 << 100
"""The least σ² whose noise might not fit the ring."""


def discrete_gaussian(count: int, squared: Fraction, randomness: Randomness) -> Integers:
    """`count` independent samples whose σ² is `squared`, from 0 to `MAX_SQUARED`."""
    if not 0 < squared < MAX_SQUARED:
        raise ValueError("noise of this scale does not fit the ring")
    drawn = np.empty(count, dtype=np.int64)
    for start in range(0, count, _BLOCK):
        block = drawn[start : start + _BLOCK]
        block[:] = gaussian_each(len(block), squared, lambda which: randomness.words(len(which)))
    return drawn


def gaussian_each(count: int, squared: Fraction, words: Words) -> Integers:
    """The same from a stream for each sample, which are numbered from 0."""
    out = np.empty(count, dtype=np.int64)
    pending = np.arange(count)
    while len(pending):
        magnitude, kept, negative = _candidates(pending, squared, words)
        # Minus zero is thrown away, or zero would come up twice as often (Algorithm 2, line 12).
        kept &= ~(negative & (magnitude == 0))
        out[pending[kept]] = np.where(negative, -magnitude, magnitude)[kept]
        pending = pending[~kept]
    return out


def _candidates(
    which: Which, squared: Fraction, words: Words
) -> tuple[Integers, NDArray[np.bool], NDArray[np.bool]]:
    """|y| for each of these samples, whether it is kept, and whether it is to be negative."""
    nearest = math.isqrt(math.floor(squared)) + 1
    fine = max(0, nearest.bit_length() - _COARSE)
    coarse = -(-nearest >> fine) if fine else nearest
    quotient = _geometric(which, coarse, words)
    if not fine:
        rest = np.zeros(len(which), dtype=np.int64)
    else:
        rest = (words(which) >> np.uint64(64 - fine)).astype(np.int64)
    coins = words(which)
    magnitude = (quotient << fine) + rest
    scale = coarse << fine
    centre, width = float(squared / scale), 2 * float(squared)
    chance = np.exp(-np.square(magnitude - centre) / width - rest / scale)
    above = (coins >> np.uint64(1)) * 2.0**-_BITS - chance
    kept = above < 0
    for i in np.flatnonzero(np.abs(above) <= DOUBT).tolist():
        off = int(magnitude[i]) - squared / scale
        exponent = off**2 / (2 * squared) + Fraction(int(rest[i]), scale)
        kept[i] = LazyReal(int(coins[i]) >> 1, _more(words, which[i])).below(exponent)
    return magnitude, kept, (coins & np.uint64(1)).astype(bool)


def _geometric(which: Which, scale: int, words: Words) -> Integers:
    """P(k) proportional to exp(−k/scale) for k = 0, 1, 2, …"""
    coins = (words(which) >> np.uint64(1)).astype(np.int64)
    exact = -np.log((coins + 0.5) * 2.0**-_BITS) * scale
    found: Integers = np.floor(exact).astype(np.int64)
    doubt = scale * (DOUBT + 1 / (coins + 1.0))
    for i in np.flatnonzero(np.abs(exact - np.rint(exact)) <= doubt).tolist():
        real = LazyReal(int(coins[i]), _more(words, which[i]))
        least = 0  # it may be far off where none of the bits is 1
        most = max(1, 2 * int(found[i]))
        while real.below(Fraction(most, scale)):
            least, most = most, 2 * most
        while most - least > 1:
            middle = (least + most) // 2
            below = real.below(Fraction(middle, scale))
            least, most = (middle, most) if below else (least, middle)
        found[i] = least
    return found


def _more(words: Words, which: np.intp) -> Callable[[], int]:
    return lambda: int(words(np.array([which]))[0])


class LazyReal:
    """A uniform real of [0, 1), which begins with 63 bits; `more` draws the next 64."""

    def __init__(self, begun: int, more: Callable[[], int]) -> None:
        self._begun, self._bits, self._more = begun, _BITS, more

    def below(self, exponent: Fraction) -> bool:
        """Whether it is below exp(−`exponent`)."""
        if not exponent:
            return True
        while True:
            low, high = _between(exponent, self._bits)
            if Fraction(self._begun + 1, 1 << self._bits) <= low:
                return True
            if Fraction(self._begun, 1 << self._bits) >= high:
                return False
            self._begun = self._begun << 64 | self._more()
            self._bits += 64


def _between(exponent: Fraction, bits: int) -> tuple[Fraction, Fraction]:
    """Bounds of exp(−`exponent`) that are nearer to each other than 2^−`bits`."""
    digits = 20 + bits // 3 + len(str(math.ceil(exponent)))
    with decimal.localcontext(decimal.Context(prec=digits, Emin=-(10**17), Emax=10**17)):
        found = Fraction((-Decimal(exponent.numerator) / Decimal(exponent.denominator)).exp())
    off = Fraction(1, 1 << bits + 8)  # the quotient is off by 10^−20 of 2^−bits at most
    return found - off, found + off
