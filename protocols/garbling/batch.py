"""A batch: I instances of one circuit on every link. What both sides know of it, and its sizes."""

import hashlib
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from tallyroom.fss.ring import Bytes
from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.garbling import half_gates as garbling
from tallyroom.protocols.garbling import outputs
from tallyroom.protocols.garbling.circuit import Circuit
from tallyroom.protocols.garbling.ot_extension import request_bytes
from tallyroom.protocols.garbling.outputs import Form
from tallyroom.protocols.garbling.primitives import BLOCK_BYTES, keystream

NUMBER_BYTES: Final = 4
DIGEST_BYTES: Final = 16
MOST_HASHES: Final = 1 << 30
"""Secret hash calls of one batch on one link: leaves 97 bits of security, see `primitives`."""


class GarblerAnswer(NamedTuple):
    """`rows` are for the evaluator, `shares` for the garbler, in the shape of the output's form."""

    rows: Bytes
    shares: Vector

    def __repr__(self) -> str:
        return "<GarblerAnswer>"


@dataclass(frozen=True)
class BatchShape:
    """What both sides know of a batch."""

    circuit: Circuit
    output: Form
    instances: int

    def __post_init__(self) -> None:
        self.output.check(len(self.circuit.outputs))
        if self.instances < 1:
            raise LocalError("a batch has at least one instance")
        hashes = self.instances * (2 * self.circuit.ands + len(self.circuit.outputs))
        if hashes > MOST_HASHES:
            raise LocalError(f"a batch of {hashes} hashes on one link: {MOST_HASHES} at most")

    @property
    def choices(self) -> int:
        return self.instances * self.circuit.evaluator_inputs

    @property
    def request_bytes(self) -> int:
        return NUMBER_BYTES + request_bytes(self.choices)

    @property
    def table_bytes(self) -> int:
        return self.instances * self.circuit.ands * garbling.TABLE_BYTES

    @property
    def answer_bytes(self) -> int:
        ciphertexts = self.instances * outputs.ciphertext_bytes(
            self.output, len(self.circuit.outputs)
        )
        return BLOCK_BYTES + self.table_bytes + ciphertexts + DIGEST_BYTES

    def fingerprint(self) -> bytes:
        circuit = self.circuit
        sizes = (circuit.garbler_inputs, circuit.evaluator_inputs, self.instances)
        data = repr((self.output, *sizes, len(circuit.gates))).encode()
        data += b"shared" if circuit.shared_inputs else b""
        data += np.ascontiguousarray(circuit.gates).tobytes() + circuit.outputs.tobytes()
        return hashlib.sha256(data).digest()

    def key_and_garbler_labels(self, seeds: Bytes) -> tuple[Bytes, Bytes]:
        """The hash key, and the garbler's active labels (K, I, inputs, 16), as both derive them."""
        inputs = self.circuit.garbler_inputs
        stream = keystream(seeds, 0, 1 + self.instances * inputs)
        shape = (len(seeds), self.instances, inputs, BLOCK_BYTES)
        return stream[:, 0], stream[:, 1:].reshape(shape)


def answer_bytes(circuit: Circuit, output: Form, instances: int) -> int:
    """What a warm link receives for a batch."""
    return BatchShape(circuit, output, instances).answer_bytes
