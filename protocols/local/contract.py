"""The contract of a local randomizer: a report a record, private by itself."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]
Words = NDArray[np.uint64]


class LocalRandomizer(Protocol):
    """Turns each private integer into a report in 0..`values`-1, and reports into an estimate.

    `words` is how many uniform 64-bit words a report takes. A report is a function of its input and
    those words by integer arithmetic alone, so its probabilities are exactly what is stated.
    """

    @property
    def values(self) -> int: ...

    @property
    def words(self) -> int: ...

    def randomize(self, inputs: Integers, words: Words) -> Integers:
        """Reports for `inputs`, from `words` of shape (len(inputs), self.words)."""

    @property
    def gain(self) -> float:
        """The most by which one report moves an estimate."""

    def estimate(self, counts: Integers) -> Reals:
        """Unbiased estimates from how often each value was reported."""

    def variances(self, estimates: Reals, reports: int) -> Reals:
        """The variance of each estimate, or a bound on it, as far as `estimates` tell."""
