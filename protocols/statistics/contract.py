"""The contract of a statistic: encode at the party, decode at the coordinator, plain reference."""

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.offers import Offer, Offers
from tallyroom.protocols.plans.contract import Plan
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.interval import Interval
from tallyroom.protocols.plans.measurement import Measurement
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.estimates import Estimate, shape_of
from tallyroom.protocols.statistics.legacy import legacy_plan
from tallyroom.protocols.statistics.parameters import Parametrized, as_taken, fits
from tallyroom.protocols.statistics.release import Answer, Noise, Release

if TYPE_CHECKING:
    from tallyroom.protocols.aggregation.role_machines import RoleMachines
    from tallyroom.protocols.garbling.laplace_circuit import CircuitLaplace
    from tallyroom.protocols.joint.above_threshold import FirstAbove
    from tallyroom.protocols.joint.choice import Choice
    from tallyroom.protocols.statistics.conformance import StatisticContract as StatisticContract
    from tallyroom.protocols.statistics.pairwise import Pairs

Bounds = tuple[float, float]


@dataclass(frozen=True)
class Statistic(Parametrized, ABC):
    """A statistic over records with named columns. Most are about one column, clipped to public
    bounds: `protocols.statistics.bounded.BoundedColumn`.

    Everything here is public: parties, servers and coordinator each build the same statistic from
    its parameters.
    """

    way_of: ClassVar[str] = ""
    """The statistic under whose name it is asked (`asked_of`); the command does not offer it."""
    needs: ClassVar[Offer | None] = None
    """What an aggregator must offer for it to be asked; any will do, if this is None."""
    curated: ClassVar[bool] = False
    """Whether its noise depends on the exact sum, which a trusted curator alone may see: it
    publishes what `published` says."""
    gathered: ClassVar[bool] = False
    """Whether the curator is to see parties' vectors one after another rather than their sum: for
    what no sum tells (`protocols.statistics.gathered`)."""
    takes_pilot: ClassVar[bool] = False
    """Whether it plans by public data that is like the data it is asked about (`planned_by`)."""
    span: ClassVar[Bounds] = (-math.inf, math.inf)
    """Where an estimate can lie."""
    after_release: ClassVar[frozenset[str]] = frozenset()
    """Parameters that change what is made of released values, and not those themselves."""

    def __post_init__(self) -> None:
        self._take_python()

    def _take_python(self) -> None:
        """As people write it: one number or name where there may be several, 2 for the choice "2".

        Raises `LocalError`, which is a ValueError, for a value of another type.
        """
        for each in dataclasses.fields(self):
            value = getattr(self, each.name)
            taken = as_taken(value, each.type)
            if not fits(taken, each.type):
                raise LocalError(f"{self.name}: {each.name} cannot be {value!r}")
            if taken is not value:
                object.__setattr__(self, each.name, taken)

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
    def asked_as(self) -> str:
        """The name that a user knows it by."""
        return self.way_of or self.name

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

    @abstractmethod
    def reference(self, holdings: Holdings) -> Estimate:
        """The plain statistic of the raw records, as numpy, scipy or scikit-learn compute it:
        without clipping, rounding or noise."""

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

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The columns of the data that it is about."""

    # --- public bounds: none are needed unless it says so ---

    @property
    def bounded(self) -> tuple[str, ...]:
        """Those of the columns whose public bounds must be known."""
        return ()

    @property
    def named_columns(self) -> tuple[str, ...]:
        """Those of its columns that are of names rather than of numbers."""
        return ()

    @property
    def column_bounds(self) -> Mapping[str, Bounds]:
        """The public bounds that are known, by column; values are clipped to them."""
        return {}

    def with_bounds(self, published: Mapping[str, Bounds]) -> Self:
        """The statistic with bounds that a data set publishes, where it has none of its own."""
        return self

    def check_bounds(self) -> None:
        """Raises `LocalError` where bounds are needed and not known."""
        if missing := [name for name in self.bounded if name not in self.column_bounds]:
            raise LocalError(f"{self.name} needs public bounds of column {missing[0]!r}")

    def clipped(self, holdings: Holdings) -> int:
        """How many records have a value outside the public bounds."""
        outside = np.zeros(holdings.rows, dtype=bool)
        for name, (lower, upper) in self.column_bounds.items():
            values = holdings.column(name)
            outside |= (values < lower) | (values > upper)
        return int(np.count_nonzero(outside))

    # --- how it is asked: most statistics leave all of this to the aggregator ---

    def machines(self) -> "RoleMachines | None":
        """Its own machines of parties, servers and coordinator; None for the aggregator's."""
        return None

    def as_pairs(self) -> "Pairs | None":
        """Itself where it is the mean of a kernel over pairs, which can be quantized and reported
        in the local model; else None."""
        return None

    def placement(self, servers: int) -> Placement | None:
        """Who adds the noise if nobody says; None where the aggregator decides."""
        return None

    def choice(self, records: int) -> "Choice | FirstAbove | None":
        """What two servers choose of the counts over so many records (of what `measure` makes of
        them), where indices are all that is released; None where the sums are."""
        return None

    def check_asked(self, parties: int, noise: Placement) -> None:
        """Raises `LocalError` if it cannot be asked of so many parties, or with noise from there.

        It is a statistic as queries have it, `prepared`.
        """
        if noise.of_pairs:
            raise LocalError(f"--noise {noise} is of statistics of pairs")

    def circuit_noise(
        self, epsilon: Fraction | None, delta: float, records_per_unit: int
    ) -> "CircuitLaplace | None":
        """The noise that parties draw inside a circuit; None where they draw none."""
        return None

    def numeric_delta(self, epsilon: Fraction, delta: float, records_per_unit: int) -> float:
        """The δ that a sampler of its own costs; 0 for the exact samplers."""
        return 0.0

    def counted(self, release: bytes) -> int | None:
        """How many records a release is about that names more than parties: `release` is what
        follows the parties' bitmap. None where releases name parties alone."""
        return None

    def is_whole(self, records: int, counted: int) -> bool:
        """Whether an answer that counted so many is about all there is of `records` records; where
        it is not, nobody knows what is missing."""
        return True

    def asked_of(self, offers: Offers) -> "Statistic":
        """The statistic that is put to a federation whose aggregator offers that.

        Most are asked as they are. One with several ways to its answer (in pairs, from a curve,
        from reports of the local model) is asked as the statistic of the way that is chosen; that
        one's name and parameters are what everybody is bound to.
        """
        return self

    def prepared(self, known: Facts) -> Self:
        """What the coordinator decides before it asks: most statistics leave nothing open."""
        return self

    def planned_by(self, pilot: Holdings, bounds: Mapping[str, Bounds]) -> Self:
        """The statistic that knows public data, within `bounds` by column where there are none of
        its own, and chooses by them what `prepared` decides."""
        return self

    @property
    def open_to_pilot(self) -> bool:
        """Whether something is left open that public data would decide better."""
        return False

    @property
    def trust(self) -> str:
        """Whom one has to trust besides what the aggregator and the noise's placement say."""
        return ""

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

    def between_thresholds(self, truth: Estimate) -> float | None:
        """The error (root mean square), without any noise, of having so many `thresholds` and no
        more, where that is the truth; None where their number is not for a plan to choose."""
        return None

    def before_smoothing(self) -> Self | None:
        """The statistic whose estimate is drawn beside this one's, from the same release: decoding
        it again spends nothing. None where nothing was smoothed."""
        return None

    def tied_by_rounding(self, holdings: Holdings) -> int:
        """How many distinct values count as equal to another, where that matters."""
        return 0

    def check_resolution(self, holdings: Holdings) -> None:
        """Raises `LocalError` where rounding leaves too little of these records' order."""


def sum_by_party(rows: NDArray[np.uint64], holdings: Holdings) -> Vector:
    """Adds up the rows of each party's records in the ring."""
    summed: Vector = np.add.reduceat(rows, holdings.starts, axis=0)
    return summed


def __getattr__(name: str) -> Any:
    """The suite that every statistic must pass; it needs pytest."""
    if name == "StatisticContract":
        from tallyroom.protocols.statistics.conformance import StatisticContract

        return StatisticContract
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
