"""Sum and mean of a clipped column."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tallyroom.protocols.plans.contract import NoisySum, PlainSum
from tallyroom.protocols.plans.encodings import ClippedNumber
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.statistics.bounded import BoundedColumn
from tallyroom.protocols.statistics.estimates import Estimate
from tallyroom.protocols.statistics.release import Answer, Release


@dataclass(frozen=True)
class Sum(BoundedColumn):
    """The sum of values clipped to public bounds, on a fixed-point grid.

    How many records there are is public, and with it what the lower bound contributes.
    """

    name: ClassVar[str] = "sum"

    @property
    def encoding(self) -> ClippedNumber:
        return ClippedNumber(self.value, *self.bounds)

    def plan(self, facts: Facts) -> NoisySum:
        number = self.encoding
        return NoisySum(number, PlainSum.of(number, unit=number.grid.step))

    def read(self, release: Release) -> Answer:
        return self._read(release, 1.0)

    def _read(self, release: Release, divisor: float) -> Answer:
        grid = self.encoding.grid
        total = grid.decode(int(release.integers[0]), release.records)
        return release.linear(total / divisor, grid.step / divisor)

    def reference(self, holdings: Holdings) -> Estimate:
        return float(np.sum(self.raw(holdings)))


@dataclass(frozen=True)
class Mean(Sum):
    """The sum divided by the number of records, which is public."""

    name: ClassVar[str] = "mean"

    def read(self, release: Release) -> Answer:
        return self._read(release, release.records)

    def reference(self, holdings: Holdings) -> Estimate:
        return float(np.mean(self.raw(holdings)))
