"""Parties that meet few others: every pair is as likely as any, each record is in one pair of every
matching, and what several pairs of one meeting cost is what is said."""

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tallyroom.protocols.kernels.estimator import clustering, pairs_of_a_meeting
from tallyroom.protocols.kernels.matchings import neighbourly_matchings, rounds, turns_in_runs
from tallyroom.protocols.pairwise.sampling.pair_assignment import (
    draw_meetings,
    parse_meetings,
)
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.pairs import PairSample, PairwiseMean
from tallyroom.protocols.statistics.of_pairs import Auc, Gini, KendallTau
from tallyroom.protocols.statistics.pair_intervals import PairError
from tallyroom.protocols.statistics.pairwise import MOST_MEETINGS, Pairs

HELD = st.lists(st.integers(0, 7), min_size=2, max_size=9).filter(lambda held: sum(held) > 1)
SEEDS = st.binary(min_size=16, max_size=16)


def plan_of(statistic: Pairs, parties: int, each: int) -> PairwiseMean:
    facts = replace(Facts.of_one_server(parties * each, each), parties=parties)
    plan = statistic.plan(facts)
    assert isinstance(plan, PairwiseMean)
    return plan


def parties_that_meet(drawn: NDArray[np.uint32], counts: NDArray[np.int64]) -> list[set[int]]:
    owners = np.repeat(np.arange(len(counts)), counts)
    met: list[set[int]] = [set() for _ in counts]
    for one, other in owners[drawn.reshape(-1, 2)].tolist():
        met[one].add(other)
        met[other].add(one)
    return [others - {party} for party, others in enumerate(met)]


