"""The contract of a kernel: a function of two records, as a circuit and in the clear.

Records are rows of integers, one for each column, on a public grid. A kernel has one output or
several, all integers. Everything here is public.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols import registry
from tallyroom.protocols.cells import numbers
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.garbling.circuit import Circuit
from tallyroom.protocols.garbling.circuit_builder import Builder, Word, width_of
from tallyroom.protocols.garbling.clear_evaluation import Bits, from_bits, to_bits
from tallyroom.protocols.garbling.laplace_circuit import CircuitLaplace
from tallyroom.protocols.kernels.codes import Code, RangeCode
from tallyroom.protocols.records import Column

Integers = NDArray[np.int64]

MAX_BITS = 32
"""The widest column."""

MAX_OUTPUT_BITS = 40
"""The widest output: 2^23 outputs of this width, plus noise, add up in Z_2^64 without wrapping."""

_BLOCK = 1 << 20


@dataclass(frozen=True)
class Grid:
    """Integers q in [low, high] that stand for (origin + q) · 2^-fraction_bits.

    Values outside are clipped. Grid points are the multiples of the step, wherever the range lies;
    an `origin` keeps q small if the range is narrow and far from zero.
    """

    low: int
    high: int
    fraction_bits: int = 0
    origin: int = 0

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise LocalError(f"a column needs more than one value, not [{self.low}, {self.high}]")
        if self.bits > MAX_BITS:
            raise LocalError(f"a column has at most {MAX_BITS} bits, not {self.bits}")

    @classmethod
    def reals(cls, lower: float, upper: float, bits: int = MAX_BITS) -> "Grid":
        """The finest grid of `bits` bits for real numbers within public bounds."""
        if not 1 <= bits <= MAX_BITS:
            raise LocalError(f"a column has 1 to {MAX_BITS} bits, not {bits}")
        if not (math.isfinite(lower) and math.isfinite(upper) and lower < upper):
            raise LocalError(f"bounds must be finite and ascending, not [{lower:g}, {upper:g}]")
        fraction_bits = bits - math.frexp(upper - lower)[1]
        if not -900 < fraction_bits < 900 or math.frexp(max(abs(lower), abs(upper)))[1] > 930:
            raise LocalError(f"bounds [{lower:g}, {upper:g}] are out of the range of fixed point")
        while True:
            step = Fraction(2) ** -fraction_bits
            low, high = round(Fraction(lower) / step), round(Fraction(upper) / step)
            if width_of(low, high) <= bits:
                return cls(low, high, fraction_bits)
            if width_of(0, high - low) <= bits:
                return cls(0, high - low, fraction_bits, origin=low)
            fraction_bits -= 1

    @classmethod
    def integers(cls, lower: int, upper: int) -> "Grid":
        """The grid of the whole numbers within public bounds, in as few bits as they need."""
        return cls(lower, upper)

    @property
    def bits(self) -> int:
        return width_of(self.low, self.high)

    @property
    def signed(self) -> bool:
        return self.low < 0

    @property
    def span(self) -> int:
        return self.high - self.low

    @property
    def step(self) -> float:
        return math.ldexp(1.0, -self.fraction_bits)

    def values(self, integers: Integers) -> Column:
        """The values that integers of the grid stand for."""
        values: Column = np.ldexp(integers + float(self.origin), -self.fraction_bits)
        return values

    def encode(self, values: Column) -> Integers:
        """Rounds and clips values to the grid. A cell that is not a number counts as the lowest."""
        values = numbers(values, -np.inf)
        # Whole doubles; after clipping, their distance to the origin is a small integer.
        with np.errstate(over="ignore"):  # a value that overflows is outside, and is clipped
            lines = np.rint(np.ldexp(values, self.fraction_bits)) - float(self.origin)
        return np.clip(lines, self.low, self.high).astype(np.int64)


@dataclass(frozen=True)
class Output:
    """An integer in [low, high]."""

    name: str
    low: int
    high: int

    @property
    def bits(self) -> int:
        return width_of(self.low, self.high)

    @property
    def signed(self) -> bool:
        return self.low < 0


class Kernel(ABC):
    """A kernel on given grids."""

    name: str
    columns: tuple[str, ...]
    """The columns of a record, in the order of `grids`."""

    symmetric: bool = True
    """Whether always f(x, y) = f(y, x)."""

    of_any_bits: bool = False
    """Whether Δ holds, and outputs stay in their range, for all values of a record's bits, also
    outside the grids. Nobody can check what a party puts into the circuit. If this is false, the
    circuit itself confines outputs or records to their ranges."""

    def __init__(self, grids: Sequence[Grid]) -> None:
        if len(grids) != len(self.columns):
            raise LocalError(f"{self.name} needs bounds for the columns {', '.join(self.columns)}")
        self.grids = tuple(grids)

    def __repr__(self) -> str:
        """Everything that the outputs depend on, because plans with a kernel are compared by it."""
        return f"{type(self).__name__}({self.name!r}, {self.grids!r})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and repr(other) == repr(self)

    def __hash__(self) -> int:
        return hash(repr(self))

    @property
    @abstractmethod
    def outputs(self) -> tuple[Output, ...]: ...

    @property
    @abstractmethod
    def sensitivity(self) -> int:
        """Δ_f: the most, in L1, that the outputs move when one of the two records is replaced."""

    @abstractmethod
    def build(self, builder: Builder, x: tuple[Word, ...], y: tuple[Word, ...]) -> tuple[Word, ...]:
        """Builds the circuit: the outputs as words, from the columns of both records."""

    @abstractmethod
    def reference(self, x: Integers, y: Integers) -> Integers:
        """The outputs in the clear, shape (pairs, outputs), from rows of both records."""

    @abstractmethod
    def decode(self, means: Column, exact: bool = False) -> float:
        """The statistic, from the mean of each output over pairs of records.

        Means may be noisy and are then clipped to their range, but not if they are `exact`.
        """

    def pair_variance(self, means: Column, weights: Column) -> float:
        """A bound on ζ2 − 2ζ1 of the outputs' weighted sum, given their means over all pairs: how
        far pairs vary beyond what their two records explain one by one. The drawing of matchings
        adds a multiple of that to the error.

        This implementation bounds ζ2 of each output by (high − mean)(mean − low) (Bhatia and Davis
        2000), as if all outputs moved together. A kernel that knows more of its outputs has a
        smaller bound, and so shorter intervals.
        """
        low, high = np.array([(float(each.low), float(each.high)) for each in self.outputs]).T
        inside = np.clip(means, low, high)
        return float(np.abs(weights) @ np.sqrt((high - inside) * (inside - low))) ** 2

    def full_means(self, records: Integers) -> Column:
        """The mean of each output over all pairs of records, which sampled pairs estimate.

        This implementation takes O(n²) operations.
        """
        n = len(records)
        totals = [0] * len(self.outputs)
        first, second = np.triu_indices(n, 1)
        for start in range(0, len(first), _BLOCK):
            block = slice(start, start + _BLOCK)
            x, y = records[first[block]], records[second[block]]
            values = self.reference(x, y).sum(axis=0)
            if not self.symmetric:
                values = values + self.reference(y, x).sum(axis=0)
            totals = [total + int(value) for total, value in zip(totals, values, strict=True)]
        ways = 1 if self.symmetric else 2
        return np.array([total / (ways * len(first)) for total in totals])

    def truth(self, columns: Sequence[Column]) -> float:
        """The statistic of raw records over all pairs, without rounding to this kernel's grids.

        This implementation does round, because it knows only the circuit and `reference`.
        """
        pairs = zip(columns, self.grids, strict=True)
        records = np.stack([grid.encode(column) for column, grid in pairs], axis=1)
        return self.decode(self.full_means(records), exact=True)

    # The circuit

    @property
    def record_bits(self) -> int:
        return sum(grid.bits for grid in self.grids)

    def input_bits(self, records: Integers) -> Bits:
        """A side's input bits to the circuit, one row per record. Coins come after them."""
        columns = zip(records.T, self.grids, strict=True)
        return np.concatenate([to_bits(values, grid.bits) for values, grid in columns], axis=1)

    def inputs(self, noise: CircuitLaplace | None = None) -> int:
        """How many input bits either side has: a record, and coins for the noise of each output."""
        return self.record_bits + (len(self.outputs) * noise.coins if noise else 0)

    def released(self, noise: CircuitLaplace | None = None) -> tuple[Output, ...]:
        """The outputs of the circuit, with their ranges after noise."""
        if noise is None:
            return self.outputs
        return tuple(
            Output(each.name, each.low + noise.low, each.high + noise.high) for each in self.outputs
        )

    def circuit(self, noise: CircuitLaplace | None = None, swapped: bool = False) -> Circuit:
        """The garbler inputs record x, then coins; the evaluator record y, then coins. If
        `swapped`, the garbler's record is y and the evaluator's x.

        Outputs are the words of `released`, one after another.
        """
        builder = Builder(self.inputs(noise), self.inputs(noise))
        x, y = builder.garbler[: self.record_bits], builder.evaluator[: self.record_bits]
        words = self.joined(builder, y, x) if swapped else self.joined(builder, x, y)
        if noise:
            drawn = [
                noise.word(builder, ours, theirs)
                for ours, theirs in zip(
                    self._coins(builder.garbler, noise.coins),
                    self._coins(builder.evaluator, noise.coins),
                    strict=True,
                )
            ]
            words = tuple(builder.add(w, each) for w, each in zip(words, drawn, strict=True))
        pairs = zip(words, self.released(noise), strict=True)
        return builder.circuit([word.fitted(out.bits, out.signed) for word, out in pairs])

    def joined(self, builder: Builder, x: tuple[int, ...], y: tuple[int, ...]) -> tuple[Word, ...]:
        """The outputs in the bits of their ranges, from the wires of two records.

        Whatever the wires hold, outputs stay in their ranges and one record moves them by at most
        Δ. A Δ over all codes would make the circuit smaller, but the noise up to twice as large, or
        four times for a square; so codes are confined to the grids. If a record can move outputs
        through all of their ranges anyway, it is enough to confine the outputs, which are fewer
        words.
        """
        words = self.build(builder, *self._records(builder, x, y))
        pairs = list(zip(words, self.outputs, strict=True))
        if self.of_any_bits or not self._range_is_sensitivity:
            return tuple(word.fitted(out.bits, out.signed) for word, out in pairs)
        return tuple(builder.confined(word, out.low, out.high) for word, out in pairs)

    @property
    def _range_is_sensitivity(self) -> bool:
        """Whether one record can move outputs through all of their ranges."""
        return sum(each.high - each.low for each in self.outputs) <= self.sensitivity

    def _records(
        self, builder: Builder, x: tuple[int, ...], y: tuple[int, ...]
    ) -> tuple[tuple[Word, ...], tuple[Word, ...]]:
        """The columns of two records, confined to their grids unless Δ holds for any bits."""
        any_bits = self.of_any_bits or self._range_is_sensitivity
        return self._record(builder, x, any_bits), self._record(builder, y, any_bits)

    # The circuit where nobody trusts who garbles it

    @property
    def code(self) -> Code:
        """In which outputs are told: whatever its bits are, they stand for possible outputs."""
        return RangeCode(tuple((each.low, each.high) for each in self.outputs))

    @property
    def reach(self) -> int:
        """By how much a pair moves the outputs at most, in L1, whatever was garbled: Δ, or more
        where honest records cannot move them through all that may come out."""
        return self.code.reach

    def coded_circuit(self, swapped: bool = False) -> Circuit:
        """As `circuit` without noise. Outputs are the wires of `code`."""
        builder = Builder(self.record_bits, self.record_bits)
        x, y = builder.garbler, builder.evaluator
        wires = self.coded(builder, y, x) if swapped else self.coded(builder, x, y)
        return builder.circuit([Word(wires)])

    def coded(self, builder: Builder, x: tuple[int, ...], y: tuple[int, ...]) -> tuple[int, ...]:
        """The outputs' code, from the wires of two records. It confines outputs by itself."""
        return self.code.encoded(builder, self.build(builder, *self._records(builder, x, y)))

    def _record(self, builder: Builder, wires: tuple[int, ...], any_bits: bool) -> tuple[Word, ...]:
        words, start = [], 0
        for grid in self.grids:
            word = Word(wires[start : start + grid.bits], grid.signed)
            words.append(word if any_bits else builder.confined(word, grid.low, grid.high))
            start += grid.bits
        return tuple(words)

    def _coins(self, wires: tuple[int, ...], coins: int) -> list[tuple[int, ...]]:
        return [wires[at : at + coins] for at in range(self.record_bits, len(wires), coins)]

    def values(self, bits: Bits, noise: CircuitLaplace | None = None) -> Integers:
        """Output bits of the circuit as integers, shape (pairs, outputs)."""
        columns, start = [], 0
        for out in self.released(noise):
            columns.append(from_bits(bits[:, start : start + out.bits], out.signed))
            start += out.bits
        return np.stack(columns, axis=1)


class KernelKind(Protocol):
    """What an entry point names: a class of kernels, or an `Expression`."""

    @property
    def name(self) -> str: ...

    @property
    def columns(self) -> tuple[str, ...]: ...

    def __call__(self, grids: Sequence[Grid]) -> Kernel:
        """The kernel on these grids, one per column."""


@cache
def kernel_named(name: str) -> KernelKind:
    """The kernel of that name. Loads no other, so a broken package does not affect the others.

    Raises `LocalError` if there is no kernel of that name, or if it cannot be loaded.
    """
    loaded: KernelKind = registry.named(registry.KERNELS, name)
    if not callable(loaded) or not hasattr(loaded, "columns"):
        raise LocalError(f"{name!r} is not a kernel: it has no columns, or cannot be called")
    return loaded
