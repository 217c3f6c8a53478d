"""Runs of prio3 in memory: with real statistics, with parties that cheat in given ways."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.aggregation.contract import Bodies, Ids, Total
from tallyroom.protocols.aggregation.exchange import Exchange
from tallyroom.protocols.aggregation.prio3.aggregator import Prio3
from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.query import Query
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.ecdf import CumulativeHistogram, Ecdf, Quantile
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.moments import Mean, Sum
from tallyroom.protocols.statistics.planned import planned
from tallyroom.protocols.wire.messages import Message, Phase
from tallyroom.simulation.lying_parties import lying_machine
from tests.samples import a_query

PARTIES = 6
COUNTS = (1, 3, 2, 1, 2, 3)
"""How many records each party holds, where they do not all hold one."""

LOWER, UPPER = -3.0, 9.0
STATISTICS: list[Statistic] = [
    Histogram(lower=LOWER, upper=UPPER, bins=1),
    Histogram(lower=LOWER, upper=UPPER, bins=7),
    Sum(lower=LOWER, upper=UPPER),
    Sum(lower=-7.25, upper=-2.0),
    Mean(lower=2.0, upper=9.0),
    Ecdf(lower=LOWER, upper=UPPER, thresholds=1),
    Ecdf(lower=LOWER, upper=UPPER, thresholds=9),
    Ecdf(lower=LOWER, upper=UPPER, thresholds=9, strategy="tree"),
    Quantile(lower=LOWER, upper=UPPER, thresholds=5),
    CumulativeHistogram(lower=LOWER, upper=UPPER, thresholds=6),
]
INVALID = "its submission does not verify"

Spoil = Callable[[int, Bodies], Bodies]
"""What a cheater makes of its body for a server."""


def uneven_holdings(lower: float, upper: float, seed: int = 3) -> Holdings:
    """Parties with different numbers of records, some of them outside of the bounds."""
    values = np.random.default_rng(seed).uniform(lower - 1, upper + 1, sum(COUNTS))
    starts = np.cumsum(COUNTS) - np.array(COUNTS)
    columns = {"value": values}
    return Holdings(np.arange(PARTIES, dtype=np.uint32), starts.astype(np.intp), columns)


def query_about(statistic: Statistic, servers: int = 2, **changes: Any) -> Query:
    query = a_query(
        statistic=statistic,
        aggregator="prio3",
        parties=PARTIES,
        servers=servers,
        min_parties=PARTIES - 1,
        records=sum(COUNTS),
        max_records_per_party=max(COUNTS),
    )
    return replace(query, **changes)


def one_each(length: int, servers: int = 2, **changes: Any) -> Query:
    """Every party holds one record."""
    statistic = a_query().statistic.from_parameters({"lower": 0.0, "upper": 1.0, "bins": length})
    alone = {"records": PARTIES, "max_records_per_party": 1}
    return query_about(statistic, servers, **alone | changes)


def one_hots(length: int, parties: int = PARTIES, seed: int = 5) -> Vector:
    places = np.random.default_rng(seed).integers(0, length, parties)
    return np.eye(length, dtype=np.uint64)[places]


def exchange_about(query: Query, holdings: Holdings, liars: Iterable[int] = ()) -> Exchange:
    """A finished run over these holdings."""
    exchange = Exchange(Prio3(), query, records=holdings.counts.astype(np.int64))
    machine = lying_machine(query, holdings, frozenset(liars), exchange.randomness)
    exchange.enter(holdings.ids, machine)
    exchange.run()
    return exchange


def spoiling(cheater: int, spoil: Spoil) -> Callable[[Message], Iterable[Message]]:
    def way(message: Message) -> Iterable[Message]:
        if message.phase is not Phase.SUBMIT or message.senders.tolist() != [cheater]:
            return (message,)
        body = spoil(int(message.receivers[0]), message.body.copy())
        return (replace(message, body=body),)

    return way


def exchange_of(query: Query, vectors: Vector, cheater: int, spoil: Spoil) -> Exchange:
    """A finished run in which one party changes what it sends. It comes last."""
    exchange = Exchange(Prio3(), query, way=spoiling(cheater, spoil))
    others = np.delete(np.arange(query.parties, dtype=np.uint32), cheater)
    exchange.join(others, vectors[others])
    exchange.join(np.array([cheater], dtype=np.uint32), vectors[cheater : cheater + 1])
    exchange.run()
    return exchange


def name_of(statistic: Statistic) -> str:
    return f"{statistic.name}-{planned(statistic).plan.length}"


def total_of(exchange: Exchange) -> Total:
    assert exchange.rejected == []
    assert exchange.failed is None
    assert exchange.total is not None
    return exchange.total


def without(party: int, parties: int = PARTIES) -> Ids:
    everyone: NDArray[np.uint32] = np.arange(parties, dtype=np.uint32)
    return np.delete(everyone, party)
