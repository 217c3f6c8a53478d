"""What colluding roles see of a curve, and how likely that is."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.aggregation.contract import Memory
from tallyroom.protocols.aggregation.fss.roles import FssServer
from tallyroom.protocols.aggregation.one_round import SummingServer
from tallyroom.protocols.algebra.ring import Vector, signed
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings, deal
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.wire.machine import Continue, Done
from tallyroom.protocols.wire.messages import Message, Phase, Role
from tests.samples import a_message, a_query, bitmap

Event = Callable[[NDArray[np.int64]], NDArray[np.bool]]
"""Rows are views, one a run; which of them are in the event."""


@dataclass(frozen=True)
class Attack:
    """One record, (`value`, `time`), is replaced. `most` is the largest ln(p/p') there can be."""

    statistic: Statistic
    epsilon: Fraction
    here: tuple[float, float]
    there: tuple[float, float]
    event: Event
    most: float
    runs: int
    points: tuple[int, ...] = ()


def tell(query: Query, phase: Phase, body: bytes) -> Message:
    return a_message(phase, Role.COORDINATOR, Role.SERVER, (0,), (0,), body, query.run)


def submissions(query: Query, holdings: Holdings, role: str) -> tuple[Message, ...]:
    aggregator = aggregator_named(query.aggregator)
    step = aggregator.party(query, holdings, Randomness.from_seed(1, role)).start()
    assert isinstance(step, Done)
    return step.messages


def collected(query: Query, index: int, randomness: Randomness, keys: Message) -> SummingServer:
    """A server that holds the party's submission."""
    server = aggregator_named(query.aggregator).server(query, index, randomness, Memory())
    assert isinstance(server, SummingServer)
    server.start()
    step = server.receive(keys)
    assert isinstance(step, Continue)
    assert [message.phase for message in step.messages] == [Phase.ROSTER]
    return server


def released(query: Query, server: SummingServer, points: Sequence[int]) -> Vector:
    step = server.receive(tell(query, Phase.RELEASE, bitmap(1, [0])))
    if points:
        asked = np.array(points, dtype="<u8").tobytes()
        step = server.receive(tell(query, Phase.ASK, asked))
    assert isinstance(step, Continue)
    (share,) = step.messages
    assert share.phase is Phase.SHARE
    opened: Vector = share.body[0].view("<u8")
    return opened


def held(server: SummingServer, points: Sequence[int]) -> Vector:
    """What a colluding server can add: its share without its noise."""
    everyone = np.ones(1, dtype=bool)
    if points:
        assert isinstance(server, FssServer)
        return server.counts_at(np.array(points, dtype=np.uint64), everyone)
    return server._query.plan.measure(server.sum_over(everyone))


def views(attack: Attack, aggregator: str, record: tuple[float, float]) -> NDArray[np.int64]:
    query = a_query(
        statistic=attack.statistic,
        aggregator=aggregator,
        parties=1,
        epsilon=attack.epsilon,
        noise=Placement.EACH_SERVER,
    )
    aggregator_named(aggregator).check(query)
    value, time = record
    holdings = deal({"value": np.array([value]), "time": np.array([time])}, 1)
    for_first, for_second = submissions(query, holdings, f"party {record}")
    colluder = collected(query, 1, Randomness.from_seed(1, "server-1"), for_second)
    known = held(colluder, attack.points)
    seen = []
    for run in range(attack.runs):
        randomness = Randomness.from_seed(run, f"server-0 {record}")
        server = collected(query, 0, randomness, for_first)
        seen.append(released(query, server, attack.points) + known)
    return signed(np.stack(seen))


def likelihood(views: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    """Up to a constant, of every row as the path sums of a whole tree of Laplace noise.

    Leaves to root: what is below a node, given the noise above it, is independent of the rest.
    """
    reach = math.ceil(24 * scale) + 6
    above = np.arange(-reach, reach + 1)
    step = np.exp(-np.abs(above[:, None] - above[None, :]) / scale)
    below = np.exp(-np.abs(np.clip(views, -reach, reach)[:, :, None] - above) / scale)
    while below.shape[1] > 1:
        below = (below[:, 0::2] * below[:, 1::2]) @ step
    root: NDArray[np.float64] = below[:, 0, reach]
    return root
