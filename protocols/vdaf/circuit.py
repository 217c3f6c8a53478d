"""Validity circuits of draft-irtf-cfrg-vdaf (sections "Validity Circuits" and "Variants").

A circuit decides which encoded measurements are valid: those for which all its outputs are 0. It
calls one gadget, of degree 2, `calls` times. Everything else in it is affine, so it runs on shares
as well. Measurements, shares and randomness are rows of a batch.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.field import FIELD64, Field, Vector
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.vdaf import polynomial

Measurements = NDArray[np.int64]


class ValidityCircuit(ABC):
    """Everything here is public. `rows` stands for the reports of a batch."""

    @property
    @abstractmethod
    def field(self) -> Field: ...

    @property
    @abstractmethod
    def encoded_length(self) -> int:
        """How many field elements a measurement becomes."""

    @property
    @abstractmethod
    def output_length(self) -> int:
        """How many elements, or sums of elements, are aggregated."""

    @property
    @abstractmethod
    def calls(self) -> int:
        """How often the gadget is called."""

    @property
    @abstractmethod
    def arity(self) -> int:
        """How many inputs the gadget takes."""

    @property
    @abstractmethod
    def evaluation_length(self) -> int:
        """How many outputs the circuit has."""

    @property
    def joint_rand_length(self) -> int:
        """How many random elements the circuit takes; they are drawn after the measurement is
        fixed."""
        return 0

    @abstractmethod
    def encode(self, measurements: Measurements) -> Vector:
        """(rows, encoded_length, limbs). Raises `LocalError` on an invalid measurement."""

    @abstractmethod
    def inputs(self, encoded: Vector, joint_rand: Vector, shares: int) -> Vector:
        """The gadget's inputs, (rows, calls, arity, limbs). Constants are divided by `shares`."""

    @abstractmethod
    def gadget(self, inputs: Vector) -> Vector:
        """(..., arity, limbs) to (..., limbs)."""

    @abstractmethod
    def evaluate(self, called: Vector, encoded: Vector, shares: int) -> Vector:
        """The outputs (rows, evaluation_length, limbs), from the gadget's results `called`."""

    @abstractmethod
    def truncate(self, encoded: Vector) -> Vector:
        """The values to aggregate, (rows, output_length, limbs). Linear, so it works on shares."""

    def decode(self, total: Vector) -> list[int]:
        """The aggregate, from (output_length, limbs). It must be below the modulus."""
        return [int(value) for value in self.field.to_ints(total)]


@dataclass(frozen=True)
class Count(ValidityCircuit):
    """Measurements are 0 or 1: x·x − x = 0."""

    field = FIELD64
    encoded_length = output_length = calls = evaluation_length = 1
    arity = 2

    def encode(self, measurements: Measurements) -> Vector:
        require(measurements, 1, 0, 1)
        return self.field.from_signed(measurements[:, None])

    def inputs(self, encoded: Vector, joint_rand: Vector, shares: int) -> Vector:
        return np.stack([encoded, encoded], axis=2)

    def gadget(self, inputs: Vector) -> Vector:
        return polynomial.pair_sums(self.field, inputs)

    def evaluate(self, called: Vector, encoded: Vector, shares: int) -> Vector:
        return self.field.sub(called, encoded)

    def truncate(self, encoded: Vector) -> Vector:
        return encoded


@dataclass(frozen=True)
class Sum(ValidityCircuit):
    """Measurements are integers in [0, max_measurement], encoded in weighted bits b with
    b·b − b = 0."""

    max_measurement: int

    field = FIELD64
    arity = output_length = 1

    def __post_init__(self) -> None:
        require_max_measurement(self.max_measurement)

    @property
    def encoded_length(self) -> int:
        return self.max_measurement.bit_length()

    calls = evaluation_length = encoded_length

    def encode(self, measurements: Measurements) -> Vector:
        require(measurements, 1, 0, self.max_measurement)
        return self.field.from_signed(weighted_bits(measurements, self.max_measurement))

    def inputs(self, encoded: Vector, joint_rand: Vector, shares: int) -> Vector:
        return encoded[:, :, None]

    def gadget(self, inputs: Vector) -> Vector:
        bit = inputs[..., 0, :]
        return self.field.sub(self.field.mul(bit, bit), bit)

    def evaluate(self, called: Vector, encoded: Vector, shares: int) -> Vector:
        return called

    def truncate(self, encoded: Vector) -> Vector:
        weights = self.field.from_ints(bit_weights(self.max_measurement))
        return self.field.combine(weights, encoded)[:, None]


def bit_weights(maximum: int) -> list[int]:
    """Powers of two, and a last weight such that all of them add up to `maximum`."""
    bits = maximum.bit_length()
    return [*(1 << i for i in range(bits - 1)), maximum - (1 << (bits - 1)) + 1]


def weighted_bits(values: Measurements, maximum: int) -> NDArray[np.int64]:
    """Bits b with Σ b·weight = value, on a new last axis. The last bit is set only if the others
    cannot represent the value."""
    bits = maximum.bit_length()
    largest_rest = (1 << (bits - 1)) - 1
    last = (values > largest_rest).astype(np.int64)
    rest = values - last * np.int64(maximum - largest_rest)
    low = (rest[..., None] >> np.arange(bits - 1, dtype=np.int64)) & 1
    return np.concatenate([low, last[..., None]], axis=-1)


def require(measurements: Measurements, axes: int, minimum: int, maximum: int) -> None:
    """Raises `LocalError` unless all of a batch of measurements are integers in the range."""
    if measurements.dtype.kind not in "bi" or measurements.ndim != axes:
        raise LocalError(f"measurements must be an array of integers with {axes} axes")
    if measurements.size and (measurements.min() < minimum or measurements.max() > maximum):
        raise LocalError(f"a measurement is not in [{minimum}, {maximum}]")


def require_max_measurement(max_measurement: int) -> None:
    if not 0 < max_measurement < 1 << 63:
        raise LocalError(f"the largest measurement is from 1 to 2^63 − 1, not {max_measurement}")
