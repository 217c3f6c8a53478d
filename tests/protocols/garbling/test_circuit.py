"""A circuit that is not one is refused when it is made."""

import numpy as np
import pytest

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.garbling.circuit import Circuit
from tests.protocols.garbling.circuits import greater


def circuit(gates: list[list[int]], outputs: list[int], garbler: int = 1) -> Circuit:
    rows = np.array(gates, dtype=np.uint32).reshape(-1, 3)
    return Circuit(garbler, 1, rows, np.array(outputs, dtype=np.uint32))


def test_a_comparison_has_one_and_a_bit() -> None:
    assert [greater(bits).ands for bits in (1, 2, 32)] == [1, 2, 32]


def test_the_smallest_circuits_are_circuits() -> None:
    assert circuit([], []).wires == 2
    assert circuit([[2, 0, 0], [1, 2, 1]], [3, 3, 0]).ands == 1


@pytest.mark.parametrize(
    ("gates", "outputs", "garbler"),
    [
        ([[3, 0, 1]], [2], 1),  # no such kind
        ([[0, 0, 2]], [2], 1),  # reads itself
        ([[1, 2, 0]], [2], 1),
        ([[0, 3, 0], [0, 0, 1]], [2], 1),  # reads ahead
        ([[2, 0, 1]], [2], 1),  # a NOT of two wires
        ([[0, 0, 1]], [3], 1),  # an output on no wire
        ([], [2], 1),
        ([], [], -1),
    ],
)
def test_wires_out_of_order_are_refused(
    gates: list[list[int]], outputs: list[int], garbler: int
) -> None:
    with pytest.raises(LocalError):
        circuit(gates, outputs, garbler)


def test_arrays_of_another_form_are_refused() -> None:
    gates, outputs = np.zeros((1, 3), dtype=np.uint32), np.zeros(1, dtype=np.uint32)
    for wrong in (gates.astype(np.int32), gates[0], gates[:, :2]):
        with pytest.raises(LocalError):
            Circuit(1, 1, wrong, outputs)  # type: ignore[arg-type]
    for wrong in (outputs.astype(np.uint64), outputs[None]):
        with pytest.raises(LocalError):
            Circuit(1, 1, gates, wrong)  # type: ignore[arg-type]
