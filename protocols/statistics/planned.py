"""A statistic with its plan, for suites and tests that look at both: at what parties encode, and at
the answer that is read off a release."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.plans.contract import Plan
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.interval import Interval
from tallyroom.protocols.plans.pairs import PairwiseMean
from tallyroom.protocols.privacy.mechanisms import DiscreteLaplace
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.contract import Statistic
from tallyroom.protocols.statistics.estimates import Estimate
from tallyroom.protocols.statistics.release import Answer, Noise, Release


@dataclass(frozen=True)
class AskedOf:
    """A statistic that is asked of a federation with these `facts`."""

    statistic: Statistic
    facts: Facts

    @cached_property
    def plan(self) -> Plan:
        return self.statistic.plan(self.facts)

    def read(self, values: Vector, records: int, noise: Noise | None = None) -> Answer:
        return self.statistic.read(Release(self.plan, values, records, noise))

    def decode(self, values: Vector, records: int, exact: bool = False) -> Estimate:
        """The estimate alone; without `exact`, of values that have noise of some law."""
        return self.read(values, records, None if exact else laplace_noise(1.0)).estimate

    def deviations(self, values: Vector, variance: float, records: int) -> Column:
        return self.read(values, records, laplace_noise(variance)).deviations

    def interval(self, values: Vector, records: int, noise: Noise) -> Interval:
        found = self.read(values, records, noise).interval
        assert found is not None
        return found

    def total(self, holdings: Holdings) -> Vector:
        """The sum of all parties' vectors."""
        summed: Vector = self.plan.encode(holdings).sum(axis=0, dtype=np.uint64)
        return summed

    def noiseless(self, holdings: Holdings) -> Estimate:
        plan, counted = self.plan, holdings.rows
        if isinstance(plan, PairwiseMean):
            counted = plan.sample.count(counted)
        return estimate_without_noise(self.statistic, plan, holdings, counted)


def laplace_noise(variance: float, noises: float = 1.0) -> Noise:
    """So many discrete Laplace noises in each integer, of this variance together."""
    law = DiscreteLaplace.of_variance(max(variance / noises, 1e-300))
    return Noise(variance, noises, law)


def planned(statistic: Statistic, facts: Facts | None = None) -> AskedOf:
    """The statistic with its plan, by default for a thousand records of as many parties."""
    facts = facts or Facts.of_one_server(1000)
    return AskedOf(statistic, facts)


def estimate_without_noise(
    statistic: Statistic, plan: Plan, holdings: Holdings, counted: int
) -> Estimate:
    """The estimate that the same computation gives without noise: clipped, rounded, and read as if
    it were released."""
    return statistic.read(Release(plan, plan.without_noise(holdings), counted, None)).estimate
