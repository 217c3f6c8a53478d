"""One server's end of a computation with another: a program, and the session that it runs in.

    evaluator                                          garbler
    version, digest of the program, A  ─────────────▶
                                        ◀─────────────  B
    request of task 0  ─────────────────────────────▶
                                        ◀─────────────  answer to task 0
    request of task 1  …

A program is a generator: it yields tasks, gets its own shares of what each of them computes, and
returns what it makes of them. Both ends run the same program on inputs of their own, so the next
task may take shares of the last one as inputs. Server 0 garbles and server 1 evaluates. Nobody
checks what server 0 garbles: one that deviates decides what results tell, and whether noise is in
them.

Every message begins with its step; one that was taken before is taken again silently, and must be
the same. So each end may be started anew and told again all that it had heard.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError, PeerError
from tallyroom.protocols.garbling import base_ot
from tallyroom.protocols.garbling.batch import answer_bytes
from tallyroom.protocols.garbling.circuit import Circuit
from tallyroom.protocols.garbling.outputs import Form
from tallyroom.protocols.garbling.session import Evaluator, Garbler, InconsistentError
from tallyroom.protocols.joint.base_transfers import BaseTransfers
from tallyroom.protocols.randomness import Randomness

Bytes = NDArray[np.uint8]

VERSION: Final = 1
"""Of what servers say to each other: circuits, their order, and how inputs lie on wires."""
GARBLER, EVALUATOR = 0, 1
"""The servers' indices, by their part."""
STEP_BYTES: Final = 4
MAX_STEPS: Final = 1 << 14
PROGRAM_BYTES: Final = 16
MOST_BYTES: Final = 3 << 20
"""Of an answer or a request: it is one row of a message."""


class Task(NamedTuple):
    """I instances of a circuit. `bits` are our inputs, (I, wires)."""

    circuit: Circuit
    form: Form
    bits: Bytes

    def __repr__(self) -> str:
        return f"<Task of {len(self.bits)}>"


class Reveal(NamedTuple):
    """Words that both ends learn: the sums of their shares modulo 2^64, which the program gets."""

    shares: Vector

    def __repr__(self) -> str:
        return f"<Reveal of {len(self.shares)}>"


Program = Generator[Task | Reveal, Vector, Any]


@dataclass(frozen=True)
class Name:
    """What both ends must agree on. `of` names the program and all its public parameters."""

    run: bytes
    of: str

    @property
    def digest(self) -> bytes:
        return hashlib.blake2s(
            self.run + self.of.encode(), digest_size=PROGRAM_BYTES, person=b"together"
        ).digest()

    @property
    def label(self) -> bytes:
        return bytes([VERSION]) + self.digest


def instances_that_fit(circuit: Circuit, form: Form, inputs: int | None = None) -> int:
    """How many instances go into one task, so that its messages are not too long."""
    choices = circuit.evaluator_inputs if inputs is None else inputs
    each = max(
        answer_bytes(circuit, form, 2) - answer_bytes(circuit, form, 1),
        16 * choices,
    )
    fit = (MOST_BYTES - 4096) // max(1, each)
    if fit < 1:
        raise LocalError("a circuit is too large for a message between servers")
    return fit


class Computation(ABC):
    """`take` what the other server said, and send it what is returned. `done` once there is a
    `result`."""

    def __init__(
        self, name: Name, program: Program, bases: BaseTransfers, randomness: Randomness
    ) -> None:
        self._name = name
        self._program = program
        self._bases = bases
        self._randomness = randomness
        self._task: Task | Reveal | None = None
        self._taken: list[bytes] = []
        self.done = False
        self.result: Any = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at step {len(self._taken)}>"

    @property
    def steps(self) -> int:
        """How many were taken."""
        return len(self._taken)

    @abstractmethod
    def start(self) -> Bytes | None:
        """What is to be said first, if it is for this end to say."""

    def take(self, body: Bytes) -> Bytes | None:
        """What to answer. Raises `PeerError` on what the protocol does not allow; then nothing is
        to be taken any more, unless the step was merely out of turn."""
        if body.size < STEP_BYTES:
            raise PeerError("the other server", "a message without its step")
        step = int.from_bytes(body[:STEP_BYTES].tobytes(), "little")
        digest = hashlib.blake2s(body.tobytes()).digest()
        if step < len(self._taken):
            if self._taken[step] != digest:
                raise PeerError("the other server", f"said step {step} twice, differently")
            return None
        if step > len(self._taken) or self.done or step > MAX_STEPS:
            raise PeerError("the other server", f"step {step} is out of turn")
        answer = self._step(step, np.ascontiguousarray(body[STEP_BYTES:]))
        self._taken.append(digest)
        return answer

    @abstractmethod
    def _step(self, step: int, body: Bytes) -> Bytes | None:
        """What to answer to the next step. Raises `PeerError`."""

    def _next(self, shares: Vector | None) -> Task | Reveal | None:
        """The next task; None when the program is over."""
        try:
            if shares is None:
                self._task = next(self._program)
            else:
                self._task = self._program.send(shares)
        except StopIteration as over:
            self.result, self.done, self._task = over.value, True, None
        return self._task


