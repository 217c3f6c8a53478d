"""Degree-2 U-statistics: means of a kernel over pairs of records, which two parties compute
together (S1 §5). The total of the kernel's outputs goes through a secure aggregator."""

import math
import re
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from tallyroom.protocols.algebra.ring import Vector, signed
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.garbling.laplace_circuit import OFFSET, CircuitLaplace
from tallyroom.protocols.kernels.contract import MAX_BITS, Grid, Integers, Kernel
from tallyroom.protocols.kernels.estimator import (
    Zetas,
    best_matchings,
    enough_matchings,
    means_of_totals,
    means_of_values,
)
from tallyroom.protocols.kernels.matchings import distinct_matchings, rounds
from tallyroom.protocols.local import AUTO
from tallyroom.protocols.local.pairs_by_oracle import PAIR_RANDOMIZERS
from tallyroom.protocols.names import look_up
from tallyroom.protocols.offers import Offer, Offers
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.interval import Interval
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.statistics.bounded import Bounded
from tallyroom.protocols.statistics.contract import Bounds, Statistic
from tallyroom.protocols.statistics.estimates import Estimate
from tallyroom.protocols.statistics.labels import listed
from tallyroom.protocols.statistics.legacy import Legacy
from tallyroom.protocols.statistics.option import option
from tallyroom.protocols.statistics.pilots import Piloted
from tallyroom.protocols.wire.messages import MAX_ROW

if TYPE_CHECKING:
    from tallyroom.protocols.aggregation.role_machines import RoleMachines

ROUNDINGS = ("simple", "randomized")
MAX_BINS = 1 << 24
SEED_BYTES = 16
SEED = re.compile(f"(?:[0-9a-f]{{{2 * SEED_BYTES}}})?")
DEFAULT_DELTA = 2.0**-40
"""What noise inside a circuit may cost in δ where the analyst grants none in particular."""


