"""What left the room: released values with the law of the noise in them, and the answer that a
statistic reads off them. Reading spends nothing."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tallyroom.protocols.algebra.ring import Vector, signed
from tallyroom.protocols.errors import RunFailed
from tallyroom.protocols.plans.contract import Integers, Plan
from tallyroom.protocols.plans.interval import NORMAL, Interval, laplace_width, noise_width
from tallyroom.protocols.records import Column
from tallyroom.protocols.statistics.estimates import Estimate, shape_of

ANYWHERE = (-math.inf, math.inf)


@dataclass(frozen=True)
class Noise:
    """The noise in released integers: `noises` independent discrete Laplace noises in each, of
    `variance` together. Infinitely many, where it is a sum over many reports, are normal.

    `variances` are those of the single integers where they differ; then `variance` is NaN.
    """

    variance: float
    noises: float = 1.0
    variances: Column | None = None

    @property
    def law_is_public(self) -> bool:
        """Whether the variance is known before anything is released."""
        return not math.isinf(self.noises)

    def deviations(self, size: int) -> Column:
        """Of each of so many released integers; NaN where their number is another."""
        if self.variances is None:
            return np.full(size, math.sqrt(self.variance))
        if self.variances.shape != (size,):
            return np.full(size, np.nan)
        return np.sqrt(self.variances)

    def width(self, in_value: float = 1.0, whole: bool = False) -> float:
        """Standard deviations to either side that hold 95 % of a value with `in_value` such noises
        of about equal weight. With `whole`, the value is their sum in some unit, an integer."""
        if math.isinf(self.noises):
            return NORMAL
        if whole and self.variance > 0:  # 0 where ε is so large that none is drawn
            return noise_width(self.noises * in_value, self.variance * in_value)
        return laplace_width(self.noises * in_value)


@dataclass(frozen=True)
class Release:
    """`values` are those that servers released together, or the exact sum if there is no `noise`.
    `records` is how many records are in it; of pairs, how many pairs."""

    plan: Plan
    values: Vector
    records: int
    noise: Noise | None

    @property
    def exact(self) -> bool:
        return self.noise is None

    @cached_property
    def integers(self) -> Integers:
        """The released values, with their signs."""
        return signed(self.values)

    def counts(self, estimate: Estimate, span: tuple[float, float] = ANYWHERE) -> "Answer":
        """Every released integer is a count. The interval is around the counts as they were
        released, within `span`, also where the estimate tells them otherwise."""
        if self.noise is None:
            return Answer(estimate, None, self.records, foretold=True)
        errors = self.noise.deviations(len(self.values))
        if self.noise.variances is None:
            counts, width = self.integers.astype(np.float64), self.noise.width(whole=True)
            interval = Interval.of_counts(counts, errors, width, span)
        else:
            told = shape_of(estimate).values()
            interval = Interval.around(told, errors, self.noise.width(), ANYWHERE)
        return Answer(estimate, interval, self.records, foretold=self.noise.law_is_public)

    def linear(self, estimate: float, step: float) -> "Answer":
        """One released integer, in units of `step`, plus something public."""
        if self.noise is None:
            return Answer(estimate, None, self.records, foretold=True)
        errors = self.noise.deviations(1) * abs(step)
        width = self.noise.width(whole=True)
        interval = Interval.around(np.array([estimate]), errors, width, ANYWHERE)
        foretold = self.noise.law_is_public
        return Answer(estimate, interval, self.records, foretold=foretold)

    def chosen(self, candidates: int) -> Integers:
        """The indices that two servers chose. Raises `RunFailed` where they released something
        that is none of so many."""
        if ((self.integers < 0) | (self.integers >= candidates)).any():
            raise RunFailed("the servers' shares do not add up to anything that can be chosen")
        return self.integers

    def without_errors(self, estimate: Estimate, why: str = "") -> "Answer":
        """An answer whose errors nobody can tell: `why`, for people."""
        if self.exact:
            return Answer(estimate, None, self.records, foretold=True)
        size = len(shape_of(estimate).values())
        return Answer(estimate, Interval.none(size, why), self.records)


@dataclass(frozen=True)
class Answer:
    """An estimate read off a release about `records` records.

    `interval` is None where there was no noise. `remarks` are what the user must be told of this
    answer. `unsmoothed` is the estimate before it was smoothed, where it was. `foretold` tells
    whether the standard errors would be the same whatever had been released. `notes` are what the
    user of a study is told of this question in any case.
    """

    estimate: Estimate
    interval: Interval | None
    records: int
    remarks: tuple[str, ...] = ()
    unsmoothed: Estimate | None = None
    foretold: bool = False
    notes: tuple[str, ...] = ()

    @classmethod
    def told(
        cls, estimate: Estimate, deviations: Column, records: int, notes: tuple[str, ...] = ()
    ) -> "Answer":
        """An answer of which the standard errors alone are known."""
        unknown = np.full(len(deviations), np.nan)
        return cls(estimate, Interval(deviations, unknown, unknown), records, notes=notes)

    @property
    def deviations(self) -> Column:
        """Standard deviations of the noise in each value of the estimate: 0 where there is none,
        NaN where it is not known."""
        return np.zeros(1) if self.interval is None else self.interval.errors

    @property
    def number(self) -> float:
        """The estimate, where it is a single number. Raises `RunFailed` where it is not."""
        shape = shape_of(self.estimate)
        if not shape.scalar:
            raise RunFailed("the answer is not a single number")
        return float(shape.values()[0])
