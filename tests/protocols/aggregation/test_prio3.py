"""Prio3 as an aggregator: sums are exact, noise is what it must be, and limits are said."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.aggregation.contract import Ids, Memory
from tallyroom.protocols.aggregation.exchange import Exchange
from tallyroom.protocols.aggregation.prio3 import reports as prio3_reports
from tallyroom.protocols.aggregation.prio3.aggregator import Prio3
from tallyroom.protocols.aggregation.prio3.reports import reporting
from tallyroom.protocols.aggregation.prio3.server import Prio3Server
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.statistics.bounded import Bounded
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.moments import Sum
from tallyroom.protocols.statistics.on_demand import QuantileSearch
from tallyroom.protocols.statistics.planned import planned
from tallyroom.protocols.statistics.running_sum import RunningSum
from tallyroom.protocols.vdaf import flp
from tests.goodness import ALPHA, discrete_laplace_pmf, fits
from tests.protocols.aggregation.prio3_runs import (
    INVALID,
    LOWER,
    PARTIES,
    STATISTICS,
    UPPER,
    exchange_about,
    name_of,
    one_each,
    query_about,
    total_of,
    uneven_holdings,
    without,
)


@pytest.mark.parametrize("servers", [2, 3])
@pytest.mark.parametrize("statistic", STATISTICS, ids=name_of)
def test_every_sum_is_exact(statistic: Bounded, servers: int) -> None:
    holdings = uneven_holdings(*statistic.bounds)
    total = total_of(exchange_about(query_about(statistic, servers), holdings))
    expected = planned(statistic).plan.encode(holdings).sum(axis=0, dtype=np.uint64)
    assert total.vector.tolist() == expected.tolist()
    assert total.contributors.tolist() == list(range(PARTIES))
    assert (total.records, total.caught) == (holdings.rows, ())


def test_every_statistic_is_proved_or_refused() -> None:
    for refused in (QuantileSearch(lower=LOWER, upper=UPPER), RunningSum(lower=LOWER, upper=UPPER)):
        with pytest.raises(LocalError, match=f"no proof for {refused.name}"):
            Prio3().check(query_about(refused))
    for statistic in STATISTICS:
        Prio3().check(query_about(statistic))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"servers": 1}, "at least 2 servers, not 1"),
        ({"noise": Placement.PARTIES}, "noise would break its proof"),
        (
            {"statistic": Histogram(lower=0.0, upper=1.0, bins=1 << 18)},
            "a party can send 0 records, not 3",
        ),
        ({"statistic": Sum()}, "needs public bounds"),
        ({"parties": 1 << 22, "records": 1 << 23}, "prio3: the roster of"),
    ],
)
def test_what_it_cannot_do_is_said(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(LocalError, match=reason):
        Prio3().check(replace(query_about(Histogram(lower=LOWER, upper=UPPER)), **changes))


def test_it_is_installed_and_catches() -> None:
    assert isinstance(aggregator_named("prio3"), Prio3)
    for servers in (2, 3, 5):
        model = Prio3().threat_model(servers)
        assert model.catches
        assert model.colluding == servers - 1


# --- chunks, noise, soundness ---


@pytest.mark.parametrize(
    "statistic",
    [Histogram(lower=LOWER, upper=UPPER, bins=4), Sum(lower=LOWER, upper=UPPER)],
    ids=name_of,
)
@pytest.mark.parametrize("reports", [1, 2, 3, 5, 100])
def test_chunks_change_nothing_but_the_number_of_steps(
    reports: int, statistic: Bounded, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = query_about(statistic, 2)
    size = reports * reporting(query).prio3.verifier_share_bytes
    monkeypatch.setattr(prio3_reports, "CHUNK_BYTES", size)
    holdings = uneven_holdings(*statistic.bounds)
    total = total_of(exchange_about(query, holdings, liars=[4]))
    expected = planned(statistic).plan.encode(holdings)[without(4)].sum(axis=0, dtype=np.uint64)
    assert total.vector.tolist() == expected.tolist()
    assert total.caught == ((4, INVALID),)
    everyone = np.ones(PARTIES, dtype=bool)
    chunks: list[Ids] = reporting(query).chunks(everyone, holdings.counts)
    assert np.concatenate(chunks).tolist() == list(range(PARTIES))
    assert len(chunks) == {1: 6, 2: 6, 3: 4, 5: 3, 100: 1}[reports]


@pytest.mark.parametrize("servers", [2, 3])
@pytest.mark.parametrize(
    "statistic",
    [
        Histogram(lower=0.0, upper=1.0, bins=400),
        Ecdf(lower=0.0, upper=1.0, thresholds=400),
    ],
    ids=name_of,
)
def test_every_server_adds_the_whole_noise(statistic: Bounded, servers: int) -> None:
    """Released minus measured, 5 runs of 400 or more integers: sums of discrete Laplace noises."""
    holdings = uneven_holdings(*statistic.bounds)
    plan = planned(statistic).plan
    exact = plan.encode(holdings).sum(axis=0, dtype=np.uint64)
    drawn = []
    for run in range(5):
        query = query_about(statistic, servers, epsilon=Fraction(1), nonce=run.to_bytes(8, "big"))
        exchange = Exchange(Prio3(), query, seed=run, records=holdings.counts.astype(np.int64))
        exchange.enter(holdings.ids, Prio3().party(query, holdings, exchange.randomness))
        exchange.run()
        drawn.append(total_of(exchange).vector - plan.measure(exact))
    noise = np.concatenate(drawn).view(np.int64)
    one = discrete_laplace_pmf(np.arange(-500, 501), float(plan.sensitivity.l1))
    pmf = one
    for _ in range(servers - 1):
        pmf = np.convolve(pmf, one)
    reach = len(pmf) // 2
    assert fits(noise, np.arange(-reach, reach + 1), pmf) > ALPHA


def test_tree_noise_is_added_in_place() -> None:
    """Noise of S0's tree: neighbouring counts share most of their noise, alone they are large."""
    statistic = Ecdf(lower=0.0, upper=1.0, thresholds=512, strategy="tree")
    holdings = uneven_holdings(0.0, 1.0)
    query = query_about(statistic, 2, epsilon=Fraction(1))
    exact = query.plan.encode(holdings).sum(axis=0, dtype=np.uint64)
    exchange = exchange_about(query, holdings)
    servers = [
        Prio3().server(query, index, Randomness.from_seed(1, f"server-{index}"), Memory())
        for index in range(2)
    ]
    noises = [server.noise() for server in servers if isinstance(server, Prio3Server)]
    placed = sum(noise for noise in noises if noise is not None)
    assert (total_of(exchange).vector - exact).tolist() == np.asarray(placed).tolist()
    assert np.asarray(placed).any()


def test_the_chance_of_a_false_record_is_as_small_as_is_said() -> None:
    for bounds in ((-3.0, 9.0), (-(2.0**31), 2.0**31), (0.0, 1.0)):
        sums = reporting(query_about(Sum(lower=bounds[0], upper=bounds[1]))).prio3
        assert flp.soundness(sums.circuit) < 2**-57
    for bins in (1, 2, 10, 1024, 1 << 17):
        counts = reporting(one_each(bins)).prio3
        assert flp.soundness(counts.circuit) < 2**-116
