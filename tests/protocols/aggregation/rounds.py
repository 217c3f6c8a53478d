"""The message loop over an aggregator's machines, through all their stages."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from tallyroom.protocols.aggregation.contract import Aggregator, Ids, Memory
from tallyroom.protocols.aggregation.exchange import GivenVectors, MachineLoop
from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.wire.loop import OnWay, unchanged
from tallyroom.protocols.wire.machine import Machine
from tallyroom.protocols.wire.messages import Message, Phase, Role


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


def leaving(gone: dict[int, Phase]) -> OnWay:
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


class Rounds(MachineLoop):
    """A run to its end or to where it is halted, with parties in a number of blocks.

    `intercept` gets each message before its receiver does, and says what arrives in its place.
    """

    def __init__(
        self,
        aggregator: Aggregator,
        query: Query,
        vectors: Vector,
        blocks: int = 1,
        intercept: OnWay = unchanged,
        seed: int = 1,
    ) -> None:
        self.query = query
        everyone = np.arange(query.parties, dtype=np.uint32)
        self.blocks = {
            tuple(ids.tolist()): a_block(aggregator, query, ids, vectors[ids], seed)
            for ids in np.array_split(everyone, blocks)
        }
        servers = [
            aggregator.server(query, i, Randomness.from_seed(seed, f"server-{i}"), Memory())
            for i in range(query.servers)
        ]
        records = np.ones(query.parties, dtype=np.int64)
        collector = aggregator.collector(query, records, Randomness.from_seed(seed, "c"))
        super().__init__(servers, collector, intercept)
        for members, block in self.blocks.items():
            self.enter(np.array(members, dtype=np.uint32), block)

    def begin(self) -> None:
        """Everybody starts, and says what there is to say before a deadline."""
        self.coordinator.start()  # the query: each machine was made from it
        for machine in (*self.servers, *self.blocks.values()):
            self.say(machine, machine.start())
        self.settle()

    def run(self) -> "Rounds":
        self.begin()
        self.finish()
        return self