class EvaluatorEnd(Computation):
    def __init__(
        self, name: Name, program: Program, bases: BaseTransfers, randomness: Randomness
    ) -> None:
        super().__init__(name, program, bases, randomness)
        self._session: Evaluator | None = None

    def start(self) -> Bytes | None:
        opening = np.frombuffer(self._name.label, dtype=np.uint8)
        return _said(0, np.concatenate([opening, self._bases.open()[0]]))

    def _step(self, step: int, body: Bytes) -> Bytes | None:
        if self._session is None:
            if body.size != base_ot.REPLY_BYTES:
                raise PeerError("the other server", "not a reply to base transfers")
            label = self._name.label
            self._session = self._bases.evaluator(body[None], label, self._randomness)
            task = self._next(None)
        elif isinstance(self._task, Reveal):
            task = self._next(_revealed(self._task, body))
        else:
            task = self._next(self._session.finish(body[None])[0])
        if task is None:
            return None
        if isinstance(task, Reveal):
            return _said(step + 1, _words(task))
        rows = self._session.request(task.circuit, task.bits[None], task.form)
        return _said(step + 1, rows[0])


class GarblerEnd(Computation):
    def __init__(
        self, name: Name, program: Program, bases: BaseTransfers, randomness: Randomness
    ) -> None:
        super().__init__(name, program, bases, randomness)
        self._session: Garbler | None = None
        self._opening: Bytes | None = None

    def start(self) -> Bytes | None:
        return None

    def _step(self, step: int, body: Bytes) -> Bytes | None:
        if self._session is None:
            return _said(step, self._open(body))
        task = self._task
        assert task is not None
        if isinstance(task, Reveal):
            self._next(_revealed(task, body))
            return _said(step, _words(task))
        try:
            answer = self._session.answer(task.circuit, task.bits[None], body[None], task.form)
        except InconsistentError:
            assert self._opening is not None
            self._bases.close(self._opening)
            raise
        self._next(answer.shares[0])
        return _said(step, answer.rows[0])

    def _open(self, body: Bytes) -> Bytes:
        label = self._name.label
        if body.size < len(label) or body[0] != VERSION:
            raise PeerError("the other server", f"does not speak version {VERSION} of this")
        if body[: len(label)].tobytes() != label:
            raise PeerError("the other server", "computes something else: its version is another")
        if body.size != len(label) + base_ot.POINT_BYTES:
            raise PeerError("the other server", "not an opening of base transfers")
        opening = np.ascontiguousarray(body[len(label) :])[None]
        reply, session = self._bases.garbler(opening, label, self._randomness)
        self._opening = opening
        self._session = session
        if self._next(None) is None:
            raise LocalError("a program without a task")
        row: Bytes = reply[0]
        return row


def computation(
    index: int, name: Name, program: Program, bases: BaseTransfers, randomness: Randomness
) -> Computation:
    """This server's end."""
    kind = GarblerEnd if index == GARBLER else EvaluatorEnd
    return kind(name, program, bases, randomness)


def _words(task: Reveal) -> Bytes:
    return np.ascontiguousarray(task.shares.astype("<u8")).view(np.uint8)


def _revealed(task: Reveal, body: Bytes) -> Vector:
    if body.size != 8 * len(task.shares):
        raise PeerError("the other server", f"not {len(task.shares)} words to reveal")
    theirs: Vector = body.view("<u8").astype(np.uint64)
    return task.shares + theirs


def _said(step: int, body: Bytes) -> Bytes:
    head = np.frombuffer(step.to_bytes(STEP_BYTES, "little"), dtype=np.uint8)
    return np.concatenate([head, body])


def coins(randomness: Randomness, instances: int, wires: int) -> Bytes:
    """Fair coins, (I, wires)."""
    count = instances * wires
    drawn = np.frombuffer(randomness.bytes(-(-count // 8)), dtype=np.uint8)
    bits: Bytes = np.unpackbits(drawn)[:count].reshape(instances, wires)
    return bits
