"""Words of wires: right for every pair of small integers, and for as many ANDs as stated."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tallyroom.protocols.garbling.circuit import Circuit
from tallyroom.protocols.garbling.circuit_builder import (
    ONE,
    ZERO,
    Builder,
    Word,
    constant,
    width_of,
)
from tallyroom.protocols.garbling.clear_evaluation import evaluate, from_bits, to_bits

Integers = NDArray[np.int64]
Build = Callable[[Builder, Word, Word], Word]
Compute = Callable[[Integers, Integers], Integers]


def bit(wire: int) -> Word:
    return Word((wire,))


OPERATIONS: dict[str, tuple[Build, Compute]] = {
    "add": (Builder.add, np.add),
    "subtract": (Builder.subtract, np.subtract),
    "multiply": (Builder.multiply, np.multiply),
    "greater": (lambda b, x, y: bit(b.greater(x, y)), lambda x, y: (x > y).astype(np.int64)),
    "equal": (lambda b, x, y: bit(b.equal(x, y)), lambda x, y: (x == y).astype(np.int64)),
    "difference": (Builder.absolute_difference, lambda x, y: np.abs(x - y)),
    "absolute": (lambda b, x, y: b.absolute(x), lambda x, y: np.abs(x)),
    "negate": (lambda b, x, y: b.negate(x), lambda x, y: -x),
    "square": (lambda b, x, y: b.square(x), lambda x, y: x * x),
    "min_parties": (lambda b, x, y: b.select(b.greater(x, y), y, x), np.minimum),
}


def built(build: Build, left: tuple[int, bool], right: tuple[int, bool]) -> tuple[Circuit, bool]:
    builder = Builder(left[0], right[0])
    word = build(builder, Word(builder.garbler, left[1]), Word(builder.evaluator, right[1]))
    return builder.circuit([word]), word.signed


def run(circuit: Circuit, signed: bool, x: Integers, y: Integers) -> Integers:
    garbler = to_bits(x, circuit.garbler_inputs)
    return from_bits(evaluate(circuit, garbler, to_bits(y, circuit.evaluator_inputs)), signed)


def every(width: int, signed: bool) -> Integers:
    low = -(1 << width - 1) if signed else 0
    return np.arange(low, low + (1 << width))


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("widths", [(4, 4), (1, 4), (4, 1), (1, 1), (3, 5)])
@pytest.mark.parametrize("signs", list(itertools.product([False, True], repeat=2)))
def test_every_pair_of_small_integers(
    operation: str, widths: tuple[int, int], signs: tuple[bool, bool]
) -> None:
    build, compute = OPERATIONS[operation]
    circuit, signed = built(build, (widths[0], signs[0]), (widths[1], signs[1]))
    grid = np.meshgrid(every(widths[0], signs[0]), every(widths[1], signs[1]))
    x, y = grid[0].ravel(), grid[1].ravel()
    assert np.array_equal(run(circuit, signed, x, y), compute(x, y))


@pytest.mark.parametrize("operation", OPERATIONS)
@settings(max_examples=30)
@given(data=st.data())
def test_large_integers(operation: str, data: st.DataObject) -> None:
    build, compute = OPERATIONS[operation]
    limit = 31 if operation in ("multiply", "square") else 60
    sides = [(data.draw(st.integers(1, limit)), data.draw(st.booleans())) for _ in range(2)]
    circuit, signed = built(build, *sides)
    values = []
    for width, is_signed in sides:
        low = -(1 << width - 1) if is_signed else 0
        every_one = st.integers(low, low + (1 << width) - 1)
        values.append(np.array(data.draw(st.lists(every_one, min_size=9, max_size=9))))
    assert np.array_equal(run(circuit, signed, *values), compute(*values))


@pytest.mark.parametrize("signed", [False, True])
def test_without_its_last_gate_a_comparison_tells_all_that_differ(signed: bool) -> None:
    circuit, _ = built(lambda b, x, y: bit(b.greater_unless_equal(x, y)), (4, signed), (4, signed))
    grid = np.meshgrid(every(4, signed), every(4, signed))
    x, y = grid[0].ravel(), grid[1].ravel()
    told = run(circuit, False, x, y)
    assert np.array_equal(told[x != y], (x > y)[x != y])
    assert circuit.ands == 3


@pytest.mark.parametrize("w", [1, 2, 4, 8, 32])
@pytest.mark.parametrize("signed", [False, True])
def test_ands_are_those_stated(w: int, signed: bool) -> None:
    stated = {
        "greater": w,
        "equal": w - 1,
        "difference": 2 * w - 1,
        "add": w,
        "subtract": w,
        "min_parties": 2 * w,
        "absolute": w - 1 if signed else 0,
    }
    for operation, ands in stated.items():
        circuit, _ = built(OPERATIONS[operation][0], (w, signed), (w, signed))
        assert circuit.ands == ands, operation


@pytest.mark.parametrize("w", [4, 8, 32])
def test_a_square_costs_half_of_a_product(w: int) -> None:
    product, _ = built(OPERATIONS["multiply"][0], (w, False), (w, False))
    square, _ = built(OPERATIONS["square"][0], (w, False), (w, False))
    assert product.ands == 2 * w * w - w
    assert square.ands < w * w


CONSTANTS = st.integers(-(1 << 20), 1 << 20)


@given(CONSTANTS, CONSTANTS)
def test_what_is_public_costs_nothing(left: int, right: int) -> None:
    builder = Builder(1, 0)
    x, y = constant(left), constant(right)
    words = [build(builder, x, y) for build, _ in OPERATIONS.values()]
    circuit = builder.circuit(words)
    assert circuit.ands == 0
    for word, (_, compute) in zip(words, OPERATIONS.values(), strict=True):
        bits = np.array([[wire == ONE for wire in word.wires]], dtype=np.uint8)
        assert set(word.wires) <= {ZERO, ONE}
        assert from_bits(bits, word.signed)[0] == compute(np.array(left), np.array(right))


@given(st.integers(0, 255), st.integers(0, 255))
def test_public_outputs_come_out_of_a_circuit_too(value: int, x: int) -> None:
    builder = Builder(8, 0)
    circuit = builder.circuit([constant(value).fitted(8, signed=False), Word(builder.garbler)])
    bits = evaluate(circuit, to_bits(np.array([x]), 8), np.zeros((1, 0), dtype=np.uint8))
    assert from_bits(bits[:, :8], signed=False)[0] == value
    assert from_bits(bits[:, 8:], signed=False)[0] == x


def test_the_same_term_is_built_once() -> None:
    builder = Builder(8, 8)
    x, y = Word(builder.garbler), Word(builder.evaluator)
    both = builder.circuit([bit(builder.greater(x, y)), bit(builder.greater(x, y))])
    assert both.ands == 8
    assert both.outputs[0] == both.outputs[1]


GATES = ["xor", "and_", "or_"]


@pytest.mark.parametrize("gate", GATES)
def test_gates_fold_to_what_they_compute(gate: str) -> None:
    truth = {"xor": np.bitwise_xor, "and_": np.bitwise_and, "or_": np.bitwise_or}[gate]
    builder = Builder(1, 1)
    a, b = 0, 1
    wires = [ZERO, ONE, a, b, builder.not_(a), builder.not_(b)]
    values = np.array([[0, 1, u, v, 1 - u, 1 - v] for u in (0, 1) for v in (0, 1)])
    sides = np.array([[u, v] for u in (0, 1) for v in (0, 1)], dtype=np.uint8)
    for (i, left), (j, right) in itertools.product(enumerate(wires), repeat=2):
        circuit = builder.circuit([bit(getattr(builder, gate)(left, right))])
        told = evaluate(circuit, sides[:, :1], sides[:, 1:])[:, 0]
        assert np.array_equal(told, truth(values[:, i], values[:, j]))
        # Only what two different inputs decide takes a gate that costs something.
        assert circuit.ands == (gate != "xor" and min(i, j) > 1 and i % 2 != j % 2)


def test_gates_that_no_output_needs_are_left_out() -> None:
    builder = Builder(16, 16)
    x, y = Word(builder.garbler), Word(builder.evaluator)
    builder.multiply(x, y)
    assert builder.circuit([bit(builder.equal(x, y))]).ands == 15


@pytest.mark.parametrize(
    ("low", "high", "width"),
    [(0, 0, 1), (0, 1, 1), (0, 2, 2), (-1, 0, 1), (-1, 1, 2), (-2, 1, 2), (-3, 1, 3), (-9, -8, 5)],
)
def test_widths(low: int, high: int, width: int) -> None:
    assert width_of(low, high) == width


def test_an_empty_range_has_no_width() -> None:
    with pytest.raises(ValueError, match="no integer"):
        width_of(1, 0)
