"""A statistic and a study of a package of its own: how many values are far from the mean."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from tallyroom import Ask, Finding, Mean, Study
from tallyroom.protocols.algebra.ring import Vector, signed
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.bounded import OneColumn
from tallyroom.protocols.statistics.estimates import Estimate
from tallyroom.protocols.statistics.legacy import Legacy
from tallyroom.protocols.statistics.option import option, role
from tallyroom.protocols.studies.contract import Steps


@dataclass(frozen=True)
class Within(Legacy, OneColumn):
    """How many values are within a reach of a centre."""

    centre: float = option(0.0, "Where.")
    reach: float = option(1.0, "How far from there.")

    name: ClassVar[str] = "within"

    @property
    def length(self) -> int:
        return 1

    @property
    def sensitivity(self) -> int:
        return 1

    def encode(self, holdings: Holdings) -> Vector:
        near = np.abs(holdings.column(self.value) - self.centre) <= self.reach
        return np.add.reduceat(near.astype(np.uint64), holdings.starts)[:, None]

    def decode(self, released: Vector, records: int, exact: bool = False) -> Estimate:
        return float(signed(released)[0])

    def deviations(self, noise_variance: float, records: int) -> Column:
        return np.array([math.sqrt(noise_variance)])

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
