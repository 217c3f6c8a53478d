"""Parties in pairs: exact over the pairs that were drawn, in whatever way messages travel."""

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.kernels.matchings import rounds
from tallyroom.protocols.pairwise.sampling import schedule
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.run.machines import party_machine
from tallyroom.protocols.statistics.of_pairs import (
    Auc,
    CollisionEntropy,
    Gini,
    KendallTau,
    Pairwise,
    Variance,
)
from tallyroom.protocols.statistics.pairwise import Pairs
from tallyroom.protocols.statistics.planned import planned
from tallyroom.protocols.wire.messages import Message, Phase
from tests.protocols.pairwise.gathering import (
    Gathering,
    a_pairs_query,
    by_link,
    deal_base_ots,
    drawn_values,
    held,
    ratings,
)

UNIT: dict[str, Any] = {"lower": 0.0, "upper": 1.0, "pairs_per_party": "all"}
STATISTICS: dict[str, Pairs] = {
    "gini": Gini(**UNIT, bits=8),
    "gini at full width": Gini(**UNIT),
    "variance": Variance(**UNIT, bits=8),
    "collision entropy": CollisionEntropy(pairs_per_party="all"),
    "tau-a": KendallTau(pairs_per_party="all"),
    "tau-b": KendallTau(**UNIT, tau="b", bits=8),
    "auc": Auc(**UNIT, bits=8),
    "named": Pairwise(**UNIT, bits=8, kernel_name="kendall-tau"),
    "not symmetric": Pairwise(**UNIT, bits=8, kernel_name="if(a.x > b.y, a.x, 2 * b.x)"),
}


@pytest.fixture
def no_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    deal_base_ots(monkeypatch)


def a_meeting(
    statistic: Pairs, counts: list[int], servers: int = 2, **changes: Any
) -> tuple[Query, Holdings]:
    holdings = held(counts, ratings(sum(counts)))
    return a_pairs_query(statistic, holdings, servers, **changes), holdings


def is_exact(gathering: Gathering, query: Query, holdings: Holdings) -> None:
    values = drawn_values(query, holdings)
    assert gathering.failed is None
    assert gathering.total is not None
    assert gathering.totals.tolist() == values.sum(axis=0).tolist()
    assert gathering.total.records == len(values)
    assert gathering.total.contributors.tolist() == holdings.ids.tolist()


@pytest.mark.usefixtures("no_curves")
@pytest.mark.parametrize("name", STATISTICS)
@pytest.mark.parametrize("counts", [[1, 1], [2, 1, 3], [1] * 6])
def test_the_total_is_exact_over_the_pairs_that_were_drawn(name: str, counts: list[int]) -> None:
    query, holdings = a_meeting(STATISTICS[name], counts)
    gathering = Gathering(query, holdings).run()
    is_exact(gathering, query, holdings)
    assert gathering.rejected == []


def test_by_the_curve_as_well() -> None:
    query, holdings = a_meeting(STATISTICS["auc"], [2, 2, 1])
    gathering = Gathering(query, holdings).run()
    is_exact(gathering, query, holdings)
    assert gathering.rejected == []


@pytest.mark.usefixtures("no_curves")
@pytest.mark.parametrize("parties", range(2, 10))
@pytest.mark.parametrize("each", [1, 2, 3])
def test_any_number_of_parties_and_records(parties: int, each: int) -> None:
    """Of an odd number of records, every matching leaves one out."""
    for servers in (1, 2, 3):
        query, holdings = a_meeting(KendallTau(), [each] * parties, servers)
        gathering = Gathering(query, holdings).run()
        is_exact(gathering, query, holdings)
        assert gathering.rejected == []


@pytest.mark.usefixtures("no_curves")
def test_all_pairs_are_the_statistic_itself() -> None:
    for name, statistic in STATISTICS.items():
        if name in ("named", "not symmetric"):
            continue
        query, holdings = a_meeting(statistic, [2, 3, 1, 4])
        total = Gathering(query, holdings).run().total
        assert total is not None
        asked = planned(statistic, query.facts)
        estimate = asked.decode(total.vector, total.records, exact=True)
        assert estimate == pytest.approx(asked.noiseless(holdings), abs=1e-12)
        step = 4 * asked.plan.grid_step + 1e-12
        assert estimate == pytest.approx(statistic.reference(holdings), abs=step)


