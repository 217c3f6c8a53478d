"""Vectors over the prime fields of draft-irtf-cfrg-vdaf (section "Finite Fields").

Both moduli are p = B² − kB + 1, with B = 2^32, k = 1 (64 bits) and B = 2^64, k = 28 (128 bits), and
both have roots of unity of large two-power order. A field vector is an array of uint64 whose last
axis holds an element's limbs, little-endian and always canonical, that is below p. Only `decode`
and `draw` check that elements are canonical; all other operations assume it.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra import field_twin as twin

try:
    from tallyroom.protocols.algebra import _field
except ImportError:  # no compiler at build time
    HAVE_NATIVE = False
else:
    HAVE_NATIVE = True

Vector = NDArray[np.uint64]
Bytes = NDArray[np.uint8]
BigIntegers = NDArray[np.object_]


def native() -> bool:
    """Whether the compiled loops are used: they were built, and TALLYROOM_NATIVE is not 0."""
    return HAVE_NATIVE and os.environ.get("TALLYROOM_NATIVE") != "0"


@dataclass(frozen=True)
class Field:
    """One prime field. Operations take and return vectors of shape (..., limbs), and broadcast."""

    name: str
    modulus: int
    limbs: int
    k: int
    generator: int
    """An element of order 2^`two_power`, the largest power of two that divides p − 1."""
    two_power: int

    def __repr__(self) -> str:
        return self.name

    @property
    def width(self) -> int:
        """Encoded size of one element."""
        return 8 * self.limbs

    def zeros(self, *shape: int) -> Vector:
        return np.zeros((*shape, self.limbs), dtype=np.uint64)

    def add(self, a: Vector, b: Vector) -> Vector:
        a, b = self._together(a, b)
        if not native():
            return twin.add(a, b, self.k)
        _field.add(self.limbs, a, b, out := np.empty_like(a))
        return out

    def sub(self, a: Vector, b: Vector) -> Vector:
        a, b = self._together(a, b)
        if not native():
            return twin.sub(a, b, self.k)
        _field.sub(self.limbs, a, b, out := np.empty_like(a))
        return out

    def neg(self, a: Vector) -> Vector:
        return self.sub(self.zeros(), a)

    def mul(self, a: Vector, b: Vector) -> Vector:
        a, b = self._together(a, b)
        if not native():
            return twin.mul(a, b, self.k)
        _field.mul(self.limbs, a, b, out := np.empty_like(a))
        return out

    def inv(self, a: Vector) -> Vector:
        """The inverse of each element. Raises `ZeroDivisionError` if one is 0."""
        self._check(a)
        if not a.any(axis=-1).all():
            raise ZeroDivisionError("0 has no inverse")
        if not native():
            return twin.inv(a, self.k)
        a = np.ascontiguousarray(a)
        _field.inv(self.limbs, a, out := np.empty_like(a))
        return out

    def sum(self, values: Vector, axis: int = 0) -> Vector:
        """Sum over one axis. Negative axes count from the limbs, which are −1; −2 is the last axis
        of elements."""
        self._check(values)
        axis = axis + values.ndim if axis < 0 else axis
        if not 0 <= axis < values.ndim - 1:
            raise ValueError(f"cannot sum over axis {axis} of a vector of shape {values.shape}")
        shape = (*values.shape[:axis], *values.shape[axis + 1 :])
        if 0 in values.shape:
            return np.zeros(shape, dtype=np.uint64)
        if not native():
            return twin.total(values, axis, self.k)
        inner = int(np.prod(values.shape[axis + 1 : -1]))
        out = np.empty(shape, dtype=np.uint64)
        _field.sum(self.limbs, np.ascontiguousarray(values), values.shape[axis], inner, out)
        return out

    def evaluate(self, coefficients: Vector, points: Vector) -> Vector:
        """Values of polynomials (..., terms, limbs), lowest power first, at points (count, limbs).

        The result has shape (..., count, limbs). With a secret as term 0 this is Shamir sharing.
        """
        self._check(coefficients)
        self._check(points)
        if coefficients.ndim < 2 or points.ndim != 2:
            raise ValueError("coefficients are (..., terms, limbs) and points (count, limbs)")
        *shape, terms, limbs = coefficients.shape
        out = np.zeros((*shape, len(points), limbs), dtype=np.uint64)
        if 0 in (*coefficients.shape, len(points)):
            return out
        if not native():
            return twin.horner(coefficients.reshape(-1, terms, limbs), points, self.k).reshape(
                out.shape
            )
        coefficients, points = np.ascontiguousarray(coefficients), np.ascontiguousarray(points)
        _field.horner(limbs, coefficients, terms, points, out)
        return out

    def lagrange_at_zero(self, points: Vector) -> Vector:
        """Weights w with f(0) = Σ wᵢ f(xᵢ) for every f of degree below the number of points.

        wᵢ = Π_{j≠i} xⱼ/(xⱼ − xᵢ). Raises `ValueError` unless points are distinct and not 0.
        """
        self._check(points)
        if points.ndim != 2 or not len(points):
            raise ValueError("points are (count, limbs), at least one")
        if len(np.unique(points, axis=0)) != len(points) or not points.any(axis=-1).all():
            raise ValueError("points must be distinct and not 0")
        one = self.from_ints([1])[0]
        count = len(points)
        above, below = np.tile(one, (count, 1)), np.tile(one, (count, 1))
        for j in range(count):
            gaps = self.sub(points[j], points)
            gaps[j] = one
            factors = np.tile(points[j], (count, 1))
            factors[j] = one
            above, below = self.mul(above, factors), self.mul(below, gaps)
        return self.mul(above, self.inv(below))

    def combine(self, weights: Vector, values: Vector) -> Vector:
        """Σᵢ wᵢ vᵢ: weights (count, limbs), values (..., count, limbs), shape (..., limbs)."""
        self._check(weights)
        self._check(values)
        if weights.ndim != 2 or values.ndim < 2 or values.shape[-2] != len(weights):
            raise ValueError(f"{weights.shape} weights do not fit {values.shape} values")
        if 0 in values.shape or not native():
            return self.sum(self.mul(weights, values), -2)
        out = np.empty((*values.shape[:-2], self.limbs), dtype=np.uint64)
        _field.dot(self.limbs, np.ascontiguousarray(weights), np.ascontiguousarray(values), out)
        return out

    def from_ints(self, values: Sequence[int] | BigIntegers) -> Vector:
        """Integers of any size and sign, modulo p. Slow: for constants, not for bulk data."""
        reduced = np.asarray(values, dtype=object) % self.modulus
        out = self.zeros(*reduced.shape)
        for limb in range(self.limbs):
            out[..., limb] = ((reduced >> 64 * limb) & (2**64 - 1)).astype(np.uint64)
        return out

    def to_ints(self, vector: Vector) -> BigIntegers:
        """Python integers in [0, p), an object array without the axis of limbs."""
        self._check(vector)
        total = vector[..., 0].astype(object)
        for limb in range(1, self.limbs):
            total = total + (vector[..., limb].astype(object) << 64 * limb)
        return np.asarray(total, dtype=object)

    def from_signed(self, values: NDArray[np.int64]) -> Vector:
        """Integers of either sign; a negative one becomes p − |v|."""
        words = np.array(values, dtype=np.int64, ndmin=1).view(np.uint64).reshape(values.shape)
        magnitude = self.zeros(*values.shape)
        magnitude[..., 0] = np.where(values < 0, np.uint64(0) - words, words)
        return np.where(values[..., None] < 0, self.neg(magnitude), magnitude)

    def encode(self, vector: Vector) -> Bytes:
        """Elements as little-endian bytes: (..., n, limbs) to (..., n·width)."""
        self._check(vector)
        shape = (*vector.shape[:-2], vector.shape[-2] * self.width)
        return np.ascontiguousarray(vector.astype("<u8", copy=False)).view(np.uint8).reshape(shape)

    def decode(self, rows: Bytes) -> Vector:
        """The inverse of `encode`. Raises `ValueError` on a wrong size or an element ≥ p."""
        vector = self.unchecked(rows)
        if not self.canonical(vector).all():
            raise ValueError(f"an element is not below the modulus of {self.name}")
        return vector

    def unchecked(self, rows: Bytes) -> Vector:
        """Like `decode`, but without the check that elements are canonical."""
        if rows.dtype != np.uint8 or rows.ndim < 1 or rows.shape[-1] % self.width:
            raise ValueError(f"rows of {self.name} are whole elements of {self.width} bytes")
        count = rows.shape[-1] // self.width
        words = np.ascontiguousarray(rows).view("<u8").astype(np.uint64, copy=False)
        return words.reshape(*rows.shape[:-1], count, self.limbs)

    def canonical(self, vector: Vector) -> NDArray[np.bool_]:
        """Which elements are below the modulus."""
        self._check(vector)
        if native() and _field.canonical(self.limbs, np.ascontiguousarray(vector)):
            return np.ones(vector.shape[:-1], dtype=np.bool_)
        return twin.canonical(vector, self.k)

    def draw(self, data: bytes) -> Vector:
        """Uniform elements from uniform bytes, by rejection: almost len(data)/width of them.

        A candidate is rejected with probability k/B: 2^-32 or 2^-59. Leftover bytes are ignored.
        """
        whole = np.frombuffer(data, dtype=np.uint8)[: len(data) // self.width * self.width]
        candidates = self.unchecked(whole)
        return candidates[self.canonical(candidates)]

    def sample(self, source: Callable[[int], bytes], count: int) -> Vector:
        """Exactly `count` uniform elements from `source`, such as `Randomness.bytes`."""
        drawn = self.draw(source(count * self.width))
        while len(drawn) < count:
            more = self.draw(source((count - len(drawn)) * self.width))
            drawn = np.concatenate([drawn, more])
        return drawn

    def _check(self, vector: Vector) -> None:
        if vector.dtype != np.uint64 or vector.ndim < 1 or vector.shape[-1] != self.limbs:
            raise ValueError(f"a vector of {self.name} is uint64 of shape (..., {self.limbs})")

    def _together(self, a: Vector, b: Vector) -> tuple[Vector, Vector]:
        self._check(a)
        self._check(b)
        if a.shape != b.shape:
            a, b = np.broadcast_arrays(a, b)
        return np.ascontiguousarray(a), np.ascontiguousarray(b)


FIELD64: Final = Field("FIELD64", 2**64 - 2**32 + 1, 1, 1, pow(7, 2**32 - 1, 2**64 - 2**32 + 1), 32)
_P128 = 2**128 - 28 * 2**64 + 1
FIELD128: Final = Field("FIELD128", _P128, 2, 28, pow(7, 2**62 - 7, _P128), 66)


def apply_integer_map(field: Field, linear: Callable[[Vector], Vector], elements: Vector) -> Vector:
    """An integer-linear map, given on vectors over Z_2^64, applied to field elements.

    The map runs on digits of 32 bits, and its results are read as signed. This is correct if the
    absolute coefficients of each output add up to less than 2^31. `elements` is (..., n, limbs) for
    a map that takes (..., n).
    """
    base = field.from_ints([1 << 32])
    total = None
    for place in reversed(range(2 * field.limbs)):
        digit = (elements[..., place // 2] >> np.uint64(32 * (place % 2))) & np.uint64(0xFFFFFFFF)
        mapped = field.from_signed(np.ascontiguousarray(linear(digit)).view(np.int64))
        total = mapped if total is None else field.add(field.mul(total, base), mapped)
    assert total is not None
    return total
