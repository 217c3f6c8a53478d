"""A statistic and a study of a package of its own: how many values are far from the mean."""

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from tallyroom import Mean
from tallyroom.extend import (
    Answer,
    Ask,
    Encoding,
    Estimate,
    Facts,
    Finding,
    Holdings,
    NoisySum,
    OneColumn,
    PlainSum,
    Release,
    Sensitivity,
    Steps,
    Study,
    Vector,
    option,
    role,
)


@dataclass(frozen=True)
class Near(Encoding):
    """One element: 1 where a value is within a reach of a centre, else 0."""

    column: str
    centre: float
    reach: float

    length = 1
    sensitivity = Sensitivity(l1=1, squared_l2=1)
    measurement = None
    grid_step = 0.0
    grid_words = "values count exactly"

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def encode(self, holdings: Holdings) -> Vector:
        near = np.abs(holdings.column(self.column) - self.centre) <= self.reach
        return np.add.reduceat(near.astype(np.uint64), holdings.starts)[:, None]


@dataclass(frozen=True)
class Within(OneColumn):
    """How many values are within a reach of a centre."""

    centre: float = option(0.0, "Where.")
    reach: float = option(1.0, "How far from there.")

    name: ClassVar[str] = "within"

    def plan(self, facts: Facts) -> NoisySum:
        near = Near(self.value, float(self.centre), float(self.reach))
        return NoisySum(near, PlainSum.of(near))

    def read(self, release: Release) -> Answer:
        return release.linear(float(release.integers[0]), 1.0)

    def reference(self, holdings: Holdings) -> Estimate:
        return float(np.sum(np.abs(holdings.column(self.value) - self.centre) <= self.reach))


@dataclass(frozen=True)
class NearTheMean(Study):
    """How many values are near the mean, which is asked first."""

    value: str = role("value", "The column that it is about.")
    lower: float = option(0.0, "Public lower bound of the values.")
    upper: float = option(1.0, "Public upper bound of the values.")
    reach: float = option(0.1, "How far from the mean is near.")

    name: ClassVar[str] = "near-the-mean"

    def shares(self) -> tuple[Fraction, ...]:
        return Fraction(1, 4), Fraction(3, 4)

    def may_ask(self) -> tuple[Ask, ...]:
        first, rest = self.shares()
        mean = Mean(self.value, lower=self.lower, upper=self.upper)
        return Ask(mean, first), Ask(Within(self.value, self.lower, self.reach), rest)

    def steps(self) -> Steps:
        first, rest = self.shares()
        mean = yield Ask(Mean(self.value, lower=self.lower, upper=self.upper), first)
        counted = yield Ask(Within(self.value, mean.number, self.reach), rest)
        return Finding(counted.estimate, deviations=counted.deviations)

    def reference(self, holdings: Holdings) -> Estimate:
        values = holdings.column(self.value)
        return float(np.sum(np.abs(values - values.mean()) <= self.reach))
