"""Sum and mean of a clipped column."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from protocols.records import Column, Holdings
from protocols.ring import FixedPoint, Vector
from protocols.statistics.contract import Estimate, Statistic, sum_by_party


@dataclass(frozen=True)
class Sum(Statistic):
    """Σ clip(x), on a fixed-point grid that the public bounds determine."""

    name: ClassVar[str] = "sum"

    @property
    def grid(self) -> FixedPoint:
        return FixedPoint.for_bounds(*self.bounds)

    @property
    def length(self) -> int:
        return 1

    @property
    def sensitivity(self) -> int:
        return self.grid.steps(*self.bounds)

    def encode(self, holdings: Holdings) -> Vector:
        values = self.grid.encode(self.clip(holdings.column(self.value)))
        return sum_by_party(values[:, None], holdings)

    def decode(self, released: Vector, records: int, exact: bool = False) -> Estimate:
        return float(self.grid.decode(released)[0])

    def deviations(self, noise_variance: float, records: int) -> Column:
        return np.array([math.ldexp(math.sqrt(noise_variance), -self.grid.fraction_bits)])

    def mechanism_words(self, scale: float) -> str:
        step = math.ldexp(1.0, -self.grid.fraction_bits)
        return f"discrete Laplace of scale {scale * step:.6g} on the sum, in steps of {step:.2g}"

    def reference(self, holdings: Holdings) -> Estimate:
        return float(np.sum(self.clip(holdings.column(self.value))))


@dataclass(frozen=True)
class Mean(Sum):
    """The sum divided by the number of records, which is public."""

    name: ClassVar[str] = "mean"

    def decode(self, released: Vector, records: int, exact: bool = False) -> Estimate:
        return float(self.grid.decode(released)[0]) / records

    def deviations(self, noise_variance: float, records: int) -> Column:
        return super().deviations(noise_variance, records) / records

    def reference(self, holdings: Holdings) -> Estimate:
        return float(np.mean(self.clip(holdings.column(self.value))))
