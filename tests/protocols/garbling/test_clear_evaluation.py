"""The clear evaluator: any number of instances at once, and inputs of the right width alone."""

import numpy as np
import pytest

from tallyroom.protocols.garbling.circuit import Circuit
from tallyroom.protocols.garbling.clear_evaluation import evaluate, from_bits, to_bits
from tests.protocols.garbling.circuits import clear, random_circuit
from tests.protocols.pairwise.dealing import random_bits


@pytest.mark.parametrize("instances", [0, 1, 7, 8, 9, 100])
def test_any_number_of_instances_at_once(instances: int) -> None:
    for seed in range(20):
        circuit = random_circuit(seed, 4, 3, 40, 6)
        garbler, evaluator = random_bits(seed, instances, 4), random_bits(99 - seed, instances, 3)
        told = evaluate(circuit, garbler, evaluator)
        assert told.shape == (instances, 6)
        assert np.array_equal(told, clear(circuit, garbler, evaluator))


def test_inputs_of_another_width_are_refused() -> None:
    gates = np.array([[0, 0, 2]], dtype=np.uint32)
    one = Circuit(2, 1, gates, np.array([3], dtype=np.uint32))
    with pytest.raises(ValueError, match="the garbler has 2"):
        evaluate(one, np.zeros((4, 1), dtype=np.uint8), np.zeros((4, 1), dtype=np.uint8))
    with pytest.raises(ValueError, match="the evaluator has 1"):
        evaluate(one, np.zeros((4, 2), dtype=np.uint8), np.zeros((3, 1), dtype=np.uint8))


@pytest.mark.parametrize("width", [1, 8, 33, 63, 64])
def test_bits_are_those_of_twos_complement(width: int) -> None:
    low, high = -(1 << width - 1), (1 << width - 1) - 1
    values = np.array([low, low // 2, -1, 0, high // 2, high])
    assert np.array_equal(from_bits(to_bits(values, width), signed=True), values)
    positive = values[values >= 0]
    assert np.array_equal(from_bits(to_bits(positive, width), signed=False), positive)
