"""Who meets whom: drawn so that every record meets once a matching, and refused otherwise."""

from dataclasses import replace

import numpy as np
import pytest

from tallyroom.protocols.pairwise.roles.party import PairwiseParty
from tallyroom.protocols.pairwise.sampling.pair_assignment import (
    ENTRY,
    Entries,
    draw_meetings,
    pack_cells,
    parse_cells,
    parse_meetings,
)
from tallyroom.protocols.plans.facts import Facts
from tallyroom.protocols.plans.pairs import PairSample, PairwiseMean
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.run.machines import party_machine
from tallyroom.protocols.statistics.of_pairs import Gini
from tallyroom.protocols.wire.machine import Continue, Done
from tallyroom.protocols.wire.messages import Message, Phase, address
from tests.protocols.pairwise.gathering import deal_base_ots
from tests.protocols.pairwise.lone import Lone, refusal


@pytest.fixture(autouse=True)
def no_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    deal_base_ots(monkeypatch)


def all_pairs(records: int) -> PairSample:
    plan = Gini(lower=0.0, upper=1.0, pairs_per_party="all").plan(Facts.of_one_server(records))
    assert isinstance(plan, PairwiseMean)
    return plan.sample


def test_every_slot_meets_once_and_is_met_by_whom_it_meets() -> None:
    """For every way to hold few records: each record is in one pair of a matching, or in none."""
    for counts in ([1, 1], [3], [2, 3], [1, 0, 2], [1, 1, 1, 1], [4, 1, 2]):
        records = np.array(counts, dtype=np.int64)
        parties, entries = draw_meetings(all_pairs(int(records.sum())), records)
        here = [(int(p), int(e["slot"])) for p, e in zip(parties, entries, strict=True)]
        there = [(int(e["partner"]), int(e["theirs"])) for e in entries]
        second = {end: int(e["second"]) for end, e in zip(here, entries, strict=True)}
        assert len(set(here)) == len(here)
        met = dict(zip(here, there, strict=True))
        assert all(met[met[end]] == end != met[end] for end in here)
        assert all(second[end] + second[met[end]] == 1 for end in here)
        n = int(records.sum())
        assert len(here) == n * (n - 1)


def test_cells_are_packed_as_they_are_parsed() -> None:
    draw = np.random.default_rng(2)
    for slots in (1, 7, 8, 9, 16, 17):
        cells = draw.integers(0, 2, (4, slots)).astype(bool)
        parsed = parse_cells(pack_cells(cells), slots)
        assert parsed is not None
        assert parsed.tolist() == cells.tolist()
    assert parse_cells(np.zeros((2, 2), dtype=np.uint8), 8) is None


# --- meetings that are not what they should be ---


def entries_of(message: Message) -> Entries:
    return np.frombuffer(message.body[0, 4:].tobytes(), dtype=ENTRY).copy()


def with_entries(message: Message, entries: Entries, count: int | None = None) -> Message:
    number = len(entries) if count is None else count
    body = number.to_bytes(4, "little") + entries.tobytes()
    return replace(message, body=np.frombuffer(body, dtype=np.uint8).reshape(1, -1))


