"""A plan: what all roles of a run compute, and are bound to.

A statistic makes its plan of public facts (`Statistic.plan`). There are few kinds, one for each way
of computing:

- `NoisySum`: encoded records are added up, and a linear map of the sum is released under noise;
- `Stream`: the same, batch after batch while records arrive;
- `NoisyChoice`: two servers choose among such sums, and release nothing but what is chosen;
- `Points`: servers keep comparison keys, and answer point after point;
- `Curated`: a trusted curator publishes the exact sum under noise that fits it;
- `PairwiseMean`: a kernel is computed for pairs of records, in circuits.

A plan is a frozen dataclass of public values. Its `repr` is its identity: whatever decides what is
released stands in it, and nothing that is done with the release afterwards. So randomness, reuse
and comparison of questions go by the plan, and a new parameter cannot be forgotten.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import Vector, signed
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.offers import Offer
from tallyroom.protocols.plans.measurement import Measurement
from tallyroom.protocols.privacy.mechanisms import Placement, laplace_scale
from tallyroom.protocols.privacy.noise_law import NoiseLaw, Sensitivity
from tallyroom.protocols.privacy.strategies import PlainSum as PlainSum
from tallyroom.protocols.privacy.strategies import Strategy as Strategy
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings

if TYPE_CHECKING:
    from tallyroom.protocols.garbling.laplace_circuit import CircuitLaplace
    from tallyroom.protocols.joint import Choice, FirstAbove
    from tallyroom.protocols.plans.measurement import Measurement

Integers = NDArray[np.int64]


def pooled(holdings: Holdings) -> Holdings:
    """All records, as if one party held them."""
    return Holdings(holdings.ids[:1], np.zeros(1, dtype=np.intp), holdings.columns)


class Encoding(ABC):
    """Records as vectors, cell by cell: the code of a record depends on that record alone.

    A frozen dataclass, whose fields are all that the codes depend on.
    """

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The columns of the data that are read."""

    @property
    @abstractmethod
    def length(self) -> int:
        """How many ring elements a vector has."""

    @property
    @abstractmethod
    def sensitivity(self) -> Sensitivity:
        """The most that replacing one record moves the sum of all vectors: exact bounds."""

    @abstractmethod
    def encode(self, holdings: Holdings) -> Vector:
        """One vector for every party, shape (parties, length)."""

    @property
    @abstractmethod
    def measurement(self) -> "Measurement | None":
        """One record in the terms of local randomizers, proofs and comparison keys; None if it is
        nothing that they know."""

    def measured(self, holdings: Holdings) -> Integers:
        """Each record by that measurement: its cell, or its number."""
        raise LocalError("these records are not measured one by one")

    @property
    @abstractmethod
    def grid_step(self) -> float:
        """How far rounding to the grid may move a value; 0 where there is no grid."""

    @property
    @abstractmethod
    def grid_words(self) -> str:
        """What the grid does to values, for people."""

    def possible(self, vectors: Vector, most: int) -> NDArray[np.bool]:
        """Which of these rows are vectors that 1 to `most` records make. Only a curator sees them
        one by one, and has to ask: its noise depends on the sum, so it is private for sums of
        records alone."""
        raise LocalError("a curator cannot check these vectors")


class LinearMap(Protocol):
    """A linear map of the sum, whose values servers choose among. Every `Strategy` is one."""

    def measure(self, total: Vector) -> Vector: ...


