"""Field vectors against Python's integers, with the native loops and with the twin."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallyroom.protocols.algebra.field import (
    FIELD64,
    FIELD128,
    HAVE_NATIVE,
    Field,
    Vector,
    apply_integer_map,
)
from tallyroom.protocols.randomness import Randomness

FIELDS = [FIELD64, FIELD128]
IMPLEMENTATIONS = ["pure", "native"] if HAVE_NATIVE else ["pure"]


@pytest.fixture(params=IMPLEMENTATIONS)
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name: str = request.param
    monkeypatch.setenv("TALLYROOM_NATIVE", "0" if name == "pure" else "1")
    return name


@pytest.fixture(params=FIELDS, ids=repr)
def field(request: pytest.FixtureRequest, implementation: str) -> Field:
    chosen: Field = request.param
    return chosen


def edges(field: Field) -> list[int]:
    """Values around every carry: sums and differences of powers of two, and the ends."""
    p = field.modulus
    powers = [1 << bit for bit in range(0, 64 * field.limbs, 8)]
    near = [power + d for power in powers for d in (-1, 0, 1)]
    near += [p - 1 - value for value in near]
    limbs = [0, 1, 2**32 - 1, 2**32, 2**64 - 2**32, 2**64 - 29, 2**64 - 28, 2**64 - 1]
    near += [low + (high << 64) for low in limbs for high in limbs if field.limbs == 2]
    return sorted({value % p for value in [*near, *limbs]})


def drawn(field: Field, *shape: int, seed: int = 1) -> Vector:
    count = int(np.prod(shape))
    vector = field.sample(Randomness.from_seed(seed, "field").bytes, count)
    return vector.reshape(*shape, field.limbs)


def test_the_moduli_and_generators() -> None:
    assert FIELD64.modulus == 2**32 * 4294967295 + 1
    assert FIELD128.modulus == 340282366920938462946865773367900766209
    for field in FIELDS:
        assert (field.modulus - 1) % 2**field.two_power == 0
        assert (field.modulus - 1) >> field.two_power & 1
        assert pow(field.generator, 2 ** (field.two_power - 1), field.modulus) == field.modulus - 1


def test_arithmetic_on_every_pair_of_edges(field: Field) -> None:
    values = np.array(edges(field), dtype=object)
    ours = field.from_ints(values)
    a, b = ours[:, None], ours[None, :]
    x, y = values[:, None], values[None, :]
    for result, expected in (
        (field.add(a, b), x + y),
        (field.sub(a, b), x - y),
        (field.mul(a, b), x * y),
    ):
        assert field.canonical(result).all()
        assert (field.to_ints(result) == expected % field.modulus).all()
    assert (field.to_ints(field.neg(ours)) == -values % field.modulus).all()


def test_arithmetic_on_random_elements(field: Field) -> None:
    a, b = drawn(field, 2000), drawn(field, 2000, seed=2)
    x, y = field.to_ints(a), field.to_ints(b)
    assert (field.to_ints(field.mul(a, b)) == x * y % field.modulus).all()
    assert (field.to_ints(field.add(a, b)) == (x + y) % field.modulus).all()
    assert (field.to_ints(field.sub(a, b)) == (x - y) % field.modulus).all()


def test_inverses(field: Field) -> None:
    values = field.from_ints([value for value in edges(field) if value])
    one = field.from_ints([1])
    assert (field.mul(values, field.inv(values)) == one).all()
    with pytest.raises(ZeroDivisionError):
        field.inv(field.from_ints([3, 0]))


@pytest.mark.parametrize("axis", [0, 1, 2, -2, -3])
def test_sums_over_an_axis(field: Field, axis: int) -> None:
    values = drawn(field, 3, 4, 5)
    expected = field.to_ints(values).sum(axis=axis if axis >= 0 else axis + 1) % field.modulus
    assert (field.to_ints(field.sum(values, axis)) == expected).all()
    most = field.neg(field.from_ints([1] * 1000))
    assert field.to_ints(field.sum(most)) == -1000 % field.modulus


def test_there_is_no_summing_over_limbs(field: Field) -> None:
    for axis in (-1, 1, 2):
        with pytest.raises(ValueError, match="cannot sum over axis"):
            field.sum(field.zeros(3), axis)
    assert field.sum(field.zeros(0, 3)).shape == (3, field.limbs)


def test_polynomials_by_horner(field: Field) -> None:
    coefficients, points = drawn(field, 2, 3, 7), drawn(field, 5, seed=2)
    found = field.to_ints(field.evaluate(coefficients, points))
    c, x = field.to_ints(coefficients), field.to_ints(points)
    expected = sum(c[..., k, None] * x**k for k in range(7)) % field.modulus
    assert (found == expected).all()


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_any_threshold_of_shamir_shares_gives_the_secret_back(field: Field, count: int) -> None:
    coefficients = drawn(field, 6, count)
    points = field.from_ints(list(range(1, count + 4)))
    shares = field.evaluate(coefficients, points)
    for start in range(4):
        chosen = slice(start, start + count)
        weights = field.lagrange_at_zero(points[chosen])
        assert (field.combine(weights, shares[:, chosen]) == coefficients[:, 0]).all()


def test_shamir_points_are_distinct_and_not_zero(field: Field) -> None:
    for points in ([1, 2, 1], [0, 1], [field.modulus, 1]):
        with pytest.raises(ValueError, match="distinct and not 0"):
            field.lagrange_at_zero(field.from_ints(points))


def test_signed_integers(field: Field) -> None:
    values = np.array([0, 1, -1, 2**63 - 1, -(2**63), -(2**63) + 1, 77], dtype=np.int64)
    expected = values.astype(object) % field.modulus
    assert (field.to_ints(field.from_signed(values)) == expected).all()
    for value in values:
        assert field.to_ints(field.from_signed(np.array(value))) == int(value) % field.modulus


def test_encoding_is_little_endian_and_refuses_what_is_not_canonical(field: Field) -> None:
    values = np.array(edges(field), dtype=object)
    rows = field.encode(field.from_ints(values).reshape(1, -1, field.limbs))
    assert rows.tobytes() == b"".join(int(v).to_bytes(field.width, "little") for v in values)
    assert (field.decode(rows)[0] == field.from_ints(values)).all()
    for bad in (field.modulus, field.modulus + 1, 2 ** (64 * field.limbs) - 1):
        row = np.frombuffer(bad.to_bytes(field.width, "little"), dtype=np.uint8)
        assert not field.canonical(field.unchecked(row)).any()
        with pytest.raises(ValueError, match="not below the modulus"):
            field.decode(np.concatenate([rows[0], row]))
    with pytest.raises(ValueError, match="whole elements"):
        field.decode(rows[0, 1:])


def test_drawing_rejects_what_is_not_below_the_modulus(field: Field) -> None:
    p = field.modulus
    candidates = [5, p, p - 1, 2 ** (64 * field.limbs) - 1, 0]
    data = b"".join(value.to_bytes(field.width, "little") for value in candidates)
    assert field.to_ints(field.draw(data + b"rest")).tolist() == [5, p - 1, 0]

    position = 0

    def source(count: int) -> bytes:
        nonlocal position
        position += count
        return (data * 2)[position - count : position]

    assert field.to_ints(field.sample(source, 4)).tolist() == [5, p - 1, 0, 5]


@pytest.mark.parametrize("bad", ["limbs", "dtype"])
def test_vectors_of_another_field_are_refused(field: Field, bad: str) -> None:
    good = field.zeros(3)
    wrong: Vector = np.zeros((3, 3), dtype=np.uint64) if bad == "limbs" else good.astype(np.uint32)
    calls: list[Callable[[], object]] = [
        lambda: field.add(good, wrong),
        lambda: field.mul(wrong, good),
        lambda: field.sum(wrong),
        lambda: field.encode(wrong),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="is uint64 of shape"):
            call()


@given(st.integers(0, 2**32), st.integers(1, 6))
def test_integer_maps_act_on_field_elements(seed: int, outputs: int) -> None:
    generator = np.random.default_rng(seed)
    matrix = generator.integers(-(2**28), 2**28, (outputs, 5))

    def linear(vector: Vector) -> Vector:
        mapped: Vector = matrix.view(np.uint64) @ vector
        return mapped

    for field in FIELDS:
        elements = drawn(field, 5, seed=seed)
        found = field.to_ints(apply_integer_map(field, linear, elements))
        expected = matrix.astype(object) @ field.to_ints(elements) % field.modulus
        assert (found == expected).all()


@pytest.mark.skipif(not HAVE_NATIVE, reason="the native loops are not built")
def test_the_native_loops_refuse_buffers_that_do_not_fit() -> None:
    from tallyroom.protocols.algebra import _field

    two, three = np.zeros(2, dtype=np.uint64), np.zeros(3, dtype=np.uint64)
    calls: list[Callable[[], object]] = [
        lambda: _field.add(1, two, three, two),
        lambda: _field.mul(2, three, three, three),
        lambda: _field.sub(3, three, three, three),
        lambda: _field.inv(1, two, three),
        lambda: _field.sum(1, two, 0, 1, two),
        lambda: _field.sum(1, three, 2, 1, two),
        lambda: _field.horner(1, three, 2, two, two),
        lambda: _field.dot(1, two, three, two),
        lambda: _field.canonical(2, three),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="do not fit"):
            call()
