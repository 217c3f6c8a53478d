"""What one record is to a statistic, in the terms that aggregators need.

A local randomizer, a proof that a record is a possible one and comparison keys all ask the same:
is a record one of so many cells, a step at one of so many thresholds, or a number in a range? A
statistic answers with its `measurement`; `Statistic.measured` is what each record is by it.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols import local
from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.plans.thresholds import RESOLUTION_BITS, Points
from tallyroom.protocols.privacy.hierarchy import Hierarchy

GRID_POINTS = (2, 3, 4, 5, 6, 8, 12, 16, 24, 32)
"""How finely a bounded number may be rounded before the response."""


@dataclass(frozen=True)
class Measurement:
    """`cells` is how many there are in a row, of which a record is in one; None if it is not."""

    cells: int | None = None

    @property
    def alike(self) -> bool:
        """Whether any record could have sent any report, so that it hides among all others when
        they are shuffled."""
        return True

    def randomizer(self, budget: "local.LocalBudget") -> "local.LocalRandomizer | None":
        """What makes the report of a record private by itself; None if nothing here does.

        Its estimates are those of the sum of all records' vectors.
        """
        return None

    def randomizer_by_itself(
        self, epsilon: Fraction, delta: Fraction
    ) -> "local.LocalRandomizer | None":
        """The same where nothing but the report hides the record: it may be (ε, δ)-private."""
        return self.randomizer(lambda _: epsilon)

    def points(self, bits: int) -> Points:
        """The cells in a comparison key's domain of 2^bits: spread over all of the fine one, and in
        others its last points. A key at a record's cell counts from there on, and one in front of
        all cells like one in the first: no key counts nowhere.

        Raises ValueError where there are no cells.
        """
        if self.cells is None:
            raise ValueError("a record that is in no cell is not compared")
        if bits != RESOLUTION_BITS:
            return np.arange((1 << bits) - self.cells, 1 << bits, dtype=np.uint64)
        steps = np.arange(1, self.cells + 1, dtype=np.float64)
        return np.rint(steps * (2.0**bits / self.cells)).astype(np.uint64) - np.uint64(1)

    def alphas(self, measured: NDArray[np.int64], bits: int) -> Points:
        """Where in that domain each record's key steps."""
        return self.points(bits)[measured]

    def of_counts(self, counts: Vector) -> Vector:
        """The sum of all records' vectors, from how many are in each cell or one before it:
        linear, so it applies to shares."""
        return counts


@dataclass(frozen=True)
class OneHot(Measurement):
    """A record is a vector of `cells` with a single 1, at its cell. `oracle` names what counts
    cells in the local model (`protocols.local.choice`)."""

    cells: int = 1
    oracle: str = local.AUTO

    def randomizer(self, budget: "local.LocalBudget") -> "local.LocalRandomizer | None":
        return local.frequency_oracle(self.oracle, budget, self.cells)

    def of_counts(self, counts: Vector) -> Vector:
        return np.diff(counts, prepend=np.uint64(0))


@dataclass(frozen=True)
class Step(Measurement):
    """A record is a vector of `cells` that steps from 0 to 1 at its cell. `shape` is the hierarchy
    whose nodes are released of it, if any are: a local report is about one of them, by `oracle`
    (`protocols.local.oracle_levels`)."""

    cells: int = 1
    shape: Hierarchy | None = None
    oracle: str = local.AUTO

    def randomizer(self, budget: "local.LocalBudget") -> "local.LocalRandomizer | None":
        return (
            None if self.shape is None else local.level_randomizer(self.oracle, budget, self.shape)
        )


@dataclass(frozen=True)
class Line(Measurement):
    """A record stands on one of so many lines that nobody writes out: they are asked one by one."""

    cells: int = 1

    def alphas(self, measured: NDArray[np.int64], bits: int) -> Points:
        return measured.astype(np.uint64)


@dataclass(frozen=True)
class BoundedNumber(Measurement):
    """A record is a whole number from 0 to `most`, in a vector of one."""

    most: int = 1

    def randomizer(self, budget: "local.LocalBudget") -> "local.LocalRandomizer | None":
        """The rounding with the lowest worst-case variance; two points are the one-bit mean.

        Finer ones are tried for as long as they are better.
        """
        best: local.BoundedResponse | None = None
        for values in GRID_POINTS:
            response = local.RandomizedResponse.spending(budget(values), values)
            finer = local.BoundedResponse(response, self.most)
            if best is not None and finer.worst_variance >= best.worst_variance:
                break
            best = finer
        return best
