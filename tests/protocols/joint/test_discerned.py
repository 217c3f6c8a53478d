"""Picks of two servers on squares of shared counts: the right one, within the stated ε."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.joint.choice import Choice
from tallyroom.protocols.joint.computation import Program
from tallyroom.protocols.joint.discerned import shared_together, squares_in, twice_together
from tallyroom.protocols.joint.noise_circuit import JointGeometric
from tallyroom.protocols.privacy.mechanisms import Placement, laplace_scale
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import deal
from tallyroom.protocols.run.policy import DEPLOYED
from tallyroom.protocols.statistics.planned import planned
from tallyroom.protocols.statistics.projected import CuratedNextAttribute, NextByMax
from tests.protocols.joint.chances import exact_probabilities
from tests.protocols.joint.two_ends import BASES, Ends, shared
from tests.samples import a_query

Counts = NDArray[np.int64]
SCHEMA = ("a=0", "b=0", "y=0")
"""Two values each, of which one is `other`."""


def by_pairs(parts: list[int], labels: list[int]) -> int:
    """Ordered pairs of different classes in one part, by looking at every pair."""
    rows = range(len(parts))
    return sum(
        parts[i] == parts[j] and labels[i] != labels[j] for i in rows for j in rows if i != j
    )


@given(
    parts=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), min_size=1, max_size=9),
    labels=st.lists(st.integers(0, 2), min_size=9, max_size=9),
    seed=st.integers(0, 1000),
)
@settings(max_examples=20, deadline=None)
def test_servers_count_the_pairs_that_stay_together(
    parts: list[tuple[int, int]], labels: list[int], seed: int
) -> None:
    """Two tables, of 3 and of 2 parts, in 3 classes; and the pick is the one that leaves fewer."""
    labels = labels[: len(parts)]
    tables = [np.zeros((3, 3), dtype=np.int64), np.zeros((2, 3), dtype=np.int64)]
    for places, label in zip(parts, labels, strict=True):
        for table, place in zip(tables, places, strict=True):
            table[place, label] += 1
    counts = np.concatenate([table.ravel() for table in tables])
    wanted = [by_pairs([each[at] for each in parts], labels) for at in (0, 1)]
    choice = Choice(2, len(parts), tables=(9, 6), classes=3)
    assert twice_together(counts, (9, 6), 3).tolist() == wanted
    shares = shared(counts, seed)

    def scores(index: int, _: Randomness) -> Program:
        return shared_together(shares[index], (9, 6), 3, choice.largest.bit_length())

    ours, theirs = Ends(scores, bases=BASES).run()
    assert (ours + theirs).tolist() == wanted

    def program(index: int, _: Randomness) -> Program:
        return choice.program(index, shares[index], None, choice.width(0))

    ours, theirs = Ends(program, bases=BASES).run()
    assert int((ours + theirs)[0]) == int(np.argmin(wanted)) == choice.in_clear(counts)[0]


def test_shares_of_a_score_say_nothing_by_themselves() -> None:
    """Of 500 pairs of tables: the top bit of either share is a coin, α below 10^-6 each."""
    counts = np.tile(np.array([5, 1, 0, 3]), 1000)
    tables = (4,) * 1000
    shares = shared(counts)

    def program(index: int, _: Randomness) -> Program:
        return shared_together(shares[index], tables, 2, 4)

    ours, theirs = Ends(program, bases=BASES).run()
    assert set((ours + theirs).tolist()) == {10}
    for side in (ours, theirs):
        ones = int((side >> np.uint64(63)).sum())
        assert abs(ones - 500) < 5 * math.sqrt(250)


def query_of(epsilon: Fraction, records: int = 4) -> Query:
    """Four parties of one record each, or of which the question says so."""
    return a_query(
        statistic=NextByMax(SCHEMA, "y", (), 2),
        records=records,
        max_records_per_party=records // 4,
        epsilon=epsilon,
        noise=Placement.JOINT,
    )


def test_no_pick_costs_more_than_epsilon_on_any_adjacent_records_and_half_the_noise_does() -> None:
    """Exactly, over all data of four records of three bits and all replacements, at ε = 2."""
    query = query_of(Fraction(2))
    choice, mechanism = query.choice, query.noise_law
    assert choice is not None
    assert mechanism is not None
    assert choice.moves == 6
    scale = laplace_scale(mechanism)
    assert scale == 6
    noises = [JointGeometric(scale / part, 8, 40) for part in (1, 2)]

    def scores(records: tuple[tuple[int, ...], ...]) -> tuple[int, int]:
        labels = [each[2] for each in records]
        one, two = (by_pairs([each[at] for each in records], labels) for at in (0, 1))
        return 16 - one, 16 - two

    every = list(itertools.product((0, 1), repeat=3))
    moves = set()
    for kept in itertools.combinations_with_replacement(every, 3):
        found = {scores((*kept, last)) for last in every}
        moves |= set(itertools.permutations(found, 2))
    assert max(abs(a - b) for x, y in moves for a, b in zip(x, y, strict=True)) == choice.moves
    known = {
        (each, at): np.log(exact_probabilities(np.array(each), noise))
        for each in {each for pair in moves for each in pair}
        for at, noise in enumerate(noises)
    }
    worst = [
        max(float(np.abs(known[x, at] - known[y, at]).max()) for x, y in moves) for at in (0, 1)
    ]
    assert worst[0] <= 2 + 1e-6
    assert worst[1] > 2.2


def test_a_coordinator_that_says_fewer_records_gets_no_less_noise() -> None:
    """Sixteen records, of which the question says that there are four: each party knows its own
    alone, and servers go by what parties can hold."""
    honest = query_of(Fraction(1), 16)
    lying = a_query(
        statistic=honest.statistic,
        records=4,
        max_records_per_party=4,
        epsilon=Fraction(1),
        noise=Placement.JOINT,
    )
    assert DEPLOYED.in_federation(2).refusal(lying, records=4) is None
    assert honest.noise_law is not None
    assert lying.noise_law is not None
    least = laplace_scale(honest.noise_law)
    assert laplace_scale(lying.noise_law) >= least == 2 * 2 * 15


def test_it_is_the_curators_best() -> None:
    generator = np.random.default_rng(1)
    columns = {name: generator.integers(0, 2, 40).astype(float) for name in "ab"}
    columns["y"] = columns["b"]
    held = deal(columns, 2)
    pick = planned(NextByMax(SCHEMA, "y", (), 2))
    curated = planned(CuratedNextAttribute(SCHEMA, "y", (), 2))
    assert int(np.argmax(curated.noiseless(held).values())) == 1  # type: ignore[union-attr]
    assert pick.noiseless(held).values().tolist() == [0, 1]  # type: ignore[union-attr]


def test_what_cannot_be_picked_is_one_line() -> None:
    assert squares_in((9, 6), 3) == 15 + 5
    wide = tuple(f"c{at}={','.join(map(str, range(900)))}" for at in range(6))
    with pytest.raises(LocalError, match="squares"):
        NextByMax((*wide, "y=0,1"), "y", (), 2)
    with pytest.raises(LocalError, match="two attributes or more"):
        NextByMax(SCHEMA, "y", ("a",), 2)
    for tables, classes in (((9,), 3), ((9, 7), 3), ((9, 0), 3), ((9, 9), 0)):
        with pytest.raises(LocalError, match="whole parts"):
            Choice(2, 9, tables=tables, classes=classes)
    pick = planned(NextByMax(SCHEMA, "y", (), 2))
    for index in (2, 2**64 - 1):
        with pytest.raises(RunFailed, match="do not add up"):
            pick.decode(np.array([index], dtype=np.uint64), 9)