class Plan(ABC):
    """A frozen dataclass of public values; see the module's documentation."""

    needs: ClassVar[Offer | None] = None
    """The ability that an aggregator must offer; any will do, if this is None."""

    @property
    def identity(self) -> str:
        """All that decides what is released, in one canonical text."""
        return repr(self)

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The columns of the data that are read."""

    @property
    @abstractmethod
    def length(self) -> int:
        """How many ring elements a party submits."""

    @property
    @abstractmethod
    def released(self) -> int:
        """How many values are released under noise."""

    @property
    @abstractmethod
    def noises(self) -> int:
        """How many independent noises a release takes."""

    @property
    @abstractmethod
    def sensitivity(self) -> Sensitivity:
        """How far replacing one record moves what is released, in units of the noises; 0 where
        the release does not depend on any record."""

    @property
    @abstractmethod
    def any_law(self) -> bool:
        """Whether noise of any law may be drawn (`NoiseLaw`); where not, a question for another
        than discrete Laplace noise is refused."""

    @property
    @abstractmethod
    def measures(self) -> bool:
        """Whether `measure` is more than the identity."""

    @abstractmethod
    def measure(self, total: Vector) -> Vector:
        """The released values, of the sum of all vectors: linear, so it applies to shares."""

    @abstractmethod
    def place(self, noise: Vector) -> Vector:
        """How the noises add to the measured values."""

    @abstractmethod
    def encode(self, holdings: Holdings) -> Vector:
        """One vector for every party, shape (parties, length)."""

    @property
    @abstractmethod
    def measurement(self) -> "Measurement | None":
        """As `Encoding.measurement`."""

    @abstractmethod
    def measured(self, holdings: Holdings) -> Integers:
        """As `Encoding.measured`."""

    @abstractmethod
    def words(self, law: NoiseLaw) -> str:
        """The mechanism by name, given the law of one noise in units of the sum."""

    @property
    @abstractmethod
    def grid_step(self) -> float:
        """As `Encoding.grid_step`."""

    @property
    @abstractmethod
    def grid_words(self) -> str:
        """As `Encoding.grid_words`."""

    @abstractmethod
    def without_noise(self, holdings: Holdings) -> Vector:
        """The exact release about these records: how simulations tell what noise did."""

    def mean_variance(self, noise_variance: float) -> float:
        """As `Strategy.mean_variance`."""
        return noise_variance

    # --- what is said of it ---

    public: tuple[str, ...] = ()
    """Columns that are not protected: adjacent data sets agree in them (`Adjacency`). A party must
    have said that they are public (`Policy`)."""
    public_facts: str = ""
    """What is told of those columns without noise, in the singular; empty if nothing."""
    trust: str = ""
    """Whom one has to trust besides what the aggregator and the noise's placement say."""
    reusable: bool = False
    """Whether the same release is given again, at no cost, to a question with the same plan."""

    # --- how it is asked; only some kinds have something to say ---

    @property
    def computed_by_servers(self) -> bool:
        """Whether two servers compute it on shares of records, and parties have left."""
        return False

    def placement(self, servers: int) -> Placement | None:
        """Who adds the noise if nobody says; None where the aggregator decides."""
        return None

    def check_asked(self, parties: int, noise: Placement) -> None:
        """Raises `LocalError` if so many parties, or noise from there, cannot be."""
        if noise.of_pairs:
            raise LocalError(f"--noise {noise} is of statistics of pairs")

    pairs: "PairsPlan | None" = None
    """The plan itself, where it is about pairs of records: what only such plans have to say."""


class PairsPlan(Plan):
    """A plan about pairs of records, which are computed in circuits."""

    @abstractmethod
    def circuit_noise(
        self, epsilon: Fraction | None, delta: float, records_per_unit: int
    ) -> "CircuitLaplace | None":
        """The noise that parties draw inside a circuit; None where they draw none."""

    @abstractmethod
    def numeric_delta(self, epsilon: Fraction, delta: float, records_per_unit: int) -> float:
        """The δ that the sampler inside the circuit costs."""

    @abstractmethod
    def counted(self, release: bytes) -> int:
        """How many pairs a release is about, from the bytes that follow the parties' bitmap."""

    @abstractmethod
    def is_whole(self, records: int, counted: int) -> bool:
        """Whether an answer that counted so many is about all there is of `records` records; where
        it is not, nobody knows what is missing."""

    # --- what simulations say of the records at hand ---

    @abstractmethod
    def tied_by_rounding(self, holdings: Holdings) -> int:
        """How many distinct values count as equal to another, where that matters."""

    @abstractmethod
    def check_resolution(self, holdings: Holdings) -> None:
        """Raises `LocalError` where rounding leaves too little of these records' order."""


@dataclass(frozen=True)
class EncodedRecords(Plan):
    """Parties submit their encoded records, added up by party."""

    encoding: Encoding

    @property
    def columns(self) -> tuple[str, ...]:
        return self.encoding.columns

    @property
    def length(self) -> int:
        return self.encoding.length

    def encode(self, holdings: Holdings) -> Vector:
        return self.encoding.encode(holdings)

    @property
    def measurement(self) -> "Measurement | None":
        return self.encoding.measurement

    def measured(self, holdings: Holdings) -> Integers:
        return self.encoding.measured(holdings)

    @property
    def grid_step(self) -> float:
        return self.encoding.grid_step

    @property
    def grid_words(self) -> str:
        return self.encoding.grid_words


@dataclass(frozen=True)
class NoisySum(EncodedRecords):
    """Encoded records are added up; a linear map of the sum is released under noise."""

    strategy: Strategy
    public: tuple[str, ...] = ()
    public_facts: str = ""
    reusable: bool = False

    @property
    def released(self) -> int:
        return self.strategy.released

    @property
    def noises(self) -> int:
        return self.strategy.noises

    @property
    def sensitivity(self) -> Sensitivity:
        return self.strategy.sensitivity

    @property
    def any_law(self) -> bool:
        return self.strategy.any_law

    @property
    def measures(self) -> bool:
        return self.strategy.measures

    def measure(self, total: Vector) -> Vector:
        return self.strategy.measure(total)

    def place(self, noise: Vector) -> Vector:
        return self.strategy.place(noise)

    def mean_variance(self, noise_variance: float) -> float:
        return self.strategy.mean_variance(noise_variance)

    def words(self, law: NoiseLaw) -> str:
        return self.strategy.words(law)

    def without_noise(self, holdings: Holdings) -> Vector:
        total: Vector = self.encode(pooled(holdings))[0]
        return total


