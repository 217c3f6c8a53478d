"""Messages in memory: every role of a run in one process, each message to whom it is addressed.

The `inprocess` runtime, the aggregators' contract suite and the tests all run over this one.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.wire.machine import Machine, Rejected, Step
from tallyroom.protocols.wire.messages import Message, Role

Receiver = TypeVar("Receiver")
"""Whatever plays a role: a machine, or a participant with its ledger around it."""


class Router(Generic[Receiver]):
    """`servers` are in the order of their indices. Parties join in blocks, at any time.

    Messages are delivered in the order in which they were sent. With `chance` they are delivered in
    random order, and a message to several may come in two parts.
    """

    def __init__(
        self,
        servers: Sequence[Receiver],
        coordinator: Receiver,
        chance: np.random.Generator | None = None,
    ) -> None:
        self._servers = servers
        self.coordinator = coordinator
        self._chance = chance
        self._parties: list[tuple[NDArray[np.uint32], Receiver]] = []
        self._waiting: deque[Message] = deque()
        self._early: list[Message] = []

    def __bool__(self) -> bool:
        """Whether a message is on its way."""
        return bool(self._waiting)

    def join(self, ids: NDArray[np.uint32], block: Receiver) -> None:
        """A block of parties is here, and gets what the coordinator said to it before."""
        self._parties.append((ids, block))
        early, self._early = self._early, []
        self._waiting += early

    def send(self, messages: Iterable[Message]) -> None:
        self._waiting += messages

    def next(self) -> Message:
        """Takes the message that is delivered next."""
        if self._chance is None:
            return self._waiting.popleft()
        at = int(self._chance.integers(len(self._waiting)))
        message = self._waiting[at]
        del self._waiting[at]
        if message.links > 1 and self._chance.integers(2):
            cut = int(self._chance.integers(1, message.links))
            self._waiting.append(message.select(np.arange(cut, message.links)))
            message = message.select(np.arange(cut))
        return message

    def receivers(self, message: Message) -> list[tuple[Receiver, Message]]:
        """Who gets a message, and which part of it. What the coordinator says to parties that have
        not joined is kept for them; what anybody else says to them is lost."""
        match message.receiver_role:
            case Role.SERVER:
                return [(self._servers[int(message.receivers[0])], message)]
            case Role.COORDINATOR:
                return [(self.coordinator, message)]
        reached: list[tuple[Receiver, Message]] = []
        absent = np.ones(len(message.receivers), dtype=bool)
        for ids, block in self._parties:
            mine = np.isin(message.receivers, ids)
            if mine.any():
                reached.append((block, _part(message, mine)))
                absent &= ~mine
        if absent.any() and message.sender_role is Role.COORDINATOR:
            self._early.append(_part(message, absent))
        return reached


def _part(message: Message, mine: NDArray[np.bool_]) -> Message:
    return message if mine.all() else message.select(np.flatnonzero(mine))


def heard(machine: Machine, message: Message) -> Iterator[Step]:
    """What a machine makes of a message: one that is refused is heard again row by row, so that
    what one sender did wrong is not held against the others."""
    step = machine.receive(message)
    if isinstance(step, Rejected) and message.links > 1:
        yield from (machine.receive(single) for single in message.split())
    else:
        yield step
