"""How the pairs of one link are cut into batches, which both of its ends work out alike.

All pairs of a batch have one circuit, and its messages fit the wire. Batches of a link follow one
another, each in two rounds of its own.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.garbling.batch import answer_bytes
from tallyroom.protocols.garbling.circuit import Circuit
from tallyroom.protocols.garbling.laplace_circuit import CircuitLaplace
from tallyroom.protocols.garbling.outputs import Form, IntegerShares, OutputShares
from tallyroom.protocols.garbling.primitives import BLOCK_BYTES
from tallyroom.protocols.kernels.contract import Kernel
from tallyroom.protocols.pairwise.roles.link_batch import STEPS
from tallyroom.protocols.plans.pairs import PairwiseMean
from tallyroom.protocols.query import Query
from tallyroom.protocols.wire.messages import MAX_WIRE_BYTES

ROW_BYTES = MAX_WIRE_BYTES // 4
"""What one link's message has at most: rows of several links still fit one message."""


def pairs_of(query: Query) -> PairwiseMean:
    """The query's plan, of pairs as the machines here take it. Raises `LocalError`."""
    if not isinstance(query.plan, PairwiseMean):
        raise LocalError(f"{query.statistic.name} is not computed in pairs")
    return query.plan


class Cut(NamedTuple):
    """Pairs `start` to `end` of a link, the garbler's record second if `swapped`."""

    swapped: bool
    start: int
    end: int


@dataclass(frozen=True)
class Schedule:
    kernel: Kernel
    noise: CircuitLaplace | None
    slots: int
    row_bytes: int
    bounded: bool = False

    @classmethod
    def of(cls, query: Query) -> "Schedule":
        """The same object for all roles of one process: circuits are built once."""
        return _schedule(pairs_of(query), query.circuit_noise, ROW_BYTES)

    @cached_property
    def form(self) -> Form:
        if self.bounded:
            return OutputShares.XOR
        released = self.kernel.released(self.noise)
        return IntegerShares(tuple((output.bits, output.signed) for output in released))

    @cached_property
    def first(self) -> Circuit:
        """Where the garbler's record is the kernel's first argument."""
        return self._circuit(swapped=False)

    @cached_property
    def second(self) -> Circuit:
        return self._circuit(swapped=True)

    def _circuit(self, swapped: bool) -> Circuit:
        if self.bounded:
            return self.kernel.coded_circuit(swapped)
        return self.kernel.circuit(self.noise, swapped)

    @cached_property
    def most(self) -> int:
        """Pairs that a batch has at most."""
        asked = BLOCK_BYTES * self.first.evaluator_inputs
        return max(1, self.row_bytes // max(asked, answer_bytes(self.first, self.form, 1)))

    def cuts(self, first: int, second: int) -> list[Cut]:
        """Of a link with so many pairs in which the garbler's record is first, and then those
        where it is second."""
        found = []
        for swapped, begin, end in ((False, 0, first), (True, first, first + second)):
            for start in range(begin, end, self.most):
                found.append(Cut(swapped, start, min(start + self.most, end)))
        return found

    @cached_property
    def rounds(self) -> int:
        """Rounds in which parties speak to each other, at most: a link has no more pairs than a
        party has slots."""
        batches = -(-self.slots // self.most)
        if not self.kernel.symmetric and self.slots > 1:
            batches += 1
        return STEPS + 2 * (batches - 1)


@lru_cache(maxsize=8)
def _schedule(plan: PairwiseMean, noise: CircuitLaplace | None, row_bytes: int) -> Schedule:
    return Schedule(plan.kernel, noise, plan.slots, row_bytes, plan.bounded)
