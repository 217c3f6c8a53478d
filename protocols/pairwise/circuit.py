"""A boolean circuit, as both sides of a pair know it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

XOR, AND, NOT = 0, 1, 2


@dataclass(frozen=True, eq=False)
class Circuit:
    """Gates in topological order. Wires: garbler inputs, then evaluator inputs, then one a gate."""

    garbler_inputs: int
    evaluator_inputs: int
    gates: NDArray[np.uint32]
    """(G, 3): kind 0 XOR, 1 AND, 2 NOT; left wire; right wire (= left for NOT)."""
    outputs: NDArray[np.uint32]
    """Wires, least significant bit first."""

    def __post_init__(self) -> None:
        if self.garbler_inputs < 0 or self.evaluator_inputs < 0:
            raise ValueError("a circuit cannot have a negative number of inputs")
        gates = self.gates
        if gates.dtype != np.uint32 or gates.ndim != 2 or gates.shape[1] != 3:
            raise ValueError("gates are rows of kind, left and right, 32 bits each")
        if self.outputs.dtype != np.uint32 or self.outputs.ndim != 1:
            raise ValueError("outputs are a vector of 32-bit wires")
        kinds, left, right = gates.T
        if (kinds > NOT).any():
            raise ValueError("a gate is XOR, AND or NOT")
        own = self.garbler_inputs + self.evaluator_inputs + np.arange(len(gates))
        if (left >= own).any() or (right >= own).any():
            raise ValueError("a gate reads a wire that is not there yet")
        if (left != right)[kinds == NOT].any():
            raise ValueError("both inputs of a NOT are the same wire")
        if (self.outputs >= self.wires).any():
            raise ValueError("an output is a wire that does not exist")

    @property
    def wires(self) -> int:
        return self.garbler_inputs + self.evaluator_inputs + len(self.gates)

    @property
    def ands(self) -> int:
        """How many gates cost something: XOR and NOT are free under garbling."""
        return int(np.count_nonzero(self.gates[:, 0] == AND))
