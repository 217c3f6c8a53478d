"""Circuits for vectors, which check all elements for 0 or 1 in chunks with joint randomness.

Chunk k is checked through Σ_j r_k^(j+1)·x_j·(x_j − 1), one gadget call: if an element is neither 0
nor 1, this is 0 only for a few r_k. (draft-irtf-cfrg-vdaf, sections "Prio3SumVec" and following.)
"""

from dataclasses import dataclass
from functools import cache

import numpy as np

from tallyroom.protocols.algebra.field import FIELD128, Field, Vector
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.vdaf import polynomial
from tallyroom.protocols.vdaf.circuit import (
    Measurements,
    ValidityCircuit,
    bit_weights,
    require,
    require_max_measurement,
    weighted_bits,
)


@cache
def best_chunk_length(encoded_length: int) -> int:
    """The chunk length with the shortest proof, near the square root of the encoded length."""

    def proof_length(chunk_length: int) -> int:
        calls = -(-encoded_length // chunk_length)
        return 2 * chunk_length + 2 * (1 << calls.bit_length()) - 1

    return min(range(1, encoded_length + 1), key=proof_length)


@dataclass(frozen=True)
class Chunked(ValidityCircuit):
    """The base of these circuits. `length` is the vector's, before it is encoded."""

    length: int
    chunk_length: int

    def __post_init__(self) -> None:
        if self.length < 1 or self.chunk_length < 1:
            raise LocalError("a vector and its chunks have at least one element")

    @property
    def field(self) -> Field:
        return FIELD128

    @property
    def output_length(self) -> int:
        return self.length

    @property
    def calls(self) -> int:
        return -(-self.encoded_length // self.chunk_length)

    @property
    def joint_rand_length(self) -> int:
        return self.calls

    @property
    def arity(self) -> int:
        return 2 * self.chunk_length

    def inputs(self, encoded: Vector, joint_rand: Vector, shares: int) -> Vector:
        """Pairs of r^(j+1)·x_j and x_j − 1; the last chunk is padded with x = 0."""
        field, rows = self.field, len(encoded)
        padded = field.zeros(rows, self.calls * self.chunk_length)
        padded[:, : self.encoded_length] = encoded
        chunks = padded.reshape(rows, self.calls, self.chunk_length, field.limbs)
        randomised = field.mul(polynomial.powers(field, joint_rand, self.chunk_length), chunks)
        less_one = field.sub(chunks, share_of_one(field, shares))
        pairs: Vector = field.zeros(rows, self.calls, self.arity)
        pairs[:, :, 0::2] = randomised
        pairs[:, :, 1::2] = less_one
        return pairs

    def gadget(self, inputs: Vector) -> Vector:
        return polynomial.pair_sums(self.field, inputs)

    def truncate(self, encoded: Vector) -> Vector:
        return encoded


@cache
def share_of_one(field: Field, shares: int) -> Vector:
    """The constant 1/`shares`: if each server adds it, together they add 1."""
    one: Vector = field.from_ints([pow(shares, -1, field.modulus)])[0]
    one.flags.writeable = False
    return one


@dataclass(frozen=True)
class SumVec(Chunked):
    """Measurements are vectors of integers in [0, max_measurement], summed element by element."""

    max_measurement: int
    over: Field = FIELD128
    """FIELD64 needs three proofs or more."""

    evaluation_length = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        require_max_measurement(self.max_measurement)

    @property
    def field(self) -> Field:
        return self.over

    @property
    def encoded_length(self) -> int:
        return self.length * self.max_measurement.bit_length()

    def encode(self, measurements: Measurements) -> Vector:
        require(measurements, 2, 0, self.max_measurement)
        require_width(measurements, self.length)
        bits = weighted_bits(measurements, self.max_measurement)
        return self.field.from_signed(bits.reshape(len(measurements), self.encoded_length))

    def evaluate(self, called: Vector, encoded: Vector, shares: int) -> Vector:
        return self.field.sum(called, 1)[:, None]

    def truncate(self, encoded: Vector) -> Vector:
        weights = self.field.from_ints(bit_weights(self.max_measurement))
        shape = (len(encoded), self.length, len(weights), self.field.limbs)
        return self.field.combine(weights, encoded.reshape(shape))


@dataclass(frozen=True)
class Histogram(Chunked):
    """Measurements are bins in [0, length), encoded as vectors with exactly one 1; the aggregate
    counts each bin."""

    evaluation_length = 2

    @property
    def encoded_length(self) -> int:
        return self.length

    def encode(self, measurements: Measurements) -> Vector:
        require(measurements, 1, 0, self.length - 1)
        encoded = self.field.zeros(len(measurements), self.length)
        encoded[np.arange(len(measurements)), measurements, 0] = 1
        return encoded

    def evaluate(self, called: Vector, encoded: Vector, shares: int) -> Vector:
        field = self.field
        excess = field.sub(field.sum(encoded, 1), share_of_one(field, shares))
        return np.stack([field.sum(called, 1), excess], axis=1)


@dataclass(frozen=True)
class MultihotCountVec(Chunked):
    """Measurements are vectors of 0 and 1 with at most `max_weight` ones; the aggregate counts the
    ones at each position.

    The encoding ends with the number of ones in weighted bits, which cannot exceed `max_weight`.
    """

    max_weight: int

    evaluation_length = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.max_weight <= self.length:
            raise LocalError(
                f"a vector of {self.length} elements has 1 to {self.length} ones at most,"
                f" not {self.max_weight}"
            )

    @property
    def encoded_length(self) -> int:
        return self.length + self.max_weight.bit_length()

    def encode(self, measurements: Measurements) -> Vector:
        require(measurements, 2, 0, 1)
        require_width(measurements, self.length)
        values = measurements.astype(np.int64)
        weight = values.sum(axis=1)
        require(weight, 1, 0, self.max_weight)
        claimed = weighted_bits(weight, self.max_weight)
        return self.field.from_signed(np.concatenate([values, claimed], axis=1))

    def evaluate(self, called: Vector, encoded: Vector, shares: int) -> Vector:
        field = self.field
        weight = field.sum(encoded[:, : self.length], 1)
        weights = field.from_ints(bit_weights(self.max_weight))
        claimed = field.combine(weights, encoded[:, self.length :])
        return np.stack([field.sum(called, 1), field.sub(weight, claimed)], axis=1)

    def truncate(self, encoded: Vector) -> Vector:
        return encoded[:, : self.length]


def require_width(measurements: Measurements, length: int) -> None:
    if measurements.shape[1] != length:
        raise LocalError(f"a measurement must have {length} elements, not {measurements.shape[1]}")
