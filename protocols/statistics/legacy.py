"""Plans of statistics that still say everything themselves, until each has a plan of its own."""

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.joint.above_threshold import FirstAbove
from tallyroom.protocols.joint.choice import Choice
from tallyroom.protocols.offers import Offer
from tallyroom.protocols.plans.contract import (
    Curated,
    CuratorMechanism,
    Encoding,
    Integers,
    NoisyChoice,
    NoisySum,
    Plan,
    Points,
    Strategy,
)
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.interval import Interval
from tallyroom.protocols.plans.measurement import Measurement
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.contract import Bounds, Statistic
from tallyroom.protocols.statistics.estimates import Estimate, shape_of
from tallyroom.protocols.statistics.release import Answer, Noise, Release


class _Of:
    def __init__(self, statistic: "Legacy") -> None:
        self.statistic = statistic

    def __repr__(self) -> str:
        return self.statistic.release_key()

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))


class LegacyEncoding(_Of, Encoding):
    @property
    def columns(self) -> tuple[str, ...]:
        return self.statistic.columns

    @property
    def length(self) -> int:
        return self.statistic.length

    @property
    def sensitivity(self) -> int:
        return self.statistic.sensitivity

    def encode(self, holdings: Holdings) -> Vector:
        return self.statistic.encode(holdings)

    @property
    def measurement(self) -> Measurement | None:
        return self.statistic.measurement

    def measured(self, holdings: Holdings) -> Integers:
        return self.statistic.measured(holdings)

    def possible(self, vectors: Vector, most: int) -> NDArray[np.bool]:
        return self.statistic.possible(vectors, most)

    @property
    def grid_step(self) -> float:
        return self.statistic.grid_step

    @property
    def grid_words(self) -> str:
        return self.statistic.grid_words

    @property
    def named(self) -> tuple[str, ...]:
        return self.statistic.named_columns


class LegacyStrategy(_Of, Strategy):
    @property
    def sensitivity(self) -> int:
        return self.statistic.sensitivity

    @property
    def noises(self) -> int:
        return self.statistic.noises

    @property
    def released(self) -> int:
        return self.statistic.released

    def measure(self, total: Vector) -> Vector:
        return self.statistic.measure(total)

    def place(self, noise: Vector) -> Vector:
        return self.statistic.place(noise)

    def words(self, scale: float) -> str:
        return self.statistic.mechanism_words(scale)


class LegacyMechanism(_Of, CuratorMechanism):
    @property
    def released(self) -> int:
        return self.statistic.released

    def publish(
        self, total: Vector, epsilon: Fraction, delta: float, randomness: Randomness
    ) -> Vector:
        return self.statistic.published(total, epsilon, delta, randomness)

    def publish_exactly(self, total: Vector) -> Vector:
        return self.statistic.published_exactly(total)

    def words(self, epsilon: Fraction, delta: float) -> str:
        return self.statistic.published_words(epsilon, delta)

    def numeric_delta(self, delta: float) -> float:
        return self.statistic.numeric_delta(Fraction(1), delta, 1)


