"""Polynomials given by their values at the n-th roots of unity, n a power of two.

This is the Lagrange basis of draft-irtf-cfrg-vdaf, section "Polynomial Representation": point i is
wⁱ with w the principal n-th root. Arrays are (rows, n, inner, limbs): `inner` polynomials for every
row, point by point.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np

from tallyroom.protocols.algebra.field import Field, Vector, native
from tallyroom.protocols.vdaf import polynomial_twin as twin

try:
    from tallyroom.protocols.vdaf import _polynomial
except ImportError:  # no compiler at build time
    HAVE_NATIVE = False
else:
    HAVE_NATIVE = True


@dataclass(frozen=True)
class Roots:
    """Tables for the n-th roots of unity."""

    powers: Vector
    inverses: Vector
    scaled: Vector
    """wⁱ/n."""
    twist: Vector
    """vⁱ/n with v the principal 2n-th root, i in bit-reversed order."""


@cache
def roots(field: Field, n: int) -> Roots:
    if n < 1 or n & (n - 1) or 2 * n > 1 << field.two_power:
        raise ValueError(f"{field.name} has no roots of unity of order {n} for polynomials")
    p = field.modulus
    w = pow(field.generator, (1 << field.two_power) // n, p)
    v = pow(field.generator, (1 << field.two_power) // (2 * n), p)
    share = pow(n, -1, p)
    bits = n.bit_length() - 1
    reversed_order = [int(f"{i:0{bits}b}"[::-1], 2) if bits else 0 for i in range(n)]
    tables = (
        [pow(w, i, p) for i in range(n)],
        [pow(w, -i, p) for i in range(n)],
        [pow(w, i, p) * share for i in range(n)],
        [pow(v, i, p) * share for i in reversed_order],
    )
    return Roots(*(field.from_ints(table) for table in tables))


def between(field: Field, values: Vector) -> Vector:
    """Values of polynomials of degree below n at the points v·wⁱ, from their values at wⁱ."""
    rows, n, inner, limbs = values.shape
    table = roots(field, n)
    if not (HAVE_NATIVE and native()):
        return twin.between(field, values, table.powers, table.inverses, table.twist)
    out = np.array(values, order="C")
    _polynomial.shift(limbs, out, rows, n, inner, table.powers, table.inverses, table.twist)
    return out


def lagrange(field: Field, n: int, points: Vector) -> Vector:
    """For each point t of (rows, limbs), the n weights that give the value at t from those at the
    roots."""
    table = roots(field, n)
    if not (HAVE_NATIVE and native()):
        return twin.lagrange(field, points, table.powers, table.scaled)
    out = field.zeros(len(points), n)
    points = np.ascontiguousarray(points)
    _polynomial.lagrange(field.limbs, points, len(points), n, table.powers, table.scaled, out)
    return out


def lagrange_without_last(field: Field, n: int, points: Vector) -> Vector:
    """Like `lagrange`, from the first n − 1 values, for polynomials of degree below n − 1.

    The coefficient of degree n − 1 is Σ f(wⁱ)wⁱ/n = 0, so the last value is −Σ_{i<n−1} f(wⁱ)wⁱ⁺¹.
    """
    weights = lagrange(field, n, points)
    following = roots(field, n).powers[1:]
    return field.sub(weights[:, :-1], field.mul(weights[:, -1:], following))


def weighted(field: Field, weights: Vector, values: Vector) -> Vector:
    """Σᵢ weights[r, i]·values[r, i] for each row r, from weights (rows, n, limbs) and values
    (rows, n, inner, limbs)."""
    rows, n, inner, limbs = values.shape
    if not (HAVE_NATIVE and native()):
        return field.sum(field.mul(weights[:, :, None], values), 1)
    out = field.zeros(rows, inner)
    weights, values = np.ascontiguousarray(weights), np.ascontiguousarray(values)
    _polynomial.weighted(limbs, weights, values, rows, n, inner, out)
    return out


def powers(field: Field, bases: Vector, count: int) -> Vector:
    """b, b², …, b^count on a new axis before the limbs."""
    if not (HAVE_NATIVE and native()):
        return twin.powers(field, bases, count)
    out = field.zeros(*bases.shape[:-1], count)
    bases = np.ascontiguousarray(bases)
    _polynomial.powers(field.limbs, bases, bases.size // field.limbs, count, out)
    return out


def pair_sums(field: Field, values: Vector) -> Vector:
    """x₀x₁ + x₂x₃ + … over the last axis of elements, whose length is even."""
    *shape, width, limbs = values.shape
    if not (HAVE_NATIVE and native()):
        return field.sum(field.mul(values[..., 0::2, :], values[..., 1::2, :]), -2)
    out = field.zeros(*shape)
    values = np.ascontiguousarray(values)
    _polynomial.pair_sums(limbs, values, out.size // limbs, width // 2, out)
    return out
