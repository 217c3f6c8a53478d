"""Degree-2 U-statistics: means of a kernel over pairs of records, which two parties compute
together (S1 §5). The total of the kernel's outputs goes through a secure aggregator."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Self

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.garbling.laplace_circuit import CircuitLaplace
from tallyroom.protocols.kernels.contract import Grid, Integers, Kernel
from tallyroom.protocols.kernels.estimator import clustering
from tallyroom.protocols.kernels.matchings import (
    RecordPairs,
    distinct_matchings,
    neighbourly_matchings,
    rounds,
)
from tallyroom.protocols.kernels.ordered_grid import OrderedGrid
from tallyroom.protocols.plans.contract import PairsPlan
from tallyroom.protocols.plans.measurement import Measurement
from tallyroom.protocols.privacy.mechanisms import Placement, laplace_scale
from tallyroom.protocols.privacy.noise_law import NoiseLaw, Sensitivity
from tallyroom.protocols.records import Column, Holdings
from tallyroom.protocols.wire.messages import MAX_ROW

DEFAULT_DELTA = 2.0**-40
"""What noise inside a circuit may cost in δ where the analyst grants none in particular."""
COUNT_BYTES = 4
"""In which a release tells how many records a party holds."""
MOST_TIED = 0.05
"""The share of distinct values that may be tied by rounding where there are no bounds. Few are tied
by chance; of time stamps, nearly all."""


@cache
def labels_grid() -> Grid:
    """The grid of a column of labels."""
    return Grid.integers(0, 1)


@dataclass(frozen=True)
class KernelColumn:
    """A column of the data that a kernel takes. With `positive`, records that have this value count
    as 1 and all others as 0."""

    name: str
    positive: float | None = None

    def values(self, holdings: Holdings) -> Column:
        values = holdings.column(self.name)
        return values if self.positive is None else (values == self.positive).astype(np.float64)


def kernel_rows(kernel: Kernel, columns: Sequence[KernelColumn], holdings: Holdings) -> Integers:
    """Records as rows of integers, as the kernel takes them. A label that is neither 0 nor 1 is
    clipped like any other value."""
    pairs = zip(columns, kernel.grids, strict=True)
    return np.stack([grid.encode(column.values(holdings)) for column, grid in pairs], axis=1)


@dataclass(frozen=True)
class PairSample:
    """Which records meet: pairs of so many `matchings` of all records, drawn from a public `seed`.
    A record is in `met` pairs at most: with all matchings of an odd number of records, each sits
    out one. With `runs` each party meets few others, in so many runs of matchings; with 0 runs
    records are shuffled whoever holds them."""

    matchings: int
    met: int
    seed: bytes
    runs: int = 0

    def pairs(self, records: int) -> RecordPairs:
        """The pairs of so many records, shape (pairs, 2), one matching after another."""
        return distinct_matchings(records, self._among(records), self.seed).reshape(-1, 2)

    def pairs_of_parties(self, counts: NDArray[np.integer]) -> RecordPairs:
        """The pairs of parties that hold so many records each. Records are counted from the first
        party's."""
        records = int(counts.sum())
        if not self.runs:
            return self.pairs(records)
        matchings = self._among(records)
        return neighbourly_matchings(counts, matchings, self.runs, self.seed).reshape(-1, 2)

    def count(self, records: int) -> int:
        """How many pairs are drawn of so many records."""
        return self._among(records) * (records // 2)

    def _among(self, records: int) -> int:
        return min(self.matchings, rounds(records))


@dataclass(frozen=True)
class PairwiseMean(PairsPlan):
    """The mean of a kernel over a sample of pairs of records. Pairs are computed by the parties,
    two by two, or `by_servers` on shares of the records. With `inside`, noise is drawn in every
    pair's circuit, else on the total. With `bounded`, outputs go to the servers in a code whose
    bits stand for possible outputs, whoever garbled them (`kernels.codes`); else as shares of
    integers, in which a garbler that lies can put any weight.

    Where order and equality alone count, `compared_within` has the range of each column in which
    values are told apart; None where the values themselves count."""

    kernel: Kernel
    inputs: tuple[KernelColumn, ...]
    sample: PairSample
    max_records_per_party: int
    inside: bool
    by_servers: bool
    compared_within: tuple[tuple[float, float], ...] | None
    bounded: bool

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.inputs)

    @property
    def outputs(self) -> int:
        return len(self.kernel.outputs)

    @property
    def slots(self) -> int:
        """Places for a pair that the largest party has: one a record and matching."""
        return self.max_records_per_party * self.sample.matchings

    @property
    def clustering(self) -> float:
        """How many times the variance of the drawing is that of pairs of as many meetings, at most;
        1 where records are shuffled whoever holds them."""
        sample = self.sample
        if not sample.runs:
            return 1.0
        return clustering(self.max_records_per_party, -(-sample.matchings // sample.runs))

    @property
    def length(self) -> int:
        return self.outputs if self.by_servers or self.bounded else self.slots * self.outputs

    @property
    def released(self) -> int:
        return self.outputs

    @property
    def noises(self) -> int:
        return self.outputs

    @property
    def sensitivity(self) -> Sensitivity:
        """Of several outputs, one alone may move by all of it, or none by so much: no L2 norm is
        above the L1 norm."""
        return Sensitivity.of_number(self.sample.met * self.kernel.sensitivity)

    @property
    def any_law(self) -> bool:
        return not self.inside

    @property
    def measures(self) -> bool:
        return True

    def measure(self, total: Vector) -> Vector:
        """The total over all pairs, of each output."""
        summed: Vector = total.reshape(-1, self.outputs).sum(axis=0, dtype=np.uint64)
        return summed

    def place(self, noise: Vector) -> Vector:
        return noise

    def encode(self, holdings: Holdings) -> Vector:
        raise LocalError("a kernel is computed in pairs: no party has a vector of its own")

    @property
    def measurement(self) -> Measurement | None:
        return None

    def measured(self, holdings: Holdings) -> Integers:
        """Records as rows of integers, as the kernel takes them."""
        return kernel_rows(self.kernel, self.inputs, holdings)

    def without_noise(self, holdings: Holdings) -> Vector:
        """The total over the pairs that were drawn: sampling them errs by itself."""
        if holdings.rows < 2:
            raise LocalError("a pair takes two records")
        pairs = self.sample.pairs_of_parties(holdings.counts)
        first, second = self.measured(holdings)[pairs].transpose(1, 0, 2)
        total: Vector = self.kernel.reference(first, second).sum(axis=0).view(np.uint64)
        return total

    def words(self, law: NoiseLaw) -> str:
        outputs = "one output" if self.outputs == 1 else f"{self.outputs} outputs"
        if self.inside:
            scale = float(laplace_scale(law))
            return f"Laplace of scale {scale:.6g} on {outputs} inside the circuit of every pair"
        return f"{law.words()} on the total of {outputs} over all pairs"

    # --- the grid of values ---

    @property
    def _grids(self) -> dict[str, Grid]:
        """Those of the columns whose values count; labels are 0 or 1."""
        found = {column.name: grid for column, grid in self._columns if grid != labels_grid()}
        return found or {column.name: grid for column, grid in self._columns}

    @property
    def _columns(self) -> list[tuple[KernelColumn, Grid]]:
        return list(zip(self.inputs, self.kernel.grids, strict=True))

    @property
    def grid_step(self) -> float:
        """The largest of all columns. Without bounds it is relative to each value, 2^-24 of it."""
        steps = [g.step for g in self._grids.values() if not isinstance(g, OrderedGrid)]
        return max(steps, default=0.0)

    @property
    def grid_words(self) -> str:
        words = {
            name: "24 significant bits; bounds would round to their range"
            if isinstance(grid, OrderedGrid)
            else f"multiples of {grid.step:.3g}"
            for name, grid in self._grids.items()
        }
        if len(set(words.values())) == 1:
            return f"values are rounded to {next(iter(words.values()))}"
        each = (f"those of {name} to {how}" for name, how in words.items())
        return f"values are rounded: {', '.join(each)}"

    def tied_by_rounding(self, holdings: Holdings) -> int:
        return sum(tied for _, tied, _ in self._resolution(holdings))

    def _resolution(self, holdings: Holdings) -> list[tuple[Grid, int, int]]:
        """Each column's grid, how many distinct values count as equal to another, and how many
        there are."""
        found = []
        for (column, grid), within in zip(self._columns, self.compared_within or (), strict=False):
            values = np.unique(np.clip(column.values(holdings), *within))
            found.append((grid, len(values) - len(np.unique(grid.encode(values))), len(values)))
        return found

    def check_resolution(self, holdings: Holdings) -> None:
        """Bounds that were given are as coarse as somebody wants them; without, nobody chose."""
        if not any(isinstance(grid, OrderedGrid) for grid in self._grids.values()):
            return
        unbounded = (OrderedGrid(), labels_grid())
        chosen = [each for each in self._resolution(holdings) if each[0] in unbounded]
        tied, distinct = sum(tied for _, tied, _ in chosen), sum(many for _, _, many in chosen)
        if tied > distinct * MOST_TIED:
            raise LocalError(
                f"{tied} of {distinct} distinct values cannot be told apart in 24 significant "
                "bits: give --lower and --upper, and they are compared within that range"
            )

    # --- how it is asked ---

    @property
    def computed_by_servers(self) -> bool:
        return self.by_servers

    @property
    def trust(self) -> str:  # type: ignore[override]  # it depends on who computes pairs
        """What a garbler that deviates can do."""
        if self.by_servers:
            who, whose = "server-0, which garbles pairs,", "any record"
        else:
            who, whose = "the party that garbles a pair", "the other's record"
        if not self.bounded:
            return (
                f"{who} must follow the protocol: if it deviates, the released total can tell "
                f"{whose}, past any noise"
            )
        reach = Fraction(self.kernel.reach, self.kernel.sensitivity)
        moves = "no further than" if reach == 1 else f"up to {float(reach):.3g} times as far as"
        learns = (
            "a few bits of any record from where it makes server-1 refuse"
            if self.by_servers
            else "one bit of the other's record if it makes the other refuse"
        )
        return (
            f"{who} is not checked: whatever it does, a pair moves the total {moves} a record "
            f"may, and it learns {learns}"
        )

    @property
    def pairs(self) -> Self:  # type: ignore[override]  # no other kind is
        return self

    def placement(self, servers: int) -> Placement:
        if servers == 1:
            return Placement.PER_PAIR
        return Placement.JOINT if servers == 2 else Placement.EACH_SERVER

    def check_asked(self, parties: int, noise: Placement) -> None:
        if noise is Placement.PARTIES:
            raise LocalError("parties cannot add the noise of pairs: choose total or per-pair")
        if self.by_servers:
            if self.inside:
                raise LocalError("--meet servers has noise on the total: --noise joint")
            return
        if self.slots * self.outputs > MAX_ROW // 8:
            raise LocalError(f"vectors of {self.slots * self.outputs} are too long to aggregate")
        # A release names parties, and the slots of each that count: bitmaps in one row. Where
        # outputs are bounded, how many records each has as well.
        each = -(-self.slots // 8) + COUNT_BYTES * self.bounded
        if -(-parties // 8) + parties * each > MAX_ROW:
            raise LocalError(
                f"{self.slots} pairs for each of {parties} parties are too many to account for: "
                "choose fewer --pairs-per-party"
            )

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
            self.sample.met * records_per_unit,
            self.outputs,
        )

    def numeric_delta(self, epsilon: Fraction, delta: float, records_per_unit: int) -> float:
        if (noise := self.circuit_noise(epsilon, delta, records_per_unit)) is None:
            return 0.0
        return noise.delta(epsilon, self.sample.met * records_per_unit, self.outputs)

    def counted(self, release: bytes) -> int:
        """Pairs: so many as it says, or half of the slots that it names."""
        if self.by_servers:
            return int.from_bytes(release, "little")
        if self.bounded:
            width = -(-self.slots // 8)
            release = release[: len(release) // (width + COUNT_BYTES) * width]
        slots = np.unpackbits(np.frombuffer(release, dtype=np.uint8))
        return int(np.count_nonzero(slots)) // 2

    def is_whole(self, records: int, counted: int) -> bool:
        return self.sample.count(records) == counted
