"""What the shuffle model promises: estimates, deviations, ε and δ.

Exact sums, dropouts and blocks are in the contract that every aggregator passes.
"""

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.aggregation.shuffle.aggregator import Shuffle
from tallyroom.protocols.aggregation.shuffle.reports import (
    honest_parties,
    least_reports,
    local_budget,
    randomizer_of,
    sealed_reports,
)
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.local import BoundedResponse, RandomizedResponse
from tallyroom.protocols.local.response import exp_below
from tallyroom.protocols.privacy.mechanisms import DiscreteLaplace, Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import deal
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.moments import Mean, Sum
from tallyroom.protocols.statistics.planned import planned
from tallyroom.protocols.wire.meter import Bill
from tallyroom.simulation.federation import Federation
from tallyroom.simulation.result import Result
from tallyroom.simulation.runtimes import Opened
from tallyroom.simulation.statement import notes_of
from tests.arrays import as_array
from tests.goodness import ALPHA
from tests.protocols.aggregation.shuffle_run import (
    a_query,
)


@pytest.mark.parametrize(
    "statistic",
    [
        Histogram(lower=0.0, upper=1.0, bins=4),
        Sum(lower=-1.0, upper=3.0),
        Mean(lower=0.0, upper=1.0),
    ],
    ids=lambda statistic: statistic.name,
)
def test_estimates_have_the_deviation_that_is_stated(statistic: Statistic) -> None:
    """600 runs of 400 records: means at ALPHA; the spread of a histogram is what is stated, give or
    take √(1/1200), and of sums at most that and at least a third (the worst case is stated)."""
    runs, records = 600, 400
    query = a_query(
        statistic, parties=records, records=records, min_parties=records, max_records_per_party=1
    )
    holdings = deal({"value": np.random.default_rng(8).beta(2, 5, records)}, records)
    reports = sealed_reports(query, holdings)
    everyone = np.arange(records)
    values = []
    for run in range(runs):
        source = Randomness.from_seed(run, "parties")
        opened = reports.open(reports.payloads(everyone, 1, source).reshape(records, -1))
        assert (opened.records, opened.refused) == (records, 0)
        values.append(as_array(planned(statistic).decode(opened.vector, records)))
    truth = statistic.reference(holdings)
    exact = as_array(truth)
    encoded = query.plan.encode(holdings).sum(axis=0, dtype=np.uint64)
    released = Shuffle().mechanism(query).release(encoded, records, records)
    stated = statistic.read(released).deviations
    assert stated.shape == exact.shape
    bound = stats.norm.isf(ALPHA / 2)
    assert (np.abs(np.mean(values, axis=0) - exact) < bound * stated / math.sqrt(runs)).all()
    ratio = np.std(values, axis=0) / stated
    margin = bound * math.sqrt(1 / (2 * runs))
    assert (ratio < 1 + margin).all()
    least = 1 - margin if isinstance(statistic, Histogram) else 1 / 3
    assert (ratio > least).all()


def test_what_is_said_of_an_amplified_answer() -> None:
    query = a_query(
        epsilon=Fraction(1), parties=2000, records=2000, min_parties=1500, max_records_per_party=1
    )
    said = Shuffle().mechanism(query)
    local = local_budget(query, 3)
    assert local > 3
    assert (said.delta, said.exact, said.placement) == (1e-6, False, "local")
    assert said.words == f"randomized response among 3 values, of local ε {float(local):.6g}"
    assert "at least 1350 honest ones" in said.statement
    assert "1350 parties are honest" in said.statement
    assert said.spend.loss.epsilon == 1


def test_where_shuffling_does_not_help_the_answer_is_purely_local() -> None:
    query = a_query()
    said = Shuffle().mechanism(query)
    assert local_budget(query, 3) == query.epsilon
    assert (said.delta, float(said.spend.loss.delta)) == (0.0, 0.0)
    assert "private by itself" in said.statement
    randomizer = randomizer_of(query)
    assert isinstance(randomizer, RandomizedResponse)
    assert randomizer.ratio <= exp_below(Fraction(2))


def test_a_party_with_many_records_is_protected_as_a_whole() -> None:
    query = a_query(records_per_unit=3)
    assert local_budget(query, 3) == Fraction(2, 3)
    many = a_query(parties=2000, records=6000, min_parties=2000, records_per_unit=3)
    assert (
        Fraction(1, 3) < local_budget(many, 3) < local_budget(replace(many, records_per_unit=1), 3)
    )


def test_one_bit_or_a_grid_whichever_varies_less() -> None:
    mean = Mean(lower=0.0, upper=1.0)
    strong = randomizer_of(a_query(mean, epsilon=Fraction(1)))
    weak = randomizer_of(a_query(mean, epsilon=Fraction(9)))
    assert isinstance(strong, BoundedResponse)
    assert isinstance(weak, BoundedResponse)
    assert strong.values == 2
    assert weak.values > 2
    assert "one bit" in Shuffle().mechanism(a_query(mean, epsilon=Fraction(1))).words
    assert "grid points" in Shuffle().mechanism(a_query(mean, epsilon=Fraction(9))).words


@pytest.mark.parametrize(
    ("min_parties", "max_records_per_party", "all_honest", "expected"),
    [(6, 3, 15, 12), (5, 3, 12, 9), (1, 3, 1, 1), (3, 2, 9, 7), (4, 10, 4, 3)],
)
def test_how_many_honest_reports_there_are_at_least(
    min_parties: int, max_records_per_party: int, all_honest: int, expected: int
) -> None:
    """Of six parties with fifteen records: one of them may lie, as few as they are."""
    query = a_query(min_parties=min_parties, max_records_per_party=max_records_per_party)
    assert least_reports(query) == expected
    assert least_reports(replace(query, aggregator="shuffle?honest=1")) == all_honest


