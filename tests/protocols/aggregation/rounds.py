"""Runs an aggregator's machines over an in-memory queue, through all their stages.

Like the shells: a batch that is refused is tried again row by row, and deadlines pass when nothing
else is under way.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from tallyroom.protocols.aggregation.contract import Aggregator, Ids, Memory, Total
from tallyroom.protocols.aggregation.exchange import GivenVectors
from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.wire.machine import Done, Failed, Machine, Rejected, Spend, Step
from tallyroom.protocols.wire.messages import Message, Phase, Role
from tallyroom.protocols.wire.router import Router, heard

Intercept = Callable[[Message], Iterable[Message]]


def honest(message: Message) -> Iterable[Message]:
    return (message,)


def a_block(
    aggregator: Aggregator, query: Query, ids: Ids, vectors: Vector, seed: int = 1
) -> Machine:
    """The machine of parties `ids`, of which `vectors` has a row each."""
    holdings = Holdings(ids, np.arange(len(ids)), {"value": np.zeros(len(ids))})
    return aggregator.party(
        replace(query, statistic=GivenVectors(vectors)),
        holdings,
        Randomness.from_seed(seed, "parties"),
    )


def leaving(gone: dict[int, Phase]) -> Intercept:
    """Parties that send nothing of a phase and of those that come after it."""
    order = [Phase.KEYS, Phase.DEAL, Phase.SUBMIT, Phase.CHECK, Phase.UNMASK]
    last = {party: order.index(phase) for party, phase in gone.items()}

    def intercept(message: Message) -> Iterable[Message]:
        if message.sender_role is not Role.PARTY:
            return (message,)
        now = order.index(message.phase)
        stays = np.flatnonzero([now < last.get(int(i), now + 1) for i in message.senders])
        return (message.select(stays),) if len(stays) else ()

    return intercept


class Rounds:
    """What came of a run: `total` or `failed`, who was `refused`, and every message that was sent.

    `intercept` gets each message before its receiver does, and says what arrives in its place.
    """

    def __init__(
        self,
        aggregator: Aggregator,
        query: Query,
        vectors: Vector,
        blocks: int = 1,
        intercept: Intercept = honest,
        seed: int = 1,
    ) -> None:
        self.query = query
        everyone = np.arange(query.parties, dtype=np.uint32)
        self.blocks = {
            tuple(ids.tolist()): a_block(aggregator, query, ids, vectors[ids], seed)
            for ids in np.array_split(everyone, blocks)
        }
        self.servers = [
            aggregator.server(query, i, Randomness.from_seed(seed, f"server-{i}"), Memory())
            for i in range(query.servers)
        ]
        records = np.ones(query.parties, dtype=np.int64)
        self.collector = aggregator.collector(query, records, Randomness.from_seed(seed, "c"))
        self.refused: list[Rejected] = []
        self.spends: list[Spend] = []
        self.sent: list[Message] = []
        self.failed: Failed | None = None
        self.total: Total | None = None
        self._intercept = intercept
        self._router: Router[Machine] = Router(self.servers, self.collector)
        for members, block in self.blocks.items():
            self._router.join(np.array(members, dtype=np.uint32), block)

    def run(self) -> "Rounds":
        for server in self.servers:
            self.take(server.start())
        self.collector.start()
        for block in self.blocks.values():
            self.take(block.start())
        self.settle()
        return self.finish()

    def finish(self) -> "Rounds":
        """From where it stands to its end."""
        while self.total is None and self.failed is None:
            before = len(self.sent)
            for server in self.servers:
                self.take(server.expire())
            self.settle()
            if len(self.sent) == before and self.failed is None:
                self.take(self.collector.expire())
        return self

    def settle(self) -> None:
        while self._router:
            for arriving in self._intercept(self._router.next()):
                for receiver, part in self._router.receivers(arriving):
                    for step in heard(receiver, part):
                        self.take(step)

    def take(self, step: Step) -> None:
        match step:
            case Rejected():
                self.refused.append(step)
                return
            case Failed():
                self.failed = self.failed or step
                return
            case Done(output=Total() as total):
                self.total = total
        self.spends += step.spends
        self.sent += step.messages
        self._router.send(step.messages)
