"""Sum and mean of a clipped column."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import FixedPoint, Vector, signed
from tallyroom.protocols.plans.measurement import BoundedNumber, Measurement
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.bounded import BoundedColumn
from tallyroom.protocols.statistics.contract import sum_by_party
from tallyroom.protocols.statistics.estimates import Estimate


@dataclass(frozen=True)
class Sum(BoundedColumn):
    """The sum of values clipped to public bounds, on a fixed-point grid.

    A record is a whole number of steps from 0 to `sensitivity` above the lower bound, so replacing
    one moves the sum by no more. How many records there are is public, and with it what the lower
    bound contributes.
    """

    name: ClassVar[str] = "sum"

    @property
    def grid(self) -> FixedPoint:
        return FixedPoint.for_bounds(*self.bounds)

    @property
    def length(self) -> int:
        return 1

    @property
    def sensitivity(self) -> int:
        return self.grid.steps

    @property
    def measurement(self) -> Measurement:
        return BoundedNumber(most=self.grid.steps)

    def measured(self, holdings: Holdings) -> NDArray[np.int64]:
        return signed(self.grid.encode(self.clip(holdings.column(self.value))))

    def encode(self, holdings: Holdings) -> Vector:
        values = self.grid.encode(self.clip(holdings.column(self.value)))
        return sum_by_party(values[:, None], holdings)

    def decode(self, released: Vector, records: int, exact: bool = False) -> Estimate:
        return self.grid.decode(int(signed(released)[0]), records)

    @property
    def whole_noises(self) -> bool:
        return True

    def deviations(self, noise_variance: float, records: int) -> Column:
        return np.array([math.sqrt(noise_variance) * self.grid.step])

    def mechanism_words(self, scale: float) -> str:
        step = self.grid.step
        return f"discrete Laplace of scale {scale * step:.6g} on the sum, in steps of {step:.2g}"

    @property
    def grid_step(self) -> float:
        return self.grid.step

    def reference(self, holdings: Holdings) -> Estimate:
        return float(np.sum(self.raw(holdings)))


@dataclass(frozen=True)
class Mean(Sum):
    """The sum divided by the number of records, which is public."""

    name: ClassVar[str] = "mean"

    def decode(self, released: Vector, records: int, exact: bool = False) -> Estimate:
        return self.grid.decode(int(signed(released)[0]), records) / records

    def deviations(self, noise_variance: float, records: int) -> Column:
        return super().deviations(noise_variance, records) / records

    def reference(self, holdings: Holdings) -> Estimate:
        return float(np.mean(self.raw(holdings)))
