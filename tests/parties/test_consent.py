"""A party's say: what it refuses it does not answer, and what it answers it has paid for."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tallyroom.parties.block import PartyBlock
from tallyroom.parties.consent import Consent, read_policy
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.run.policy import DEPLOYED, Policy, parse_policy
from tallyroom.protocols.run.refusal import MAX_REASON_BYTES
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.wire.messages import Message, Phase, Role
from tallyroom.storage.ledger import Ledger
from tallyroom.storage.party_answers import MOST_BEGUN, PartyAnswers
from tests.samples import a_message, a_query, holdings_of

TINY = parse_policy("epsilon_in_all = 1.0")

TALKATIVE = parse_policy("tells_columns = true")


def block(consent: Consent) -> PartyBlock:
    consent.joined(2)
    return PartyBlock(holdings_of([0.1, 0.4, 0.6, 0.9], 4), Randomness(bytes(16)), consent=consent)


def asking(query: Query) -> Message:
    return a_message(
        Phase.QUERY,
        Role.COORDINATOR,
        Role.PARTY,
        receivers=tuple(range(4)),
        body=query.encode(),
        run=query.run,
    )


def reason(messages: list[Message]) -> str:
    """What a block says that refuses: one message for all of its parties, to the coordinator."""
    (message,) = messages
    assert (message.phase, message.receiver_role) == (Phase.REFUSE, Role.COORDINATOR)
    assert message.senders.tolist() == [0, 1, 2, 3]
    return str(message.body[0].tobytes(), "utf-8")


def rows(folder: Path) -> list[tuple[str, str, str, float, str]]:
    ledger = Ledger(folder / "ledger.sqlite")
    try:
        return ledger.rows()
    finally:
        ledger.close()


@pytest.mark.parametrize(
    "changes",
    [
        {"aggregator": "curator", "servers": 1, "epsilon": None, "noise": Placement.CURATOR},
        {"aggregator": "curator", "servers": 1, "noise": Placement.CURATOR},
        {"aggregator": "masking", "servers": 1, "noise": Placement.CURATOR},
        {"epsilon": None},
    ],
)
def test_a_deployed_party_sends_nothing_for_an_unsafe_question(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    consent = Consent(DEPLOYED, tmp_path)
    query = a_query(**{"epsilon": Fraction(1)} | changes)
    outcome = block(consent).handle(asking(query))
    assert reason(outcome.messages)
    assert outcome.refused == []
    assert rows(tmp_path) == []
    consent.close()


def test_without_a_policy_the_same_question_is_answered_in_the_clear() -> None:
    """What the policy is for: the raw vector is on its way to server-0."""
    parties = PartyBlock(holdings_of([0.1, 0.4, 0.6, 0.9], 4), Randomness(bytes(16)))
    query = a_query(aggregator="curator", servers=1, noise=Placement.CURATOR)
    (message,) = parties.handle(asking(query)).messages
    assert message.body.view("<u8").tolist() == [[i == j for j in range(4)] for i in range(4)]


def test_what_is_answered_is_paid_for_once_however_often_it_is_asked(tmp_path: Path) -> None:
    query = a_query(epsilon=Fraction(1, 2))
    for _ in range(2):  # the second is a party that was restarted
        consent = Consent(TINY, tmp_path)
        parties = block(consent)
        for _ in range(3):
            messages = parties.handle(asking(query)).messages
            assert {message.phase for message in messages} == {Phase.SUBMIT}
        consent.close()
    assert [row[2] for row in rows(tmp_path)] == ["1/2"]


def test_the_cap_holds_whatever_the_coordinator_calls_the_data_or_the_run(tmp_path: Path) -> None:
    """An old run's name with another question behind it is another answer, and is charged."""
    first = a_query(epsilon=Fraction(1, 2))
    wider = replace(first, statistic=Histogram(lower=0.0, upper=2.0, bins=4))
    third = replace(first, nonce=b"run-0003", data="another name")
    for query, refused in ((first, False), (wider, False), (third, True), (first, False)):
        consent = Consent(TINY, tmp_path)  # restarted each time: memory does not help
        messages = block(consent).handle(asking(query)).messages
        consent.close()
        if refused:
            assert "no room" in reason(messages)
            assert "0.5" not in reason(messages)  # nor is it said how much was spent elsewhere
        else:
            assert {message.phase for message in messages} == {Phase.SUBMIT}
    assert len(rows(tmp_path)) == 2


def test_delta_is_capped_too() -> None:
    consent = Consent(Policy(minimum_servers=1, in_all=PrivacyLoss.of(100, 2e-6)), None)
    parties = block(consent)
    query = a_query(
        aggregator="shuffle",
        servers=1,
        noise=Placement.CURATOR,
        parties=1000,
        epsilon=Fraction(1),
        delta=1e-6,
    )
    for number in range(3):
        said = parties.handle(asking(replace(query, nonce=bytes([number]) * 8))).messages
        assert [m.phase for m in said if m.phase is Phase.REFUSE] == [Phase.REFUSE] * (number == 2)
    assert "no room" in reason(said)
    consent.close()


