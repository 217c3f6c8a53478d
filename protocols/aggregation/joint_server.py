"""A server that computes jointly with the other one. It wraps the server that it would be alone.

Noise does not depend on data, so it is drawn while parties submit. Once both the noise and the
request to release are there, the server releases its share; or, if the query has a program that the
two servers run on their shares, it starts that program.
"""

from dataclasses import replace
from enum import Enum, auto

import numpy as np

from tallyroom.protocols.aggregation.cheat_certificate import CheatCertificate, noise_name
from tallyroom.protocols.aggregation.one_round import SummingServer
from tallyroom.protocols.errors import LocalError, PeerError
from tallyroom.protocols.identity.signing import SigningIdentity
from tallyroom.protocols.joint.base_transfers import BaseTransfers
from tallyroom.protocols.joint.both_ways import both_ways
from tallyroom.protocols.joint.computation import (
    EVALUATOR,
    STEP_BYTES,
    Bytes,
    Computation,
    Name,
    computation,
)
from tallyroom.protocols.joint.covert import CaughtError
from tallyroom.protocols.joint.levels import Level
from tallyroom.protocols.joint.noise import draw_noise
from tallyroom.protocols.joint.noise_circuit import JointNoise
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.wire.machine import Continue, Done, Failed, Rejected, Step
from tallyroom.protocols.wire.messages import Message, Phase, Role, address

FIRST_ROUND = 2
"""The question is round 1. Preparation has rounds of its own, numbered by its steps, so that the
bill does not depend on which server is faster."""


class JointStage(Enum):
    """How far the joint computation of a phase is."""

    NOTHING = auto()  # there is none: the wrapped server handles the phase
    AWAITED = auto()  # not begun here; if the other server begins, its opening is kept
    BEGUN = auto()  # begun, or even done: repeated messages are accepted silently


JOINT_ACCEPTS: dict[tuple[JointStage, Phase], Role] = {
    (JointStage.AWAITED, Phase.TOGETHER): Role.SERVER,
    (JointStage.BEGUN, Phase.PREPARE): Role.SERVER,
    (JointStage.BEGUN, Phase.TOGETHER): Role.SERVER,
}
"""Which messages of a joint computation are accepted, and from whom: only from the other server.
Drawing noise begins before any message arrives, so it is never awaited."""


