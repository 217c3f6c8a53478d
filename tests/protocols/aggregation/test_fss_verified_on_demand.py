"""Checked keys that are asked for points on demand: a bad one is found before or at a question."""

from dataclasses import replace

import numpy as np
import pytest

from tallyroom.protocols.aggregation.contract import Bodies
from tallyroom.protocols.aggregation.exchange import Exchange
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.on_demand import EcdfPoints, QuantileSearch
from tallyroom.protocols.wire.messages import Message, Phase
from tests.protocols.aggregation.fss_samples import PLAIN
from tests.protocols.aggregation.fss_verified_runs import (
    INVALID,
    exchange_over,
    query_about,
    some_holdings,
    spoiled,
    total_of,
    words,
)

ON_DEMAND: list[Statistic] = [
    EcdfPoints(lower=0.0, upper=1.0, at=(0.25, 0.5)),
    QuantileSearch(lower=0.0, upper=1.0, quantile=(0.5,)),
]


@pytest.mark.parametrize("statistic", ON_DEMAND, ids=lambda s: s.name)
def test_questions_on_demand_get_the_same_answers_as_without_the_check(
    statistic: Statistic,
) -> None:
    holdings = some_holdings()
    query = query_about(holdings, statistic)
    plain = Exchange(PLAIN, replace(query, aggregator="fss?verified=no"), records=holdings.counts)
    plain.enter(holdings.ids, PLAIN.party(plain.query, holdings, plain.randomness))
    checked = total_of(exchange_over(holdings, query))
    assert checked.vector.tolist() == total_of(plain).vector.tolist()
    assert checked.caught == ()


def wrong_weights(server: int, body: Bodies) -> Bodies:
    words(body)[6:190:6] += np.uint64(1)
    return body


def wrong_below(server: int, body: Bodies) -> Bodies:
    """From the third level on, the second being right."""
    words(body)[12:190:6] += np.uint64(1)
    return body


def test_on_demand_a_wrong_weight_is_found_before_the_first_question() -> None:
    holdings = some_holdings()
    query = query_about(holdings, ON_DEMAND[0])
    exchange = exchange_over(holdings, query, spoiled([4], wrong_weights))
    total = total_of(exchange)
    assert total.caught == ((4, INVALID),)
    values = np.delete(holdings.column("value"), np.s_[9:11])
    assert holdings.starts[4:6].tolist() == [9, 11]
    assert total.vector.tolist() == [int((values <= 0.25).sum()), int((values <= 0.5).sum())]


@pytest.mark.parametrize("statistic", ON_DEMAND, ids=lambda s: s.name)
def test_on_demand_a_question_that_meets_a_bad_key_ends_the_run_and_names_it(
    statistic: Statistic,
) -> None:
    if isinstance(statistic, EcdfPoints):
        statistic = EcdfPoints(lower=0.0, upper=1.0, at=(0.3,))
    holdings = some_holdings()
    exchange = exchange_over(holdings, query_about(holdings, statistic), spoiled([4], wrong_below))
    exchange.run()
    assert exchange.total is None
    assert exchange.failed is not None
    assert "keys of party-4 do not verify at the points" in exchange.failed.reason


def test_on_demand_servers_that_are_asked_different_points_end_the_run() -> None:
    holdings = some_holdings()
    exchange = exchange_over(holdings, query_about(holdings, ON_DEMAND[0]))
    server = exchange.servers[1]
    receive = server.receive

    def misled(message: Message) -> object:
        if message.phase is Phase.ASK:
            body = message.body.copy()
            body[0, 0] ^= 1
            message = replace(message, body=body)
        return receive(message)

    server.receive = misled  # type: ignore[method-assign,assignment]
    exchange.run()
    assert exchange.total is None
    assert exchange.failed is not None
    assert "it was told to check other parties or points" in exchange.failed.reason
