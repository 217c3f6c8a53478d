"""The public plan of a masked sum: regular graphs, thresholds, and degrees that are safe."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tallyroom.protocols.aggregation.masking.aggregator import Masking
from tallyroom.protocols.aggregation.masking.graph import (
    CORRECTNESS_BITS,
    CORRUPT,
    DROPPED,
    HOUR,
    ORDERS_BITS,
    SECURITY_BITS,
    automatic_degree,
    degree_of,
    make_graph,
    threshold_of,
)
from tallyroom.protocols.wire.messages import number, time_of
from tests.samples import a_query


@given(
    st.integers(1, 40), st.sampled_from(["0", "2", "3", "6", "20", "auto"]), st.integers(0, 1 << 44)
)
def test_graphs_are_regular_symmetric_and_have_no_loops(
    parties: int, neighbours: str, time: int
) -> None:
    plan = make_graph(parties, neighbours, 0, time)
    assert plan.neighbours.shape == plan.slots.shape == (parties, plan.degree)
    for i, row in enumerate(plan.neighbours.tolist()):
        assert row == sorted(set(row) - {i})
        for a, other in enumerate(row):
            assert plan.neighbours[other, plan.slots[i, a]] == i


def test_a_sparse_graph_is_a_ring_in_a_random_order() -> None:
    plan, other = (make_graph(200, "6", 0, time) for time in (HOUR - 1, HOUR))
    assert plan.degree == 6
    assert not np.array_equal(plan.neighbours, other.neighbours)
    assert np.array_equal(plan.neighbours, make_graph(200, "6", 0, 0).neighbours)
    # On a ring of reach 3, 200 parties are 33 steps apart at most, and somebody is that far.
    reached, steps = {0}, 0
    while len(reached) < 200:
        reached |= {int(j) for i in reached for j in plan.neighbours[i]}
        steps += 1
    assert steps == 34


def test_relays_turn_rows_round() -> None:
    plan = make_graph(9, "4", 0, 0)
    rows = np.zeros((9, 4, 2), dtype=np.uint8)
    rows[:, :, 0], rows[:, :, 1] = np.arange(9)[:, None], plan.neighbours
    turned = plan.relayed(rows.reshape(9, 8)).reshape(9, 4, 2)
    assert np.array_equal(turned[:, :, 0], plan.neighbours)
    assert np.array_equal(turned[:, :, 1], np.repeat(np.arange(9)[:, None], 4, axis=1))


@given(st.integers(6, 8), st.integers(3, 5), st.sets(st.integers(0, 7)))
def test_survivors_are_the_most_that_can_stay(parties: int, threshold: int, gone: set[int]) -> None:
    """Against all subsets: each member of one that can stay has enough holders in it."""
    plan = make_graph(parties, "4", threshold, 0)
    members = np.array([i not in gone for i in range(parties)])
    can_stay = []
    for bits in range(1 << parties):
        chosen = np.array([bool(bits >> i & 1) for i in range(parties)])
        enough = plan.holders_among(chosen)[chosen] >= threshold
        if enough.all() and not (chosen & ~members).any():
            can_stay.append(chosen)
    union = np.logical_or.reduce(can_stay)
    assert np.array_equal(plan.survivors(members), union)


def test_thresholds_are_more_than_half() -> None:
    assert [threshold_of(h, 0, False) for h in (1, 2, 3, 4, 5, 6, 21, 100)] == [
        1, 2, 3, 3, 4, 5, 15, 67,
    ]  # fmt: skip
    for holders in range(1, 60):
        for automatic in (False, True):
            t = threshold_of(holders, 0, automatic)
            assert holders < 2 * t <= 2 * holders
        # A third of the holders on the server's side do not suffice for two opposite views.
        t = threshold_of(holders, 0, False)
        fewer_than_a_third = (holders - 1) // 3
        assert 2 * t > holders + fewer_than_a_third


@pytest.mark.parametrize(
    ("parties", "neighbours", "degree"),
    [
        (10, "0", 9),
        (10, "4", 4),
        (10, "5", 6),
        (10, "9", 9),
        (10, "50", 9),
        (1, "0", 0),
        (1, "4", 0),
    ],
)
def test_degrees_are_even_or_full(parties: int, neighbours: str, degree: int) -> None:
    assert degree_of(parties, neighbours) == (degree, False)


def chances(parties: int, degree: int) -> tuple[float, float, float]:
    """Of losing privacy by corrupt holders, by a ring that falls apart, and of losing the sum."""
    t = (degree + 1) // 2 + 1
    corrupt, gone = np.ceil(CORRUPT * parties), np.ceil(DROPPED * parties)
    return (
        parties * float(stats.hypergeom(parties - 1, corrupt, degree).sf(t - 1)),
        parties * (CORRUPT + DROPPED) ** (degree / 2),
        parties * float(stats.hypergeom(parties - 1, parties - 1 - gone, degree).cdf(t - 1)),
    )


@pytest.mark.parametrize("parties", [200, 300, 1000, 10_000, 1_000_000])
def test_the_automatic_degree_is_the_least_that_is_safe(parties: int) -> None:
    """Against scipy's hypergeometric tails."""
    degree = automatic_degree(parties)
    assert degree < parties - 1
    each = 2.0 ** -(SECURITY_BITS + ORDERS_BITS)
    limits = (each, each, 2.0**-CORRECTNESS_BITS)

    def safe(degree: int) -> bool:
        return all(c <= limit for c, limit in zip(chances(parties, degree), limits, strict=True))

    assert safe(degree)
    assert not any(safe(smaller) for smaller in range(2, degree, 2))


