"""Masked sums through all stages: exact, whoever leaves when, as long as enough stay."""

from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.aggregation.masking.aggregator import Masking
from tallyroom.protocols.aggregation.masking.graph import MaskingGraph
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.run.machines import check
from tallyroom.protocols.statistics.on_demand import QuantileSearch
from tallyroom.protocols.wire.messages import Phase, Role
from tests.protocols.aggregation.masking_samples import FULL, a_masked_query, some_vectors, sum_over
from tests.protocols.aggregation.rounds import Rounds, leaving

STAGES = [Phase.KEYS, Phase.DEAL, Phase.SUBMIT, Phase.CHECK, Phase.UNMASK]


@given(st.integers(1, 12), st.integers(1, 70), st.sampled_from(["0", "auto", "2", "4"]), st.data())
def test_sums_are_exact_on_every_graph_and_in_any_blocks(
    parties: int, length: int, neighbours: str, data: st.DataObject
) -> None:
    blocks = data.draw(st.integers(1, parties))
    vectors = some_vectors(parties, length)
    query = a_masked_query(parties, length, min_parties=parties)
    run = Rounds(Masking(neighbours=neighbours), query, vectors, blocks).run()
    assert run.rejected == []
    assert run.total is not None
    assert run.total.vector.tolist() == sum_over(vectors, list(range(parties)))
    assert run.total.contributors.tolist() == list(range(parties))


@pytest.mark.parametrize("neighbours", ["0", "4"])
def test_a_block_is_exactly_its_parties_one_by_one(neighbours: str) -> None:
    """Every message at every stage, with a party that leaves, is the same to the byte."""
    vectors, gone = some_vectors(7), {3: Phase.SUBMIT}
    spoken = []
    for blocks in (1, 2, 7):
        query = a_masked_query(7)
        run = Rounds(
            Masking(neighbours=neighbours, threshold=4), query, vectors, blocks, leaving(gone)
        ).run()
        assert run.total is not None
        singles = [m for batch in run.sent for m in batch.split() if m.sender_role is Role.PARTY]
        spoken.append(sorted(m.encode() for m in singles))
    assert spoken[0] == spoken[1] == spoken[2]
    assert len(spoken[0]) == 5 * 7 - 2, "the one that left says nothing after its submission"


def ways_to_leave(parties: int, most: int) -> list[dict[int, Phase]]:
    return [
        dict(zip(who, when, strict=True))
        for count in range(most + 1)
        for who in combinations(range(parties), count)
        for when in product(STAGES, repeat=count)
    ]


def test_whoever_leaves_when_the_sum_is_over_those_who_submitted() -> None:
    """All 276 ways in which none, one or two of 5 parties leave at any stage; 3 must stay."""
    aggregator, query = Masking(neighbours="0", threshold=3), a_masked_query(5)
    vectors = some_vectors(5)
    ways = ways_to_leave(5, 2)
    assert len(ways) == 1 + 5 * 5 + 10 * 25
    for gone in ways:
        run = Rounds(aggregator, query, vectors, intercept=leaving(gone)).run()
        assert run.rejected == []
        members = [p for p in range(5) if gone.get(p) in (None, Phase.CHECK, Phase.UNMASK)]
        assert run.total is not None, gone
        assert run.total.vector.tolist() == sum_over(vectors, members), gone
        assert run.total.contributors.tolist() == members


def test_one_more_than_may_leave_ends_every_run() -> None:
    """All 25 ways in which parties 1 and 2 of 4, of which 3 must stay, leave at any stage."""
    query, vectors = a_masked_query(4), some_vectors(4)
    for when in product(STAGES, repeat=2):
        gone = dict(zip((1, 2), when, strict=True))
        run = Rounds(FULL, query, vectors, intercept=leaving(gone)).run()
        assert run.total is None, gone
        assert run.failed is not None
        assert run.spends == []


def expected_members(plan: MaskingGraph, gone: dict[int, Phase]) -> set[int] | None:
    """Who must be in the sum, told with sets; None where it cannot be opened."""
    holders = {i: {i, *plan.neighbours[i].tolist()} for i in range(plan.parties)}
    here = set(holders)
    for phase in (Phase.KEYS, Phase.DEAL):
        here = {i for i in here if gone.get(i) is not phase}
        while short := {i for i in here if len(holders[i] & here) < plan.threshold}:
            here -= short
    dealt = here
    members = here = {i for i in here if gone.get(i) is not Phase.SUBMIT}
    needed = {i for i in dealt if holders[i] & members}
    for later in (None, Phase.CHECK, Phase.UNMASK):
        here = {i for i in here if later is None or gone.get(i) is not later}
        if not members or min(len(holders[i] & here) for i in needed) < plan.threshold:
            return None
    return members


