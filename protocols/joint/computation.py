"""One server's end of a computation with another: a program, and the session that it runs in.

    evaluator                                          garbler
    version, digest of the program, A  ─────────────▶
                                        ◀─────────────  B, and an A of its own
    request of task 0  ─────────────────────────────▶
                                        ◀─────────────  answer to task 0
    request of task 1  …

A program is a generator: it yields tasks, gets its own shares of what each of them computes, and
returns what it makes of them. Both ends run the same program on inputs of their own, so the next
task may take shares of the last one as inputs. Server 0 garbles and server 1 evaluates. Nobody
checks what server 0 garbles in a `Task`: one that deviates decides what its results tell, and
whether noise is in them. A task that is computed `BothWays`, and whose results the two `Agree` on,
is checked: this is dual execution (Mohassel and Franklin, PKC 2006; Huang, Katz and Evans, IEEE S&P
2012). Whoever deviates as the garbler cannot as the evaluator, so the two results differ, and the
computation fails, unless it guessed what they would be. So it may learn one bit, whether it guessed
right; where it did, the result is the right one. One bit in all: the computation ends with it, and
the server that finds the difference computes nothing with the other any more. (Server 1 hears first
whether the two agree. One that deviates may fall silent then, as if it had crashed, and try again.)
One that is `Drawn` takes coins alone, and whoever garbles it wrong is caught in all but one of λ
cases, with a proof for others (`covert`).

Every message begins with its step; one that was taken before is taken again silently, and must be
the same. So each end may be started anew and told again all that it had heard.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError, PeerError
from tallyroom.protocols.garbling import base_ot
from tallyroom.protocols.garbling.batch import GarblerAnswer, answer_bytes
from tallyroom.protocols.garbling.circuit import Circuit
from tallyroom.protocols.garbling.outputs import Form
from tallyroom.protocols.garbling.session import (
    DisagreeError,
    Evaluator,
    Garbler,
    InconsistentError,
)
from tallyroom.protocols.identity.signing import SigningIdentity
from tallyroom.protocols.joint import covert_ends
from tallyroom.protocols.joint.base_transfers import BaseTransfers
from tallyroom.protocols.joint.covert import CaughtError, Drawn, GarblerCopy
from tallyroom.protocols.randomness import Randomness

Bytes = NDArray[np.uint8]

_NOTHING: Final[Bytes] = np.empty(0, dtype=np.uint8)
VERSION: Final = 3
"""Of what servers say to each other: circuits, their order, and how inputs lie on wires."""
GARBLER, EVALUATOR = 0, 1
"""The servers' indices, by their part."""
STEP_BYTES: Final = 4
MAX_STEPS: Final = 1 << 14
BACK: Final = b" back"
"""Of the label of a session in which server 1 garbles and server 0 evaluates."""
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


class BothWays(NamedTuple):
    """A task that is computed twice, the second time with the evaluator as the garbler. The program
    gets two shares, one of each: (2, …). Whether they are of the same words is for `Agree` to say.
    """

    circuit: Circuit
    form: Form
    bits: Bytes

    def __repr__(self) -> str:
        return f"<BothWays of {len(self.bits)}>"


class Agree(NamedTuple):
    """Words that both ends must hold alike, or the computation fails. Neither learns more of the
    other's than that."""

    words: Vector

    def __repr__(self) -> str:
        return f"<Agree on {len(self.words)}>"


Asked = Task | Reveal | BothWays | Agree | Drawn
Program = Generator[Asked, Vector, Any]
Asking = Generator[Bytes, Bytes, Vector]
"""The evaluator's side of a task: says something, hears the answer, and ends with its shares."""
Answering = Generator[Bytes, Bytes, tuple[Bytes, Vector]]
"""The garbler's: hears something and answers it, the last time with its shares."""


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