def spoilt_meetings(good: Message) -> dict[str, tuple[Message, str]]:
    """For party 0 of Lone: two records, three matchings, and one pair of its own."""
    entries = entries_of(good)
    own = np.flatnonzero(entries["partner"] == 0)
    other = np.flatnonzero(entries["partner"] == 1)
    assert len(own) == 2
    assert len(other) == 4

    def spoil(at: int, field: str, value: int) -> Message:
        changed = entries.copy()
        changed[field][at] = value
        return with_entries(good, changed)

    twice = "meets two at once"
    return {
        "a slot twice": (spoil(other[0], "slot", int(entries["slot"][other[1]])), twice),
        "an entry twice": (with_entries(good, np.append(entries, entries[other[:1]])), twice),
        "a slot that is not there": (spoil(other[0], "slot", 6), "not there"),
        "a slot far away": (spoil(other[0], "slot", 2**32 - 1), "not there"),
        "a party that is not there": (spoil(other[0], "partner", 2), "not there"),
        "a third argument": (spoil(other[0], "second", 2), "third argument"),
        "one of their records twice": (
            spoil(other[0], "theirs", int(entries["theirs"][other[1]])),
            "two meetings with one record",
        ),
        "two firsts of its own": (
            spoil(own[1], "second", int(entries["second"][own[0]])),
            "two first or two second",
        ),
        "a record that meets itself": (
            spoil(own[0], "theirs", int(entries["slot"][own[0]])),
            "meets itself",
        ),
        "half of a pair of its own": (
            with_entries(good, np.delete(entries, own[1])),
            "meets itself",
        ),
        "too few": (with_entries(good, entries, len(entries) + 1), "not a list"),
        "too many": (with_entries(good, entries, len(entries) - 1), "not a list"),
        "far too many": (with_entries(good, entries, 2**32 - 1), "not a list"),
        "a byte more": (
            replace(good, body=np.concatenate([good.body, good.body[:, :1]], axis=1)),
            "not a list",
        ),
        "no count": (replace(good, body=good.body[:, :3]), "not a list"),
        "nothing": (replace(good, body=good.body[:, :0]), "not a list"),
        "two coordinators": (replace(good, senders=address(0, 1)), "one coordinator"),
    }


@pytest.mark.parametrize("name", spoilt_meetings(Lone().meeting(0)))
def test_meetings_that_would_cost_privacy_or_make_no_sense_are_refused(name: str) -> None:
    """A record in more pairs than were announced would cost more than its ε."""
    lone = Lone()
    message, reason = spoilt_meetings(lone.meeting(0))[name]
    assert reason in refusal(lone.evaluator.receive(message))
    step = lone.evaluator.receive(lone.meeting(0))
    assert isinstance(step, Continue)
    assert len(step.messages) == 1


def test_the_first_meetings_count() -> None:
    """Whoever tells them otherwise later changes nothing, and a block whose parties were told in
    part takes only the rest."""
    lone = Lone()
    lone.opening()
    entries = entries_of(lone.meeting(0))
    assert lone.evaluator.receive(with_entries(lone.meeting(0), entries[:0])) == Continue()
    both = party_machine(lone.query, lone.holdings, Randomness(bytes(16)))
    assert isinstance(both, PairwiseParty)
    assert isinstance(both.receive(lone.meeting(1)), Continue)
    (message,) = lone.meetings
    assert "some of these know" in refusal(both.receive(message))
    step = both.receive(lone.meeting(0))
    assert isinstance(step, Continue)
    assert len(step.messages) == 1


def test_when_time_is_over_a_party_submits_what_it_has() -> None:
    lone = Lone()
    lone.opening()
    step = lone.evaluator.expire()
    assert isinstance(step, Done)
    paired, *submitted = step.messages
    assert [message.phase for message in submitted] == [Phase.SUBMIT] * 2
    cells = np.unpackbits(paired.body[0])[:6]
    entries = entries_of(lone.meeting(0))
    assert np.flatnonzero(cells).tolist() == sorted(
        entries["slot"][entries["partner"] == 0].tolist()
    )


def test_a_record_in_more_pairs_than_the_noise_is_for_is_refused() -> None:
    """All pairs of five records are five matchings, of which each record sits out one: the noise is
    for four. A coordinator that has a record meet in all five is found out by its party."""
    sample = all_pairs(5)
    assert (sample.matchings, sample.met) == (5, 4)
    entries = np.zeros(5, dtype=ENTRY)
    entries["slot"] = np.arange(5)
    entries["partner"] = [1, 2, 3, 4, 4]
    entries["theirs"] = np.arange(5)

    def told(some: Entries) -> Entries | str:
        row = len(some).to_bytes(4, "little") + some.tobytes()
        return parse_meetings(np.frombuffer(row, dtype=np.uint8), 0, 1, sample, 5)

    assert told(entries) == "a record in more pairs than the noise is for"
    assert len(told(entries[:4])) == 4
    assert not isinstance(told(entries[:4]), str)
