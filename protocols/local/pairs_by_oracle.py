"""Statistics of pairs from any randomizer whose estimated counts are uncorrelated: beyond S1.

Let X be a record's estimated unit vector: unbiased, with uncorrelated coordinates of variance
h for the value that the record has and e for all others, whatever its value. Then ĉ = ΣX gives
ĉᵀAĉ = Σ_{i≠j} XᵢᵀAXⱼ + ΣᵢXᵢᵀAXᵢ, and the last sum has the expectation
Σ_x c_x·A_xx·(1 + h - e) + n·e·tr(A), for which ĉ has an unbiased estimate. So the mean over pairs
takes O(k²) from the counts, as Algorithm 1 does.

Coordinates of Hadamard response and unary encoding are uncorrelated. Those of randomized response
are not (see `protocols.local.pairs`), and those of local hashing only on average. Unlike those of
randomized response, they do not add up to 1, so A is centred: values lie in [-½, ½] of the range.
The variance then grows with k, where that of randomized response grows with k².
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.local import AUTO
from tallyroom.protocols.local.choice import LocalBudget
from tallyroom.protocols.local.contract import (
    Bodies,
    Flags,
    FrequencyOracle,
    Integers,
    LocalRandomizer,
    Reals,
    Words,
)
from tallyroom.protocols.local.hadamard import HadamardResponse
from tallyroom.protocols.local.pairs import FIXED_POINT, PairResponse, Rounding
from tallyroom.protocols.local.response import RandomizedResponse
from tallyroom.protocols.local.unary import UnaryEncoding
from tallyroom.protocols.registry import look_up


@dataclass(frozen=True)
class OraclePairs(LocalRandomizer):
    """Estimates the mean of each output of a kernel over pairs, as `FIXED_POINT` of its range.

    `kernels` has a k × k matrix for each output, shape (outputs, k, k).
    """

    oracle: HadamardResponse | UnaryEncoding
    rounding: Rounding
    kernels: NDArray[np.float64] = field(compare=False)
    ranges: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.rounding.name}, {self.oracle.name}"

    @property
    def words(self) -> int:
        return self.oracle.words + self.rounding.words

    @property
    def report_bits(self) -> int:
        return self.oracle.report_bits

    @property
    def report_bytes(self) -> int:
        return self.oracle.report_bytes

    @property
    def question_words(self) -> int:
        return self.oracle.question_words

    @property
    def question_bytes(self) -> int:
        return self.oracle.question_bytes

    def questions(self, words: Words) -> Bodies:
        return self.oracle.questions(words)

    def reports(self, inputs: Integers, questions: Bodies, words: Words) -> Bodies:
        used = self.oracle.words
        cells = self.rounding.cells(inputs, words[:, used:])
        return self.oracle.reports(cells, questions, words[:, :used])

    def possible(self, reports: Bodies, questions: Bodies) -> Flags:
        return self.oracle.possible(reports, questions)

    def tally(self, reports: Bodies, questions: Bodies) -> Integers:
        """The randomizer's own tally, and how many reports there are."""
        return np.append(self.oracle.tally(reports, questions), len(reports))

    @property
    def gain(self) -> float:
        return self.oracle.gain**2

    def largest(self, records: int) -> float:
        return 4.0 * self.gain * self.oracle.values**2 * FIXED_POINT

    def estimate(self, counts: Integers) -> Reals:
        """The mean of each output over pairs. Raises `LocalError` if there are no pairs."""
        n = int(counts[-1])
        if n < 2:
            raise LocalError("pairs need at least two records")
        held = self.oracle.estimate(counts[:-1])
        middles = (self.kernels.max(axis=(1, 2)) + self.kernels.min(axis=(1, 2))) / 2
        centred = self.kernels - middles[:, None, None]
        diagonal = np.diagonal(centred, axis1=1, axis2=2)
        empty, own = self.oracle.empty_variance, self._own_variance
        itself = (1 + own - empty) * (diagonal @ held) + n * empty * diagonal.sum(axis=1)
        means = (centred @ held @ held - itself) / (n * (n - 1)) + middles
        return np.asarray(means / np.array(self.ranges) * FIXED_POINT, dtype=np.float64)

    @property
    def _own_variance(self) -> float:
        """h."""
        return float(self.oracle.variances(np.ones(1), 1)[0])

    def variances(self, estimates: Reals, reports: int) -> Reals:
        return np.full(len(self.ranges), self.bound(reports) * FIXED_POINT**2)

    def bound(self, reports: int) -> float:
        """A bound on the variance for a kernel with values in [0, 1], whatever the records are.

        Let σ² be above every coordinate's variance, ξ the errors of X and S = A + Aᵀ. The linear
        part Σξᵢᵀ·Σ_{j≠i}Sxⱼ adds at most σ²k/n, the pairs of errors σ⁴k²/2n(n-1), and the deviation
        of XᵀAX from its expectation gain⁴k³/2n(n-1)², which may be correlated with the first two.
        1/n is for the records, which are rounded at random, or a sample, as in Theorem 1.
        """
        n, k = max(reports, 2), self.oracle.values
        pairs = self._spread * k / n + self._spread**2 * k**2 / (2 * n * (n - 1))
        itself = self.oracle.gain**4 * k**3 / (2 * n * (n - 1) ** 2)
        return 1 / n + (math.sqrt(pairs) + math.sqrt(itself)) ** 2

    @property
    def leading(self) -> float:
        """The number of reports times the bound on the variance, in the limit of many reports."""
        return 1 + self._spread * self.oracle.values

    @property
    def _spread(self) -> float:
        """σ²."""
        return max(self._own_variance + 1, self.oracle.empty_variance)


PairRandomizer = PairResponse | OraclePairs
PAIR_RANDOMIZERS: Mapping[str, Callable[[LocalBudget, int], FrequencyOracle]] = {
    "response": lambda budget, k: RandomizedResponse.spending(budget(k), k),
    "hadamard": lambda budget, k: HadamardResponse.spending(budget(None), k),
    "unary": lambda budget, k: UnaryEncoding.spending(budget(None), k),
}


def pair_randomizer(
    name: str,
    budget: LocalBudget,
    rounding: Rounding,
    kernels: NDArray[np.float64],
    ranges: tuple[float, ...],
) -> PairRandomizer:
    """The randomizer of that name; for `auto`, the one with the least bound on the variance for
    many records."""

    def built(kind: str) -> PairRandomizer:
        oracle = PAIR_RANDOMIZERS[kind](budget, kernels.shape[1])
        if isinstance(oracle, RandomizedResponse):
            return PairResponse(oracle, rounding, kernels, ranges)
        assert isinstance(oracle, HadamardResponse | UnaryEncoding)
        return OraclePairs(oracle, rounding, kernels, ranges)

    if name != AUTO:
        look_up("randomizer", name, PAIR_RANDOMIZERS)
        return built(name)
    return min(map(built, PAIR_RANDOMIZERS), key=lambda randomizer: randomizer.leading)
