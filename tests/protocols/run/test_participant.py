"""Participants: who is refused, what is counted, and that nothing leaves an unpaid release."""

from collections.abc import Sequence
from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.aggregation.contract import Memory
from tallyroom.protocols.aggregation.rosters import Fault
from tallyroom.protocols.errors import NotWritten, TallyError
from tallyroom.protocols.privacy.ledger import LedgerRefusal
from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.protocols.query import Query, decode_query, run_name
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.run.participant import MOST_OVER, BegunRuns, Participant
from tallyroom.protocols.wire.loop import Reply
from tallyroom.protocols.wire.machine import Continue, Failed, Machine, Spend, Step
from tallyroom.protocols.wire.messages import MAX_ROUND, Message, Phase, Role, milliseconds, number
from tallyroom.protocols.wire.meter import Direction
from tests import samples
from tests.samples import a_query, bitmap

QUERY = a_query(epsilon=Fraction(1))
RUN = QUERY.run
a_message = partial(samples.a_message, run=RUN)
EVERYONE = bitmap(4, [0, 1, 2, 3])


class Station(Participant):
    """A server whose ledger the test holds."""

    def __init__(self) -> None:
        super().__init__(Role.SERVER, self.write)
        self.paid: list[Spend] = []
        self.refuses: TallyError | None = None

    def write(self, spends: Sequence[Spend]) -> None:
        if self.refuses is not None and spends:
            raise self.refuses
        self.paid += spends

    def is_addressed(self, message: Message) -> bool:
        return super().is_addressed(message) and message.receivers.tolist() == [0]

    def open(self, message: Message) -> Machine:
        query = decode_query(message.run, message.body[0].tobytes(), message.sender)
        aggregator = aggregator_named(query.aggregator)
        return aggregator.server(query, 0, Randomness.from_seed(1, "server-0"), Memory())


def ask(sender: Role = Role.COORDINATOR, receiver: int = 0) -> Message:
    body = QUERY.encode()
    return a_message(Phase.QUERY, sender, Role.SERVER, receivers=(receiver,), body=body)


def submit(*parties: int, round_: int = 2, run: bytes = RUN) -> Message:
    body = np.full((len(parties), 32), 1, dtype=np.uint8)
    return a_message(
        Phase.SUBMIT, Role.PARTY, Role.SERVER, parties, body=body, run=run, round_=round_
    )


def release() -> Message:
    return a_message(Phase.RELEASE, Role.COORDINATOR, Role.SERVER, body=EVERYONE, round_=4)


@pytest.fixture
def station() -> Station:
    return Station()


def reasons(outcome: Reply) -> list[tuple[str, str]]:
    return [(refusal.sender, refusal.reason) for refusal in outcome.refused]


def test_a_batch_with_bad_senders_refuses_only_those(station: Station) -> None:
    station.handle(ask())
    assert station.handle(submit(0)).refused == []
    batch = submit(1, 0, 9, 2, 1)
    batch.body[1] = 7
    batch.body[4] = 7
    outcome = station.handle(batch)
    assert [name for name, _ in reasons(outcome)] == ["party-0", "party-9", "party-1"]
    (roster,) = station.handle(submit(3)).messages
    at_fault = [bytes([party, 0, 0, 0, Fault.CONTRADICTORY]) for party in (0, 1)]
    assert roster.body.tobytes() == EVERYONE + b"".join(at_fault)


def test_a_batch_whose_middle_completes_the_roster_refuses_what_contradicts(
    station: Station,
) -> None:
    station.handle(ask())
    batch = submit(0, 1, 2, 3, 3, 2)
    batch.body[4] = 7
    outcome = station.handle(batch)
    assert [m.phase for m in outcome.messages] == [Phase.ROSTER]
    assert [name for name, _ in reasons(outcome)] == ["party-3"]


@pytest.mark.parametrize("round_", [3, MAX_ROUND])
def test_a_party_cannot_drive_the_rounds_up(station: Station, round_: int) -> None:
    """An answer past the last round would be refused by the coordinator, and the run with it."""
    station.handle(ask())
    for message in (submit(0, round_=round_), submit(0, 9, round_=round_)):
        assert "was not asked for" in reasons(station.handle(message))[0][1]
    early = a_message(Phase.RELEASE, Role.PARTY, Role.SERVER, body=EVERYONE, round_=2)
    assert "out of turn" in reasons(station.handle(early))[0][1]
    (roster,) = station.handle(submit(0, 1, 2, 3)).messages
    assert roster.round == 3


