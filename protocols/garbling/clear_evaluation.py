"""Circuits in the clear, on many instances at once: the oracle for garbling and for kernels."""

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.garbling.circuit import AND, NOT, Circuit

Bits = NDArray[np.uint8]


def evaluate(circuit: Circuit, garbler: Bits, evaluator: Bits) -> Bits:
    """Output bits of every instance, shape (instances, outputs), from the bits of both sides.

    `garbler` and `evaluator` have one row an instance and one 0 or 1 an input. Instances are
    packed eight to a byte, so that a gate is one operation on all of them.
    """
    instances = len(garbler)
    if circuit.shared_inputs:
        garbler, evaluator = garbler[:, :0], garbler ^ evaluator
    if garbler.shape != (instances, circuit.garbler_inputs):
        raise ValueError(f"the garbler has {circuit.garbler_inputs} bits an instance")
    if evaluator.shape != (instances, circuit.evaluator_inputs):
        raise ValueError(f"the evaluator has {circuit.evaluator_inputs} bits for each instance")
    inputs = np.packbits(np.concatenate([garbler, evaluator], axis=1), axis=0)
    wires = np.empty((circuit.wires, len(inputs)), dtype=np.uint8)
    first = circuit.garbler_inputs + circuit.evaluator_inputs
    wires[:first] = inputs.T
    for out, (kind, left, right) in enumerate(circuit.gates.tolist(), first):
        if kind == AND:
            np.bitwise_and(wires[left], wires[right], out=wires[out])
        elif kind == NOT:
            np.bitwise_not(wires[left], out=wires[out])
        else:
            np.bitwise_xor(wires[left], wires[right], out=wires[out])
    return np.unpackbits(wires[circuit.outputs].T, axis=0, count=instances)


def to_bits(values: NDArray[np.int64], width: int) -> Bits:
    """Two's complement, least significant first, one row a value. `width` is at most 64."""
    words = np.ascontiguousarray(values, dtype="<i8").view(np.uint8).reshape(-1, 8)
    return np.unpackbits(words, axis=1, count=width, bitorder="little")


def from_bits(bits: Bits, signed: bool) -> NDArray[np.int64]:
    """The integers of `to_bits`. Unsigned ones have at most 63 bits."""
    width = bits.shape[1]
    weights = np.left_shift(np.uint64(1), np.arange(width, dtype=np.uint64))
    if signed:
        weights[-1:] = np.negative(weights[-1:])
    return (bits.astype(np.uint64) @ weights).view(np.int64)