@dataclass(frozen=True)
class Legacy(Statistic):
    """A statistic that still says everything itself."""

    def plan(self, facts: Facts) -> Plan:
        """What is computed for it, given what is public. Raises `LocalError` if nothing can be."""
        return legacy_plan(self, facts)

    def read(self, release: Release) -> Answer:
        """The answer, from what was released; it spends nothing."""
        estimate = self.decode(release.values, release.records, release.exact)
        remarks = self.remarks(release.values, release.exact)
        if (noise := release.noise) is None:
            return Answer(estimate, None, release.records, remarks, foretold=True)
        before = self.before_smoothing()
        raw = None if before is None else before.decode(release.values, release.records)
        interval = self._legacy_interval(release, noise)
        deviations = self.deviations(noise.variance, release.records)
        alike = len(deviations) in {1, len(interval.errors)}
        foretold = alike and bool(np.all(interval.errors == deviations))
        return Answer(
            estimate, interval, release.records, remarks, raw, foretold and noise.law_is_public
        )

    needs: ClassVar[Offer | None] = None
    """What an aggregator must offer for it to be asked; any will do, if this is None."""
    curated: ClassVar[bool] = False
    """Whether its noise depends on the exact sum, which a trusted curator alone may see: it
    publishes what `published` says."""
    gathered: ClassVar[bool] = False
    """Whether the curator is to see parties' vectors one after another rather than their sum: for
    what no sum tells."""
    span: ClassVar[Bounds] = (-math.inf, math.inf)
    """Where an estimate can lie."""
    after_release: ClassVar[frozenset[str]] = frozenset()
    """Parameters that change what is made of released values, and not those themselves."""

    def _legacy_interval(self, release: Release, noise: Noise) -> Interval:
        values, records = release.values, release.records
        if noise.variances is None:
            in_value = self.noises_in_value(records)
            width = noise.width(in_value, self.whole_noises)
            return self.interval(values, records, noise.variance, width)
        each = self.deviations(1.0, records)
        alike = each.shape == noise.variances.shape
        deviations = each * np.sqrt(noise.variances) if alike else np.full_like(each, np.nan)
        found = shape_of(self.decode(values, records)).values()
        return Interval.around(found, deviations, noise.width(), self.span)

    @property
    @abstractmethod
    def length(self) -> int:
        """How many ring elements a party submits."""

    @property
    @abstractmethod
    def sensitivity(self) -> int:
        """The most that replacing one record moves the sum of all vectors, in L1, exactly."""

    @abstractmethod
    def encode(self, holdings: Holdings) -> Vector:
        """One vector for every party, shape (parties, length)."""

    @abstractmethod
    def decode(self, released: Vector, records: int, exact: bool = False) -> Estimate:
        """The estimate from what the servers released together, about `records` records.

        That is `measure` of the sum of all vectors with the noise in place; with `exact`, the sum
        itself.
        """

    def noiseless(self, holdings: Holdings) -> Estimate:
        """The same computation without noise: clipped, rounded, and decoded as it is released."""
        pooled = Holdings(holdings.ids[:1], np.zeros(1, dtype=np.intp), holdings.columns)
        return self.decode(self.encode(pooled)[0], holdings.rows, exact=True)

    @abstractmethod
    def deviations(self, noise_variance: float, records: int) -> Column:
        """Standard deviation of each value of the estimate, given the variance of one noise."""

    def deviations_given(self, released: Vector, noise_variance: float, records: int) -> Column:
        """As `deviations`, where they depend on what was released."""
        return self.deviations(noise_variance, records)

    def interval(
        self, released: Vector, records: int, noise_variance: float, width: float
    ) -> Interval:
        """What noise of that variance may have done to what was released; `width` is how many
        standard deviations of it hold 95 %."""
        values = shape_of(self.decode(released, records)).values()
        deviations = self.deviations_given(released, noise_variance, records)
        return Interval.around(values, deviations, width, self.span)

    @property
    def whole_noises(self) -> bool:
        """Whether each value has a sum of noises, an integer, in some unit: not one of weighted
        noises, nor a function of several sums."""
        return False

    def noises_in_value(self, records: int) -> float:
        """How many independent noises, of about equal weight, are in a value at least. The law of
        fewer has wider tails: 1 is safe, and holds 95 to 96.6 % where there are more."""
        return 1.0

    def remarks(self, released: Vector, exact: bool) -> tuple[str, ...]:
        """What the user must be told of such an answer."""
        return ()

    def placement(self, servers: int) -> Placement | None:
        """Who adds the noise if nobody says; None where the aggregator decides."""
        return None

    def choice(self, records: int) -> "Choice | FirstAbove | None":
        """What two servers choose of the counts over so many records (of what `measure` makes of
        them), where indices are all that is released; None where the sums are."""
        return None

    def numeric_delta(self, epsilon: Fraction, delta: float, records_per_unit: int) -> float:
        """The δ that a sampler of its own costs; 0 for the exact samplers."""
        return 0.0

    @property
    def taken_as_public(self) -> tuple[str, ...]:
        """Those of its columns that it does not protect, and tells of as they are: adjacent data
        sets agree in them (`Adjacency`). A party must have said that they are public (`Policy`)."""
        return ()

    @property
    def released_exactly(self) -> str:
        """What it tells of those columns without noise, in the singular; empty if nothing."""
        return ""

    @property
    def measures(self) -> bool:
        """Whether `measure` is more than the identity."""
        return False

    @property
    def on_demand(self) -> bool:
        """Whether points are asked one after another, which takes keys that the servers hold."""
        return False

    def next_points(self, known: Mapping[int, float]) -> list[int]:
        """Points to ask next, given the answers where they are known; none when it is enough, and
        where one release says all."""
        return []

    @property
    def measurement(self) -> Measurement | None:
        """What one record is: what local randomizers, proofs and comparison keys go by. None if
        it is nothing that they know."""
        return None

    def measured(self, holdings: Holdings) -> NDArray[np.int64]:
        """What each record is by that: its cell, or its number."""
        raise LocalError(f"{self.name} is not measured record by record")

    @property
    def reuse_key(self) -> str | None:
        """What makes two questions ask for the same release, which is then given again at no cost;
        None where every question has its own."""
        return None

    @property
    def noises(self) -> int:
        """How many independent noises a release takes; `sensitivity` is in their L1 metric."""
        return self.length

    @property
    def released(self) -> int:
        """How many values are released under noise."""
        return self.length

    def measure(self, total: Vector) -> Vector:
        """What is published of the sum of all vectors: linear, so it applies to shares."""
        return total

    def possible(self, vectors: Vector, most: int) -> NDArray[np.bool]:
        """Which of these rows are vectors that 1 to `most` records make: what a curator takes.

        It sees them one by one. A mechanism whose noise depends on the sum is private for sums of
        records alone: a party could make its sensitivity small with counts that are none.
        """
        return np.ones(len(vectors), dtype=bool)

    def published(
        self, total: Vector, epsilon: Fraction, delta: float, randomness: Randomness
    ) -> Vector:
        """What a curator publishes of the exact sum, its noise included, if `curated`."""
        raise LocalError(f"{self.name} has no noise of its own")

    def published_exactly(self, total: Vector) -> Vector:
        """What a curator publishes if there is to be no noise and the vectors are `gathered`."""
        raise LocalError(f"{self.name} is of a sum")

    def published_words(self, epsilon: Fraction, delta: float) -> str:
        """That mechanism by name."""
        raise LocalError(f"{self.name} has no noise of its own")

    def place(self, noise: Vector) -> Vector:
        """How the noises add to the measured values."""
        return noise

    def release_key(self) -> str:
        """The parameters that released values depend on; what is left out is post-processing."""
        kept = self.parameters().items()
        return repr((self.name, sorted(each for each in kept if each[0] not in self.after_release)))

    def mechanism_words(self, scale: float) -> str:
        """The mechanism by name, given the scale of one noise in units of the sum."""
        return f"discrete Laplace of scale {scale:.6g} on {self.noises} integers"

    @property
    def grid_step(self) -> float:
        """How far rounding to the statistic's grid may move a value; 0 where there is none."""
        return 0.0

    @property
    def grid_words(self) -> str:
        """What the grid does to values."""
        step = self.grid_step
        return f"values are rounded to multiples of {step:.3g}" if step else "values count exactly"

    def before_smoothing(self) -> Self | None:
        """The statistic whose estimate is drawn beside this one's, from the same release: decoding
        it again spends nothing. None where nothing was smoothed."""
        return None