def test_nor_can_another_server(station: Station) -> None:
    station.handle(ask())

    def said(round_: int) -> str:
        message = a_message(Phase.TOGETHER, Role.SERVER, Role.SERVER, (1,), round_=round_)
        return reasons(station.handle(message))[0][1]

    assert "was not asked for" in said(MAX_ROUND)
    assert "was not asked for" not in said(5)
    (roster,) = station.handle(submit(0, 1, 2, 3)).messages
    assert roster.round == 3


def test_refused_messages_cost_no_memory(station: Station) -> None:
    station.handle(ask())
    accounts = len(station.meters[RUN].accounts)
    for round_ in range(50):
        station.handle(submit(9, round_=round_))
        station.handle(a_message(Phase.SHARE, Role.PARTY, Role.SERVER, (3,), round_=round_))
    assert len(station.meters[RUN].accounts) == accounts


def test_rounds_are_one_more_than_what_was_heard(station: Station) -> None:
    assert station.handle(ask()).messages == []
    (roster,) = station.handle(submit(0, 1, 2, 3)).messages
    assert roster.round == 3
    (share,) = station.handle(release()).messages
    assert share.round == 5


def test_an_unknown_run_is_refused(station: Station) -> None:
    assert reasons(station.handle(submit(0))) == [("party-0", f"run {RUN.hex()} is unknown")]
    assert station.meters == {}


def test_a_run_that_is_over_is_refused(station: Station) -> None:
    for message in (ask(), submit(0, 1, 2, 3), release()):
        station.handle(message)
    station.forget(RUN)
    for late in (submit(0), release(), ask()):
        assert reasons(station.handle(late))[0][1] == f"run {RUN.hex()} is over"
    assert len(station.paid) == 1


@pytest.mark.parametrize("role", [Role.PARTY, Role.SERVER, Role.ANALYST])
def test_only_the_coordinator_asks(station: Station, role: Role) -> None:
    (refusal,) = station.handle(ask(role)).refused
    assert refusal.reason == "only the coordinator asks"
    assert reasons(station.handle(submit(0)))[0][1].endswith("unknown")


def test_a_query_is_put_once_and_told_again_what_was_said(station: Station) -> None:
    station.handle(ask())
    station.handle(submit(0))
    assert station.handle(ask()) == Reply(RUN)
    other = a_message(Phase.QUERY, Role.COORDINATOR, Role.SERVER, body=a_query().encode())
    assert "another query" in reasons(station.handle(other))[0][1]
    (roster,) = station.handle(submit(1, 2, 3)).messages
    assert roster.body.tobytes() == EVERYONE
    (again,) = station.handle(ask()).messages
    assert again.encode() == roster.encode()


def test_mail_for_somebody_else_is_refused_and_not_counted(station: Station) -> None:
    station.handle(ask())
    before = len(station.meters[RUN].accounts)
    elsewhere = (
        ask(receiver=1),
        a_message(Phase.SUBMIT, Role.PARTY, Role.SERVER, (0,), (1,), bytes(32)),
        a_message(Phase.SUBMIT, Role.PARTY, Role.SERVER, (0,), (0, 1), bytes(32)),
        a_message(Phase.SUBMIT, Role.PARTY, Role.PARTY, (0,), (0,), bytes(32)),
        a_message(Phase.SHARE, Role.SERVER, Role.COORDINATOR, (0,), (0,), bytes(32)),
    )
    for message in elsewhere:
        assert "elsewhere" in reasons(station.handle(message))[0][1]
    assert len(station.meters[RUN].accounts) == before


def test_a_malformed_query_is_refused_and_may_be_put_again(station: Station) -> None:
    named = run_name(RUN[:8], b"{}")
    bad = a_message(Phase.QUERY, Role.COORDINATOR, Role.SERVER, body=b"{}", run=named)
    assert "malformed query" in reasons(station.handle(bad))[0][1]
    bad = a_message(Phase.QUERY, Role.COORDINATOR, Role.SERVER, body=b"{}")
    assert "named for another query" in reasons(station.handle(bad))[0][1]
    assert station.handle(ask()).refused == []


def test_nothing_leaves_when_the_spend_cannot_be_written(station: Station) -> None:
    """Written before released: a ledger that fails stops the share, and for good."""
    station.handle(ask())
    station.handle(submit(0, 1, 2, 3))
    station.refuses = NotWritten("the disk is full")
    outcome = station.handle(release())
    assert outcome.messages == []
    assert outcome.finished == Failed("the disk is full")
    assert reasons(outcome) == [("ledger", "the disk is full")]
    station.refuses = None
    assert reasons(station.handle(release()))[0][1].endswith("over")
    sent = [link.phase for way, link in station.meters[RUN].accounts if way is Direction.SENT]
    assert sent == [Phase.ROSTER]


def unpaid(station: Station) -> Reply:
    """A patient station was told to release, and its ledger cannot be written."""
    station.patient = True
    station.handle(ask())
    station.handle(submit(0, 1, 2, 3))
    station.refuses = NotWritten("the disk is full")
    return station.handle(release())


