"""Circuits that are none are refused; the clear evaluator checks what it is given."""

from typing import Any

import numpy as np
import pytest

from protocols.pairwise.circuit import Circuit
from protocols.pairwise.clear import evaluate


def circuit(gates: list[list[int]], outputs: list[int]) -> Circuit:
    rows = np.array(gates, dtype=np.uint32).reshape(-1, 3)
    return Circuit(2, 1, rows, np.array(outputs, dtype=np.uint32))


def test_wires_and_ands_are_counted() -> None:
    full = circuit([[1, 0, 2], [0, 3, 1], [2, 4, 4], [1, 4, 5]], [5, 6, 0])
    assert full.wires == 7
    assert full.ands == 2


@pytest.mark.parametrize(
    ("gates", "outputs", "reason"),
    [
        ([[3, 0, 1]], [3], "XOR, AND or NOT"),
        ([[0, 0, 3]], [3], "not there yet"),
        ([[0, 4, 0], [0, 0, 1]], [3], "not there yet"),
        ([[2, 0, 1]], [3], "same wire"),
        ([[0, 0, 1]], [4], "does not exist"),
        ([], [3], "does not exist"),
    ],
)
def test_what_is_no_circuit_is_refused(
    gates: list[list[int]], outputs: list[int], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        circuit(gates, outputs)


def test_arrays_of_another_kind_are_refused() -> None:
    rows, wires = np.zeros((0, 3), dtype=np.uint32), np.zeros(0, dtype=np.uint32)
    wrong: list[tuple[Any, Any]] = [
        (rows.astype(np.int64), wires),
        (rows.reshape(0, 1, 3), wires),
        (np.zeros((1, 2), dtype=np.uint32), wires),
        (rows, wires.astype(np.int64)),
        (rows, wires.reshape(0, 1)),
    ]
    for gates, outputs in wrong:
        with pytest.raises(ValueError, match="32"):
            Circuit(1, 1, gates, outputs)
    with pytest.raises(ValueError, match="negative"):
        Circuit(-1, 1, rows, wires)


@pytest.mark.parametrize("instances", [0, 1, 7, 8, 9, 100])
def test_any_number_of_instances_at_once(instances: int) -> None:
    majority = circuit([[0, 0, 2], [0, 1, 2], [1, 3, 4], [0, 5, 2], [2, 6, 6]], [6, 7])
    bits = np.random.default_rng(instances).integers(0, 2, (instances, 3), dtype=np.uint8)
    told = evaluate(majority, bits[:, :2], bits[:, 2:])
    assert told.shape == (instances, 2)
    assert np.array_equal(told[:, 0], bits.sum(axis=1) >= 2)
    assert np.array_equal(told[:, 1], bits.sum(axis=1) < 2)


def test_inputs_of_another_width_are_refused() -> None:
    one = circuit([[0, 0, 2]], [3])
    with pytest.raises(ValueError, match="the garbler has 2"):
        evaluate(one, np.zeros((4, 1), dtype=np.uint8), np.zeros((4, 1), dtype=np.uint8))
    with pytest.raises(ValueError, match="the evaluator has 1"):
        evaluate(one, np.zeros((4, 2), dtype=np.uint8), np.zeros((3, 1), dtype=np.uint8))