@dataclass(frozen=True)
class LegacySum(NoisySum):
    @property
    def measures(self) -> bool:
        return self.encoding.statistic.measures  # type: ignore[attr-defined,no-any-return]


@dataclass(frozen=True)
class LegacyCurated(Curated):
    @property
    def sensitivity(self) -> int:
        return self.encoding.sensitivity


@dataclass(frozen=True)
class LegacyChoice(NoisyChoice):
    def words(self, scale: float) -> str:
        return self.encoding.statistic.mechanism_words(scale)  # type: ignore[attr-defined,no-any-return]


def legacy_plan(statistic: "Legacy", facts: Facts) -> Plan:
    encoding, strategy = LegacyEncoding(statistic), LegacyStrategy(statistic)
    public, told = statistic.taken_as_public, statistic.released_exactly
    rule = statistic.choice(facts.records)
    if rule is not None:
        chosen = strategy if statistic.measures else None
        return LegacyChoice(encoding, rule, statistic.sensitivity, chosen)
    if statistic.curated:
        mechanism = LegacyMechanism(statistic)
        return LegacyCurated(encoding, mechanism, statistic.gathered, public, told)
    reusable = statistic.reuse_key is not None
    if statistic.on_demand:

        def search(known: Mapping[int, float]) -> list[int]:
            return statistic.next_points(known)

        tree = statistic.tree  # type: ignore[attr-defined]
        return Points(encoding, strategy, public, told, reusable, tree, search)
    return LegacySum(encoding, strategy, public, told, reusable)


def estimate_without_noise(
    statistic: Statistic, plan: Plan, holdings: Holdings, counted: int
) -> Estimate:
    """The same computation without noise: clipped, rounded, and read as it is released."""
    if isinstance(statistic, Legacy):
        return statistic.noiseless(holdings)
    return statistic.read(Release(plan, plan.without_noise(holdings), counted, None)).estimate
