"""Points on demand: one tree of noise, drawn as it is touched, the same whenever it is asked."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tallyroom.protocols.aggregation.fss.on_demand import MAX_POINTS, OnDemandServer, parse_points
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.statistics import Curve
from tallyroom.protocols.statistics.on_demand import EcdfPoints, QuantileSearch
from tallyroom.protocols.wire.machine import Continue, Rejected
from tallyroom.protocols.wire.messages import Message, Phase, Role, address, body_of
from tallyroom.simulation import Federation
from tallyroom.simulation.result import Result
from tests.protocols.aggregation.fss_samples import PARTIES, release, some_holdings, submissions
from tests.protocols.aggregation.fss_samples import a_query as fss_query


def a_query(epsilon: Fraction | None) -> Any:
    statistic = EcdfPoints(lower=0.0, upper=1.0, at=(0.5,))
    return replace(fss_query(statistic=statistic), epsilon=epsilon)


def ask(query: Any, points: list[int]) -> Message:
    body = np.array(points, dtype="<u8").tobytes()
    return Message(
        query.run, Phase.ASK, Role.COORDINATOR, Role.SERVER, address(0), address(0), body_of(body)
    )


def a_serving_server(query: Any, seed: int) -> OnDemandServer:
    from tallyroom.protocols.aggregation.contract import Memory
    from tallyroom.protocols.randomness import Randomness

    server = OnDemandServer(query, 0, Randomness.from_seed(seed, "server-0"), Memory())
    for message in submissions(query, some_holdings()):
        if int(message.receivers[0]) == 0:
            server.receive(message)
    step = server.receive(release(query, np.ones(PARTIES, dtype=bool)))
    assert isinstance(step, Continue)
    assert len(step.spends) == 1
    assert not step.messages
    return server


def answer(server: OnDemandServer, message: Message) -> list[int]:
    step = server.receive(message)
    assert isinstance(step, Continue)
    assert not step.spends, "asking a tree that is paid for spends nothing"
    values: list[int] = step.messages[0].body[0].view("<u8").tolist()
    return values


def test_a_point_gets_the_same_noise_whenever_and_with_whatever_it_is_asked() -> None:
    query = a_query(Fraction(1))
    one, other = a_serving_server(query, 7), a_serving_server(query, 7)
    points = [0, 5, 2**30, query.statistic.fine.grid.last]
    together = answer(one, ask(query, points))
    assert together == [answer(other, ask(query, [point]))[0] for point in reversed(points)][::-1]
    assert together == answer(one, ask(query, points))


def test_the_noise_is_that_of_the_path() -> None:
    """Neighbours share all nodes but their leaves; their difference has the noise of two."""
    query, exact = a_query(Fraction(1)), a_query(None)
    differences = []
    for seed in range(200):
        points = [2**20, 2**20 + 1]
        noisy = np.array(answer(a_serving_server(query, seed), ask(query, points)), dtype="<u8")
        clear = np.array(answer(a_serving_server(exact, seed), ask(exact, points)), dtype="<u8")
        noise = (noisy - clear).view(np.int64)
        differences.append(int(noise[0] - noise[1]))
    # Variance 2 · 2·33²; over 200 draws the sample variance is within 5.5 of its own deviations.
    expected = 4 * 33.0**2
    spread = 5.5 * expected * np.sqrt((3.5 + 2) / 200)
    assert abs(np.var(differences) - expected) < spread


@pytest.mark.parametrize(
    ("points", "reason"),
    [
        ([], "1 to"),
        ([2_000_000_001], "outside"),
        ([2**32], "outside"),
        ([2**64 - 1], "outside"),
        (list(range(MAX_POINTS + 1)), "1 to"),
    ],
)
def test_bad_questions_are_refused(points: list[int], reason: str) -> None:
    refused = parse_points(ask(a_query(Fraction(1)), points), a_query(Fraction(1)))
    assert isinstance(refused, Rejected)
    assert reason in refused.reason


def test_a_tree_under_another_epsilon_is_another_run() -> None:
    """Points are asked under the tree's own name, which ends in its ε, grid and data."""
    drawn = a_query(Fraction(1))
    others = [
        a_query(Fraction(2)),
        replace(drawn, data="other"),
        replace(drawn, records_per_unit=2, max_records_per_party=2),
    ]
    assert len({query.run for query in (drawn, *others)}) == 4
    assert len({query.nonce for query in (drawn, *others)}) == 1


@pytest.mark.parametrize("runtime", ["inprocess", "processes"])
def test_many_questions_cost_one_epsilon(runtime: str) -> None:
    """A cap that pays for one tree pays for every question to it, and for no second tree."""
    with Federation(parties=5, aggregator="fss", runtime=runtime, cap=1) as federation:
        first = federation.run(QuantileSearch(value="score", quantile=(0.5,)), 1)
        again = federation.run(QuantileSearch(value="score", quantile=(0.5, 0.9)), 1)
        assert isinstance(again.estimate, Curve)
        assert again.estimate.y[0] == first.estimate
        assert "party->server" not in again.bill.by_link()
        with pytest.raises(LocalError, match="is left in the ledger"):
            federation.run(QuantileSearch(value="score", quantile=(0.5,)), 0.5)


def federation_step(result: Result) -> float:
    step = result.data["grid_step"]
    assert isinstance(step, float)
    assert step == 5e-10, "a fourth of 2^32 lines are spared for decimals to be on one"
    return step


def test_searched_quantiles_are_exact_without_noise() -> None:
    with Federation(parties=5, aggregator="fss") as federation:
        result = federation.run(QuantileSearch(value="score", quantile=(0.0, 0.3, 1.0)), "inf")
        assert result.error is not None
        assert result.error["max"] < federation_step(result)
        score = np.sort(federation.holdings.column("score"))
        assert isinstance(result.estimate, Curve)
        position = int(np.ceil(0.3 * len(score))) - 1
        assert abs(result.estimate.y[1] - score[position]) < 1e-9
