"""Statistics: exact sensitivity, decoding within the grid, references, hostile parameters."""

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallyroom.parties.data import Dataset
from tallyroom.protocols.aggregation.additive import Additive
from tallyroom.protocols.aggregation.curator import Curator
from tallyroom.protocols.aggregation.one_round import OneRound
from tallyroom.protocols.algebra.ring import signed
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.statistics import Curve, Estimate, Statistic, statistics
from tallyroom.protocols.statistics.bounded import Bounded, clipped_records
from tallyroom.protocols.statistics.estimates import Bins
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.moments import Mean, Sum
from tallyroom.protocols.statistics.on_demand import EcdfPoints
from tallyroom.protocols.statistics.pairwise import Pairs
from tallyroom.protocols.statistics.planned import planned
from tallyroom.protocols.statistics.survival import OfEventTimes
from tallyroom.protocols.wire.messages import NONCE_BYTES
from tallyroom.simulation import Federation
from tests.samples import holdings_of

bounds = st.tuples(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6)).map(lambda b: (b[0], b[0] + b[1]))
STATED = [
    Sum(lower=-1.5, upper=2.25),
    Mean(lower=0.0, upper=100.0),
    Histogram(lower=-1.0, upper=3.0, bins=4),
    Histogram(lower=0.0, upper=1.0, bins=1),
]


def encoded_sum(statistic: Statistic, values: list[float], parties: int = 1) -> list[int]:
    plan = planned(statistic).plan
    vectors = plan.encode(holdings_of(values, parties))
    assert vectors.shape == (parties, plan.length)
    total: list[int] = signed(vectors.sum(axis=0, dtype=np.uint64)).tolist()
    return total


def distance(statistic: Statistic, left: list[float], right: list[float]) -> int:
    pairs = zip(encoded_sum(statistic, left), encoded_sum(statistic, right), strict=True)
    return sum(abs(a - b) for a, b in pairs)


@pytest.mark.parametrize("statistic", STATED, ids=repr)
def test_some_replacement_attains_the_sensitivity_and_none_exceeds_it(statistic: Bounded) -> None:
    lower, upper = statistic.bounds
    points = [*np.linspace(lower - 1, upper + 1, 40).tolist(), lower, upper]
    moves = [
        distance(statistic, [before, 0.5], [after, 0.5])
        for before, after in product(points, points)
    ]
    assert max(moves) == planned(statistic).plan.sensitivity.l1


@given(bounds, st.integers(2, 50), st.floats(-2e6, 2e6), st.floats(-2e6, 2e6), st.integers(0, 2))
def test_replacing_a_record_moves_the_sum_by_at_most_the_sensitivity(
    ends: tuple[float, float], bins: int, before: float, after: float, which: int
) -> None:
    lower, upper = ends
    statistic: Statistic = [
        Sum(lower=lower, upper=upper),
        Mean(lower=lower, upper=upper),
        Histogram(lower=lower, upper=upper, bins=bins),
    ][which]
    others = [lower, upper, (lower + upper) / 2]
    sensitivity = planned(statistic).plan.sensitivity.l1
    assert distance(statistic, [*others, before], [*others, after]) <= sensitivity
    assert distance(statistic, [lower], [upper]) == sensitivity


@given(bounds, st.lists(st.floats(-2e6, 2e6), min_size=1, max_size=30), st.data())
def test_sum_and_mean_decode_to_their_reference_within_the_grid(
    ends: tuple[float, float], values: list[float], data: st.DataObject
) -> None:
    parties = data.draw(st.integers(1, len(values)))
    holdings = holdings_of(values, parties)
    for kind in (Sum, Mean):
        statistic = kind(lower=ends[0], upper=ends[1])
        asked = planned(statistic)
        total = asked.total(holdings)
        decoded = asked.decode(total, len(values))
        assert asked.noiseless(holdings) == decoded
        assert isinstance(decoded, float)
        inside = np.clip(values, *ends)
        reference = float(inside.sum() if kind is Sum else inside.mean())
        assert statistic.reference(holdings_of(inside, 1)) == reference
        slack = len(values) * float(asked.deviations(total, 1.0, len(values))[0]) + 1e-9 * max(
            map(abs, ends)
        )
        assert abs(decoded - reference) <= slack


@given(bounds, st.lists(st.floats(-2e6, 2e6), min_size=1, max_size=40), st.integers(1, 60))
def test_a_histogram_is_numpys(ends: tuple[float, float], values: list[float], bins: int) -> None:
    statistic = Histogram(lower=ends[0], upper=ends[1], bins=bins)
    edge_cases = [*values, *statistic.edges.tolist(), math.nextafter(ends[1], math.inf)]
    clipped = np.clip(edge_cases, *ends)
    counts, edges = np.histogram(clipped, bins=statistic.edges)
    holdings = holdings_of(edge_cases, 1)
    asked = planned(statistic)
    decoded = asked.decode(asked.total(holdings), len(edge_cases))
    assert decoded == Bins(edges[:-1].tolist(), counts.astype(float).tolist(), edges[-1])
    assert decoded == asked.noiseless(holdings)
    raw, _ = np.histogram(edge_cases, bins, range=ends)
    assert statistic.reference(holdings) == Bins(
        edges[:-1].tolist(), raw.astype(float).tolist(), edges[-1]
    )


