"""Parties that refuse: the coordinator stops waiting, tells why, and is not flooded."""

from dataclasses import replace

import numpy as np
import pytest

from tallyroom.protocols.aggregation.contract import Total
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.run.receipts import RECEIPT_BYTES
from tallyroom.protocols.run.refusal import MAX_REASON_BYTES, MOST_REASONS, Refusals
from tallyroom.protocols.wire.loop import Reply
from tallyroom.protocols.wire.machine import Done, Failed
from tallyroom.protocols.wire.messages import Message, Phase, Role
from tallyroom.servers.coordinator import Coordinator
from tallyroom.storage.ledger import Ledger
from tests.samples import RUN, a_message, a_query, bitmap


class Asked(Coordinator):
    """A coordinator that asked. Messages of no run in particular are of the one that it began."""

    name = b""

    def handle(self, message: Message) -> Reply:
        return super().handle(self._here(message))

    def awaits(self, message: Message) -> bool:
        return super().awaits(self._here(message))

    def _here(self, message: Message) -> Message:
        return replace(message, run=self.name) if message.run == RUN else message


def begun(min_parties: int = 3, parties: int = 4) -> Asked:
    asked = Asked(2, parties, Ledger(None), Randomness.from_seed(1, "coordinator"))
    everyone = np.arange(parties, dtype=np.uint32)
    asked.enrol(everyone, np.ones(parties, dtype=np.uint32))
    query = a_query(parties=parties, min_parties=min_parties)
    asked.name = query.run
    asked.ask(query)
    return asked


def refuse(*parties: int, text: str | bytes = "it will not", round_: int = 2) -> Message:
    body = text.encode() if isinstance(text, str) else text
    return a_message(Phase.REFUSE, Role.PARTY, Role.COORDINATOR, parties, body=body, round_=round_)


def reasons(outcome: Reply) -> list[str]:
    return [refused.reason for refused in outcome.refused]


def answers(asked: Coordinator, members: list[int]) -> Reply:
    """Both servers say who submitted, and then release."""
    for server in range(2):
        roster = a_message(
            Phase.ROSTER, Role.SERVER, Role.COORDINATOR, (server,), body=bitmap(4, members)
        )
        asked.handle(roster)
    for server in range(2):
        body = bytes(RECEIPT_BYTES + 32)
        share = a_message(Phase.SHARE, Role.SERVER, Role.COORDINATOR, (server,), body=body)
        outcome = asked.handle(share)
    return outcome


def test_servers_are_told_not_to_wait_and_the_answer_says_who_refused() -> None:
    asked = begun()
    outcome = asked.handle(refuse(2))
    assert [m.phase for m in outcome.messages] == [Phase.EXCUSE] * 2
    assert outcome.messages[0].body.tobytes() == bitmap(4, [2])
    finished = answers(asked, [0, 1, 3]).finished
    assert isinstance(finished, Done)
    assert isinstance(finished.output, Total)
    assert finished.output.refusals == ((2, "it will not"),)
    assert finished.output.refusing == 1


def test_too_many_refusals_end_the_run_at_once_with_their_reasons() -> None:
    asked = begun()
    assert asked.handle(refuse(2, text="no curator")).finished is None
    finished = asked.handle(refuse(0, text="too few servers")).finished
    assert isinstance(finished, Failed)
    assert "2 of 4 parties agree to take part and 3 are needed" in finished.reason
    assert "party-0 refuses: too few servers" in finished.reason
    assert "party-2 refuses: no curator" in finished.reason
    assert not asked.is_open(asked.name)


def test_a_failure_for_another_reason_tells_of_refusals_as_well() -> None:
    asked = begun()
    asked.handle(refuse(2))
    for server in range(2):
        outcome = asked.handle(
            a_message(Phase.ROSTER, Role.SERVER, Role.COORDINATOR, (server,), body=bitmap(4, [0]))
        )
    assert isinstance(outcome.finished, Failed)
    assert "only 1 of 4" in outcome.finished.reason
    assert "party-2 refuses: it will not" in outcome.finished.reason


def test_a_block_refuses_together_and_a_second_time_counts_for_nothing() -> None:
    asked = begun(min_parties=1)
    assert asked.handle(refuse(0, 1)).refused == []
    outcome = asked.handle(refuse(0, 1, 2))
    assert reasons(outcome) == ["it refused before"] * 2
    assert [m.phase for m in outcome.messages] == [Phase.EXCUSE] * 2


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (refuse(1, text=b"x" * (MAX_REASON_BYTES + 1)), "at most"),
        (refuse(1, text=b""), "one printable line"),
        (refuse(1, text=b"two\nlines"), "one printable line"),
        (refuse(1, text=b"\x1b[2J"), "one printable line"),
        (refuse(1, text=b"\xff"), "is text"),
        (refuse(4), "only 4 parties"),
        (refuse(2**24 - 1), "only 4 parties"),
        (refuse(1, round_=9), "was not asked for"),
        (replace(refuse(1), run=b"unknown."), "is unknown"),
    ],
)
def test_what_is_no_refusal_changes_nothing(message: Message, words: str) -> None:
    asked = begun(min_parties=4)
    (reason,) = reasons(asked.handle(message))
    assert words in reason
    assert isinstance(answers(asked, [0, 1, 2, 3]).finished, Done)


def test_only_parties_refuse() -> None:
    asked = begun(min_parties=4)
    for role in (Role.SERVER, Role.ANALYST):
        from_other = a_message(Phase.REFUSE, role, Role.COORDINATOR, body=b"no")
        assert reasons(asked.handle(from_other)) == ["refuse is out of turn"]


def test_a_flood_of_refusals_is_not_kept() -> None:
    """Nothing of it is written to a journal, and of many parties only some reasons are kept."""
    asked = begun(min_parties=1)
    assert asked.awaits(refuse(3))
    asked.handle(refuse(3))
    for _ in range(1000):
        assert not asked.awaits(refuse(3, text="another reason"))
        assert reasons(asked.handle(refuse(3, text="another reason"))) == ["it refused before"]
    assert not asked.awaits(replace(refuse(3), run=b"unknown."))
    many = Refusals(10_000, 1)
    for party in range(5000):
        assert many.take(refuse(party, text=f"reason {party}")) is None
    assert many.count == 5000
    assert len(many.reasons) == MOST_REASONS


def test_refusals_are_forgotten_with_their_run() -> None:
    asked = begun(min_parties=1)
    asked.handle(refuse(3))
    asked.abandon(asked.name)
    assert asked._refusals == {}


def test_a_party_that_claims_too_many_records_does_not_join() -> None:
    desk = Coordinator(2, 2, Ledger(None), Randomness.from_seed(1, "c"), 1000)
    ids = np.arange(1, dtype=np.uint32)
    desk.enrol(ids, np.array([1000], dtype=np.uint32))
    with pytest.raises(LocalError, match="at most 1000 records in this federation, not 1001"):
        desk.enrol(ids, np.array([1001], dtype=np.uint32))
    assert desk.most_records == 1000
