"""Matchings: each record once, uniform, disjoint where promised; garbling is shared out."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.kernels.matchings import (
    RecordPairs,
    distinct_matchings,
    rounds,
)
from tallyroom.protocols.pairwise.sampling.pair_assignment import garblers_of
from tests.goodness import ALPHA

SEED = bytes(range(16))


def seeds(count: int) -> list[bytes]:
    return [seed.to_bytes(16, "little") for seed in range(count)]


@pytest.mark.parametrize("records", [2, 3, 4, 5, 6, 7, 50, 51, 100_000])
def test_each_record_is_in_each_matching_once(records: int) -> None:
    count = min(5, rounds(records))
    drawn = distinct_matchings(records, count, SEED)
    assert drawn.shape == (count, records // 2, 2)
    assert drawn.dtype == np.uint32
    for matching in drawn:
        seen = np.bincount(matching.ravel(), minlength=records)
        assert seen.max() == 1
        assert seen.sum() == records // 2 * 2


@pytest.mark.parametrize("records", range(2, 24))
def test_all_rounds_are_every_pair_once(records: int) -> None:
    drawn = distinct_matchings(records, rounds(records), SEED).reshape(-1, 2)
    assert len(drawn) == math.comb(records, 2)
    assert {frozenset(pair) for pair in drawn.tolist()} == {
        frozenset(pair) for pair in itertools.combinations(range(records), 2)
    }


@given(st.integers(2, 60), st.data(), st.binary(min_size=16, max_size=16))
def test_distinct_matchings_share_no_pair(records: int, data: st.DataObject, seed: bytes) -> None:
    count = data.draw(st.integers(1, rounds(records)))
    drawn = np.sort(distinct_matchings(records, count, seed).reshape(-1, 2), axis=1)
    assert len(np.unique(drawn, axis=0)) == count * (records // 2)


def named(matching: RecordPairs) -> tuple[tuple[int, int], ...]:
    return tuple(sorted((min(pair), max(pair)) for pair in matching.tolist()))


@pytest.mark.parametrize(("records", "matchings"), [(4, 3), (5, 15), (6, 15)])
def test_each_matching_is_uniform(records: int, matchings: int) -> None:
    """3,000 seeds of two matchings, of which each is uniform."""
    drawn = [distinct_matchings(records, 2, seed) for seed in seeds(3_000)]
    for at in range(2):
        bound = Counter(named(each[at]) for each in drawn)
        assert len(bound) == matchings
        assert stats.chisquare(list(bound.values())).pvalue > ALPHA


def test_both_orders_of_a_pair_are_as_likely() -> None:
    ordered = distinct_matchings(40_000, 2, SEED)
    first = int((ordered[:, :, 0] < ordered[:, :, 1]).sum())
    assert stats.binomtest(first, 40_000).pvalue > ALPHA


def test_the_seed_decides_all() -> None:
    drawn = distinct_matchings(100, 3, SEED)
    assert np.array_equal(drawn, distinct_matchings(100, 3, SEED))
    assert not np.array_equal(drawn, distinct_matchings(100, 3, bytes(16)))


def test_what_cannot_be_paired_is_refused() -> None:
    with pytest.raises(LocalError, match="two records"):
        distinct_matchings(1, 1, SEED)
    with pytest.raises(LocalError, match="too many records"):
        distinct_matchings(1 << 32, 1, SEED)
    with pytest.raises(LocalError, match="at least one pair"):
        distinct_matchings(4, 0, SEED)
    with pytest.raises(LocalError, match="5 records have 5 matchings"):
        distinct_matchings(5, 6, SEED)


def test_garbling_is_spread_over_the_parties() -> None:
    every_pair = distinct_matchings(101, rounds(101), SEED).reshape(-1, 2)
    garblers = garblers_of(every_pair[:, 0], every_pair[:, 1])
    assert np.array_equal(np.bincount(garblers), np.full(101, 50))
