"""Parties that add the noise themselves, to what is published of their vectors."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.aggregation.exchange import Exchange
from tallyroom.protocols.algebra.ring import Vector, signed
from tallyroom.protocols.privacy.mechanisms import Placement, laplace_scale
from tallyroom.protocols.query import Query
from tallyroom.protocols.records import Holdings, deal
from tallyroom.protocols.statistics import Curve
from tallyroom.protocols.statistics.cumulative import Cumulative
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.statistics.planned import planned
from tests.goodness import ALPHA, discrete_laplace_pmf, fits
from tests.samples import a_query

SUMS = [
    ("curator", 1),
    ("additive", 3),
    ("masking", 1),
    ("masking?neighbours=2", 1),
    ("shamir", 3),
    ("shamir?threshold=3&pack=2", 4),
]


def a_curve_query(
    spec: str, servers: int, statistic: Cumulative, parties: int, records: int
) -> Query:
    return a_query(
        aggregator=spec,
        servers=servers,
        statistic=statistic,
        parties=parties,
        records=records,
        min_parties=parties // 2,
        max_records_per_party=-(-records // parties),
        epsilon=Fraction(1, 2),
        noise=Placement.PARTIES,
    )


def some(parties: int, records: int) -> Holdings:
    values = np.random.default_rng(5).random(records)
    return deal({"value": values}, parties)


def total_of(query: Query, holdings: Holdings, blocks: int = 1) -> Vector:
    """What is released over the parties of `holdings`, who may be some of those asked."""
    counts = np.ones(query.parties, dtype=np.int64)
    counts[holdings.ids] = holdings.counts
    aggregator = aggregator_named(query.aggregator)
    exchange = Exchange(aggregator, query, records=counts)
    for ids in np.array_split(holdings.ids, blocks):
        absent = frozenset(set(holdings.ids.tolist()) - set(ids.tolist()))
        mine = holdings.without(absent) if absent else holdings
        assert mine is not None
        exchange.enter(ids, aggregator.party(query, mine, exchange.randomness))
    exchange.expire()
    assert exchange.failed is None
    assert exchange.total is not None
    return exchange.total.vector


@pytest.mark.parametrize("strategy", ["hierarchy", "tree"])
@pytest.mark.parametrize(("spec", "servers"), SUMS)
def test_what_is_released_is_what_was_measured_and_the_parties_noise(
    spec: str, servers: int, strategy: str
) -> None:
    """Exactly, and in whatever blocks the parties are: also where a curve of 54 points has 61
    counts, and shares are padded."""
    statistic = Ecdf(lower=0.0, upper=1.0, thresholds=54, strategy=strategy)
    holdings = some(6, 15)
    query = a_curve_query(spec, servers, statistic, 6, 15)
    vectors = query.plan.encode(holdings)
    exchange = Exchange(aggregator_named(spec), query)
    assert query.noise_law is not None
    drawn = query.noise_law.draw_shares(holdings.ids, 3, query.plan.noises, exchange.randomness)
    measured = query.plan.measure(vectors.sum(axis=0, dtype=np.uint64))
    expected = measured + query.plan.place(drawn.sum(axis=0).view(np.uint64))
    assert np.abs(drawn).max() > 0
    for blocks in (1, 6):
        released = total_of(query, holdings, blocks)
        assert len(released) == query.released == query.submitted
        assert released.tolist() == expected.tolist()


@pytest.mark.parametrize(("spec", "servers"), [("additive", 2), ("shamir", 3)])
def test_half_of_the_parties_add_the_full_noise_to_every_count(spec: str, servers: int) -> None:
    """n = 4368 counts of a hierarchy, of which two parties of four draw the noise."""
    statistic = Ecdf(lower=0.0, upper=1.0, thresholds=4096, strategy="hierarchy")
    query = a_curve_query(spec, servers, statistic, 4, 8)
    half = some(4, 8).without(frozenset({1, 3}))
    assert half is not None
    released = total_of(query, half)
    measured = query.plan.measure(query.plan.encode(half).sum(axis=0, dtype=np.uint64))
    noise = signed(released - measured)
    assert query.noise_law is not None
    scale = float(laplace_scale(query.noise_law))
    support = np.arange(-int(20 * scale), int(20 * scale) + 1)
    assert len(noise) == query.plan.noises == 4368
    assert fits(noise, support, discrete_laplace_pmf(support, scale)) > ALPHA
    assert fits(noise, support, discrete_laplace_pmf(support, 1.5 * scale)) < ALPHA


def test_a_curve_is_decoded_from_the_counts_that_parties_noised() -> None:
    """The noise of ε = 10^6 is none: the curve is that of the data."""
    statistic = Ecdf(lower=0.0, upper=1.0, thresholds=32)
    holdings = some(4, 40)
    query = a_curve_query("shamir", 3, statistic, 4, 40)
    loud = replace(query, epsilon=Fraction(10**6))
    curve = planned(statistic).decode(total_of(loud, holdings), 40)
    truth = statistic.reference(holdings)
    assert isinstance(curve, Curve)
    assert isinstance(truth, Curve)
    assert np.allclose(curve.y, truth.y, atol=1e-9)


def test_without_noise_parties_submit_their_vectors() -> None:
    query = a_curve_query("shamir", 3, Ecdf(lower=0.0, upper=1.0, thresholds=54), 4, 4)
    exact = replace(query, epsilon=None)
    assert exact.submitted == exact.plan.length == 54
    assert query.submitted == query.plan.released == query.plan.noises > 54
    with_servers = replace(query, noise=Placement.EACH_SERVER)
    assert with_servers.submitted == 54
