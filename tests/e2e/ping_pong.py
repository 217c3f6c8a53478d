"""Parties that play ping-pong before they answer: a machine for what carries their messages.

Every party serves to every other and returns what it is served, a fixed number of times; then it
says PAIRED, and submits as the aggregator would have it. Rallies have widths of their own, so that
a message that went to the wrong pair would show in the bill.
"""

import asyncio
import os
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from tallyroom.parties.block import PartyBlock
from tallyroom.parties.process import PartyConfig, run_party
from tallyroom.protocols.query import decode_query
from tallyroom.protocols.wire.loop import Reply
from tallyroom.protocols.wire.machine import Continue, Done, Machine, Rejected, Step
from tallyroom.protocols.wire.messages import Message, Phase, Role, address, body_of
from tallyroom.simulation.misbehaviour import ScriptedBlock

ASKED = 1
ROUNDS = 3
MARKER = b"the ball is secret"
PATIENCE = 20.0
LITTLE_PATIENCE = 1.0


class PingPong:
    """The parties `ids` of one host against all others of the federation, and each other."""

    def __init__(
        self, run: bytes, ids: Iterable[int], parties: int, answer: Machine, patience: float
    ) -> None:
        self._run = run
        self._ids = list(ids)
        self._left = {(me, you): ROUNDS for me in self._ids for you in range(parties) if me != you}
        self._answer = answer
        self._patience = patience

    def start(self) -> Step:
        return Continue(self._batch([(pair, 0) for pair in self._left]), deadline=self._patience)

    def _batch(self, balls: list[tuple[tuple[int, int], int]]) -> tuple[Message, ...]:
        """Balls of one width and one round travel together, to whomever they go."""
        messages = []
        for width, count in sorted({(sum(pair), number) for pair, number in balls}):
            same = [one for one in balls if (sum(one[0]), one[1]) == (width, count)]
            rows = [np.frombuffer(_ball(pair, number), dtype=np.uint8) for pair, number in same]
            messages.append(
                Message(
                    self._run,
                    Phase.PAIR,
                    Role.PARTY,
                    Role.PARTY,
                    address(*(me for (me, _), _ in same)),
                    address(*(you for (_, you), _ in same)),
                    np.stack(rows),
                    ASKED + 1 + count,
                )
            )
        return tuple(messages)

    def receive(self, message: Message) -> Step:
        if message.phase is not Phase.PAIR:
            return Rejected(message.sender, "not a ball")
        returned = []
        for single in message.split():
            pair = int(single.receivers[0]), int(single.senders[0])
            number = ROUNDS - self._left.get(pair, 0)
            if number == ROUNDS or single.body.tobytes() != _ball(pair, number):
                return Rejected(message.sender, "a ball of another game")
            returned.append((pair, number + 1))
        for pair, _ in returned:
            self._left[pair] -= 1
        messages = self._batch([(pair, number) for pair, number in returned if number < ROUNDS])
        if self._is_on():
            return Continue(messages, deadline=self._patience)
        return self._end(messages)

    def _is_on(self) -> bool:
        return any(self._left.values())

    def _end(self, messages: tuple[Message, ...]) -> Step:
        paired = Message(
            self._run,
            Phase.PAIRED,
            Role.PARTY,
            Role.COORDINATOR,
            address(*self._ids),
            address(0),
            body_of(b"done"),
            ASKED + 1,
        )
        answered = self._answer.start()
        if not isinstance(answered, Done):
            raise TypeError("an aggregator that answers at once was expected")
        # Stations of other machines than these expect an answer in the round after they asked.
        submitted = tuple(replace(message, round=ASKED + 1) for message in answered.messages)
        return replace(answered, messages=(*messages, paired, *submitted))

    def expire(self) -> Step:
        """Whoever has not returned the ball is gone."""
        return self._end(())


def _ball(pair: tuple[int, int], number: int) -> bytes:
    return MARKER + bytes([number]) + bytes(sum(pair))


class PlayingBlock(ScriptedBlock):
    patience = PATIENCE

    def open(self, message: Message) -> Machine:
        query = decode_query(message.run, message.body[0].tobytes(), message.sender)
        ids = self.holdings.ids.tolist()
        return PingPong(message.run, ids, query.parties, super().open(message), self.patience)


class HastyBlock(PlayingBlock):
    """Gives up soon."""

    patience = LITTLE_PATIENCE


class DyingBlock(PlayingBlock):
    """Its host dies of the first question."""

    def handle(self, message: Message) -> Reply:
        os._exit(1)


def play(config: PartyConfig) -> None:
    _run(config, PlayingBlock)


def play_and_die(config: PartyConfig) -> None:
    """The host of party 0 dies, and the others give up on it."""
    _run(config, DyingBlock if 0 in config.holdings.ids else HastyBlock)


def _run(config: PartyConfig, kind: type[PartyBlock]) -> None:
    asyncio.run(run_party(config, kind))
