"""Half gates with free XOR: many instances of one circuit on many links.

Zahur, Rosulek, Evans, "Two Halves Make a Whole", EUROCRYPT 2015. 32 bytes an AND; XOR and NOT are
free. A wire has two labels, L and L ⊕ Δ, for 0 and 1. Δ belongs to a link, its lowest bit is 1, and
all instances on the link share it: the hash's tweak is (2·gate or 2·gate + 1, instance), never used
twice under one key. The lowest bit of a label is its colour; what colour stands for 1 is the
garbler's secret, so the evaluator learns colours and nothing from them. `blocks` states the hash
and its bits of security. Semi-honest: a garbler may garble another circuit and nobody sees it, so
one that deviates decides what the outputs tell of the evaluator's inputs.

Labels are (K, I, wires, 16) for K links and I instances, least significant byte first.
"""

from typing import NamedTuple

import numpy as np

from tallyroom.fss.ring import Bytes
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.garbling import native, twin
from tallyroom.protocols.garbling.circuit import Circuit
from tallyroom.protocols.garbling.primitives import BLOCK_BYTES

TABLE_BYTES = 2 * BLOCK_BYTES


class Garbled(NamedTuple):
    """`tables` (K, I, ANDs, 32) go to the evaluator; `outputs` (K, I, O, 16) are labels of 0."""

    tables: Bytes
    outputs: Bytes

    def __repr__(self) -> str:
        return "<Garbled>"


def garble(circuit: Circuit, keys: Bytes, deltas: Bytes, labels: Bytes) -> Garbled:
    """From the labels of 0 on the input wires. (K, 16) `keys` are public, (K, 16) `deltas` secret.

    A key must be fresh: a second garbling under the same key and Δ reuses tweaks. Raises LocalError
    on shapes that do not fit, and on a Δ without colour.
    """
    links, instances = _check(circuit, keys, labels)
    if deltas.shape != keys.shape or deltas.dtype != np.uint8:
        raise LocalError("every link has one Δ of 16 bytes")
    if not (deltas[:, 0] & 1).all():
        raise LocalError("the lowest bit of Δ must be 1")
    keys, deltas, labels = (np.ascontiguousarray(array) for array in (keys, deltas, labels))
    code = native.instruction_set()
    if code is None:
        return Garbled(*twin.garble(circuit, keys, deltas, labels))
    tables = np.empty((links, instances, circuit.ands, TABLE_BYTES), dtype=np.uint8)
    outputs = np.empty((links, instances, len(circuit.outputs), BLOCK_BYTES), dtype=np.uint8)
    native.compiled.garble(
        code,
        circuit.garbler_inputs + circuit.evaluator_inputs,
        np.ascontiguousarray(circuit.gates),
        np.ascontiguousarray(circuit.outputs),
        instances,
        keys,
        deltas,
        labels,
        tables,
        outputs,
    )
    return Garbled(tables, outputs)


def evaluate(circuit: Circuit, keys: Bytes, labels: Bytes, tables: Bytes) -> Bytes:
    """The active labels of the outputs, (K, I, O, 16), from those of the inputs.

    Whatever the tables hold, the answer is some labels; `outputs` tells whether they are right.
    Raises LocalError on shapes that do not fit.
    """
    links, instances = _check(circuit, keys, labels)
    if tables.shape != (links, instances, circuit.ands, TABLE_BYTES) or tables.dtype != np.uint8:
        raise LocalError("the tables are not of this circuit")
    keys, labels, tables = (np.ascontiguousarray(array) for array in (keys, labels, tables))
    code = native.instruction_set()
    if code is None:
        return twin.evaluate(circuit, keys, labels, tables)
    outputs = np.empty((links, instances, len(circuit.outputs), BLOCK_BYTES), dtype=np.uint8)
    native.compiled.evaluate(
        code,
        circuit.garbler_inputs + circuit.evaluator_inputs,
        np.ascontiguousarray(circuit.gates),
        np.ascontiguousarray(circuit.outputs),
        instances,
        keys,
        labels,
        tables,
        outputs,
    )
    return outputs


def _check(circuit: Circuit, keys: Bytes, labels: Bytes) -> tuple[int, int]:
    inputs = circuit.garbler_inputs + circuit.evaluator_inputs
    if keys.ndim != 2 or keys.shape[1] != BLOCK_BYTES or keys.dtype != np.uint8:
        raise LocalError("every link has one key of 16 bytes")
    shape = (len(keys), *labels.shape[1:2], inputs, BLOCK_BYTES)
    if labels.ndim != 4 or labels.shape != shape or labels.dtype != np.uint8:
        raise LocalError(f"labels of shape {labels.shape} are not those of {inputs} input wires")
    return labels.shape[0], labels.shape[1]