@dataclass(frozen=True)
class Pairs(Piloted, Legacy, Bounded):
    """The mean of a kernel over pairs of records.

    A record is in `pairs_per_party` pairs: a number, `all`, or `auto`, the number with the least
    error by what is known before any data is seen: nothing, or how the kernel varies on public
    `pilot` data (its ζ1 and ζ2). The rest is for the coordinator to fill in (`prepared`): how many
    matchings of the records that makes; in how many pairs a record is at most (`met`: with all
    matchings of an odd number of records, each sits out one); how many records the largest party
    has; the public seed that the matchings are drawn from; and whether noise is drawn inside every
    pair's circuit.
    """

    pairs_per_party: str = option(
        "auto", "How many pairs each record is in: a number, all or auto."
    )
    bits: int = option(MAX_BITS, "How many bits a column's values are rounded to.")
    meet: str = option(
        "parties",
        "Who computes pairs: the parties two by two, or two servers on shares of the records.",
        choices=("parties", "servers"),
    )
    bins: str = option("auto", "In the local model: how many bins a column has, a number or auto.")
    rounding: str = option(
        "simple", "In the local model: how values are put into bins.", choices=ROUNDINGS
    )
    randomizer: str = option(
        AUTO,
        "In the local model: what randomizes reports; auto takes the least variance.",
        choices=(AUTO, *PAIR_RANDOMIZERS),
    )
    matchings: int = 0
    met: int = 0
    max_records_per_party: int = 1
    pairing: str = ""
    inside: bool = False
    pilot: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        wanted = self.pairs_per_party
        if wanted not in ("all", "auto") and not (wanted.isdecimal() and 1 <= int(wanted) < 10**6):
            raise LocalError(f"--pairs-per-party is a number, all or auto, not {wanted!r}")
        if not 1 <= self.bits <= MAX_BITS:
            raise LocalError(f"--bits is 1 to {MAX_BITS}, not {self.bits}")
        look_up("rounding", self.rounding, dict.fromkeys(ROUNDINGS))
        look_up("randomizer", self.randomizer, dict.fromkeys((AUTO, *PAIR_RANDOMIZERS)))
        if self.bins != "auto" and not (self.bins.isdecimal() and 2 <= int(self.bins) <= MAX_BINS):
            raise LocalError(f"--bins is a number from 2 to {MAX_BINS}, or auto, not {self.bins!r}")
        if (
            self.matchings < 0
            or self.max_records_per_party < 1
            or not 0 <= self.met <= self.matchings
        ):
            raise LocalError("pairs cannot be drawn like that")
        if self.meet not in ("parties", "servers"):
            raise LocalError(f"--meet is parties or servers, not {self.meet!r}")
        if not SEED.fullmatch(self.pairing):
            raise LocalError(f"a seed of matchings has {SEED_BYTES} bytes")
        if self.pilot and (len(self.pilot) != 2 or not all(map(math.isfinite, self.pilot))):
            raise LocalError("a pilot gives two finite numbers, ζ1 and ζ2")
        if self.pilot:
            Zetas(*self.pilot)

    @abstractmethod
    def build_kernel(self) -> Kernel:
        """The kernel, whose columns are those of `columns` in order."""

    @cached_property
    def kernel(self) -> Kernel:
        return self.build_kernel()

    # --- what the coordinator decides ---

    def prepared(self, known: Facts) -> Self:
        """The statistic with its pairs decided. Raises `LocalError` if there are none."""
        if known.records < 2:
            raise LocalError(f"{self.name} needs at least two records")
        matchings = min(self._matchings(known), rounds(known.records))
        return replace(
            self,
            matchings=matchings,
            met=min(matchings, known.records - 1),
            max_records_per_party=known.max_records_per_party,
            inside=known.inside,
            pairing=known.seed[:SEED_BYTES].hex(),
        )

    def _matchings(self, known: Facts) -> int:
        if self.pairs_per_party == "all":
            return rounds(known.records)
        if self.pairs_per_party != "auto":
            return int(self.pairs_per_party)
        output, sensitivity = self.kernel.outputs[0], float(self.kernel.sensitivity)
        zetas = Zetas.worst(float(output.high - output.low))
        if self.pilot:
            zetas = Zetas(*self.pilot)
        budget = 1e9 if known.epsilon is None else float(known.epsilon)
        if known.inside:
            return best_matchings(known.records, zetas, sensitivity, budget)
        return min(enough_matchings(known.records, zetas, sensitivity, budget), MOST_AUTOMATIC)

    def planned_by(self, pilot: Holdings, bounds: Mapping[str, Bounds]) -> Self:
        """With ζ1 and ζ2 of the kernel, estimated on the first 2,000 of the public records."""
        bounded = self.with_bounds(bounds)
        zetas = Zetas.of_pilot(bounded.kernel, bounded.records_of(pilot)[:MOST_PILOT])
        return replace(self, pilot=(zetas.one, zetas.two))

    @property
    def open_to_pilot(self) -> bool:
        return False

    @property
    def by_servers(self) -> bool:
        return self.meet == "servers"

    @property
    def trust(self) -> str:
        """Nobody checks what a garbler garbles, nor the weights in its output ciphertexts."""
        if self.by_servers:
            return (
                "server-0 garbles all pairs and must follow the protocol: one that deviates can "
                "make the released total tell any record, past any noise"
            )
        return (
            "the party of a pair that garbles must follow the protocol: one that deviates can make "
            "the released total tell the other's record, past any noise"
        )

    @property
    def pairs_of_a_record(self) -> int:
        """At most one of every matching, and one with each other record; parties refuse more."""
        return self.met or self.matchings

    @property
    def slots(self) -> int:
        """Places for a pair that the largest party has: one a record and matching."""
        if self.matchings < 1:
            raise LocalError(f"the pairs of {self.name} are not drawn yet")
        return self.max_records_per_party * self.matchings

    def circuit_noise(
        self, epsilon: Fraction | None, delta: float, records_per_unit: int
    ) -> CircuitLaplace | None:
        """The noise of each output of each pair."""
        if epsilon is None or not self.inside:
            return None
        return CircuitLaplace.spending(
            epsilon,
            delta or DEFAULT_DELTA,
            self.kernel.sensitivity,
            self.pairs_of_a_record * records_per_unit,
            len(self.kernel.outputs),
        )

    # --- how it is asked ---

    def as_pairs(self) -> "Pairs":
        return self

    def asked_of(self, offers: Offers) -> Statistic:
        """In the local model records are quantized and reported; elsewhere parties meet."""
        if Offer.RANDOMIZE not in offers:
            return self
        from tallyroom.protocols.statistics.local_forms import LocalPairs, encoded

        return LocalPairs(self.name, encoded(self))

    def machines(self) -> "RoleMachines":
        """Parties meet two by two, or servers compute on shares of their records. The roles know
        this class, which names them only here."""
        if self.by_servers:
            from tallyroom.protocols.pairwise.roles.by_servers import ServerMachines

            return ServerMachines()
        from tallyroom.protocols.pairwise.roles.machines import PairwiseMachines

        return PairwiseMachines()

    def placement(self, servers: int) -> Placement:
        if servers == 1:
            return Placement.PER_PAIR
        return Placement.JOINT if servers == 2 else Placement.EACH_SERVER

    def check_asked(self, parties: int, noise: Placement) -> None:
        if self.inside != (noise is Placement.PER_PAIR):
            raise LocalError("the noise of pairs is drawn elsewhere than was prepared for")
        if noise is Placement.PARTIES:
            raise LocalError("parties cannot add the noise of pairs: choose total or per-pair")
        if self.by_servers:
            if noise is Placement.PER_PAIR:
                raise LocalError("--meet servers has noise on the total: --noise joint")
            return
        # A release names parties, and the slots of each that count: bitmaps in one row.
        if -(-parties // 8) + parties * -(-self.slots // 8) > MAX_ROW:
            raise LocalError(
                f"{self.slots} pairs for each of {parties} parties are too many to account for: "
                "choose fewer --pairs-per-party"
            )

    def numeric_delta(self, epsilon: Fraction, delta: float, records_per_unit: int) -> float:
        if (noise := self.circuit_noise(epsilon, delta, records_per_unit)) is None:
            return 0.0
        return noise.delta(
            epsilon, self.pairs_of_a_record * records_per_unit, len(self.kernel.outputs)
        )

    def counted(self, release: bytes) -> int:
        """Pairs: so many as it says, or half of the slots that it names."""
        if self.by_servers:
            return int.from_bytes(release, "little")
        slots = np.unpackbits(np.frombuffer(release, dtype=np.uint8))
        return int(np.count_nonzero(slots)) // 2

    def is_whole(self, records: int, counted: int) -> bool:
        return self.pairs_among(records) == counted

    # --- the contract of a statistic ---

    @property
    def length(self) -> int:
        slots = 1 if self.by_servers else self.slots
        return slots * len(self.kernel.outputs)

    @property
    def sensitivity(self) -> int:
        if self.matchings < 1:
            raise LocalError(f"the pairs of {self.name} are not drawn yet")
        return self.pairs_of_a_record * self.kernel.sensitivity

    @property
    def measures(self) -> bool:
        return True

    @property
    def noises(self) -> int:
        return len(self.kernel.outputs)

    @property
    def released(self) -> int:
        return len(self.kernel.outputs)

    def measure(self, total: Vector) -> Vector:
        """The total over all pairs, of each output."""
        summed: Vector = total.reshape(-1, len(self.kernel.outputs)).sum(axis=0, dtype=np.uint64)
        return summed

    def encode(self, holdings: Holdings) -> Vector:
        raise LocalError(f"{self.name} is computed in pairs: no party has a vector of its own")

    def records_of(self, holdings: Holdings) -> Integers:
        """Records as rows of integers, as the kernel takes them. A label that is neither 0 nor 1
        is clipped like any other value."""
        grids = zip(self.columns, self.kernel.grids, strict=True)
        return np.stack([grid.encode(holdings.column(name)) for name, grid in grids], axis=1)

    def check_labels(self, holdings: Holdings) -> None:
        """Raises `LocalError` for a label that is neither 0 nor 1: for truths of simulations, never
        at a party, which would tell of its records without noise."""
        for name in set(self.columns) - set(self.valued):
            labels = holdings.column(name)
            if not np.isin(labels, (0.0, 1.0)).all():
                raise LocalError(f"labels are 0 or 1: column {name!r} has {listed(labels)}")

    def decode(self, released: Vector, records: int, exact: bool = False) -> Estimate:
        """`records` counts pairs here."""
        means = means_of_totals(signed(self.measure(released)), records)
        if self.inside and not exact:
            means += float(OFFSET)
        return self.kernel.decode(means, exact)

    def reference(self, holdings: Holdings) -> Estimate:
        """Over all pairs of the raw records."""
        if holdings.rows < 2:
            raise LocalError(f"{self.name} needs at least two records")
        self.check_labels(holdings)
        return self.kernel.truth([holdings.column(name) for name in self.columns])

    def noiseless(self, holdings: Holdings) -> Estimate:
        """Over the pairs that were drawn: sampling them errs by itself."""
        if holdings.rows < 2:
            raise LocalError(f"{self.name} needs at least two records")
        matchings = min(self.matchings, rounds(holdings.rows))
        pairs = distinct_matchings(holdings.rows, matchings, self.seed).reshape(-1, 2)
        first, second = self.records_of(holdings)[pairs].transpose(1, 0, 2)
        values = self.kernel.reference(first, second)
        return self.kernel.decode(means_of_values(values, noisy=False), exact=True)

    def pairs_among(self, records: int) -> int:
        """How many pairs are drawn of so many records."""
        return min(self.matchings, rounds(records)) * (records // 2)

    @property
    def seed(self) -> bytes:
        """The public seed of the matchings."""
        return bytes.fromhex(self.pairing) or bytes(SEED_BYTES)

    def deviations(self, noise_variance: float, records: int) -> Column:
        """Of the noise alone: which pairs were drawn varies the estimate as well. Unknown where
        the statistic is not linear in one output."""
        if len(self.kernel.outputs) > 1 or not self.linear:
            return np.full(1, np.nan)
        unit, zero = (self.kernel.decode(np.array([at]), exact=True) for at in (1.0, 0.0))
        variance = noise_variance / records if self.inside else noise_variance / records**2
        return np.array([abs(unit - zero) * math.sqrt(variance)])

    def interval(
        self, released: Vector, records: int, noise_variance: float, width: float
    ) -> Interval:
        """Of one output, what the ends of its mean's interval decode to; of several, by the delta
        method. `records` counts pairs here, and which were drawn varies the estimate as well."""
        drawn = "" if self.matchings >= 2 * records / max(self.matchings, 1) - 1 else SAMPLED
        means = means_of_totals(signed(self.measure(released)), records)
        if self.inside:
            means += float(OFFSET)
        each = math.sqrt(noise_variance / records if self.inside else noise_variance / records**2)
        found = self.kernel.decode(means, exact=False)
        if len(means) == 1:
            reach = width * each * (1 + 1e-12)  # an end that is an integer may come out a hair less
            ends = [
                float(self.kernel.decode(means + side * reach, exact=False)) for side in (-1, 1)
            ]
            low, high = np.array([min(ends)]), np.array([max(ends)])
            error = self.deviations(noise_variance, records)
            if np.isnan(error).any():
                error = (high - low) / (2 * max(width, 1e-300))
            return Interval(error, low, high, without=drawn).holding(np.array([found]))
        slopes = []
        for place in range(len(means)):
            step = np.zeros(len(means))
            step[place] = each
            above, below = (self.kernel.decode(means + s * step, exact=True) for s in (1, -1))
            slopes.append((above - below) / 2)
        centre = np.array([float(self.kernel.decode(means, exact=True))])
        error = np.array([math.hypot(*slopes)])
        around = Interval.around(centre, error, width, self.span)
        return replace(around, without=drawn).holding(np.array([found]))

    @property
    def whole_noises(self) -> bool:
        """Of one total, which is an integer; what circuits draw is half an integer off."""
        return len(self.kernel.outputs) == 1 and not self.inside

    def noises_in_value(self, records: int) -> float:
        """One on each total, or one of every pair."""
        return float(max(records, 1)) if self.inside else 1.0

    linear: ClassVar[bool] = True
    """Whether the statistic is a multiple of the mean of its one output."""

    def mechanism_words(self, scale: float) -> str:
        number = len(self.kernel.outputs)
        outputs = "one output" if number == 1 else f"{number} outputs"
        if self.inside:
            return f"Laplace of scale {scale:.6g} on {outputs} inside the circuit of every pair"
        return f"discrete Laplace of scale {scale:.6g} on the total of {outputs} over all pairs"

    @property
    def grid(self) -> Grid:
        """Of a column whose values count: it needs public bounds."""
        return Grid.reals(*self.bounds, self.bits)

    @property
    def grid_step(self) -> float:
        return self.grid.step


SAMPLED = "which pairs were drawn"
MOST_PILOT = 2000
MOST_AUTOMATIC = 4
"""Pairs of a record that `auto` asks for at most, under noise on the total: past that, each one
costs its bytes and adds little."""