def test_few_parties_are_all_neighbours() -> None:
    assert [automatic_degree(parties) for parties in (1, 2, 3, 10, 50)] == [0, 1, 2, 9, 49]
    assert make_graph(50, "auto", 0, 0).threshold == 34
    assert make_graph(1000, "auto", 0, 0).threshold == automatic_degree(1000) // 2 + 1


def test_a_graph_is_sparse_by_itself_only_where_that_spares_half_of_the_links() -> None:
    degrees = {parties: degree_of(parties, "auto")[0] for parties in range(60, 300)}
    sparse = [parties for parties, degree in degrees.items() if degree < parties - 1]
    assert sparse == list(range(min(sparse), 300))
    assert all(2 * degrees[parties] < parties for parties in sparse)
    last = min(sparse) - 1
    assert automatic_degree(last) < last - 1, "it could have been"
    assert make_graph(last, "auto", 0, 0).threshold == 2 * last // 3 + 1


def test_there_are_no_more_orders_than_are_counted() -> None:
    """Of all times that a number can have; nobody has more to choose from."""
    last = time_of(b"\xff" * 8)
    assert last // HOUR < 2**ORDERS_BITS


def test_a_coordinator_cannot_choose_who_is_next_to_whom() -> None:
    """It may call runs and data what it likes, and put any question: the order stays that of the
    hour. With a name of its own for every try it found 14 of 20 neighbours on its side."""
    masking = Masking(neighbours="20")
    asked = a_query(parties=100, servers=1, aggregator="masking?neighbours=20")
    hour = 480_000 * HOUR
    bad = np.arange(100) < 20
    found = set()
    for telling in range(300):
        query = replace(
            asked,
            nonce=number(hour + 12_000 * telling, telling * 7919),
            data=f"name {telling}",
            deadline=1.0 + telling,
            min_parties=1 + telling % 100,
        )
        found.add(int(bad[masking.graph(query).neighbours[50]].sum()))
    assert len(found) == 1
    other = masking.graph(replace(asked, nonce=number(hour + HOUR, 0)))
    assert not np.array_equal(other.neighbours, masking.graph(query).neighbours)