def test_a_ledger_that_cannot_be_written_sends_nothing(tmp_path: Path) -> None:
    consent = Consent(DEPLOYED, tmp_path)
    parties = block(consent)
    locked = Ledger(tmp_path / "ledger.sqlite")
    locked._db.execute("BEGIN EXCLUSIVE")
    consent.ledger._db.execute("PRAGMA busy_timeout = 0")
    asked = asking(a_query(epsilon=Fraction(1)))
    assert (
        reason(parties.handle(asked).messages)
        == "it waits for its disk: the ledger cannot be written: database is locked"
    )
    locked._db.execute("ROLLBACK")
    assert {m.phase for m in parties.handle(asked).messages} == {Phase.SUBMIT}
    locked.close()
    consent.close()


def test_a_ledger_that_cannot_be_read_sends_nothing(tmp_path: Path) -> None:
    consent = Consent(DEPLOYED, tmp_path)
    consent.ledger._db.execute(
        "INSERT INTO spends (receipt, data, epsilon, delta, written)"
        " VALUES ('r', 'd', '0.5', 0, '')"
    )
    asked = asking(a_query(epsilon=Fraction(1)))
    assert reason(block(consent).handle(asked).messages) == "its ledger cannot be read"
    consent.close()


def test_the_coordinator_cannot_take_back_how_many_servers_there_are() -> None:
    consent = Consent(DEPLOYED, None)
    consent.joined(3)
    consent.joined(1)
    assert "3 servers or more, not 2" in str(consent.refusal(a_query(epsilon=Fraction(1)), 1))
    consent.close()


def test_a_reason_is_short_whatever_the_question_says() -> None:
    consent = Consent(Policy(columns=frozenset({"pay"})), None)
    query = a_query(epsilon=Fraction(1))
    query = replace(query, statistic=Histogram("é" * 5000, 0.0, 1.0, bins=4))
    said = block(consent).handle(asking(query)).messages
    assert len(reason(said).encode()) <= MAX_REASON_BYTES
    consent.close()


def test_a_policy_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text("epsilon_in_all = 3\n")
    assert read_policy(path) == parse_policy("epsilon_in_all = 3.0")
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(LocalError, match="is not a text file"):
        read_policy(path)
    with pytest.raises(LocalError, match="cannot read the policy"):
        read_policy(tmp_path)


def test_refused_questions_do_not_drive_out_what_is_kept_of_a_run(tmp_path: Path) -> None:
    """A host that came back with other data would take part in the run a second time."""
    holdings, others = (holdings_of([0.1, 0.4, 0.6, last], 4) for last in (0.9, 0.8))
    consent = Consent(TINY, None)
    consent.joined(2)
    begun = asking(a_query(epsilon=Fraction(1)))

    def started(held: Holdings) -> PartyBlock:
        secret = Randomness(bytes(16))
        return PartyBlock(held, secret, consent=consent, answers=PartyAnswers(tmp_path))

    host = started(holdings)
    assert host.handle(begun).messages[0].phase is Phase.SUBMIT
    for number in range(MOST_BEGUN + 1):
        refused = a_query(nonce=number.to_bytes(8, "big"))
        assert "without noise" in reason(host.handle(asking(refused)).messages)
    assert len(list(tmp_path.glob("*.begun"))) == 1
    (refusal,) = started(others).handle(begun).refused
    assert "begun with other data" in refusal.reason
    consent.close()


def test_a_party_takes_no_part_in_a_study_that_its_ledger_cannot_hold(tmp_path: Path) -> None:
    asked = block(Consent(TINY, tmp_path))
    study = a_query(epsilon=Fraction(1, 4), later=PrivacyLoss.of(Fraction(4, 5)))
    assert "no room for the epsilon or delta of this study" in reason(
        asked.handle(asking(study)).messages
    )
    assert rows(tmp_path) == []
    fits = a_query(nonce=b"run-0002", epsilon=Fraction(1, 4), later=PrivacyLoss.of(Fraction(3, 4)))
    assert asked.handle(asking(fits)).messages[0].phase is Phase.SUBMIT
    assert [row[2] for row in rows(tmp_path)] == ["1/4"]


@pytest.mark.parametrize(
    ("policy", "told"),
    [(DEPLOYED, "no column 'day'"), (TALKATIVE, "no column 'day'; there are value")],
)
def test_a_question_about_another_column_is_refused_with_its_name(
    tmp_path: Path, policy: Policy, told: str
) -> None:
    """Nothing is charged; which columns there are is the policy's to say."""
    consent = Consent(policy, tmp_path)
    elsewhere = Histogram(value="day", lower=0.0, upper=1.0, bins=4)
    asked = asking(a_query(epsilon=Fraction(1), statistic=elsewhere))
    assert reason(block(consent).handle(asked).messages) == told
    assert rows(tmp_path) == []
    consent.close()
