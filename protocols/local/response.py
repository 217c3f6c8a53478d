"""k-ary randomized response (Warner 1965; S1 Algorithm 1) with exact rational probabilities.

Tell the truth with probability p, and each of the other k-1 values with probability q. S1 has
p = 1-β+β/k, q = β/k with β = k/(k+e^ε-1), so that p/q = e^ε; k = 2 is binary randomized response.
Here p and q are multiples of 2^-64 and p/q is at most e^ε: ε is rounded down, never up, and no δ
pays for arithmetic.
"""

from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

import numpy as np

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.local.contract import FrequencyOracle, Integers, OneValue, Reals, Words

WORD = 1 << 64
_DIGITS = 60
_LARGEST = 64
"""e^64 exceeds 2^64, the largest ratio of 64-bit probabilities."""


@dataclass(frozen=True)
class RandomizedResponse(OneValue, FrequencyOracle):
    """`other` is the probability of each value that is not the truth, in units of 2^-64."""

    values: int
    other: int

    def __post_init__(self) -> None:
        if self.values < 2:
            raise LocalError(f"randomized response needs at least 2 values, not {self.values}")
        if not 1 <= self.other < self.keep:
            raise LocalError("randomized response must be more likely to tell the truth than a lie")

    @classmethod
    def spending(cls, epsilon: Fraction, values: int) -> "RandomizedResponse":
        """The most truthful response whose privacy map stays within `epsilon`, exactly.

        With keep = 2^64 - (k-1)·other, keep ≤ e^ε·other means other ≥ 2^64 / (k-1+e^ε).
        Raises `LocalError` where `epsilon` is too small for 64-bit probabilities.
        """
        try:
            return cls(values, -(-WORD // (values - 1 + exp_below(epsilon))))
        except LocalError:
            if values < 2:
                raise
            raise LocalError(
                f"epsilon {float(epsilon):g} is too small to respond among {values} values"
            ) from None

    @property
    def keep(self) -> int:
        """The probability of the truth, in units of 2^-64."""
        return WORD - (self.values - 1) * self.other

    @property
    def ratio(self) -> Fraction:
        """The most by which replacing the input changes a report's probability; ε is its log."""
        return Fraction(self.keep, self.other)

    @property
    def p(self) -> float:
        return self.keep / WORD

    @property
    def q(self) -> float:
        return self.other / WORD

    @property
    def name(self) -> str:
        return f"randomized response among {self.values} values"

    @property
    def words(self) -> int:
        return 1

    @property
    def alphabet(self) -> int:
        return self.values

    def randomize(self, inputs: Integers, words: Words) -> Integers:
        """One random word decides both whether to keep the input and what to report instead: the
        values in [0, keep) keep it, and the rest is split into k-1 ranges of `other` values."""
        drawn = words[:, 0]
        keep = np.uint64(self.keep)
        kept = drawn < keep
        rest = (np.where(kept, keep, drawn) - keep) // np.uint64(self.other)
        lie = rest.astype(np.int64)
        return np.where(kept, inputs, lie + (lie >= inputs))

    @property
    def truthful(self) -> float:
        """p - q: with this probability a response is its input, and else it is uniform."""
        return (self.keep - self.other) / WORD

    @property
    def gain(self) -> float:
        return 1 / self.truthful

    @property
    def empty_variance(self) -> float:
        return self.q * (1 - self.q) * self.gain**2

    def estimate(self, counts: Integers) -> Reals:
        """(c - nq)/(p - q) for every value."""
        return np.asarray((counts - int(counts.sum()) * self.q) * self.gain, dtype=np.float64)

    def variances(self, estimates: Reals, reports: int) -> Reals:
        """[t·p(1-p) + (n-t)·q(1-q)]/(p-q)² where t of the n records hold the value; exact if
        `estimates` are the truth."""
        return support_variances(self.p, self.q, self.gain, estimates, reports)


def support_variances(p: float, q: float, gain: float, estimates: Reals, reports: int) -> Reals:
    """The variances of (c - nq)·gain with gain = 1/(p - q), where a record supports the value that
    it holds with probability p, and any other value with probability q."""
    held = np.clip(estimates, 0, reports)
    return np.asarray(
        (held * p * (1 - p) + (reports - held) * q * (1 - q)) * gain**2, dtype=np.float64
    )


@lru_cache(maxsize=1024)
def exp_below(epsilon: Fraction) -> Fraction:
    """A rational a little below e^ε (by less than one part in 10^54); at most e^64."""
    with localcontext() as context:
        context.prec = _DIGITS
        capped = min(epsilon, Fraction(_LARGEST))
        exponent = Decimal(capped.numerator) / Decimal(capped.denominator)
        return Fraction(exponent.exp()) * (1 - Fraction(1, 10 ** (_DIGITS - 5)))
