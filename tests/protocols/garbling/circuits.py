"""Circuits for tests, and what they compute in the clear."""

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.garbling.circuit import AND, NOT, XOR, Circuit
from tallyroom.simulation.bench.garble import greater

__all__ = ["clear", "greater", "random_circuit", "single_gate"]

Bits = NDArray[np.uint8]


def clear(circuit: Circuit, garbler: Bits, evaluator: Bits) -> Bits:
    """Output bits on the last axis, from input bits there."""
    wires = list(np.moveaxis(np.concatenate([garbler, evaluator], axis=-1), -1, 0))
    for kind, left, right in circuit.gates.tolist():
        a, b = wires[left], wires[right]
        wires.append({XOR: a ^ b, AND: a & b, NOT: a ^ 1}[kind])
    if not len(circuit.outputs):
        return np.empty((*garbler.shape[:-1], 0), dtype=np.uint8)
    return np.stack([wires[wire] for wire in circuit.outputs.tolist()], axis=-1)


def single_gate(kind: int) -> Circuit:
    """One gate on the garbler's bit and the evaluator's; NOT of the evaluator's."""
    gate = (kind, 1, 1) if kind == NOT else (kind, 0, 1)
    return Circuit(1, 1, np.array([gate], dtype=np.uint32), np.array([2], dtype=np.uint32))


def random_circuit(seed: int, garbler: int, evaluator: int, gates: int, outputs: int) -> Circuit:
    """Any gate on any earlier wires, the same wire twice included; any wires as outputs."""
    generator = np.random.default_rng(seed)
    rows = np.empty((gates, 3), dtype=np.uint32)
    for index in range(gates):
        kind = generator.integers(0, 3)
        left, right = generator.integers(0, garbler + evaluator + index, 2)
        rows[index] = kind, left, left if kind == NOT else right
    chosen = generator.integers(0, garbler + evaluator + gates, outputs)
    return Circuit(garbler, evaluator, rows, chosen.astype(np.uint32))