def test_a_patient_station_keeps_a_step_until_it_can_be_paid_for(station: Station) -> None:
    """Nothing leaves meanwhile, and nothing else happens in the run; afterwards all of it does."""
    outcome = unpaid(station)
    assert (outcome.messages, outcome.refused, outcome.finished) == ([], [], None)
    assert outcome.unpaid == station.unpaid(RUN) == "the disk is full"
    assert station.pay(RUN).unpaid
    with pytest.raises(NotWritten, match="the disk is full"):
        station.handle(release())
    assert station.expire(RUN) == Reply(RUN)
    assert station.paid == []
    station.refuses = None
    (share,) = station.pay(RUN).messages
    assert share.phase is Phase.SHARE
    assert len(station.paid) == 1
    assert station.unpaid(RUN) == ""
    assert station.pay(RUN) == Reply(RUN)
    assert [m.body.tobytes() for m in station.handle(release()).messages] == [share.body.tobytes()]


def test_what_was_to_happen_after_an_unpaid_step_happens_then(station: Station) -> None:
    unpaid(station)
    assert station.advance(RUN, lambda _: Failed("no more")) == Reply(RUN)
    assert station.pay(RUN).finished is None
    station.refuses = None
    outcome = station.pay(RUN)
    assert [message.phase for message in outcome.messages] == [Phase.SHARE]
    assert outcome.finished == Failed("no more")


def test_a_step_that_the_ledger_refuses_after_all_ends_the_run(station: Station) -> None:
    unpaid(station)
    station.refuses = LedgerRefusal("nothing is left")
    outcome = station.pay(RUN)
    assert outcome.finished == Failed("nothing is left")
    assert not outcome.messages
    assert not station.paid
    assert not station.is_open(RUN)


def test_the_spend_is_written_before_the_share_is_handed_out(station: Station) -> None:
    station.handle(ask())
    station.handle(submit(0, 1, 2, 3))
    assert station.paid == []
    assert len(station.handle(release()).messages) == 1
    assert [spend.loss for spend in station.paid] == [PrivacyLoss.of(1)]


def test_a_deadline_of_a_run_that_is_over_does_nothing(station: Station) -> None:
    assert station.expire(b"whatever").messages == []
    station.handle(ask())
    (roster,) = station.expire(RUN).messages
    assert roster.body.tobytes() == bytes(1)
    station.abandon(RUN)
    assert station.expire(RUN).messages == []


class Answers:
    """Answers every message between parties, and the coordinator when told to."""

    def start(self) -> Step:
        return Continue()

    def receive(self, message: Message) -> Step:
        if message.phase is Phase.PAIRING:
            return Continue((pair(0, 8), pair(1, 9)))
        return Continue((pair(int(message.receivers[0]), int(message.senders[0])),))

    def expire(self) -> Step:
        return Continue((pair(0, 8),))


class Block(Participant):
    def __init__(self) -> None:
        super().__init__(Role.PARTY, lambda _: None)

    def open(self, message: Message) -> Machine:
        return Answers()


def pair(sender: int, receiver: int, round_: int = 0, body: bytes = b"word") -> Message:
    return a_message(
        Phase.PAIR, Role.PARTY, Role.PARTY, (sender,), (receiver,), body, round_=round_
    )


def told(phase: Phase, round_: int) -> Message:
    return a_message(phase, Role.COORDINATOR, Role.PARTY, receivers=(0, 1), round_=round_)


@pytest.fixture
def block() -> Block:
    made = Block()
    made.handle(told(Phase.QUERY, 1))
    assert [m.round for m in made.handle(told(Phase.PAIRING, 3)).messages] == [4, 4]
    return made


def test_a_peer_cannot_drive_the_rounds_up(block: Block) -> None:
    """Sent in round 4, so 5 is the last that anybody can answer."""
    assert reasons(block.handle(pair(8, 0, 6))) == [("party-8", "round 6 was not asked for")]
    assert block.handle(pair(8, 0, 5)).refused == []
    assert block.handle(pair(8, 0, 8)).refused != []
    assert block.handle(pair(8, 0, 7)).refused == []


def test_before_anything_was_sent_a_peer_may_be_one_round_ahead() -> None:
    block = Block()
    block.handle(told(Phase.QUERY, 1))
    assert block.handle(pair(8, 0, 3)).refused != []
    assert block.handle(pair(8, 0, 2)).refused == []


