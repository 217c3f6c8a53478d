"""What left the room: released values with the law of the noise in them, and the answer that a
statistic reads off them. Reading spends nothing."""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Self

import numpy as np

from tallyroom.protocols.algebra.ring import Vector, signed
from tallyroom.protocols.errors import RunFailed
from tallyroom.protocols.plans.contract import Integers, Plan
from tallyroom.protocols.plans.interval import (
    NOISE,
    NORMAL,
    NOT_SAMPLED,
    POPULATION,
    UPTO,
    Interval,
    noise_width,
)
from tallyroom.protocols.privacy.noise_law import NoiseLaw
from tallyroom.protocols.records import Column
from tallyroom.protocols.statistics.estimates import Estimate, Table, shape_of

ANYWHERE = (-math.inf, math.inf)
Intervals = dict[str, Interval | None]
"""Intervals by what they cover. That of the noise is None where there was none."""


@dataclass(frozen=True)
class Noise:
    """The noise in released integers: `noises` independent noises of `law` in each, of `variance`
    together. Without a law it is normal: a sum over many reports, whose variance is estimated.

    `variances` are those of the single integers where they differ; then `variance` is NaN.
    """

    variance: float
    noises: float
    law: NoiseLaw | None
    variances: Column | None = None

    @classmethod
    def of(cls, law: NoiseLaw, noises: Fraction | int = 1) -> Self:
        """So many independent noises of a law; shares make parts of one."""
        return cls(law.variance * noises.numerator / noises.denominator, float(noises), law)

    @classmethod
    def normal(cls, variances: Column) -> Self:
        """Of each integer, where a sum over many reports is as good as normal."""
        if variances.size == 1:
            return cls(float(variances[0]), math.inf, None)
        return cls(math.nan, math.inf, None, variances)

    @property
    def law_is_public(self) -> bool:
        """Whether the variance is known before anything is released."""
        return self.law is not None

    def deviations(self, size: int) -> Column:
        """Of each of so many released integers; NaN where their number is another."""
        if self.variances is None:
            return np.full(size, math.sqrt(self.variance))
        if self.variances.shape != (size,):
            return np.full(size, np.nan)
        return np.sqrt(self.variances)

    def part(self, place: slice) -> Self:
        """The noise in a part of the released integers."""
        if self.variances is None:
            return self
        return replace(self, variances=self.variances[place])

    def width(self, in_value: float = 1.0, whole: bool = False) -> float:
        """Standard deviations to either side that hold 95 % of a value with `in_value` such noises
        of about equal weight. With `whole`, the value is their sum in some unit, an integer."""
        if self.law is None:
            return NORMAL
        if whole and self.variance > 0:  # 0 where ε is so large that none is drawn
            return noise_width(self.law, self.noises * in_value)
        return self.law.width(UPTO, self.noises * in_value)


@dataclass(frozen=True)
class Release:
    """`values` are those that servers released together, or the exact sum if there is no `noise`.
    `records` is how many records are in it; of pairs, how many pairs.

    The part of a release that is about a group of records tells their number as it was estimated:
    `size_variance` is the variance of that, in units of one noise.
    """

    plan: Plan
    values: Vector
    records: int
    noise: Noise | None
    size_variance: float = 0.0

    @property
    def exact(self) -> bool:
        return self.noise is None

    @cached_property
    def integers(self) -> Integers:
        """The released values, with their signs."""
        return signed(self.values)

    def part(self, begin: int, end: int) -> "Release":
        """A part of the released values, about records of which there are as many."""
        place = slice(begin, end)
        noise = None if self.noise is None else self.noise.part(place)
        return replace(self, values=self.values[place], noise=noise)

    def counts(self, estimate: Estimate, span: tuple[float, float] = ANYWHERE) -> "Answer":
        """Every released integer is a count. The interval is around the counts as they were
        released, within `span`, also where the estimate tells them otherwise."""
        told = shape_of(estimate).values()
        if self.noise is None:
            sampled = Interval.of_expected_counts(told, None, self.records, span)
            return Answer(estimate, None, self.records, foretold=True, population=sampled)
        errors = self.noise.deviations(len(self.values))
        if self.noise.variances is None:
            counts, width = self.integers.astype(np.float64), self.noise.width(whole=True)
            interval = Interval.of_counts(counts, errors, width, span)
        else:
            interval = Interval.around(told, errors, self.noise.width(), ANYWHERE)
        return Answer(
            estimate,
            interval,
            self.records,
            foretold=self.noise.law_is_public,
            population=Interval.of_expected_counts(told, interval, self.records, span),
        )

    def linear(self, estimate: float, step: float) -> "Answer":
        """One released integer, in units of `step`, plus something public."""
        if self.noise is None:
            return Answer(estimate, None, self.records, foretold=True)
        errors = self.noise.deviations(1) * abs(step)
        width = self.noise.width(whole=True)
        interval = Interval.around(np.array([estimate]), errors, width, ANYWHERE)
        foretold = self.noise.law_is_public
        return Answer(estimate, interval, self.records, foretold=foretold)

    def table(self, estimate: Table, step: float) -> "Answer":
        """Every cell is a released integer in units of `step`, or one that is public."""
        if self.noise is None:
            return Answer(estimate, None, self.records, foretold=True)
        values = estimate.values()
        errors = np.full(len(values), math.sqrt(self.noise.variance) * step)
        interval = Interval.around(values, errors, self.noise.width(), ANYWHERE)
        return Answer(estimate, interval, self.records, foretold=self.noise.law_is_public)

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

    `interval` is that of the noise, None where there was none; `population` is None where sampling
    is not estimated. `remarks` are what the user must be told of this
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
    population: Interval | None = None

    @property
    def intervals(self) -> "Intervals":
        """Both intervals, by what they cover."""
        size = len(shape_of(self.estimate).values())
        unknown = Interval.none(size, NOT_SAMPLED, POPULATION)
        return {NOISE: self.interval, POPULATION: self.population or unknown}

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
