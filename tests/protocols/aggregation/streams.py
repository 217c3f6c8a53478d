"""A small stream: its question, what parties submit, and what a coordinator says."""

from fractions import Fraction
from typing import Any

import numpy as np

from tallyroom.protocols.aggregation.contract import Memory
from tallyroom.protocols.aggregation.stream import StreamServer
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings, deal
from tallyroom.protocols.run.machines import party_machine, server_machine
from tallyroom.protocols.statistics.running_sum import RunningSum
from tallyroom.protocols.wire.machine import Continue, Done, proceed
from tallyroom.protocols.wire.messages import Message, Phase, Role, address, body_of
from tests.samples import a_query, bitmap

PARTIES, BATCHES = 4, 9
ALL = list(range(PARTIES))


def asked(epsilon: Fraction | None = Fraction(1), lower: float = 0.0, **changes: Any) -> Query:
    statistic = RunningSum(lower=lower, upper=lower + 1, steps=BATCHES, stream=True)
    return a_query(statistic=statistic, epsilon=epsilon, min_parties=1, **changes)


def some_holdings(lower: float = 0.0) -> Holdings:
    """Three records of each party, in some batches none of some."""
    random = np.random.default_rng(1)
    times = random.integers(1, BATCHES + 1, 3 * PARTIES).astype(float)
    return deal({"value": lower + random.random(3 * PARTIES), "time": times}, PARTIES)


def batches(query: Query, server: int = 0) -> list[Message]:
    """What all parties send to a server, batch by batch."""
    machine = party_machine(query, some_holdings(), Randomness.from_seed(1, "parties"))
    found: list[Message] = []
    step = machine.start()
    while isinstance(step, Continue):
        found += step.messages
        step = proceed(machine)
    assert isinstance(step, Done)
    return [m for m in (*found, *step.messages) if m.receivers.tolist() == [server]]


def a_server(query: Query, seed: int = 7) -> StreamServer:
    machine = server_machine(query, 0, Randomness.from_seed(seed, "server-0"), Memory())
    assert isinstance(machine, StreamServer)
    return machine


def said(query: Query, phase: Phase, body: bytes) -> Message:
    ends = (Role.COORDINATOR, Role.SERVER, address(0), address(0))
    return Message(query.run, phase, *ends, body_of(body))


def opening(query: Query) -> Message:
    return said(query, Phase.RELEASE, bitmap(PARTIES, ALL))


def ask(query: Query, batch: int, members: list[int] = ALL) -> Message:
    body = batch.to_bytes(8, "little") + bitmap(PARTIES, members)
    return said(query, Phase.ASK, body)
