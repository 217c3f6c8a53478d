"""One end of some links that do the same: a session, the circuit, and what is to be put in.

Steps of a link, by number: 1 the evaluator opens, 2 the garbler replies, 3 the evaluator asks for
its labels, 4 the garbler answers.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from protocols.errors import PeerError
from protocols.pairwise.circuit import Circuit
from protocols.pairwise.links import Links
from protocols.pairwise.outputs import Integers
from protocols.pairwise.session import Evaluator, Garbler
from protocols.randomness import Randomness
from protocols.ring import Vector

Bytes = NDArray[np.uint8]

OPENING, REPLY, REQUEST, ANSWER = 1, 2, 3, 4
STEPS = 4


@dataclass(frozen=True)
class Task:
    """`bits` are our inputs, (links, pairs, wires). `garbler_second` tells that the garbler's
    record is the kernel's second argument."""

    circuit: Circuit
    form: Integers
    bits: Bytes
    garbler_second: bool

    def __repr__(self) -> str:
        return f"<Task of {self.bits.shape[0]} links>"


class Batch:
    """`shares` are there when the batch is done: (links, pairs, outputs)."""

    STEPS: ClassVar[tuple[int, ...]]

    def __init__(self, links: Links, task: Task, side: Evaluator | Garbler) -> None:
        self.task = task
        self.side = side
        self.shares: Vector | None = None
        self._links = links

    @property
    def links(self) -> Links:
        return self._links

    def part(self, links: Links) -> Self:
        """These links as a batch of their own; they are gone from this one."""
        chosen = np.isin(self._links, links)
        other = object.__new__(type(self))
        other.__dict__ |= self.__dict__
        other.side = self.side.part(links)
        other.task = replace(self.task, bits=self.task.bits[chosen])
        other._links = self._links[chosen]
        self.task = replace(self.task, bits=self.task.bits[~chosen])
        self._links = self._links[~chosen]
        return other

    def take(self, step: int, rows: Bytes) -> Bytes | None:
        """What the other end sent, and what to answer. Raises `PeerError` on what is wrong."""
        raise PeerError("a link", f"step {step} is out of turn")


class EvaluatorBatch(Batch):
    STEPS: ClassVar[tuple[int, ...]] = (REPLY, ANSWER)

    def __init__(self, links: Links, task: Task, randomness: Randomness) -> None:
        self._evaluator = Evaluator(links, randomness)
        super().__init__(links, task, self._evaluator)
        self._asked = False

    def part(self, links: Links) -> Self:
        other = super().part(links)
        assert isinstance(other.side, Evaluator)
        other._evaluator = other.side
        return other

    def open(self) -> Bytes:
        return self._evaluator.open()

    def take(self, step: int, rows: Bytes) -> Bytes | None:
        if step == REPLY and not self._asked:
            self._evaluator.accept(rows)
            self._asked = True
            return self._evaluator.request(self.task.circuit, self.task.bits, self.task.form)
        if step == ANSWER and self._asked:
            self.shares = self._evaluator.finish(rows)
            return None
        return super().take(step, rows)


class GarblerBatch(Batch):
    STEPS: ClassVar[tuple[int, ...]] = (OPENING, REQUEST)

    def __init__(self, links: Links, task: Task, randomness: Randomness) -> None:
        self._garbler = Garbler(links, randomness)
        super().__init__(links, task, self._garbler)

    def part(self, links: Links) -> Self:
        other = super().part(links)
        assert isinstance(other.side, Garbler)
        other._garbler = other.side
        return other

    def reply(self, rows: Bytes) -> Bytes:
        return self._garbler.reply(rows)

    def take(self, step: int, rows: Bytes) -> Bytes | None:
        if step != REQUEST:
            return super().take(step, rows)
        task = self.task
        answer = self._garbler.answer(task.circuit, task.bits, rows, task.form)
        self.shares = answer.shares
        return answer.rows
