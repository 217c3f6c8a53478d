"""Runs over keys that are checked, with parties that cheat in them."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from tallyroom.protocols.aggregation.contract import Bodies, Total
from tallyroom.protocols.aggregation.exchange import Exchange
from tallyroom.protocols.aggregation.fss.aggregator import Fss
from tallyroom.protocols.aggregation.fss.verified_keys import HEADER
from tallyroom.protocols.query import Query
from tallyroom.protocols.records import Holdings, deal
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.wire.loop import OnWay
from tallyroom.protocols.wire.messages import Message
from tests.samples import a_query

FSS = Fss(verified="yes")
PARTIES = 9
INVALID = "its submission does not verify"
REPLAYED = "its submission repeats one of its own or of another party"

Spoil = Callable[[int, Bodies], Bodies]
"""What a cheater makes of its body for a server."""


def some_holdings(records: int = 21, parties: int = PARTIES) -> Holdings:
    return deal({"value": np.random.default_rng(3).random(records)}, parties)


def query_about(holdings: Holdings, statistic: Statistic | None = None) -> Query:
    return a_query(
        statistic=statistic or Ecdf(lower=0.0, upper=1.0, thresholds=13),
        aggregator="fss?verified=yes",
        parties=len(holdings.ids),
        records=holdings.rows,
        max_records_per_party=int(holdings.counts.max()),
        min_parties=1,
    )


def exchange_over(holdings: Holdings, query: Query, way: OnWay = lambda m: (m,)) -> Exchange:
    """A run whose parties have spoken; `run` lets it go on."""
    exchange = Exchange(FSS, query, way=way, records=holdings.counts.astype(np.int64))
    exchange.enter(holdings.ids, FSS.party(query, holdings, exchange.randomness))
    return exchange


def spoiled(cheaters: Iterable[int], spoil: Spoil) -> OnWay:
    chosen = set(cheaters)

    def way(message: Message) -> Iterable[Message]:
        for single_one in message.split():
            if int(single_one.senders[0]) in chosen:
                body = spoil(int(message.receivers[0]), single_one.body.copy())
                single_one = replace(single_one, body=body)
            yield single_one

    return way


def total_of(exchange: Exchange) -> Total:
    exchange.run()
    assert exchange.rejected == []
    assert exchange.failed is None
    assert exchange.total is not None
    return exchange.total


def exact_over(holdings: Holdings, query: Query, left_out: Iterable[int]) -> list[int]:
    """The sum of the other parties' vectors, by numpy."""
    kept = ~np.isin(holdings.ids, list(left_out))
    vectors = query.plan.encode(holdings)
    counts: list[int] = vectors[kept].sum(axis=0, dtype=np.uint64).tolist()
    return counts


def check_caught(exchange: Exchange, holdings: Holdings, cheaters: list[int], why: str) -> None:
    total = total_of(exchange)
    assert total.caught == tuple((party, why) for party in cheaters)
    assert total.vector.tolist() == exact_over(holdings, exchange.query, cheaters)
    assert total.contributors.tolist() == [i for i in holdings.ids if i not in cheaters]


def words(body: Bodies) -> np.typing.NDArray[np.uint64]:
    """The words of the keys in a submission of one party; writing to them writes to it."""
    return body[0, HEADER.size :].view("<u8")


def twice(server: int, body: Bodies) -> Bodies:
    words(body)[6:24:6] += np.uint64(1)
    return body
