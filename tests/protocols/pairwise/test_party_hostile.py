"""Parties in pairs that drop out or misbehave: they lose their own pairs, and nobody else's."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from tallyroom.fss.ring import Bytes
from tallyroom.protocols.query import Query
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.wire.loop import Job, OnWay, Reply
from tallyroom.protocols.wire.machine import Continue, Done, Machine, Rejected
from tallyroom.protocols.wire.messages import Message, Phase, Role, address
from tests.protocols.pairwise.gathering import (
    Gathering,
    a_pairs_query,
    changing,
    deal_base_ots,
    drawn_values,
    held,
    leaving,
    owners_of,
    ratings,
)
from tests.protocols.pairwise.lone import GINI, Lone, refusal
from tests.samples import a_message

COUNTS = [2, 1, 3, 1, 2]


@pytest.fixture(autouse=True)
def no_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    deal_base_ots(monkeypatch)


def a_meeting(**changes: Any) -> tuple[Query, Holdings]:
    holdings = held(COUNTS, ratings(sum(COUNTS)))
    return a_pairs_query(GINI, holdings, **{"min_parties": 2} | changes), holdings


def exact_without(gathering: Gathering, holdings: Holdings, gone: set[frozenset[int]]) -> None:
    """Exact over all pairs but those of `gone` couples of parties."""
    values = drawn_values(gathering.query, holdings)
    owners = owners_of(gathering.query, holdings)
    kept = np.array([frozenset(each) not in gone for each in owners.tolist()])
    assert not kept.all()
    assert gathering.total is not None
    assert gathering.totals.tolist() == values[kept].sum(axis=0).tolist()
    assert gathering.total.records == np.count_nonzero(kept)


def couples_of(party: int) -> set[frozenset[int]]:
    return {frozenset((party, other)) for other in range(len(COUNTS))}


@pytest.mark.parametrize("after", [0, 1, 2, 3, 5, 8, 100])
@pytest.mark.parametrize("party", range(5))
def test_a_party_that_vanishes_takes_its_pairs_along(party: int, after: int) -> None:
    """After so many messages to others. In the end it submits nothing, so all of its pairs go,
    those that were computed too."""
    query, holdings = a_meeting()
    for blocks, chance in ((5, None), (2, 4)):
        gathering = Gathering(query, holdings, blocks, chance, leaving(party, after)).run()
        exact_without(gathering, holdings, couples_of(party))
        assert gathering.total is not None
        assert party not in gathering.total.contributors.tolist()


def test_a_party_that_loses_one_link_keeps_the_others() -> None:
    def cut(message: Message) -> Iterable[Message]:
        for single in message.split():
            ends = {int(single.senders[0]), int(single.receivers[0])}
            if single.phase is not Phase.PAIR or ends != {0, 4}:
                yield single

    query, holdings = a_meeting()
    gathering = Gathering(query, holdings, 5, None, cut).run()
    exact_without(gathering, holdings, {frozenset((0, 4))})
    assert gathering.total is not None
    assert len(gathering.total.contributors) == 5


@pytest.mark.parametrize("server", [0, 1])
def test_a_party_that_submits_to_some_servers_only_is_left_out(server: int) -> None:
    def withhold(message: Message) -> Iterable[Message]:
        for single in message.split():
            to_server = single.phase is Phase.SUBMIT and int(single.receivers[0]) == server
            if not to_server or int(single.senders[0]) != 2:
                yield single

    query, holdings = a_meeting()
    gathering = Gathering(query, holdings, 5, None, withhold).run()
    exact_without(gathering, holdings, couples_of(2))
    assert gathering.total is not None
    assert 2 not in gathering.total.contributors


def test_a_party_that_does_not_say_what_is_done_has_nothing_done() -> None:
    def keep_quiet(message: Message) -> Iterable[Message]:
        for single in message.split():
            if single.phase is not Phase.PAIRED or int(single.senders[0]) != 1:
                yield single

    query, holdings = a_meeting()
    gathering = Gathering(query, holdings, 2, None, keep_quiet).run()
    exact_without(gathering, holdings, couples_of(1))
    assert gathering.total is not None
    assert gathering.total.contributors.tolist() == [0, 2, 3, 4]


def test_nobody_left_is_a_failure_and_no_number() -> None:
    def silence(message: Message) -> Iterable[Message]:
        return () if message.phase is Phase.PAIR else (message,)

    holdings = held([1, 1, 1], ratings(3))
    query = a_pairs_query(GINI, holdings)
    gathering = Gathering(query, holdings, 3, None, silence).run()
    assert gathering.failed is not None
    assert gathering.failed.reason == "no pair was completed"
    assert gathering.total is None
    assert gathering.spends == []


def test_too_few_parties_are_a_failure() -> None:
    query, holdings = a_meeting(min_parties=5)
    gathering = Gathering(query, holdings, 5, None, leaving(3, 0)).run()
    assert gathering.failed is not None
    assert "only 4 of 5 parties submitted to every server" in gathering.failed.reason


# --- messages that are not what they should be ---


def flip(place: int) -> Callable[[Bytes], Bytes]:
    def change(body: Bytes) -> Bytes:
        body[0, place] ^= 1
        return body

    return change


def shorten(body: Bytes) -> Bytes:
    return body[:, :-1]


def lengthen(body: Bytes) -> Bytes:
    return np.concatenate([body, body[:, :1]], axis=1)


def step_of(message: Message, step: int) -> bool:
    return message.phase is Phase.PAIR and int(message.body[0, 0]) == step


CHANGES: dict[str, tuple[int, Callable[[Bytes], Bytes]]] = {
    f"step {step}, {what}": (step, change)
    for step in (1, 2, 3, 4)
    for what, change in {
        "a flipped bit": flip(7),
        "another flipped bit": flip(-1),
        "too short": shorten,
        "too long": lengthen,
        "a step that is none": flip(0),
    }.items()
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("blocks", [1, 5])
def test_a_changed_message_costs_its_link_alone(name: str, blocks: int) -> None:
    """Whatever was changed is noticed by the evaluator, if not before."""
    step, change = CHANGES[name]
    query, holdings = a_meeting()
    intercept, changed = changing(lambda message: step_of(message, step), change)
    gathering = Gathering(query, holdings, blocks, None, intercept).run()
    (message,) = changed
    ends = {int(message.senders[0]), int(message.receivers[0])}
    exact_without(gathering, holdings, {frozenset(ends)})
    assert {f"party-{end}" for end in ends} & {each.sender for each in gathering.rejected}


def test_a_link_goes_on_when_what_was_changed_comes_again_unchanged() -> None:
    """A message that is refused for its length leaves the link as it was. One flipped bit of a
    request or of the points is noticed too late for that."""
    again = {name: CHANGES[name] for name in CHANGES if "long" in name or "short" in name}
    for step, change in again.values():
        spoil, changed = changing(partial(step_of, step=step), change)

        def intercept(message: Message, spoil: OnWay = spoil) -> Iterable[Message]:
            yield from spoil(message)
            yield message

        query, holdings = a_meeting()
        gathering = Gathering(query, holdings, 5, None, intercept).run()
        assert len(changed) == 1
        values = drawn_values(query, holdings)
        assert gathering.totals.tolist() == values.sum(axis=0).tolist()


@pytest.mark.parametrize("blocks", [1, 5])
def test_a_garbler_whose_answer_does_not_fit_may_not_try_again(blocks: int) -> None:
    """Whether an answer fits may depend on the evaluator's record. So its link is closed, and the
    right answer, which follows, comes too late: with any number of tries a garbler would learn the
    record, one value at a time."""
    spoil, changed = changing(partial(step_of, step=4), flip(30))

    def intercept(message: Message) -> Iterable[Message]:
        yield from spoil(message)
        yield message

    query, holdings = a_meeting()
    gathering = Gathering(query, holdings, blocks, None, intercept).run()
    (message,) = changed
    ends = {int(message.senders[0]), int(message.receivers[0])}
    exact_without(gathering, holdings, {frozenset(ends)})
    assert "the link is not open" in {each.reason for each in gathering.rejected}


def test_an_answer_of_another_link_is_refused() -> None:
    """The one that came last, in the place of the next: right length, and it was right there."""
    answers: list[Message] = []

    def swap(message: Message) -> Iterable[Message]:
        for single in message.split():
            if not step_of(single, 4) or len(answers) >= 2:
                yield single
                continue
            answers.append(single)
            if len(answers) == 2:
                first, second = answers
                yield replace(first, body=second.body)
                yield replace(second, body=first.body)

    holdings = held([1] * 5, ratings(5))
    query = a_pairs_query(GINI, holdings, min_parties=2)
    gathering = Gathering(query, holdings, 5, None, swap).run()
    lost = {frozenset((int(m.senders[0]), int(m.receivers[0]))) for m in answers}
    assert len(lost) == 2
    exact_without(gathering, holdings, lost)
    refused = [each for each in gathering.rejected if "does not fit its digest" in each.reason]
    assert {each.sender for each in refused} == {answers[0].sender, answers[1].sender}


def test_parties_take_only_what_is_theirs_to_take() -> None:
    lone = Lone()
    assert "expects no submit" in refusal(
        lone.garbler.receive(a_message(Phase.SUBMIT, Role.PARTY, Role.PARTY, (0,), (1,), b"1"))
    )
    assert "expects no pairing" in refusal(
        lone.garbler.receive(replace(lone.meeting(1), sender_role=Role.PARTY))
    )
    assert "expects no pair" in refusal(
        lone.garbler.receive(replace(lone.opening(), sender_role=Role.SERVER))
    )
    assert refusal(lone.garbler.receive(lone.meeting(0))) == "party-0 is elsewhere"


@pytest.mark.parametrize("step", [0, 2, 3, 4, 5, 255])
def test_before_it_knows_whom_to_meet_a_party_takes_openings_only(step: int) -> None:
    lone = Lone()
    opening = lone.opening()
    body = opening.body.copy()
    body[0, 0] = step
    assert "not known yet" in refusal(lone.garbler.receive(replace(opening, body=body)))
    assert lone.garbler.receive(opening) == Continue()
    assert "not known yet" in refusal(lone.garbler.receive(opening))
    assert isinstance(lone.garbler.receive(lone.meeting(1)), Continue)


def test_only_those_that_were_to_meet_may_speak() -> None:
    lone = Lone()
    opening = lone.opening()
    lone.garbler.receive(lone.meeting(1))
    stranger = replace(opening, senders=address(7))
    assert refusal(lone.garbler.receive(stranger)) == "it was not to meet that party"
    empty = replace(opening, body=opening.body[:, :0])
    assert "different kinds" in refusal(lone.garbler.receive(empty))
    mixed = np.concatenate([opening.body, opening.body])
    mixed[1, 0] = 3
    two = replace(opening, senders=address(0, 3), body=mixed)
    assert "different kinds" in refusal(lone.garbler.receive(two))
    backwards = replace(opening, senders=address(1), receivers=address(1))
    assert refusal(lone.garbler.receive(backwards)) == "it was not to meet that party"


@pytest.mark.parametrize("step", [0, 2, 3, 4, 5, 255])
def test_a_step_out_of_turn_is_refused(step: int) -> None:
    lone = Lone()
    opening = lone.opening()
    lone.garbler.receive(lone.meeting(1))
    body = opening.body.copy()
    body[0, 0] = step
    assert refusal(lone.garbler.receive(replace(opening, body=body)))
    taken = lone.garbler.receive(opening)
    assert isinstance(taken, Continue)
    (reply,) = taken.messages
    assert reply.phase is Phase.PAIR


def test_a_link_that_is_done_does_not_open_again() -> None:
    """Its secrets would serve two requests: an evaluator that asks for both labels of a wire
    learns the garbler's record."""
    holdings = held([1, 1, 1, 1], ratings(4))
    query = a_pairs_query(GINI, holdings)
    openings: dict[str, Message] = {}
    reopened: list[Rejected] = []

    class Reopening(Gathering):
        def perform(self, job: Job[Machine]) -> Reply:
            reply = super().perform(job)
            for single in () if job.message is None else job.message.split():
                if step_of(single, 1):
                    openings[single.sender + single.receiver] = single
                if step_of(single, 3) and not isinstance(reply.finished, Done):
                    # the garbler has answered by now
                    step = job.node.receive(openings[single.sender + single.receiver])
                    assert isinstance(step, Rejected)
                    reopened.append(step)
            return reply

    gathering = Reopening(query, holdings, 4)
    gathering.run()
    assert {each.reason for each in reopened} == {"it opened this link before"}
    assert len(reopened) >= 2
    values = drawn_values(query, holdings)
    assert gathering.totals.tolist() == values.sum(axis=0).tolist()
