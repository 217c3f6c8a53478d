"""Degree-2 U-statistics in the local model (S1 Algorithm 1): randomized response among bins.

With A the kernel over k bins, e a report's unit vector and b the vector of β/k, the mean over pairs
of (1-β)^-2 (e - b)ᵀA(e' - b) is unbiased for the mean over quantized records. It follows from the
counts of the reports alone: all ordered pairs, minus those of a report with itself. So it takes
O(n + k²), never O(n²).
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.local.contract import Integers, OneValue, Reals, Words
from tallyroom.protocols.local.response import RandomizedResponse

FIXED_POINT = 1 << 30
"""Estimates are in units of the kernel's range divided by this."""


@dataclass(frozen=True)
class Rounding:
    """How a record is rounded to a bin, column by column.

    A code is a whole number in mixed radix, with one digit per column, the last one fastest. In a
    column with `fine` > 1, a digit counts `fine` steps from one bin to the next, and is rounded to
    either neighbour at random, to the nearer one with the higher probability (S1, Remark 2).
    """

    bins: tuple[int, ...]
    fine: tuple[int, ...]

    @property
    def name(self) -> str:
        how = "randomized" if self.words else "simple"
        return f"{how} rounding to {' × '.join(map(str, self.bins))} bins"

    @property
    def words(self) -> int:
        return sum(each > 1 for each in self.fine)

    def radix(self, column: int) -> int:
        return (self.bins[column] - 1) * self.fine[column] + 1

    def cells(self, codes: Integers, words: Words) -> Integers:
        """The cell of each code; if `words` has no columns, the nearest one."""
        cells = np.zeros(len(codes), dtype=np.int64)
        weight, used = 1, 0
        for column in reversed(range(len(self.bins))):
            codes, digits = np.divmod(codes, self.radix(column))
            points, rest = np.divmod(digits, self.fine[column])
            if self.fine[column] > 1 and words.shape[1]:
                # `fine` is a power of two, so the low bits of a word decide exactly.
                drawn = (words[:, used] & np.uint64(self.fine[column] - 1)).astype(np.int64)
                points = points + (drawn < rest)
                used += 1
            elif self.fine[column] > 1:
                points = points + (2 * rest >= self.fine[column])
            cells += weight * points
            weight *= self.bins[column]
        return cells


@dataclass(frozen=True)
class PairResponse(OneValue):
    """Estimates the mean of each output of a kernel over pairs, as `FIXED_POINT` of its range.

    `kernels` has a k × k matrix for each output, shape (outputs, k, k).
    """

    response: RandomizedResponse
    rounding: Rounding
    kernels: NDArray[np.float64] = field(compare=False)
    ranges: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.rounding.name}, {self.response.name}"

    @property
    def alphabet(self) -> int:
        return self.response.values

    @property
    def words(self) -> int:
        return 1 + self.rounding.words

    def randomize(self, inputs: Integers, words: Words) -> Integers:
        cells = self.rounding.cells(inputs, words[:, 1:])
        return self.response.randomize(cells, words[:, :1])

    @property
    def gain(self) -> float:
        return self.response.gain**2

    def largest(self, records: int) -> float:
        return 8.0 * self.gain * FIXED_POINT

    def estimate(self, counts: Integers) -> Reals:
        means = mean_over_pairs(self.kernels, counts, self.response.q) * self.gain
        return np.asarray(means / np.array(self.ranges) * FIXED_POINT, dtype=np.float64)

    def variances(self, estimates: Reals, reports: int) -> Reals:
        """The bound of S1 Theorem 1, which includes the sampling of the records themselves."""
        return np.full(len(self.ranges), self.theorem_1(reports) * FIXED_POINT**2)

    @property
    def leading(self) -> float:
        """The number of reports times the bound on the variance, in the limit of many reports."""
        return 1 / self.response.truthful**2

    def theorem_1(self, reports: int) -> float:
        """The bound for a kernel with values in [0, 1]; 1 - β = p - q."""
        n, truthful = max(reports, 2), self.response.truthful
        second = (2 - truthful) ** 2 / (2 * n * (n - 1) * truthful**4)
        return 1 / (n * truthful**2) + second


def mean_over_pairs(kernels: NDArray[np.float64], counts: Integers, q: float = 0.0) -> Reals:
    """The mean of (e - q)ᵀA(e' - q) over ordered pairs of different reports, for each A."""
    n = int(counts.sum())
    if n < 2:
        raise LocalError("pairs need at least two records")
    centred = counts - n * q
    itself = np.diagonal(kernels, axis1=1, axis2=2) @ counts
    itself = itself - q * (kernels.sum(axis=1) @ counts + kernels.sum(axis=2) @ counts)
    itself = itself + n * q**2 * kernels.sum(axis=(1, 2))
    return np.asarray((kernels @ centred @ centred - itself) / (n * (n - 1)), dtype=np.float64)