@given(
    st.integers(6, 14),
    st.integers(3, 5),
    st.dictionaries(st.integers(0, 13), st.sampled_from(STAGES), max_size=5),
)
def test_whoever_leaves_a_sparse_graph(
    parties: int, threshold: int, leavers: dict[int, Phase]
) -> None:
    gone = {party: phase for party, phase in leavers.items() if party < parties}
    aggregator, query = Masking(neighbours="4", threshold=threshold), a_masked_query(parties)
    vectors = some_vectors(parties)
    run = Rounds(aggregator, query, vectors, 2, leaving(gone)).run()
    members = expected_members(aggregator.graph(query), gone)
    if members is None:
        assert run.total is None
        assert run.failed is not None
    else:
        assert run.total is not None
        assert run.total.contributors.tolist() == sorted(members)
        assert run.total.vector.tolist() == sum_over(vectors, sorted(members))


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("threshold", [4, 5, 6])
def test_the_threshold_is_honoured_exactly(threshold: int, stage: Phase) -> None:
    """With t of 7 left the sum opens; with t − 1 the run fails and names the counts."""
    aggregator, query = Masking(neighbours="0", threshold=threshold), a_masked_query(7)
    vectors = some_vectors(7)
    for left in (threshold, threshold - 1):
        gone = dict.fromkeys(range(left, 7), stage)
        run = Rounds(aggregator, query, vectors, intercept=leaving(gone)).run()
        if left == threshold:
            assert run.total is not None
        else:
            assert run.total is None
            assert run.spends == []
            assert run.failed is not None
            assert f"only {left} of 7 parties" in run.failed.reason
            assert (
                f"leaves {left} of 7 holders of a secret where {threshold} are needed"
                in run.failed.reason
            )
            assert f"party-{left}" in run.failed.reason


@pytest.mark.parametrize("stage", STAGES[:3])
def test_fewer_than_the_minimum_fail_the_run_with_their_names(stage: Phase) -> None:
    query = a_masked_query(7, min_parties=7)
    run = Rounds(FULL, query, some_vectors(7), intercept=leaving({4: stage})).run()
    assert run.total is None
    assert run.failed is not None
    assert "only 6 of 7 parties" in run.failed.reason
    assert "7 are needed; missing: party-4" in run.failed.reason


def test_a_party_may_be_gone_after_it_submitted_and_still_count_for_the_minimum() -> None:
    query = a_masked_query(7, min_parties=7)
    run = Rounds(FULL, query, some_vectors(7), intercept=leaving({4: Phase.CHECK})).run()
    assert run.total is not None
    assert run.total.contributors.tolist() == list(range(7))


def test_a_release_is_paid_for_and_noisy() -> None:
    query = a_masked_query(4, 200, epsilon=Fraction(1, 2), noise=Placement.CURATOR, min_parties=4)
    vectors = np.zeros((4, 200), dtype=np.uint64)
    run = Rounds(FULL, query, vectors).run()
    assert run.total is not None
    assert {(s.receipt, s.loss.epsilon) for s in run.spends} == {(query.run.hex(), Fraction(1, 2))}
    noise = run.total.vector.view(np.int64)
    assert 0 < np.abs(noise).max() < 200  # scale 4: beyond with chance 1e-19


def test_noise_of_the_parties_is_in_the_sum_before_the_server_sees_it() -> None:
    query = a_masked_query(4, 200, epsilon=Fraction(1, 2), noise=Placement.PARTIES, min_parties=2)
    vectors = np.zeros((4, 200), dtype=np.uint64)
    sums = [Rounds(FULL, query, vectors, blocks).run().total for blocks in (1, 4)]
    assert sums[0] is not None
    assert sums[1] is not None
    assert sums[0].vector.tolist() == sums[1].vector.tolist()
    assert 0 < np.abs(sums[0].vector.view(np.int64)).max() < 400


def test_what_a_party_sends() -> None:
    """8L + 80(d + 1) + 177 bytes and five headers; under 16 KiB with 20 neighbours."""
    for neighbours, degree in (("0", 29), ("20", 20)):
        query = a_masked_query(30, 1024)
        run = Rounds(Masking(neighbours=neighbours), query, some_vectors(30, 1024)).run()
        sent = [message for message in run.sent if message.sender_role is Role.PARTY]
        assert sum(message.width for message in sent) == 8 * 1024 + 80 * (degree + 1) + 177
        assert sum(message.charge for message in sent) < 16 << 10
    assert "80(d + 1)" in Masking.party_bytes


def test_rounds_are_as_stated() -> None:
    """The question, then each message that waits for the one before."""
    run = Rounds(FULL, a_masked_query(3), some_vectors(3)).run()
    assert [message.phase.label for message in run.sent] == [
        "keys", "keys", "deal", "deal", "submit", "check", "check", "unmask", "unmask",
        "roster", "release", "share",
    ]  # fmt: skip
    assert Masking.rounds == 1 + len(run.sent)


@pytest.mark.parametrize(
    ("spec", "parties", "reason"),
    [
        ("masking?threshold=5", 10, "more than half of the 10 holders of a secret, 6 to 10, not 5"),
        ("masking?threshold=11", 10, "6 to 10, not 11"),
        ("masking?neighbours=4&threshold=2", 10, "3 to 5, not 2"),
        ("masking?neighbours=1", 10, "2 or more"),
        ("masking?neighbours=some", 10, "neighbours is auto, 0 for all, or a number, not 'some'"),
        ("masking?neighbours=-2", 10, "not '-2'"),
        ("masking?neighbours=0", 5000, "5000 parties cannot have 4999 neighbours each"),
    ],
)
def test_options_that_cannot_be_are_refused(spec: str, parties: int, reason: str) -> None:
    with pytest.raises(LocalError, match=reason):
        aggregator_named(spec).check(a_masked_query(parties))


def test_one_server_and_no_keys() -> None:
    with pytest.raises(LocalError, match="masking has 1 server, not 2"):
        Masking().check(replace(a_masked_query(4), servers=2))
    with pytest.raises(LocalError, match="take --aggregator fss"):
        check(replace(a_masked_query(4), statistic=QuantileSearch(lower=0.0, upper=1.0)))


def test_the_threat_model_says_what_is_trusted() -> None:
    said = str(Masking().threat_model(1))
    for words in ("semi-honest server", "sign their keys", "2t − h", "exact sum", "at any stage"):
        assert words in said
