"""The polynomial loops in numpy. The native loops must agree with them."""

import numpy as np

from tallyroom.protocols.algebra.field import Field, Vector


def between(
    field: Field, values: Vector, roots: Vector, inverse_roots: Vector, twist: Vector
) -> Vector:
    """Inverse transform by decimation in frequency, twist, transform by decimation in time."""
    rows, n, inner, limbs = values.shape
    out = values
    length = n
    while length > 1:
        pairs = out.reshape(rows, n // length, 2, length // 2, inner, limbs)
        factors = inverse_roots[:: n // length][: length // 2, None]
        added = field.add(pairs[:, :, 0], pairs[:, :, 1])
        turned = field.mul(field.sub(pairs[:, :, 0], pairs[:, :, 1]), factors)
        out = np.stack([added, turned], axis=2)
        length //= 2
    out = field.mul(out.reshape(rows, n, inner, limbs), twist[:, None])
    length = 2
    while length <= n:
        pairs = out.reshape(rows, n // length, 2, length // 2, inner, limbs)
        turned = field.mul(pairs[:, :, 1], roots[:: n // length][: length // 2, None])
        below, above = field.add(pairs[:, :, 0], turned), field.sub(pairs[:, :, 0], turned)
        out = np.stack([below, above], axis=2)
        length *= 2
    return out.reshape(rows, n, inner, limbs)


def lagrange(field: Field, points: Vector, roots: Vector, scaled: Vector) -> Vector:
    n = len(roots)
    gaps = field.sub(points[:, None], roots)
    before, after = np.empty_like(gaps), np.empty_like(gaps)
    before[:, 0] = after[:, -1] = field.from_ints([1])
    for i in range(1, n):
        before[:, i] = field.mul(before[:, i - 1], gaps[:, i - 1])
        after[:, n - 1 - i] = field.mul(after[:, n - i], gaps[:, n - i])
    return field.mul(field.mul(before, after), scaled)


def powers(field: Field, bases: Vector, count: int) -> Vector:
    out = field.zeros(*bases.shape[:-1], count)
    product = bases
    for i in range(count):
        out[..., i, :] = product
        product = field.mul(product, bases)
    return out
