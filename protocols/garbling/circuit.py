"""Boolean circuits, as the garbler and the evaluator both hold them."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.errors import LocalError

XOR, AND, NOT = 0, 1, 2


@dataclass(frozen=True, eq=False)
class Circuit:
    """Gates in topological order. Wires: garbler inputs, then evaluator inputs, then one a gate.

    Raises LocalError if a gate is of no known kind, or reads a wire that is not there before it.
    """

    garbler_inputs: int
    evaluator_inputs: int
    # (G, 3): kind 0 XOR, 1 AND, 2 NOT; left wire; right wire (= left for NOT)
    gates: NDArray[np.uint32]
    outputs: NDArray[np.uint32]  # wires, least significant bit first
    # Inputs are XOR shares: the garbler's bits flip the evaluator's wires and have none themselves.
    shared_inputs: bool = False

    def __post_init__(self) -> None:
        if self.garbler_inputs < 0 or self.evaluator_inputs < 0:
            raise LocalError("a circuit cannot have fewer than no inputs")
        if self.shared_inputs and self.garbler_inputs:
            raise LocalError("where inputs are shared, the garbler has no wires of its own")
        gates, outputs = self.gates, self.outputs
        if gates.dtype != np.uint32 or gates.ndim != 2 or gates.shape[1] != 3:
            raise LocalError("gates are rows of three 32-bit numbers: kind, left wire, right wire")
        if outputs.dtype != np.uint32 or outputs.ndim != 1:
            raise LocalError("outputs are a list of 32-bit wire numbers")
        if self.wires >= 1 << 32:
            raise LocalError(f"{self.wires} wires are more than 32 bits can number")
        inputs = self.garbler_inputs + self.evaluator_inputs
        before = inputs + np.arange(len(gates), dtype=np.int64)
        wrong = (
            (gates[:, 0] > NOT)
            | (gates[:, 1] >= before)
            | (gates[:, 2] >= before)
            | ((gates[:, 0] == NOT) & (gates[:, 1] != gates[:, 2]))
        )
        if wrong.any():
            raise LocalError(f"gate {int(np.flatnonzero(wrong)[0])} is not of a topological order")
        if (outputs >= self.wires).any():
            raise LocalError("an output is on no wire of the circuit")

    @property
    def wires(self) -> int:
        return self.garbler_inputs + self.evaluator_inputs + len(self.gates)

    @property
    def garbler_bits(self) -> int:
        """How many bits the garbler brings to an instance."""
        return self.evaluator_inputs if self.shared_inputs else self.garbler_inputs

    @cached_property
    def ands(self) -> int:
        """Gates that cost bytes: two ciphertexts each, where the others are free."""
        return int(np.count_nonzero(self.gates[:, 0] == AND))
