"""Polynomials by their values at roots of unity, against Horner's rule and Python's integers."""

from collections.abc import Callable

import numpy as np
import pytest

from tallyroom.protocols.algebra.field import FIELD64, FIELD128, HAVE_NATIVE, Field, Vector
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.vdaf import polynomial

pytestmark = pytest.mark.usefixtures("implementation")

FIELDS = [FIELD64, FIELD128]
SIZES = [1, 2, 4, 8, 64]


def drawn(field: Field, *shape: int, seed: int = 1) -> Vector:
    vector = field.sample(Randomness.from_seed(seed, "polynomial").bytes, int(np.prod(shape)))
    return vector.reshape(*shape, field.limbs)


def at_roots(field: Field, coefficients: Vector, n: int) -> Vector:
    """(rows, inner, terms, limbs) to values (rows, n, inner, limbs)."""
    return field.evaluate(coefficients, polynomial.roots(field, n).powers).swapaxes(1, 2)


@pytest.mark.parametrize("field", FIELDS, ids=repr)
@pytest.mark.parametrize("n", SIZES)
def test_values_between_the_roots(field: Field, n: int) -> None:
    coefficients = drawn(field, 3, 5, n)
    doubled = at_roots(field, coefficients, 2 * n)
    given = doubled[:, 0::2]
    assert np.array_equal(given, at_roots(field, coefficients, n))
    before = given.copy()
    assert np.array_equal(polynomial.between(field, given), doubled[:, 1::2])
    assert np.array_equal(given, before)


@pytest.mark.parametrize("field", FIELDS, ids=repr)
@pytest.mark.parametrize("n", SIZES)
def test_weights_give_the_value_at_any_point(field: Field, n: int) -> None:
    coefficients = drawn(field, 4, 2, n)
    values = at_roots(field, coefficients, n)
    t = drawn(field, 4, seed=2)
    t[3] = polynomial.roots(field, n).powers[-1]  # at a root the weights pick its value
    found = polynomial.weighted(field, polynomial.lagrange(field, n, t), values)
    for row in range(4):
        expected = field.evaluate(coefficients[row], t[row : row + 1])[:, 0]
        assert np.array_equal(found[row], expected)


@pytest.mark.parametrize("field", FIELDS, ids=repr)
@pytest.mark.parametrize("n", SIZES[1:])
def test_the_last_value_is_not_needed_for_a_lower_degree(field: Field, n: int) -> None:
    coefficients = drawn(field, 3, 1, n - 1)
    values = at_roots(field, coefficients, n)[:, :-1]
    t = drawn(field, 3, seed=2)
    weights = polynomial.lagrange_without_last(field, n, t)
    found = polynomial.weighted(field, weights, values)
    for row in range(3):
        assert np.array_equal(
            found[row, 0], field.evaluate(coefficients[row, 0], t[row : row + 1])[0]
        )


@pytest.mark.parametrize("field", FIELDS, ids=repr)
def test_powers_and_sums_of_products(field: Field) -> None:
    bases = drawn(field, 2, 3)
    b = field.to_ints(bases)
    found = field.to_ints(polynomial.powers(field, bases, 4))
    assert (found == np.stack([b, b**2, b**3, b**4], axis=-1) % field.modulus).all()
    values = drawn(field, 2, 3, 6)
    x = field.to_ints(values)
    sums = field.to_ints(polynomial.pair_sums(field, values))
    assert (sums == (x[..., 0::2] * x[..., 1::2]).sum(axis=-1) % field.modulus).all()


@pytest.mark.parametrize("n", [0, 3, 2**32])
def test_roots_of_unity_have_orders_of_two(n: int) -> None:
    with pytest.raises(ValueError, match="no roots of unity of order"):
        polynomial.roots(FIELD64, n)


@pytest.mark.skipif(not HAVE_NATIVE, reason="the native loops are not built")
def test_the_native_loops_refuse_buffers_that_do_not_fit() -> None:
    from tallyroom.protocols.vdaf import _keccak, _polynomial

    two, three, four = (np.zeros(size, dtype=np.uint64) for size in (2, 3, 4))
    data = np.zeros(6, dtype=np.uint8)
    big = 2**62
    calls: list[Callable[[], object]] = [
        lambda: _polynomial.shift(1, three, 1, 3, 1, three, three, three),
        lambda: _polynomial.shift(1, four, 1, 4, 1, four, four, two),
        lambda: _polynomial.shift(1, four, big, 4, 1, four, four, four),
        lambda: _polynomial.shift(3, four, 1, 4, 1, four, four, four),
        lambda: _polynomial.lagrange(1, two, 2, 2, two, two, three),
        lambda: _polynomial.weighted(1, two, four, 1, 2, 2, three),
        lambda: _polynomial.weighted(1, two, four, -1, -2, -2, two),
        lambda: _polynomial.powers(1, two, 2, big, four),
        lambda: _polynomial.pair_sums(2, four, 1, 1, four),
        lambda: _keccak.squeeze(data, 4, 1, data),
        lambda: _keccak.squeeze(data, 0, 1, data),
        lambda: _keccak.squeeze(data, 1, 0, data),
        lambda: _keccak.squeeze_field(2, data, 1, 1, three),
        lambda: _keccak.squeeze_field(1, data, -1, 1, three),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="do not fit"):
            call()
