"""A server that computes with the other one: what it does alone, and its end of what they do.

The noise does not depend on data, so it is drawn while parties submit. Whichever comes last, noise
or the word to release, lets the share go.
"""

from dataclasses import replace

import numpy as np

from protocols.aggregation.one_round import SummingServer
from protocols.errors import PeerError
from protocols.joint.base_transfers import BaseTransfers
from protocols.joint.computation import (
    EVALUATOR,
    STEP_BYTES,
    Bytes,
    Computation,
    Name,
    computation,
)
from protocols.joint.noise import draw_noise
from protocols.randomness import Randomness
from protocols.run.machine import Continue, Done, Failed, Rejected, Step
from protocols.run.messages import Message, Phase, Role, address
from protocols.run.query import Query

FIRST_ROUND = 2
"""The question is round 1. What is prepared goes on in rounds of its own: the bill does not depend
on who is faster."""


class TogetherServer:
    """Sees what the server within sees, and labels that tell nothing. One of two servers."""

    def __init__(
        self,
        alone: SummingServer,
        query: Query,
        index: int,
        randomness: Randomness,
        bases: BaseTransfers,
    ) -> None:
        assert query.joint_noise is not None
        self._alone = alone
        self._query = query
        self._index = index
        count, source = query.statistic.noises, randomness.derive("joint noise")
        program = draw_noise(query.joint_noise, count, source, alone.noise_field)
        name = Name(query.run, repr((query.joint_noise, count, alone.noise_field)))
        self._noise = computation(index, name, program, bases, source)

    @property
    def unseen_rounds(self) -> int:
        rounds: int = getattr(self._alone, "unseen_rounds", 0)
        return rounds

    def start(self) -> Step:
        return _and(self._alone.start(), self._said(Phase.PREPARE, self._noise.start()))

    def receive(self, message: Message) -> Step:
        if message.phase is not Phase.PREPARE:
            return self._alone.receive(message)
        if not message.between_servers or message.senders.tolist() != [1 - self._index]:
            return Rejected(message.sender, "only the other server computes with this one")
        if message.links != 1:
            return Rejected(message.sender, "one message at a time")
        was_done = self._noise.done
        answered = _taken(self._noise, message)
        if isinstance(answered, Failed):
            return answered
        messages = self._said(Phase.PREPARE, answered)
        if was_done or not self._noise.done:
            return Continue(messages)
        self._alone.drawn = self._noise.result
        return _and(self._alone.open(), messages)

    def expire(self) -> Step:
        return self._alone.expire()

    def _said(self, phase: Phase, body: Bytes | None) -> tuple[Message, ...]:
        """To the other server, in a round that follows from the step."""
        if body is None:
            return ()
        step = int.from_bytes(body[:STEP_BYTES].tobytes(), "little")
        return (
            Message(
                self._query.run,
                phase,
                Role.SERVER,
                Role.SERVER,
                address(self._index),
                address(1 - self._index),
                body[None],
                round=FIRST_ROUND + 2 * step + (self._index != EVALUATOR),
            ),
        )


def _taken(end: Computation, message: Message) -> Bytes | Failed | None:
    """What this end answers; the run cannot go on where the other one deviates."""
    try:
        return end.take(np.ascontiguousarray(message.body[0]))
    except PeerError as error:
        return Failed(f"{message.sender}: {error.reason}")


def _and(step: Step, messages: tuple[Message, ...]) -> Step:
    """That step with these messages first."""
    if isinstance(step, Continue | Done):
        return replace(step, messages=(*messages, *step.messages))
    return step