class JointServer:
    """One of two servers. Sees what the wrapped server sees, wire labels that reveal nothing, and
    what is chosen."""

    def __init__(
        self,
        alone: SummingServer,
        query: Query,
        index: int,
        randomness: Randomness,
        bases: BaseTransfers,
        signing: SigningIdentity | None = None,
    ) -> None:
        self._alone = alone
        self._query = query
        self._index = index
        self._randomness = randomness
        self._bases = bases
        self._signing = signing
        self._ends: dict[Phase, Computation] = {}
        self._early: Message | None = None
        if (noise := query.joint_noise) is not None:
            if query.secured_noise.level is Level.COVERT and signing is None:
                raise LocalError("a server without a certificate signs nothing: no covert security")
            source = randomness.derive("joint noise")
            self._ends[Phase.PREPARE] = self._drawing(noise, source)

    def _drawing(self, noise: JointNoise, source: Randomness) -> Computation:
        """This end of drawing noise, before there is data."""
        query, field = self._query, self._alone.noise_field
        security, count = query.secured_noise, query.plan.noises
        program = draw_noise(noise, count, source, self._index, field, security)
        name = noise_name(query, field)
        return computation(self._index, name, program, self._bases, source, self._signing)

    @property
    def unseen_rounds(self) -> int:
        rounds: int = getattr(self._alone, "unseen_rounds", 0)
        return rounds

    def start(self) -> Step:
        noise = self._ends.get(Phase.PREPARE)
        opening = None if noise is None else noise.start()
        return _and(self._alone.start(), self._said(Phase.PREPARE, opening))

    def stage(self, phase: Phase) -> JointStage:
        if phase in self._ends:
            return JointStage.BEGUN
        awaited = phase is Phase.TOGETHER and self._alone.awaits_program
        return JointStage.AWAITED if awaited else JointStage.NOTHING

    def receive(self, message: Message) -> Step:
        stage = self.stage(message.phase)
        if stage is JointStage.NOTHING:
            return self._go_on(self._alone.receive(message))
        expected = JOINT_ACCEPTS.get((stage, message.phase))
        if message.sender_role is not expected or message.senders.tolist() != [1 - self._index]:
            return Rejected(message.sender, "only the other server computes with this one")
        if message.links != 1:
            return Rejected(message.sender, "one message at a time")
        if stage is JointStage.AWAITED:
            return self._hold_back(message)
        return self._take(self._ends[message.phase], message)

    def expire(self) -> Step:
        return self._alone.expire()

    def _take(self, end: Computation, message: Message) -> Step:
        """This end's answer. The run fails if the other server deviates."""
        was_done, steps = end.done, end.steps
        try:
            answer = end.take(np.ascontiguousarray(message.body[0]))
        except CaughtError as error:
            accusation = error.accusation
            assert self._signing is not None
            query, authority = self._query, self._signing.authority
            proof = CheatCertificate(query.run, query.encode(), authority, accusation)
            return Failed(f"{message.sender}: {error.reason} {proof.text}")
        except PeerError as error:
            return Failed(f"{message.sender}: {error.reason}")
        messages = self._said(message.phase, answer)
        if was_done or not end.done:
            return Continue(messages, repeated=end.steps == steps)
        if message.phase is Phase.PREPARE:
            self._alone.drawn = end.result
        else:
            self._alone.take_result(end.result)
        return self._go_on(_and(self._alone.open(), messages))

    def _hold_back(self, message: Message) -> Step:
        """Keeps the opening of the other server, which was told to release before this one."""
        if self._early is not None and not np.array_equal(self._early.body, message.body):
            return Failed(f"{message.sender}: sent two different openings")
        again, self._early = self._early is not None, message
        return Continue(repeated=again)

    def _go_on(self, step: Step) -> Step:
        """Starts the program on the sum, once the sum and the noise are there. What is chosen may
        become known from here on, so it is paid for first."""
        query, alone = self._query, self._alone
        ready = alone.total is not None and (query.joint_noise is None or alone.drawn is not None)
        if not alone.awaits_program or not ready or Phase.TOGETHER in self._ends:
            return step
        source = self._randomness.derive("together")
        of, program = alone.program()
        if query.checks_tasks:
            of, program = f"{of} both ways", both_ways(program, self._index)
        end = computation(self._index, Name(query.run, of), program, self._bases, source)
        self._ends[Phase.TOGETHER] = end
        step = _and(step, self._said(Phase.TOGETHER, end.start()))
        if isinstance(step, Continue):
            step = replace(step, spends=(query.spend,), repeated=False)
        if self._early is not None:
            early, self._early = self._early, None
            taken = self._take(end, early)
            if not isinstance(taken, Continue) or not isinstance(step, Continue):
                return taken
            step = replace(step, messages=(*step.messages, *taken.messages))
        return step

    def _said(self, phase: Phase, body: Bytes | None) -> tuple[Message, ...]:
        """A message to the other server. In preparation, its round follows from its step."""
        if body is None:
            return ()
        step = int.from_bytes(body[:STEP_BYTES].tobytes(), "little")
        fixed = FIRST_ROUND + 2 * step + (self._index != EVALUATOR)
        return (
            Message(
                self._query.run,
                phase,
                Role.SERVER,
                Role.SERVER,
                address(self._index),
                address(1 - self._index),
                body[None],
                round=fixed if phase is Phase.PREPARE else 0,
            ),
        )


def _and(step: Step, messages: tuple[Message, ...]) -> Step:
    """The step, with these messages before its own."""
    if isinstance(step, Continue) and messages:
        step = replace(step, repeated=False)
    if isinstance(step, Continue | Done):
        return replace(step, messages=(*messages, *step.messages))
    return step