@dataclass(frozen=True)
class NoisyChoice(EncodedRecords):
    """Two servers choose among sums that they share, under noise that neither knows. Indices are
    all that is released."""

    rule: "Choice | FirstAbove"
    units: int
    """The sensitivity, in units of ε·s for noise of scale s on each score (`units_of_epsilon`)."""
    strategy: LinearMap | None = None
    """The linear map of the sum that servers choose among, where it is not the sum itself."""
    described: str = ""
    """The rule by name; report noisy max, if it is empty."""

    @property
    def released(self) -> int:
        return self.rule.chosen

    @property
    def sensitivity(self) -> Sensitivity:
        """Of ε·s in the L1 norm. The noise of a choice has no use for the other."""
        return Sensitivity.of_number(self.units)

    @property
    def noises(self) -> int:
        return self.rule.noises

    @property
    def any_law(self) -> bool:
        return False

    @property
    def measures(self) -> bool:
        return self.strategy is not None

    def measure(self, total: Vector) -> Vector:
        return total if self.strategy is None else self.strategy.measure(total)

    def place(self, noise: Vector) -> Vector:
        return noise

    def placement(self, servers: int) -> Placement:
        return Placement.JOINT

    def words(self, law: NoiseLaw) -> str:
        scale = float(laplace_scale(law))
        if self.described:
            return self.described.format(scale=scale, noises=self.noises)
        return (
            f"report noisy max: geometric noise of scale {scale:.6g} on {self.noises} scores that "
            "nobody sees; what is chosen is all that is opened"
        )

    def without_noise(self, holdings: Holdings) -> Vector:
        scores = signed(self.measure(self.encode(pooled(holdings))[0]))
        return self.rule.in_clear(scores).astype(np.uint64)


class PointSearch(Protocol):
    """Chooses points one after another, by the answers so far: how a release is read, so it is no
    part of a plan's identity."""

    def __call__(self, known: Mapping[int, float]) -> list[int]:
        """Points to ask next, given the answers where they are known; none when it is enough."""


class NodeTree(Protocol):
    """The noise of points that are asked one after another: that of nodes, each drawn once."""

    def touched(self, indices: Integers) -> Vector: ...

    def noise_at(self, indices: Integers, nodes: Vector, noise: Integers) -> Integers: ...


@dataclass(frozen=True)
class Points(NoisySum):
    """Servers keep comparison keys after one upload, and answer point after point, under noise of
    a tree whose nodes' noise is drawn once."""

    tree: NodeTree | None = None
    next: PointSearch = field(default=lambda known: [], repr=False, compare=False)

    needs: ClassVar[Offer | None] = Offer.COMPARE

    def without_noise(self, holdings: Holdings) -> Vector:
        """It asks where the noise would not have led it astray."""
        stand = np.sort(self.measured(holdings))
        known: dict[int, float] = {}
        counts = [np.zeros(0, dtype=np.int64)]
        while points := self.next(known):
            counts.append(np.searchsorted(stand, np.array(points), side="right"))
            known |= dict(zip(points, (counts[-1] / holdings.rows).tolist(), strict=True))
        return np.concatenate(counts).astype(np.uint64)


class CuratorMechanism(ABC):
    """Noise that fits the data at hand, so that a trusted curator alone may draw it. A frozen
    dataclass."""

    @property
    @abstractmethod
    def released(self) -> int:
        """How many values are published."""

    @abstractmethod
    def publish(
        self, total: Vector, epsilon: Fraction, delta: float, randomness: Randomness
    ) -> Vector:
        """What is published of the exact sum, the noise included."""

    def publish_exactly(self, total: Vector) -> Vector:
        """What is published without noise of vectors that are `gathered`."""
        raise LocalError("a sum needs no curator where there is no noise")

    @abstractmethod
    def words(self, epsilon: Fraction, delta: float) -> str:
        """The mechanism by name."""

    @abstractmethod
    def numeric_delta(self, delta: float) -> float:
        """The δ that it costs, of the δ that was granted."""


@dataclass(frozen=True)
class Curated(EncodedRecords):
    """A trusted curator adds up parties' exact vectors, and publishes the sum under noise of its
    own. With `gathered` it sees the vectors one after another, by party, for what no sum tells."""

    mechanism: CuratorMechanism
    gathered: bool = False
    public: tuple[str, ...] = ()
    public_facts: str = ""

    needs: ClassVar[Offer | None] = Offer.CURATE

    @property
    def released(self) -> int:
        return self.mechanism.released

    @property
    def noises(self) -> int:
        return 1

    @property
    def sensitivity(self) -> Sensitivity:
        """Above 0, so that there is noise: the mechanism has a metric of its own."""
        return Sensitivity.of_number(1)

    @property
    def any_law(self) -> bool:
        return False

    @property
    def measures(self) -> bool:
        return True

    def measure(self, total: Vector) -> Vector:
        raise LocalError("no linear function of counts: --aggregator curator")

    def place(self, noise: Vector) -> Vector:
        raise LocalError("a curator's noise is not added to sums")

    @property
    def measurement(self) -> "Measurement | None":
        return None

    def words(self, law: NoiseLaw) -> str:
        raise LocalError("a curator's mechanism is named by its ε")

    def without_noise(self, holdings: Holdings) -> Vector:
        vectors: Vector = self.encode(holdings if self.gathered else pooled(holdings))
        return self.mechanism.publish_exactly(vectors.reshape(-1)) if self.gathered else vectors[0]
