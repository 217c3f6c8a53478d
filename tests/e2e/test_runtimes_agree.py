"""`inprocess` and `processes` run the same machines: under one seed they agree bit for bit."""

import json
from dataclasses import replace

import numpy as np
import pytest

from tallyroom.parties.data import Dataset
from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.statistics import Curve, Statistic
from tallyroom.protocols.statistics.grouped import grouped
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.moments import Mean, Sum
from tallyroom.protocols.wire.messages import Role
from tallyroom.simulation import Federation, Result

VALUES = np.random.default_rng(5).uniform(-3, 9, 23)
DATA = Dataset("values", {"value": VALUES}, {"value": (-3.0, 9.0)})
PARTIES = 9

CASES = [
    pytest.param(Mean(), "additive", 3, None, "1", 3, id="mean-3-servers"),
    pytest.param(Sum(), "additive", 2, "curator", "0.5", 1, id="sum-one-noise"),
    pytest.param(Histogram(bins=7), "additive", 2, "parties", "1", 2, id="histogram-shared"),
    pytest.param(Histogram(bins=7), "curator", 1, None, "2", 3, id="histogram-curator"),
    pytest.param(Histogram(bins=5), "additive", 2, None, "inf", PARTIES, id="histogram-exact"),
    pytest.param(Histogram(bins=7), "prio3", 3, None, "1", 2, id="histogram-verified"),
    pytest.param(Histogram(bins=5), "prio3", 2, None, "inf", PARTIES, id="verified-exact"),
    pytest.param(
        grouped(Mean(), "value > 1 or value is null"), "additive", 2, None, "1", 2, id="mean-where"
    ),
    pytest.param(
        grouped(Histogram(bins=5), "value > 1"), "prio3", 2, None, "1", 2, id="verified-where"
    ),
]


def run(
    runtime: str,
    statistic: Statistic,
    aggregator: str,
    servers: int,
    noise: str | None,
    epsilon: str,
    hosts: int,
    unit: str = "record",
) -> Result:
    with Federation(
        parties=PARTIES,
        servers=servers,
        aggregator=aggregator,
        runtime=runtime,
        data=DATA,
        hosts=hosts,
        seed=7,
    ) as federation:
        return federation.run(statistic, epsilon, noise=noise, unit=unit)


@pytest.mark.parametrize(("statistic", "aggregator", "servers", "noise", "epsilon", "hosts"), CASES)
def test_same_estimate_and_same_bill(
    statistic: Statistic, aggregator: str, servers: int, noise: str | None, epsilon: str, hosts: int
) -> None:
    here, there = (
        run(runtime, statistic, aggregator, servers, noise, epsilon, hosts)
        for runtime in ("inprocess", "processes")
    )
    assert here.estimate == there.estimate
    assert here.communication == there.communication
    assert list(here.bill.rows()) == list(there.bill.rows())
    assert here.privacy == there.privacy
    assert here.error == there.error
    assert there.federation["runtime"] == "processes"
    if epsilon == "inf":
        assert there.estimate == there.truth
    else:
        assert there.estimate != there.truth


def uploaded_on_the_wire(result: Result) -> int:
    accounts = result.bill.accounts.items()
    return sum(account.wire_bytes for link, account in accounts if link.sender is Role.PARTY)


@pytest.mark.parametrize("noise", ["each-server", "parties"])
def test_hosts_change_neither_estimate_nor_bill(noise: str) -> None:
    """A block of many is charged as so many blocks of one, and draws the same."""
    results = [
        run("inprocess", Histogram(bins=4), "additive", 2, noise, "1", hosts)
        for hosts in (1, 2, 3, PARTIES)
    ]
    for other in results[1:]:
        assert other.estimate == results[0].estimate
        assert other.communication == results[0].communication
        assert list(other.bill.rows()) == list(results[0].bill.rows())
    wire = [uploaded_on_the_wire(result) for result in results]
    assert wire == sorted(wire)
    assert wire[-1] == results[-1].bill.by_link()["party->server"].bytes > wire[0]


def test_other_seeds_and_no_seed_give_other_noise() -> None:
    def estimate(seed: int | None) -> object:
        with Federation(parties=PARTIES, data=DATA, seed=seed) as federation:
            return federation.run(Sum(), 1).estimate

    drawn = [estimate(seed) for seed in (1, 2, None, None)]
    assert len(set(map(str, drawn))) == 4
    assert estimate(1) == drawn[0]


def test_a_second_question_of_one_seeded_federation_has_noise_of_its_own() -> None:
    with Federation(parties=PARTIES, data=DATA, seed=1) as federation:
        first, second = (federation.run(Histogram(bins=30), 0.1).estimate for _ in range(2))
    assert first != second


def test_the_bill_adds_up() -> None:
    bill = json.loads(
        json.dumps(run("inprocess", Mean(), "additive", 3, None, "1", 3).communication)
    )
    for parts in (bill["phases"], bill["links"]):
        assert sum(part["bytes"] for part in parts.values()) == bill["total_bytes"]
        assert sum(part["messages"] for part in parts.values()) == bill["messages"]
    assert bill["phases"]["submit"] == bill["links"]["party->server"]
    assert bill["phases"]["submit"]["messages"] == PARTIES * 3
    assert bill["rounds"] == 5
    # query 3+9, submit 27, roster 3, release 3, share 3
    assert bill["messages"] == 12 + 27 + 9
    with_parties = (
        bill["links"]["party->server"]["bytes"] + bill["links"]["coordinator->party"]["bytes"]
    )
    assert bill["party_bytes"]["mean"] * PARTIES == with_parties
    assert bill["party_bytes"]["max"] == bill["party_bytes"]["mean"]


def test_verification_takes_the_rounds_that_are_said() -> None:
    result = run("inprocess", Histogram(bins=4), "prio3", 2, None, "1", 2)
    assert result.communication["rounds"] == aggregator_named("prio3").rounds == 9


@pytest.mark.parametrize("servers", [2, 3])
def test_an_upload_is_a_masked_vector_and_seeds(servers: int) -> None:
    """100 parties × 1024 × 64 bit: within 2 % of 8·1024 + 16·(m-1) bytes a party."""
    data = Dataset("uniform", {"value": np.linspace(0, 1, 100)}, {"value": (0.0, 1.0)})
    with Federation(parties=100, servers=servers, data=data) as federation:
        result = federation.run(Histogram(bins=1024), 1)
    uploaded = result.bill.by_link()["party->server"].bytes / 100
    ideal = 8 * 1024 + 16 * (servers - 1)
    assert ideal < uploaded < 1.02 * ideal


def test_a_larger_unit_of_privacy_has_more_noise() -> None:
    record, party = (
        run("inprocess", Sum(), "additive", 2, None, "1", 1, unit) for unit in ("record", "party")
    )
    held = -(-len(VALUES) // PARTIES)
    assert party.deviations[0] / record.deviations[0] == pytest.approx(held, rel=1e-6)
    assert record.estimate != party.estimate


def test_unseeded_processes_answer_about_the_truth() -> None:
    """Noise of scale 2/ε = 0.02 a bin and server: off by one with chance below 1e-20."""
    with Federation(parties=3, runtime="processes", data=replace(DATA), hosts=1) as federation:
        result = federation.run(Histogram(bins=4), 100)
    assert isinstance(result.estimate, Curve)
    assert result.estimate == result.truth