def test_a_party_counts_its_own_records_only() -> None:
    statistic = Histogram(lower=0.0, upper=1.0, bins=2)
    vectors = planned(statistic).plan.encode(holdings_of([0.1, 0.2, 0.9, 0.7, 0.3, 0.8], 3))
    assert vectors.tolist() == [[2, 0], [0, 2], [1, 1]]


def test_negative_noisy_counts_stay_negative() -> None:
    total = np.array([-3, 5], dtype=np.int64).view(np.uint64)
    decoded = planned(Histogram(lower=0.0, upper=1.0, bins=2)).decode(total, 2)
    assert isinstance(decoded, Curve)
    assert decoded.y == [-3.0, 5.0]


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=30))
def test_values_outside_are_counted(values: list[float]) -> None:
    statistic = Sum(lower=-1.0, upper=1.0)
    outside = sum(value < -1 or value > 1 for value in values)
    assert clipped_records(statistic, holdings_of(values, 1)) == outside


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("statistic", STATED[:3], ids=repr)
def test_what_is_not_a_number_counts_as_the_lower_bound(statistic: Statistic, bad: float) -> None:
    """A party that refused it would tell of its records; the truth of a simulation refuses."""
    holdings = holdings_of([0.0, bad], 1)
    plan = planned(statistic).plan
    assert (plan.encode(holdings) == plan.encode(holdings_of([0.0, -1e300], 1))).all()
    with pytest.raises(LocalError, match="not finite"):
        statistic.reference(holdings)


@pytest.mark.parametrize(
    "kind",
    [
        kind
        for kind in statistics().values()
        if issubclass(kind, Bounded) and not issubclass(kind, Pairs)
    ],
)
def test_bounds_are_needed(kind: type[Statistic]) -> None:
    thresholds: dict[type[Statistic], dict[str, object]] = {
        EcdfPoints: {"at": [0.5]},
    }
    for ends in ({}, {"lower": 0.0}, {"upper": 1.0}):
        if issubclass(kind, OfEventTimes) and ends == {"upper": 1.0}:
            continue  # times begin at 0
        with pytest.raises(LocalError, match="needs public bounds"):
            planned(kind.from_parameters(thresholds.get(kind, {}) | ends)).total(
                holdings_of([0.5], 1)
            )


@pytest.mark.parametrize("statistic", STATED, ids=repr)
def test_parameters_go_round(statistic: Statistic) -> None:
    assert type(statistic).from_parameters(statistic.parameters()) == statistic


@pytest.mark.parametrize(
    "parameters",
    [
        {"bins": "4"},
        {"bins": 4.0},
        {"bins": True},
        {"bins": None},
        {"bins": 0},
        {"bins": -1},
        {"bins": 2**20 + 1},
        {"bins": 10**400},
        {"lower": "0"},
        {"lower": [0]},
        {"lower": False},
        {"lower": math.nan},
        {"upper": math.inf},
        {"lower": 1.0, "upper": 1.0},
        {"lower": 2, "upper": 1},
        {"lower": -1.7e308, "upper": 1.7e308},
        {"value": None},
        {"value": 7},
        {"name": "x"},
        {"__init__": 1},
        {"clip": 1},
    ],
    ids=str,
)
def test_hostile_parameters(parameters: dict[str, Any]) -> None:
    with pytest.raises(LocalError):
        Histogram.from_parameters(parameters)


@pytest.mark.parametrize("bound", [10**400, -(10**400)])
def test_an_integer_no_double_holds_is_no_bound(bound: int) -> None:
    with pytest.raises((LocalError, OverflowError)):
        Sum.from_parameters({"lower": bound})


def without_messages(query: Query, aggregator: OneRound, holdings: Holdings) -> Estimate:
    """The exact answer: parties encode and shard, servers merge, the coordinator unshards."""
    plan, servers = query.plan, range(query.servers)
    submitted = aggregator.shard(
        holdings.ids, plan.encode(holdings), len(servers), Randomness.from_seed(1, "all")
    )
    shares = [aggregator.merge(submitted[server], plan.length, server) for server in servers]
    total = aggregator.unshard(shares)
    released = aggregator.mechanism(query).release(total, holdings.rows, len(holdings.ids))
    return query.statistic.read(released).estimate


@pytest.mark.parametrize(
    ("aggregator", "servers"), [(Curator(), 1), (Additive(), 2), (Additive(), 3)]
)
@pytest.mark.parametrize("statistic", STATED[:3], ids=repr)
def test_a_federation_gives_what_a_straight_line_does(
    statistic: Bounded, aggregator: OneRound, servers: int
) -> None:
    """Messages change nothing of what sharding and merging give, and it is the plain library's
    answer of values within the bounds."""
    values = np.clip(np.random.default_rng(8).uniform(-2, 4, 17), *statistic.bounds)
    holdings = holdings_of(values, 5)
    noise = Placement.CURATOR if servers == 1 else Placement.EACH_SERVER
    question = Question(statistic, aggregator.name, None, noise)
    query = question.query(bytes(NONCE_BYTES), 5, servers, 17, 4)
    told = without_messages(query, aggregator, holdings)
    with Federation(
        parties=5,
        servers=servers,
        aggregator=aggregator.name,
        data=Dataset("values", {"value": values}),
    ) as federation:
        result = federation.run(replace(statistic), "inf")
    assert told == result.estimate
    assert np.allclose(values_of(told), values_of(statistic.reference(holdings)), rtol=1e-8)


def values_of(estimate: Estimate) -> Any:
    return estimate.y if isinstance(estimate, Curve) else estimate