def test_what_overtook_its_run_or_its_round_is_early_and_nothing_else_is(block: Block) -> None:
    fresh = Block()
    assert fresh.is_early(pair(8, 0, 2))
    assert not fresh.is_early(told(Phase.PAIRING, 3))
    assert not fresh.is_early(submit(0))
    assert block.is_early(pair(8, 0, 6))
    assert not block.is_early(pair(8, 0, 5))
    block.forget(RUN)
    assert not block.is_early(pair(8, 0, 6))


def test_a_deadline_is_one_round_after_all_that_was_heard(block: Block) -> None:
    block.handle(pair(8, 0, 5))
    (message,) = block.expire(RUN).messages
    assert message.round == 6


class CoordinatorService(Participant):
    """A coordinator that asked in round 1 and takes what it is told."""

    def __init__(self, unseen: int) -> None:
        super().__init__(Role.COORDINATOR, lambda _: None)
        self.begin(RUN, Asks(unseen))

    def open(self, message: Message) -> Machine:
        raise AssertionError


class Asks(Answers):
    def __init__(self, unseen: int) -> None:
        if unseen:
            self.unseen_rounds = unseen

    def start(self) -> Step:
        return Continue((a_message(Phase.PAIRING, Role.COORDINATOR, Role.PARTY, round_=0),))

    def receive(self, message: Message) -> Step:
        return Continue()


@pytest.mark.parametrize("unseen", [0, 4])
def test_a_station_knows_for_how_many_rounds_parties_may_speak_among_themselves(
    unseen: int,
) -> None:
    desk = CoordinatorService(unseen)
    late, last = (
        a_message(Phase.PAIRED, Role.PARTY, Role.COORDINATOR, round_=2 + unseen + more)
        for more in (1, 0)
    )
    assert "was not asked for" in reasons(desk.handle(late))[0][1]
    assert desk.handle(last).refused == []


def put(query: Query) -> Message:
    return samples.a_message(
        Phase.QUERY, Role.COORDINATOR, Role.SERVER, body=query.encode(), run=query.run
    )


def test_runs_that_are_over_are_forgotten_but_not_their_names(station: Station) -> None:
    """A process that runs for years keeps of old runs a bounded number of names."""
    queries = [a_query(nonce=i.to_bytes(8, "big")) for i in range(2 * MOST_OVER)]

    for query in queries:
        assert station.handle(put(query)).refused == []
        station.handle(submit(0, run=query.run))
        station.abandon(query.run)
    kept = (station._queries, station._said, station._asked, station._rounds, station.meters)
    assert all(len(each) <= MOST_OVER for each in kept)
    assert "is over" in reasons(station.handle(put(queries[0])))[0][1]
    other = a_query(nonce=queries[0].nonce, min_parties=2)
    assert "asks another question" in reasons(station.handle(put(other)))[0][1]


def test_a_run_is_not_begun_again_however_many_came_between(station: Station) -> None:
    """A bounded number of names is kept; below the mark, every run counts as begun."""
    station.begun = BegunRuns(most=4)
    old, other = (a_query(nonce=bytes(7) + bytes([n])) for n in (1, 2))
    station.handle(put(old))
    station.forget(old.run)
    station.handle(ask())
    for high in range(20):
        station.forget(bytes([128 + high]) * 28)
    assert len(station.begun) == 4
    assert "is over" in reasons(station.handle(put(old)))[0][1]
    assert "is over" in reasons(station.handle(put(other)))[0][1]  # it cannot be told from one
    assert station.handle(submit(0)).refused == []  # a run that is open goes on
    assert station.handle(ask()).refused == []


def test_a_journal_may_tell_of_runs_below_the_mark(station: Station) -> None:
    station.begun.mark = b"\xff" * 8
    assert "is over" in reasons(station.handle(ask()))[0][1]
    station.replaying = True
    assert station.handle(ask()).refused == []
    station.replaying = False
    assert station.handle(submit(0)).refused == []


def test_a_number_of_the_future_is_refused_and_not_kept(station: Station) -> None:
    """A coordinator cannot push the mark past all that will ever be asked."""
    station.begun.clock = lambda: 1_800_000_000.0
    ahead, now, past = (
        a_query(nonce=number(milliseconds(1_800_000_000.0 + more), 0))
        for more in (301, 299, -86401)
    )
    assert not station.awaits(put(past))
    assert "long before our clock" in reasons(station.handle(put(past)))[0][1]
    assert not station.awaits(put(ahead))
    assert "ahead of our clock" in reasons(station.handle(put(ahead)))[0][1]
    assert len(station.begun) == 0
    assert station.awaits(put(now))
    assert station.handle(put(now)).refused == []


def test_to_forget_a_run_under_another_digest_changes_nothing(station: Station) -> None:
    station.handle(ask())
    station.forget(RUN[:8] + bytes(20))
    assert station.handle(submit(0)).refused == []
    assert station.handle(ask()).refused == []