def instances_both_ways(circuit: Circuit, form: Form) -> int:
    """As `instances_that_fit` for a task that is computed both ways: an answer travels with a
    request."""
    return max(1, instances_that_fit(circuit, form) // 2)


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
        self,
        name: Name,
        program: Program,
        bases: BaseTransfers,
        randomness: Randomness,
        signing: SigningIdentity | None = None,
    ) -> None:
        self._name = name
        self._program = program
        self._bases = bases
        self._randomness = randomness
        self._signing = signing
        self._task: Asked | None = None
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
        digest = hashlib.sha256(np.ascontiguousarray(body).data).digest()
        if step < len(self._taken):
            if self._taken[step] != digest:
                raise PeerError("the other server", f"said step {step} twice, differently")
            return None
        if step > len(self._taken) or self.done or step > MAX_STEPS:
            raise PeerError("the other server", f"step {step} is out of turn")
        answer = self._step(step, body[STEP_BYTES:])
        self._taken.append(digest)
        return answer

    @property
    def _vouching(self) -> SigningIdentity:
        if self._signing is None:
            raise LocalError("a server without a certificate signs nothing: no covert security")
        return self._signing

    @abstractmethod
    def _step(self, step: int, body: Bytes) -> Bytes | None:
        """What to answer to the next step. Raises `PeerError`."""

    def _next(self, shares: Vector | None) -> Asked | None:
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
        self,
        name: Name,
        program: Program,
        bases: BaseTransfers,
        randomness: Randomness,
        signing: SigningIdentity | None = None,
    ) -> None:
        super().__init__(name, program, bases, randomness, signing)
        self._session: Evaluator | None = None
        self._back: Garbler | None = None
        self._back_opening: Bytes = _NOTHING
        self._asking: Asking | None = None

    def start(self) -> Bytes | None:
        opening = np.frombuffer(self._name.label, dtype=np.uint8)
        return _said(0, np.concatenate([opening, self._bases.open()[0]]))

    def _step(self, step: int, body: Bytes) -> Bytes | None:
        """Goes on with the task that is asked about, or with the next one."""
        try:
            if self._asking is None:
                self._open(body)
                said = self._begin(None)
            else:
                said = self._asking.send(body)
        except StopIteration as over:
            said = self._begin(over.value)
        except (DisagreeError, CaughtError):
            self._bases.distrust()
            raise
        return None if said is None else _said(step + 1, said)

    def _open(self, body: Bytes) -> None:
        if body.size != base_ot.REPLY_BYTES + base_ot.POINT_BYTES:
            raise PeerError("the other server", "not a reply to base transfers")
        reply, opening = np.split(body[None], [base_ot.REPLY_BYTES], axis=1)
        self._session = self._bases.evaluator(reply, self._name.label, self._randomness)
        self._back_opening = np.ascontiguousarray(opening)

    def _begin(self, shares: Vector | None) -> Bytes | None:
        """What is said first of the next task; None when the program is over."""
        if (task := self._next(shares)) is None:
            return None
        self._asking = self._ask(task)
        return next(self._asking)

    def _ask(self, task: Asked) -> Asking:
        session = self._session
        assert session is not None
        match task:
            case Reveal():
                body = yield _words(task)
                return _revealed(task, body)
            case Task():
                body = yield session.request(task.circuit, task.bits[None], task.form)[0]
                shares: Vector = session.finish(body[None])[0]
                return shares
            case Drawn():
                reply = self._open_back() if self._back is None else _NOTHING
                return (yield from self._draw(task, reply))
            case BothWays():
                reply = self._open_back() if self._back is None else _NOTHING
                request = session.request(task.circuit, task.bits[None], task.form)[0]
                body = yield np.concatenate([reply, request])
                length = answer_bytes(task.circuit, task.form, len(task.bits))
                ours = session.finish(body[None, :length])[0]
                theirs = self._answer_back(task, body[length:])
                _check_empty((yield theirs.rows[0]))
                return np.stack([ours, theirs.shares[0]])
            case Agree():
                body = yield session.compare(_bits(task))[0]
                _check_empty((yield session.agree(body[None])[0]))
                return task.words

    def _open_back(self) -> Bytes:
        """Base transfers with this end as the garbler. The reply."""
        reply, self._back = self._bases.garbler(
            self._back_opening, self._name.label + BACK, self._randomness.derive("back")
        )
        row: Bytes = reply[0]
        return row

    def _draw(self, task: Drawn, reply: Bytes) -> Asking:
        assert self._back is not None
        source, label = self._randomness, self._name.label
        try:
            return (
                yield from covert_ends.evaluate(
                    task, label, self._back, reply, source, self._vouching
                )
            )
        except InconsistentError:
            self._bases.close(self._back_opening)
            raise

    def _answer_back(self, task: "BothWays", request: Bytes) -> GarblerAnswer:
        assert self._back is not None
        try:
            return self._back.answer(task.circuit, task.bits[None], request[None], task.form)
        except InconsistentError:
            self._bases.close(self._back_opening)
            raise