def a_lie(claim: int, aggregator: str) -> Query:
    """A hundred parties with 20 records each, one of which claims another number."""
    return a_query(
        epsilon=Fraction(1, 10),
        parties=100,
        min_parties=100,
        records=99 * 20 + claim,
        max_records_per_party=max(20, claim),
        aggregator=aggregator,
    )


@pytest.mark.parametrize("claim", [1, 20, 10**5])
def test_one_party_that_claims_many_records_weakens_nobody(claim: int) -> None:
    """What a record hides among is never more than the others hold, and no report tells more than
    it would among those."""
    others = a_query(
        epsilon=Fraction(1, 10),
        parties=99,
        min_parties=99,
        records=99 * 20,
        max_records_per_party=20,
        aggregator="shuffle?honest=1",
    )
    lied = a_lie(claim, "shuffle")
    assert least_reports(lied) <= least_reports(others) == 99 * 20
    assert local_budget(lied, 3) <= local_budget(others, 3)


def test_a_claim_would_weaken_all_others_were_every_party_believed() -> None:
    """What it is that `honest` prevents: ε0 would be 3 and more instead of a few tenths."""
    believed, doubted = (
        local_budget(a_lie(10**5, spec), 3) for spec in ("shuffle?honest=1", "shuffle")
    )
    assert doubted < 1
    assert believed > 3


@pytest.mark.parametrize("text", ["0", "1.1", "-0.5", "nan", "inf", "1e-3", "", "0.9.1", "½"])
def test_a_fraction_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(LocalError, match="honest"):
        aggregator_named(f"shuffle?honest={text}")


def test_the_honest_are_counted_exactly() -> None:
    """0.07 · 100 is seven, though not in doubles."""
    query = a_query(aggregator="shuffle?honest=0.07")
    assert honest_parties(query, 100) == 7
    assert honest_parties(query, 1) == 1


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (a_query(delta=0.0), "give --delta"),
        (a_query(servers=2), "1 server, the shuffler, not 2"),
        (a_query(Ecdf(lower=0.0, upper=1.0, strategy="tree")), "no local randomizer for ecdf"),
        (a_query(noise=Placement.PARTIES), "leave --noise out"),
        (a_query(max_records_per_party=90_000, records=100_000), "do not fit a message"),
        (a_query(Histogram(lower=0.0, upper=1.0, bins=524_224), epsilon=None), "do not fit"),
        (
            a_query(Sum(lower=0.0, upper=1.0), epsilon=Fraction(1, 10**9), delta=1e-13),
            "too small",
        ),
    ],
)
def test_what_a_shuffler_cannot_do_is_said(query: Query, reason: str) -> None:
    with pytest.raises(LocalError, match=reason):
        Shuffle().check(query)


def test_what_needs_no_noise_needs_no_delta() -> None:
    Shuffle().check(a_query(epsilon=None, delta=0.0))
    Shuffle().check(a_query(Histogram(lower=0.0, upper=1.0, bins=1), delta=0.0))
    assert Shuffle().mechanism(a_query(epsilon=None)).exact
    assert Shuffle().mechanism(a_query(epsilon=None)).noise(np.zeros(3, np.uint64), 1, 1) is None


def ask(runtime: str, aggregator: str = "shuffle", **options: Any) -> Result:
    with Federation(parties=30, aggregator=aggregator, runtime=runtime, hosts=2, seed=5) as room:
        return room.run(Histogram(bins=4, value="score"), **options)


def test_processes_answer_what_one_process_computes() -> None:
    """Over gRPC and in memory, bit for bit; 2000 records of 30 parties, so ε0 is well above ε."""
    results = [ask(runtime, epsilon=1, delta=1e-6) for runtime in ("inprocess", "processes")]
    assert results[0].estimate == results[1].estimate
    assert results[0].communication == results[1].communication
    for result in results:
        assert (result.privacy.delta, result.privacy.noise) == (1e-6, "local")
        assert "among 4 values" in result.privacy.mechanism
        assert "at least 1799 honest" in result.privacy.threat_model
        assert result.error is not None
        assert result.error["max"] < stats.norm.isf(ALPHA / 8) * result.deviations.max()


def test_without_privacy_the_answer_is_exact_and_says_so() -> None:
    result = ask("inprocess", epsilon="inf")
    assert result.estimate == result.truth
    assert "NOT PRIVATE" in result.privacy.threat_model
    assert result.privacy.mechanism == "none"


def test_what_others_release_is_said_as_before() -> None:
    """The hook's default: noise on the sum, from the statistic and the placement."""
    result = ask("inprocess", "additive", epsilon=1, delta=2**-12)
    assert result.privacy.delta == 0.0
    assert result.privacy.noise == "each-server"
    assert result.privacy.mechanism == "discrete Laplace of scale 2 on 4 integers"
    assert result.deviations == pytest.approx(math.sqrt(2 * DiscreteLaplace(Fraction(2)).variance))


def test_reports_that_were_refused_are_told_with_the_answer() -> None:
    query = a_query(epsilon=None)
    everyone = np.arange(query.parties, dtype=np.uint32)
    opened = Opened(np.zeros(3, np.uint64), everyone, 12, Bill([], query.parties), refused=3)
    notes = notes_of(opened, query.parties)
    assert "3 reports could not be used; their senders are unknown" in notes
    assert notes_of(replace(opened, refused=0), query.parties) == notes[:-1]
