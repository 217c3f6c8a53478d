"""One end of some links that do the same: a session, and what is computed in it, task by task.

Steps of a link, by number: 1 the evaluator opens, 2 the garbler replies, 3 the evaluator asks for
its labels, 4 the garbler answers. Each task after the first has steps 3 and 4 again.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import PeerError
from tallyroom.protocols.garbling.circuit import Circuit
from tallyroom.protocols.garbling.direct_session import MOST_DIRECT, DirectEvaluator, DirectGarbler
from tallyroom.protocols.garbling.links import Links, Mask
from tallyroom.protocols.garbling.outputs import Form
from tallyroom.protocols.garbling.session import Evaluator, Garbler
from tallyroom.protocols.randomness import Randomness

Bytes = NDArray[np.uint8]

OPENING, REPLY, REQUEST, ANSWER = 1, 2, 3, 4
STEPS = 4


@dataclass(frozen=True)
class LinkTask:
    """`bits` are our inputs, (links, pairs, wires)."""

    circuit: Circuit
    form: Form
    bits: Bytes

    def __repr__(self) -> str:
        return f"<LinkTask of {self.bits.shape[0]} links>"


Side = Evaluator | Garbler | DirectEvaluator | DirectGarbler


def _few(tasks: tuple[LinkTask, ...]) -> bool:
    """Whether the evaluator's labels go by base transfers alone: both ends know how many bits it
    has on a link, and that there is one task."""
    bits = sum(task.circuit.evaluator_inputs * task.bits.shape[1] for task in tasks)
    return len(tasks) == 1 and bits <= MOST_DIRECT


class Batch:
    """`shares` are there when all tasks are done: (links, pairs, outputs)."""

    STEPS: ClassVar[tuple[int, ...]]
    """Those that this end takes."""

    def __init__(self, links: Links, tasks: tuple[LinkTask, ...], side: Side) -> None:
        self.tasks = tasks
        self.side = side
        self.at = 0
        self._links = links
        self._found: tuple[Vector, ...] = ()

    @property
    def links(self) -> Links:
        return self._links

    @property
    def shares(self) -> Vector | None:
        done = len(self._found) == len(self.tasks)
        return np.concatenate(self._found, axis=1) if done else None

    def part(self, links: Links) -> Self:
        """These links as a batch of their own; they are gone from this one."""
        chosen = np.isin(self._links, links)
        other = object.__new__(type(self))
        other.__dict__ |= self.__dict__
        other.side = self.side.part(links)
        other._keep(chosen)
        self._keep(~chosen)
        return other

    def _keep(self, chosen: Mask) -> None:
        self._links = self._links[chosen]
        self.tasks = tuple(replace(task, bits=task.bits[chosen]) for task in self.tasks)
        self._found = tuple(shares[chosen] for shares in self._found)

    def take(self, step: int, rows: Bytes) -> tuple[int, Bytes] | None:
        """What the other end sent, and the step and rows to answer with. Raises `PeerError` on
        what is wrong, and is as before."""
        raise PeerError("a link", f"step {step} is out of turn")


class EvaluatorBatch(Batch):
    STEPS: ClassVar[tuple[int, ...]] = (REPLY, ANSWER)

    def __init__(self, links: Links, tasks: tuple[LinkTask, ...], randomness: Randomness) -> None:
        self._asked = False
        kind = DirectEvaluator if _few(tasks) else Evaluator
        super().__init__(links, tasks, kind(links, randomness))

    @property
    def _evaluator(self) -> Evaluator | DirectEvaluator:
        assert isinstance(self.side, Evaluator | DirectEvaluator)
        return self.side

    def open(self) -> Bytes:
        return self._evaluator.open()

    def take(self, step: int, rows: Bytes) -> tuple[int, Bytes] | None:
        if step == REPLY and not self._asked:
            self._evaluator.accept(rows)
            self._asked = True
            return self._request()
        if step == ANSWER and self._asked:
            self._found = (*self._found, self._evaluator.finish(rows))
            self.at += 1
            return self._request() if self.at < len(self.tasks) else None
        return super().take(step, rows)

    def _request(self) -> tuple[int, Bytes]:
        task = self.tasks[self.at]
        return REQUEST, self._evaluator.request(task.circuit, task.bits, task.form)


class GarblerBatch(Batch):
    STEPS: ClassVar[tuple[int, ...]] = (OPENING, REQUEST)

    def __init__(self, links: Links, tasks: tuple[LinkTask, ...], randomness: Randomness) -> None:
        kind = DirectGarbler if _few(tasks) else Garbler
        super().__init__(links, tasks, kind(links, randomness))

    @property
    def _garbler(self) -> Garbler | DirectGarbler:
        assert isinstance(self.side, Garbler | DirectGarbler)
        return self.side

    def reply(self, rows: Bytes) -> Bytes:
        return self._garbler.reply(rows)

    def take(self, step: int, rows: Bytes) -> tuple[int, Bytes] | None:
        if step != REQUEST:
            return super().take(step, rows)
        task = self.tasks[self.at]
        answer = self._garbler.answer(task.circuit, task.bits, rows, task.form)
        self._found = (*self._found, answer.shares)
        self.at += 1
        return ANSWER, answer.rows