class GarblerEnd(Computation):
    copies: ClassVar[type[GarblerCopy]] = GarblerCopy

    def __init__(
        self,
        name: Name,
        program: Program,
        bases: BaseTransfers,
        randomness: Randomness,
        signing: SigningIdentity | None = None,
    ) -> None:
        super().__init__(name, program, bases, randomness, signing)
        self._session: Garbler | None = None
        self._back: Evaluator | None = None
        self._opening: Bytes | None = None
        self._answering: Answering | None = None

    def start(self) -> Bytes | None:
        return None

    def _step(self, step: int, body: Bytes) -> Bytes | None:
        """Goes on with the task that is asked about. Its last answer comes with its result, and the
        next task begins when something is asked again."""
        if self._session is None:
            return _said(step, self._open(body))
        assert self._answering is not None
        try:
            answer = self._answering.send(body)
        except StopIteration as over:
            answer, shares = over.value
            self._begin(shares)
        except DisagreeError:
            self._bases.distrust()
            raise
        except InconsistentError:
            assert self._opening is not None
            self._bases.close(self._opening)
            raise
        return _said(step, answer)

    def _begin(self, shares: Vector | None) -> bool:
        """Whether there is another task."""
        if (task := self._next(shares)) is None:
            return False
        self._answering = self._answer(task)
        next(self._answering)
        return True

    def _answer(self, task: Asked) -> Answering:
        session = self._session
        assert session is not None
        body = yield _NOTHING
        match task:
            case Reveal():
                return _words(task), _revealed(task, body)
            case Task():
                answer = session.answer(task.circuit, task.bits[None], body[None], task.form)
                return answer.rows[0], answer.shares[0]
            case Drawn():
                if self._back is None:
                    body = self._open_back(body)
                source, label, kind = self._randomness, self._name.label, self.copies
                return (
                    yield from covert_ends.garble(
                        task, label, self._back_session, body, source, self._vouching, kind
                    )
                )
            case BothWays():
                if self._back is None:
                    body = self._open_back(body)
                answer = session.answer(task.circuit, task.bits[None], body[None], task.form)
                request = self._back_session.request(task.circuit, task.bits[None], task.form)
                body = yield np.concatenate([answer.rows[0], request[0]])
                theirs = self._back_session.finish(body[None])[0]
                return _NOTHING, np.stack([answer.shares[0], theirs])
            case Agree():
                body = yield session.compare(_bits(task), body[None])[0]
                session.agree(body[None])
                return _NOTHING, task.words

    @property
    def _back_session(self) -> Evaluator:
        assert self._back is not None
        return self._back

    def _open_back(self, body: Bytes) -> Bytes:
        """Base transfers with this end as the evaluator. What is left of the message."""
        reply, rest = body[: base_ot.REPLY_BYTES], body[base_ot.REPLY_BYTES :]
        if reply.size != base_ot.REPLY_BYTES:
            raise PeerError("the other server", "not a reply to base transfers")
        self._back = self._bases.evaluator(
            reply[None], self._name.label + BACK, self._randomness.derive("back")
        )
        return np.ascontiguousarray(rest)

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
        if not self._begin(None):
            raise LocalError("a program without a task")
        row: Bytes = np.concatenate([reply[0], self._bases.open()[0]])
        return row


def computation(
    index: int,
    name: Name,
    program: Program,
    bases: BaseTransfers,
    randomness: Randomness,
    signing: SigningIdentity | None = None,
) -> Computation:
    """This server's end. `signing` is for what is `Drawn`."""
    kind = GarblerEnd if index == GARBLER else EvaluatorEnd
    return kind(name, program, bases, randomness, signing)


def _words(task: Reveal | Agree) -> Bytes:
    return np.ascontiguousarray(task[0].astype("<u8")).view(np.uint8)


def _revealed(task: Reveal, body: Bytes) -> Vector:
    if body.size != 8 * len(task.shares):
        raise PeerError("the other server", f"not {len(task.shares)} words to reveal")
    theirs: Vector = body.view("<u8").astype(np.uint64)
    return task.shares + theirs


def _bits(task: Agree) -> Bytes:
    """Of a digest: words that differ have another. One row of 128."""
    digest = hashlib.blake2s(_words(task).data, digest_size=16, person=b"agree").digest()
    return np.unpackbits(np.frombuffer(digest, dtype=np.uint8))[None]


def _check_empty(body: Bytes) -> None:
    if body.size:
        raise PeerError("the other server", "an answer where there is nothing to say")


def _said(step: int, body: Bytes) -> Bytes:
    head = np.frombuffer(step.to_bytes(STEP_BYTES, "little"), dtype=np.uint8)
    return np.concatenate([head, body])


def coins(randomness: Randomness, instances: int, wires: int) -> Bytes:
    """Fair coins, (I, wires)."""
    count = instances * wires
    drawn = np.frombuffer(randomness.bytes(-(-count // 8)), dtype=np.uint8)
    bits: Bytes = np.unpackbits(drawn)[:count].reshape(instances, wires)
    return bits