@pytest.mark.usefixtures("no_curves")
@given(
    counts=st.lists(st.integers(1, 3), min_size=2, max_size=6),
    matchings=st.integers(1, 4),
    blocks=st.integers(1, 6),
    servers=st.integers(1, 3),
    chance=st.none() | st.integers(0, 10**6),
    name=st.sampled_from(["auc", "not symmetric", "gini"]),
)
@settings(max_examples=25)
def test_in_whatever_blocks_order_and_parts(
    counts: list[int], matchings: int, blocks: int, servers: int, chance: int | None, name: str
) -> None:
    """Openings come early, answers overtake each other, batches arrive in pieces."""
    statistic = replace(STATISTICS[name], pairs_per_party=str(matchings))
    query, holdings = a_meeting(statistic, counts, servers)
    gathering = Gathering(query, holdings, min(blocks, len(counts)), chance).run()
    is_exact(gathering, query, holdings)
    assert gathering.rejected == []


@pytest.mark.usefixtures("no_curves")
@pytest.mark.parametrize("noise", [Placement.TOTAL, Placement.PER_PAIR])
def test_what_passes_on_a_link_does_not_depend_on_blocks(noise: Placement) -> None:
    query, holdings = a_meeting(
        STATISTICS["not symmetric"], [2, 1, 3, 1, 2], epsilon=Fraction(2), noise=noise
    )
    ways = [(1, None), (2, None), (3, 7), (5, None), (5, 8)]
    runs = [Gathering(query, holdings, blocks, chance).run() for blocks, chance in ways]
    phases = (Phase.PAIR, Phase.PAIRED, Phase.SUBMIT, Phase.RELEASE)
    first, *others = (by_link(run.sent, *phases) for run in runs)
    assert len(first) > 10 * 4
    for other in others:
        assert other == first
    assert len({run.totals.tobytes() for run in runs}) == 1


@pytest.mark.usefixtures("no_curves")
@pytest.mark.parametrize("name", ["gini", "not symmetric"])
def test_a_link_with_many_pairs_speaks_in_messages_that_fit_the_wire(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "ROW_BYTES", 4000)
    query, holdings = a_meeting(STATISTICS[name], [9, 5, 1])
    plan = schedule.Schedule.of(query)
    assert plan.most < 10
    for blocks, chance in ((1, None), (3, 5)):
        gathering = Gathering(query, holdings, blocks, chance).run()
        is_exact(gathering, query, holdings)
        assert gathering.rejected == []
        pairs = [message for message in gathering.sent if message.phase is Phase.PAIR]
        # The reply to an opening is 4,224 bytes and has no pairs in it.
        assert max(m.width for m in pairs if m.body[0, 0] > 2) <= 4000 + 32
        last = max(message.round for message in pairs)
        assert 5 < last <= 1 + plan.rounds
        submitted = [m.round for m in gathering.sent if m.phase is Phase.SUBMIT]
        assert set(submitted) == {1 + plan.rounds + 1}


@pytest.mark.usefixtures("no_curves")
def test_what_is_said_twice_counts_once() -> None:
    def twice(message: Message) -> Iterable[Message]:
        return (message, message)

    query, holdings = a_meeting(STATISTICS["auc"], [2, 1, 3, 1])
    for blocks, chance in ((1, None), (4, None), (4, 3)):
        gathering = Gathering(query, holdings, blocks, chance, twice).run()
        is_exact(gathering, query, holdings)
        assert gathering.failed is None


@pytest.mark.usefixtures("no_curves")
def test_fewer_pairs_than_all() -> None:
    for matchings in range(1, rounds(9) + 1):
        statistic = Gini(lower=0.0, upper=1.0, bits=6, pairs_per_party=str(matchings))
        query, holdings = a_meeting(statistic, [3, 3, 3])
        gathering = Gathering(query, holdings).run()
        is_exact(gathering, query, holdings)
        assert gathering.total is not None
        assert gathering.total.records == 4 * matchings


def test_a_party_with_more_records_than_announced_is_told() -> None:
    query, _ = a_meeting(STATISTICS["auc"], [2, 2])
    with pytest.raises(LocalError, match="more than 2 records"):
        party_machine(query, held([1, 3], ratings(4)), Randomness(bytes(16)))


def test_secrets_do_not_show() -> None:
    query, holdings = a_meeting(STATISTICS["auc"], [2, 2])
    machine = party_machine(query, holdings, Randomness(bytes(16)))
    assert repr(machine) == "<BoundedParty of 2>"
