"""Plans of statistics that still say everything themselves, until each has a plan of its own."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import Vector
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
from tallyroom.protocols.plans.measurement import Measurement
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.statistics.estimates import Estimate
from tallyroom.protocols.statistics.release import Release

if TYPE_CHECKING:
    from tallyroom.protocols.aggregation.role_machines import RoleMachines
    from tallyroom.protocols.garbling.laplace_circuit import CircuitLaplace
    from tallyroom.protocols.statistics.contract import Statistic


class _Of:
    def __init__(self, statistic: "Statistic") -> None:
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


class LegacyPairs(_Of, Plan):
    @property
    def columns(self) -> tuple[str, ...]:
        return self.statistic.columns

    @property
    def length(self) -> int:
        return self.statistic.length

    @property
    def released(self) -> int:
        return self.statistic.released

    @property
    def noises(self) -> int:
        return self.statistic.noises

    @property
    def sensitivity(self) -> int:
        return self.statistic.sensitivity

    @property
    def measures(self) -> bool:
        return self.statistic.measures

    def measure(self, total: Vector) -> Vector:
        return self.statistic.measure(total)

    def place(self, noise: Vector) -> Vector:
        return self.statistic.place(noise)

    def encode(self, holdings: Holdings) -> Vector:
        return self.statistic.encode(holdings)

    @property
    def measurement(self) -> Measurement | None:
        return self.statistic.measurement

    def measured(self, holdings: Holdings) -> Integers:
        return self.statistic.measured(holdings)

    def words(self, scale: float) -> str:
        return self.statistic.mechanism_words(scale)

    def without_noise(self, holdings: Holdings) -> Vector:
        raise NotImplementedError

    @property
    def trust(self) -> str:  # type: ignore[override]
        return self.statistic.trust

    def placement(self, servers: int) -> Placement | None:
        return self.statistic.placement(servers)

    def check_asked(self, parties: int, noise: Placement) -> None:
        self.statistic.check_asked(parties, noise)

    def machines(self) -> "RoleMachines | None":
        return self.statistic.machines()

    def circuit_noise(
        self, epsilon: Fraction | None, delta: float, records_per_unit: int
    ) -> "CircuitLaplace | None":
        return self.statistic.circuit_noise(epsilon, delta, records_per_unit)

    def numeric_delta(self, epsilon: Fraction, delta: float, records_per_unit: int) -> float:
        return self.statistic.numeric_delta(epsilon, delta, records_per_unit)

    def counted(self, release: bytes) -> int | None:
        return self.statistic.counted(release)

    def is_whole(self, records: int, counted: int) -> bool:
        return self.statistic.is_whole(records, counted)


class _Randomized(LegacySum):
    needs = Offer.RANDOMIZE


def legacy_plan(statistic: "Statistic", facts: Facts) -> Plan:
    encoding, strategy = LegacyEncoding(statistic), LegacyStrategy(statistic)
    public, told = statistic.taken_as_public, statistic.released_exactly
    if statistic.machines() is not None:
        return LegacyPairs(statistic)
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
    kind = _Randomized if statistic.needs is Offer.RANDOMIZE else LegacySum
    return kind(encoding, strategy, public, told, reusable)


def estimate_without_noise(
    statistic: "Statistic", plan: Plan, holdings: Holdings, counted: int
) -> Estimate:
    """The same computation without noise: clipped, rounded, and read as it is released."""
    if isinstance(getattr(plan, "encoding", plan), _Of):
        return statistic.noiseless(holdings)
    return statistic.read(Release(plan, plan.without_noise(holdings), counted, None)).estimate
