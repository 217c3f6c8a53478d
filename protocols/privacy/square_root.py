"""The square-root factorisation of sums in a row, on integers.

Prefix sums are A·x with A = (1/(1 − z)) as a Toeplitz matrix, and its square root R has the
coefficients c_j of (1 − z)^(−1/2), c_j = c_{j−1}(2j − 1)/(2j). Noise is added to R·x, and A·x is
estimated by A·R⁻¹ (Fichtenberger, Henzinger and Upadhyay, ICML 2023; Henzinger, Upadhyay and
Upadhyay, SODA 2023). In the 2-norm nothing linear is better by more than a constant: both factors
have columns and rows of norm √(ln N/π + 1).

Noise is on integers, so what is measured is R = ⌊2^k·c⌉ rather than c, with k such that the last
coefficient has some bits. Its sensitivity is that of the integers, exactly, and estimates go by the
inverse of the integers: they are unbiased, and rounding costs less than a thousandth of variance.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.privacy.noise_law import Sensitivity

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]

LIMB_BITS = 16


@dataclass(frozen=True)
class SquareRootFactor:
    """R for N = `cells` cells in a row. Raises ValueError for none."""

    cells: int

    def __post_init__(self) -> None:
        if self.cells < 1:
            raise ValueError(f"there must be at least one cell, not {self.cells}")

    @cached_property
    def coefficients(self) -> Integers:
        """⌊2^k·c_j⌉, which do not increase. c_N is about 1/√(πN): k gives it some three bits."""
        j = np.arange(1, self.cells)
        c = np.cumprod(np.append(1.0, (2 * j - 1) / (2 * j)))
        bits = math.ceil(math.log2(8 * math.sqrt(math.pi * self.cells)))
        return np.rint(np.ldexp(c, bits)).astype(np.int64)

    @property
    def one(self) -> int:
        """What stands for one: 2^k, the weight of a cell in the first sum that has it."""
        return int(self.coefficients[0])

    # --- how far a record moves what is measured ---

    @property
    def of_value(self) -> Sensitivity:
        """Where one cell moves by one: that of the first cell, whose column is whole."""
        r = self.coefficients
        return Sensitivity(int(r.sum()), int((r**2).sum()))

    @property
    def of_record(self) -> Sensitivity:
        """Where one record leaves a cell for another, each by one.

        For cells d apart the two columns are r and r moved by d, cut at N: the most is moved where
        the first one is whole. As r does not increase, Σ|r_s − r_{s−d}| is a matter of sums.
        """
        r = self.coefficients
        if self.cells == 1:
            return Sensitivity(0, 0)
        upto = np.cumsum(r)
        l1 = 2 * upto[:-1] + upto[-2::-1] - upto[-1]
        squares = np.cumsum(r**2)
        together = np.rint(_correlated(r)).astype(np.int64)
        squared = squares[-1] + squares[-2::-1] - 2 * together[1:]
        return Sensitivity(int(l1.max()), int(squared.max()))

    # --- what is measured ---

    def measure(self, prefix: Vector) -> Vector:
        """R·x from the prefix sums of x, in the ring: linear, so shares go in as well.

        Raises ValueError for another number of cells.
        """
        if prefix.shape != (self.cells,):
            raise ValueError(f"prefix sums of shape {prefix.shape} for {self.cells} cells")
        return ring_convolved(np.diff(self.coefficients, prepend=0), prefix)

    # --- estimates ---

    @cached_property
    def inverse(self) -> Reals:
        """The coefficients of A·R⁻¹."""
        found: Reals = inverse_series(np.diff(self.coefficients, prepend=0).astype(np.float64))
        return found

    def prefix_sums(self, noisy: Reals) -> Reals:
        """The best linear unbiased estimates of the prefix sums. Raises ValueError for another
        number of values, or any that are not finite."""
        noisy = np.asarray(noisy, dtype=np.float64)
        if noisy.shape != (self.cells,) or not np.isfinite(noisy).all():
            raise ValueError(f"{self.cells} finite values are needed")
        return convolved(self.inverse, noisy)

    @cached_property
    def variances(self) -> Reals:
        """Of each of `prefix_sums`, in units of a noise's."""
        found: Reals = np.cumsum(self.inverse**2)
        return found

    @cached_property
    def with_total(self) -> Reals:
        """The covariance of each of `prefix_sums` with the last one, over the last one's variance:
        how far each is moved where the last one turns out to be off by one."""
        covariances = convolved(self.inverse, self.inverse[::-1])
        found: Reals = covariances / covariances[-1]
        found[-1] = 1.0
        return found

    def weights(self, last: int, total: bool) -> Reals:
        """The weight of each noise in the estimate up to cell `last`; `total` tells whether the sum
        of all cells is public."""
        found = np.zeros(self.cells)
        found[: last + 1] = self.inverse[last::-1]
        if total:
            found -= self.with_total[last] * self.inverse[::-1]
        return found


def _correlated(r: Integers) -> Reals:
    """Σ_s r_s·r_{s−d} for every d ≥ 0."""
    size = _size(2 * len(r))
    spectrum = np.fft.rfft(r.astype(np.float64), size)
    found: Reals = np.fft.irfft(np.abs(spectrum) ** 2, size)[: len(r)]
    return found


def convolved(one: Reals, other: Reals) -> Reals:
    """The first terms of the product of two power series, as many as each has."""
    size = _size(len(one) + len(other))
    found: Reals = np.fft.irfft(np.fft.rfft(one, size) * np.fft.rfft(other, size), size)
    return found[: len(one)]


def ring_convolved(coefficients: Integers, values: Vector) -> Vector:
    """The same of integers with ring elements, exactly.

    Values are cut into limbs of 16 bits. A product of a limb with the coefficients stays below
    2^16·Σ|r|, some 2^30, where doubles are off by far less than ½.
    """
    size = _size(2 * len(values))
    spectrum = np.fft.rfft(coefficients.astype(np.float64), size)
    total = np.zeros(len(values), dtype=np.uint64)
    for shift in range(0, 64, LIMB_BITS):
        limb = (values >> np.uint64(shift)) & np.uint64((1 << LIMB_BITS) - 1)
        product = np.fft.irfft(spectrum * np.fft.rfft(limb.astype(np.float64), size), size)
        exact = np.rint(product[: len(values)]).astype(np.int64)
        total += exact.view(np.uint64) << np.uint64(shift)
    return total


def inverse_series(series: Reals) -> Reals:
    """1/series, to as many terms, by Newton's iteration."""
    found = np.array([1.0 / series[0]])
    while len(found) < len(series):
        known = min(2 * len(found), len(series))
        padded = np.append(found, np.zeros(known - len(found)))
        missing = -convolved(series[:known], padded)
        missing[0] += 2.0
        found = convolved(padded, missing)
    return found


def _size(terms: int) -> int:
    return 1 << (terms - 1).bit_length()