@given(HELD, st.data(), SEEDS)
def test_each_record_is_in_one_pair_of_a_matching_and_no_pair_comes_twice(
    held: list[int], data: st.DataObject, seed: bytes
) -> None:
    records = sum(held)
    count = data.draw(st.integers(1, rounds(records)))
    drawn = neighbourly_matchings(np.array(held), count, data.draw(st.integers(1, 5)), seed)
    assert drawn.shape == (count, records // 2, 2)
    for matching in drawn:
        assert len(np.unique(matching)) == records // 2 * 2
    assert drawn.max() < records
    assert len(np.unique(np.sort(drawn.reshape(-1, 2)), axis=0)) == count * (records // 2)


@pytest.mark.parametrize("turns", range(1, 16))
def test_every_start_together_takes_every_turn_equally_often(turns: int) -> None:
    """So each of the matchings is a uniform turn, and a turn holds each pair in one place of all:
    every pair is as likely as any other, whatever the order on the circle."""
    for count, runs in itertools.product(range(1, turns + 1), range(1, 5)):
        taken = Counter[int]()
        for start in range(turns):
            chosen = turns_in_runs(turns, count, runs, start).tolist()
            assert len(set(chosen)) == count
            taken.update(chosen)
        assert taken == dict.fromkeys(range(turns), count)


def test_every_pair_and_either_order_of_it_is_as_likely() -> None:
    """8,000 seeds, alpha 1e-6: 11 records of three unequal parties."""
    held, tries = np.array([2, 6, 3]), 8_000
    seen = np.zeros((11, 11))
    for seed in range(tries):
        drawn = neighbourly_matchings(held, 2, 1, seed.to_bytes(16, "little")).reshape(-1, 2)
        np.add.at(seen, (drawn[:, 0], drawn[:, 1]), 1)
    share = 2 * 5 / 110  # of an ordered pair, in one seed
    off = seen[~np.eye(11, dtype=bool)] / tries - share
    assert np.abs(off).max() < 6 * np.sqrt(share / tries)


@given(st.integers(3, 30), st.integers(1, 12), st.data(), SEEDS)
def test_a_party_meets_few_others(
    parties: int, each: int, data: st.DataObject, seed: bytes
) -> None:
    """In a run of L turns, r records meet r + L − 1 places, or two such arcs where the circle is
    closed, and the one in the middle meets L."""
    count = data.draw(st.integers(1, min(6, rounds(parties * each))))
    runs = data.draw(st.integers(1, 3))
    counts = np.full(parties, each)
    length = -(-count // min(runs, count))
    most = 2 + -(-(each + length) // each) + 2 * length // each + length * (each == 1)
    drawn = neighbourly_matchings(counts, count, runs, seed)
    met = parties_that_meet(drawn, counts)
    assert max(map(len, met)) <= runs * most + count
    assert np.mean([len(others) for others in met]) <= runs * (2 + length / each) + 2


@pytest.mark.parametrize(("each", "length"), [(1, 1), (1, 4), (20, 1), (20, 16), (50, 3)])
def test_pairs_of_a_meeting_are_as_many_as_is_said(each: int, length: int) -> None:
    counts = np.full(40, each)
    owners = np.repeat(np.arange(40), counts)
    found = []
    for seed in range(60):
        drawn = neighbourly_matchings(counts, length, 1, bytes([seed] * 16)).reshape(-1, 2)
        ends = np.sort(owners[drawn].astype(np.int64), axis=1)
        _, sizes = np.unique(ends[:, 0] * 40 + ends[:, 1], return_counts=True)
        found.append(float((sizes**2).sum() / len(drawn)))
    assert np.mean(found) == pytest.approx(pairs_of_a_meeting(each, length), rel=0.12)


@pytest.mark.parametrize(("parties", "each", "length"), [(40, 10, 8), (30, 25, 2)])
def test_the_variance_is_what_is_said_where_parties_differ(
    parties: int, each: int, length: int
) -> None:
    """Records that say nothing by themselves, f(x, y) = xy, with a tenth of the variance of x
    between parties. In 2,500 draws a ratio of variances is within 21 % (alpha 1e-6); pairs of a
    party with itself are in both."""
    alike, generator = 0.1, np.random.default_rng(5)
    counts = np.full(parties, each)
    totals: dict[int, list[float]] = {0: [], 1: []}
    for seed in range(2_500):
        between = generator.normal(size=parties).repeat(each) * np.sqrt(alike)
        x = between + generator.normal(size=parties * each) * np.sqrt(1 - alike)
        for runs, found in totals.items():
            sample = PairSample(length, length, seed.to_bytes(16, "little"), runs)
            one, other = x[sample.pairs_of_parties(counts)].T
            found.append(float(one @ other) / len(one))
    shuffled, few = (float(np.var(each)) for each in totals.values())
    told = clustering(each, length, alike)
    assert few / shuffled == pytest.approx(told, rel=0.21)
    assert told > 1.4


def test_intervals_cover_what_meetings_add() -> None:
    few, everybody = (
        plan_of(Gini(lower=0.0, upper=1.0, pairs_per_party="4", meetings=meetings), 60, 10)
        for meetings in ("few", "all")
    )
    errors = [PairError.of(each, None, each.sample.count(600)).drawing for each in (few, everybody)]
    length = -(-4 // few.sample.runs)
    assert few.sample.runs > 0
    assert errors[0] == pytest.approx(errors[1] * clustering(10, length))


def test_pairs_that_are_alone_in_their_meeting_cost_nothing() -> None:
    assert clustering(1, 1) == clustering(1, 5) == 1


def test_records_that_were_dealt_at_random_cost_nothing_to_meet_few() -> None:
    """Every order of the records on the circle is equally likely then, as where they are shuffled:
    2,000 deals of one column give both ways the same variance."""
    generator = np.random.default_rng(6)
    x, counts = generator.exponential(size=200), np.full(20, 10)
    variances = []
    for runs in (0, 1):
        means = []
        for seed in range(2_000):
            dealt = generator.permutation(x)
            sample = PairSample(4, 4, seed.to_bytes(16, "little"), runs)
            one, other = dealt[sample.pairs_of_parties(counts)].T
            means.append(np.abs(one - other).mean())
        variances.append(np.var(means))
    assert variances[1] / variances[0] == pytest.approx(1, abs=0.22)  # alpha 1e-6


# --- when they meet few ---


@pytest.mark.parametrize("statistic", [Auc(method="pairs"), KendallTau()])
@pytest.mark.parametrize(("parties", "each"), [(100, 20), (100, 200), (50, 30), (150, 7)])
def test_meetings_are_few_where_many_would_meet(statistic: Pairs, parties: int, each: int) -> None:
    plan = plan_of(statistic, parties, each)
    counts = np.full(parties, each)
    met = parties_that_meet(plan.sample.pairs_of_parties(counts), counts)
    assert sum(map(len, met)) / 2 <= 1.15 * MOST_MEETINGS
    everybody = plan_of(replace(statistic, meetings="all"), parties, each)
    assert everybody.sample.runs == 0
    met = parties_that_meet(everybody.sample.pairs_of_parties(counts), counts)
    assert sum(map(len, met)) / 2 > 3 * MOST_MEETINGS


def test_meetings_are_as_they_were_where_few_meet_anyway() -> None:
    for parties, each in ((20, 100), (2, 5), (100, 1)):
        assert plan_of(Gini(lower=0.0, upper=1.0), parties, each).sample.runs == 0
    by_servers = Gini(lower=0.0, upper=1.0, meet="servers")
    assert plan_of(by_servers, 100, 20).sample.runs == 0
    every = Gini(lower=0.0, upper=1.0, pairs_per_party="all", meetings="few")
    assert plan_of(every, 5, 4).sample.runs == 0
    assert plan_of(Gini(lower=0.0, upper=1.0, meetings="few"), 5, 4).sample.runs > 0


def test_what_everybody_is_told_follows_from_the_query_and_is_taken_by_parties() -> None:
    """Parties take the list, servers find the same pairs; a list of another design costs no record
    more pairs than the noise is for."""
    sample = PairSample(3, 3, bytes(16), 1)
    counts = np.array([4, 0, 7, 5, 2, 6], dtype=np.int64)
    parties, entries = draw_meetings(sample, counts)
    again, same = draw_meetings(sample, counts)
    assert np.array_equal(parties, again)
    assert np.array_equal(entries, same)
    for party in np.flatnonzero(counts).tolist():
        own = entries[parties == party]
        row = np.frombuffer(len(own).to_bytes(4, "little") + own.tobytes(), dtype=np.uint8)
        taken = parse_meetings(row, party, int(counts[party]), sample, len(counts))
        assert not isinstance(taken, str)
        assert np.bincount(taken["slot"] // sample.matchings).max() <= sample.met
