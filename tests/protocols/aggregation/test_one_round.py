"""The machines of a one-round aggregator, against their transition tables and beyond them."""

from collections.abc import Callable
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from tallyroom.protocols.aggregation.additive import Additive
from tallyroom.protocols.aggregation.collector import COLLECTOR_ACCEPTS, Collector, CollectorState
from tallyroom.protocols.aggregation.contract import Memory, Total
from tallyroom.protocols.aggregation.one_round import SERVER_ACCEPTS, OneRoundServer, ServerState
from tallyroom.protocols.aggregation.rosters import Fault
from tallyroom.protocols.algebra.ring import add_shares
from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.wire.machine import Continue, Done, Failed, Rejected, Spend, Step
from tallyroom.protocols.wire.messages import Message, Phase, Role
from tests.samples import a_message, a_query, bitmap, holdings_of

WIDTH = 32
EVERYONE = bitmap(4, [0, 1, 2, 3])
ONE_RECORD_EACH = np.ones(4, dtype=np.int64)


def submit(*parties: int, width: int = WIDTH, fill: int = 1) -> Message:
    body = np.full((len(parties), width), fill, dtype=np.uint8)
    return a_message(Phase.SUBMIT, Role.PARTY, Role.SERVER, parties, body=body)


def order(phase: Phase, body: bytes) -> Message:
    return a_message(phase, Role.COORDINATOR, Role.SERVER, body=body)


def server_in(state: ServerState, query: Query | None = None) -> OneRoundServer:
    query = query or a_query()
    server = Additive().server(query, 0, Randomness.from_seed(1, "server-0"), Memory())
    assert isinstance(server, OneRoundServer)
    assert server.start() == Continue()
    if state is not ServerState.COLLECTING:
        server.receive(submit(*range(query.parties)))
    if state is ServerState.RELEASED:
        everyone = bitmap(query.parties, list(range(query.parties)))
        server.receive(order(Phase.RELEASE, everyone))
    assert server.state is state
    return server


SERVER_BODIES = {Phase.SUBMIT: bytes(WIDTH), Phase.EXCUSE: bytes(1), Phase.RELEASE: EVERYONE}


@pytest.mark.parametrize(("state", "phase", "role"), list(product(ServerState, Phase, Role)))
def test_a_server_takes_what_its_table_says_and_nothing_else(
    state: ServerState, phase: Phase, role: Role
) -> None:
    server = server_in(state)
    body = SERVER_BODIES.get(phase, b"")
    if (state, phase) == (ServerState.CLOSED, Phase.SUBMIT):
        body = submit(0).body.tobytes()  # only what was said before may be said again
    step = server.receive(a_message(phase, role, Role.SERVER, body=body))
    if phase is Phase.ASK:
        assert isinstance(step, Rejected), "a run that is not on demand answers no questions"
    elif SERVER_ACCEPTS.get((state, phase)) is role:
        assert not isinstance(step, Rejected)
    else:
        assert isinstance(step, Rejected)
        assert server.state is state


def test_the_server_table_is_the_protocol() -> None:
    assert SERVER_ACCEPTS == {
        (ServerState.COLLECTING, Phase.SUBMIT): Role.PARTY,
        (ServerState.COLLECTING, Phase.EXCUSE): Role.COORDINATOR,
        (ServerState.CLOSED, Phase.SUBMIT): Role.PARTY,
        (ServerState.CLOSED, Phase.RELEASE): Role.COORDINATOR,
        (ServerState.RELEASED, Phase.RELEASE): Role.COORDINATOR,
        (ServerState.RELEASED, Phase.ASK): Role.COORDINATOR,
    }
    assert COLLECTOR_ACCEPTS == {
        (CollectorState.ROSTERS, Phase.ROSTER): Role.SERVER,
        (CollectorState.ROSTERS, Phase.GIVE_UP): Role.SERVER,
        (CollectorState.SHARES, Phase.SHARE): Role.SERVER,
        (CollectorState.SHARES, Phase.GIVE_UP): Role.SERVER,
    }


def share_of(step: Step) -> list[int]:
    assert isinstance(step, Continue)
    (message,) = step.messages
    assert message.phase is Phase.SHARE
    shares: list[int] = message.body[0].view("<u8").tolist()
    return shares


def roster_of(step: Step) -> bytes:
    assert isinstance(step, Continue)
    (message,) = step.messages
    assert message.phase is Phase.ROSTER
    return message.body.tobytes()


BAD_SUBMISSIONS: dict[str, Message] = {
    "too narrow": submit(2, width=WIDTH - 8),
    "too wide": submit(2, width=WIDTH + 8),
    "empty": submit(2, width=0),
    "unknown party": submit(4),
    "unknown party far away": submit(2**32 - 1),
    "one unknown party in a batch": submit(2, 4),
    "second submission": submit(0, fill=9),
    "second submission in a batch": submit(2, 0, fill=9),
    "twice in one batch": submit(2, 2),
    "release before the roster": order(Phase.RELEASE, EVERYONE),
    "excuse with a padding bit": order(Phase.EXCUSE, b"\x01"),
    "excuse that is too long": order(Phase.EXCUSE, bytes(2)),
    "excuse that is empty": order(Phase.EXCUSE, b""),
}


@pytest.mark.parametrize("name", BAD_SUBMISSIONS)
def test_what_a_collecting_server_rejects_leaves_no_trace(name: str) -> None:
    """The same later answers, to the byte, as of a server that never saw it, but for the name of
    who is at fault, where that is certain."""
    tried, untried = (server_in(ServerState.COLLECTING) for _ in range(2))
    for server in (tried, untried):
        assert server.receive(submit(0, 1)) == Continue()
    step = tried.receive(BAD_SUBMISSIONS[name])
    assert isinstance(step, Rejected)
    assert step.reason
    answers = [
        (
            roster_of(server.receive(submit(2, 3, fill=5))),
            share_of(server.receive(order(Phase.RELEASE, EVERYONE))),
        )
        for server in (tried, untried)
    ]
    named = {
        "too narrow": bytes([2, 0, 0, 0, Fault.MALFORMED]),
        "too wide": bytes([2, 0, 0, 0, Fault.MALFORMED]),
        "empty": bytes([2, 0, 0, 0, Fault.MALFORMED]),
        "second submission": bytes([0, 0, 0, 0, Fault.CONTRADICTORY]),
    }
    assert answers[0] == (answers[1][0] + named.get(name, b""), answers[1][1])
    assert answers[1][0] == EVERYONE
    assert answers[0][1] == [2 * 0x0101010101010101 + 2 * 0x0505050505050505] * 4


BAD_RELEASES = {
    "over a party that did not submit": bitmap(4, [0, 1, 2]),
    "over fewer than the minimum": bitmap(4, [0]),
    "over nobody": bytes(1),
    "with a padding bit": bytes([EVERYONE[0] | 1]),
    "too long": EVERYONE + b"\0",
    "empty": b"",
}


@pytest.mark.parametrize("name", BAD_RELEASES)
def test_bad_releases_are_refused_and_a_good_one_still_works(name: str) -> None:
    query = a_query(min_parties=2)
    server = Additive().server(query, 0, Randomness.from_seed(1, "server-0"), Memory())
    server.receive(submit(0, 1))
    server.receive(submit(3))
    assert roster_of(server.expire()) == bitmap(4, [0, 1, 3])
    refused = server.receive(order(Phase.RELEASE, BAD_RELEASES[name]))
    assert isinstance(refused, Rejected)
    assert (
        share_of(server.receive(order(Phase.RELEASE, bitmap(4, [0, 3]))))
        == [2 * 0x0101010101010101] * 4
    )


def test_there_is_no_second_release() -> None:
    """The difference of two releases would be somebody's vector."""
    server = server_in(ServerState.RELEASED, a_query(min_parties=1))
    for members in ([0, 1, 2], [0]):
        step = server.receive(order(Phase.RELEASE, bitmap(4, members)))
        assert isinstance(step, Rejected)


def test_the_same_release_is_answered_again_with_the_same_noise_and_the_same_receipt() -> None:
    server = server_in(ServerState.CLOSED, a_query(epsilon=Fraction(1)))
    first, second = (server.receive(order(Phase.RELEASE, EVERYONE)) for _ in range(2))
    assert share_of(first) == share_of(second)
    assert isinstance(first, Continue)
    assert isinstance(second, Continue)
    assert first.spends == second.spends


def test_a_release_is_paid_for_and_noisy() -> None:
    query = a_query(epsilon=Fraction(1, 2))
    server = server_in(ServerState.CLOSED, query)
    step = server.receive(order(Phase.RELEASE, EVERYONE))
    assert isinstance(step, Continue)
    (spend,) = step.spends
    in_rho = PrivacyLoss.concentrated(Fraction(1, 16))  # two counts move by one, at scale 4
    assert spend == Spend("data", query.run.hex(), PrivacyLoss.of(Fraction(1, 2)), in_rho)
    noise = np.array(share_of(step), dtype=np.uint64) - np.uint64(4 * 0x0101010101010101)
    assert noise.any()
    assert np.abs(noise.view(np.int64)).max() < 200  # scale 4: beyond with chance 1e-21


def test_excused_parties_are_not_waited_for_but_may_still_come() -> None:
    server = server_in(ServerState.COLLECTING)
    assert server.receive(submit(0)) == Continue()
    assert server.receive(order(Phase.EXCUSE, bitmap(4, [1, 2]))) == Continue()
    assert server.receive(submit(1)) == Continue()
    assert roster_of(server.receive(submit(3))) == bitmap(4, [0, 1, 3])


def test_an_excuse_may_be_what_completes_the_roster() -> None:
    server = server_in(ServerState.COLLECTING)
    server.receive(submit(0, 1))
    assert roster_of(server.receive(order(Phase.EXCUSE, bitmap(4, [2, 3])))) == bitmap(4, [0, 1])


def test_a_deadline_closes_a_collecting_server_only() -> None:
    assert roster_of(server_in(ServerState.COLLECTING).expire()) == bitmap(4, [])
    for state in (ServerState.CLOSED, ServerState.RELEASED):
        server = server_in(state)
        assert server.expire() == Continue()
        assert server.state is state


# --- the collector ---


def from_server(phase: Phase, server: int, body: bytes) -> Message:
    return a_message(phase, Role.SERVER, Role.COORDINATOR, (server,), body=body)


def words(*values: int) -> bytes:
    return np.array(values, dtype="<u8").tobytes()


def collector_in(state: CollectorState, query: Query | None = None) -> Collector:
    query = query or a_query()
    collector = Additive().collector(query, ONE_RECORD_EACH, Randomness(bytes(16)))
    assert isinstance(collector, Collector)
    collector.start()
    if state is not CollectorState.ROSTERS:
        for server in range(2):
            collector.receive(from_server(Phase.ROSTER, server, EVERYONE))
    if state is CollectorState.OVER:
        for server in range(2):
            collector.receive(from_server(Phase.SHARE, server, words(1, 2, 3, 4)))
    return collector


@pytest.mark.parametrize(("state", "phase", "role"), list(product(CollectorState, Phase, Role)))
def test_a_collector_takes_what_its_table_says_and_nothing_else(
    state: CollectorState, phase: Phase, role: Role
) -> None:
    collector = collector_in(state)
    body = {Phase.ROSTER: EVERYONE, Phase.SHARE: words(1, 2, 3, 4)}.get(phase, b"")
    step = collector.receive(a_message(phase, role, Role.COORDINATOR, body=body))
    assert isinstance(step, Rejected) is (COLLECTOR_ACCEPTS.get((state, phase)) is not role)


def test_servers_are_told_before_parties() -> None:
    step = Additive().collector(a_query(), ONE_RECORD_EACH, Randomness(bytes(16))).start()
    assert isinstance(step, Continue)
    assert [message.receiver for message in step.messages] == [
        "server-0",
        "server-1",
        "4 party members",
    ]


def test_the_release_is_over_those_whom_all_servers_hold() -> None:
    collector = collector_in(CollectorState.ROSTERS, a_query(min_parties=1))
    collector.receive(from_server(Phase.ROSTER, 1, bitmap(4, [0, 1, 3])))
    step = collector.receive(from_server(Phase.ROSTER, 0, bitmap(4, [1, 2, 3])))
    assert isinstance(step, Continue)
    assert {message.body.tobytes() for message in step.messages} == {bitmap(4, [1, 3])}
    assert [message.receiver for message in step.messages] == ["server-0", "server-1"]
    collector.receive(from_server(Phase.SHARE, 0, words(2**64 - 1, 0, 0, 5)))
    done = collector.receive(from_server(Phase.SHARE, 1, words(2, 0, 7, 5)))
    assert isinstance(done, Done)
    assert isinstance(done.output, Total)
    assert done.output.vector.tolist() == [1, 0, 7, 10]
    assert done.output.contributors.tolist() == [1, 3]
    assert len(done.spends) == 1


REFUSED: dict[str, tuple[CollectorState, Message]] = {
    "a roster with padding": (CollectorState.ROSTERS, from_server(Phase.ROSTER, 0, b"\x01")),
    "a roster of other size": (CollectorState.ROSTERS, from_server(Phase.ROSTER, 0, b"")),
    "an unknown server": (CollectorState.ROSTERS, from_server(Phase.ROSTER, 2, EVERYONE)),
    "a short share": (CollectorState.SHARES, from_server(Phase.SHARE, 0, words(1, 2, 3))),
    "a long share": (CollectorState.SHARES, from_server(Phase.SHARE, 0, words(1, 2, 3, 4, 5))),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_collector_rejects_leaves_no_trace(name: str) -> None:
    state, bad = REFUSED[name]
    collector = collector_in(state)
    assert isinstance(collector.receive(bad), Rejected)
    if state is CollectorState.ROSTERS:
        for server in range(2):
            step = collector.receive(from_server(Phase.ROSTER, server, EVERYONE))
            assert isinstance(step, Continue)
    for server in range(2):
        step = collector.receive(from_server(Phase.SHARE, server, words(1, 1, 1, 1)))
    assert isinstance(step, Done)
    assert isinstance(step.output, Total)
    assert step.output.vector.tolist() == [2, 2, 2, 2]
    assert step.output.contributors.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("state", "again"),
    [
        (CollectorState.ROSTERS, lambda: from_server(Phase.ROSTER, 0, EVERYONE)),
        (CollectorState.SHARES, lambda: from_server(Phase.SHARE, 0, words(9, 9, 9, 9))),
    ],
)
def test_a_server_answers_once(state: CollectorState, again: Callable[[], Message]) -> None:
    collector = collector_in(state)
    assert collector.receive(again()) == Continue()
    assert isinstance(collector.receive(again()), Rejected)


def test_too_few_submissions_fail_the_run_with_their_names() -> None:
    collector = collector_in(CollectorState.ROSTERS, a_query(min_parties=3))
    collector.receive(from_server(Phase.ROSTER, 0, bitmap(4, [0, 1])))
    step = collector.receive(from_server(Phase.ROSTER, 1, EVERYONE))
    assert isinstance(step, Failed)
    assert "only 2 of 4 parties" in step.reason
    assert "missing: party-2, party-3" in step.reason


def test_a_deadline_names_the_servers_that_were_silent() -> None:
    collector = collector_in(CollectorState.SHARES)
    collector.receive(from_server(Phase.SHARE, 0, words(1, 2, 3, 4)))
    step = collector.expire()
    assert isinstance(step, Failed)
    assert "server-1 did not answer" in step.reason
    assert "server-0" not in step.reason


def test_lost_parties_are_excused_while_rosters_are_awaited() -> None:
    lost = np.array([1, 2], dtype=np.uint32)
    step = collector_in(CollectorState.ROSTERS).lose(lost)
    assert isinstance(step, Continue)
    assert [(m.receiver, m.body.tobytes()) for m in step.messages] == [
        ("server-0", bitmap(4, [1, 2])),
        ("server-1", bitmap(4, [1, 2])),
    ]
    assert collector_in(CollectorState.SHARES).lose(lost) == Continue()


def test_a_party_expects_nothing() -> None:
    party = Additive().party(a_query(), holdings_of([0.5], 1), Randomness(bytes(16)))
    for phase, role in product(Phase, Role):
        assert isinstance(party.receive(a_message(phase, role, Role.PARTY)), Rejected)
    assert party.expire() == Done()


def test_a_collector_goes_on_without_servers_it_does_not_need() -> None:
    collector = Collector(a_query(servers=3), ONE_RECORD_EACH, add_shares, needed=2)
    collector.start()
    collector.receive(from_server(Phase.ROSTER, 0, EVERYONE))
    collector.receive(from_server(Phase.ROSTER, 2, EVERYONE))
    step = collector.lose_servers({1}, "is gone")
    assert isinstance(step, Continue)
    assert [message.receiver for message in step.messages] == ["server-0", "server-2"]
    collector.receive(from_server(Phase.SHARE, 2, words(1, 2, 3, 4)))
    step = collector.receive(from_server(Phase.GIVE_UP, 0, b"its disk is full"))
    assert isinstance(step, Failed)
    assert step.reason == "server-0 cannot go on: its disk is full"


def test_a_server_that_did_not_answer_in_time_is_one_that_is_lost() -> None:
    collector = Collector(a_query(servers=3), ONE_RECORD_EACH, add_shares, needed=2)
    collector.start()
    for server in range(3):
        step = collector.receive(from_server(Phase.ROSTER, server, EVERYONE))
    for server in (0, 2):
        step = collector.receive(from_server(Phase.SHARE, server, words(1, 2, 3, 4)))
    assert step == Continue()
    step = collector.expire()
    assert isinstance(step, Done)
    assert isinstance(step.output, Total)
    assert step.output.vector.tolist() == [2, 4, 6, 8]
    late = collector.receive(from_server(Phase.SHARE, 1, words(1, 2, 3, 4)))
    assert isinstance(late, Rejected)


@pytest.mark.parametrize(
    "tail",
    [bytes(4), bytes([4, 0, 0, 0, 1]), bytes([0, 0, 0, 0, 9]), 2 * bytes([1, 0, 0, 0, 1])],
    ids=["cut short", "unknown party", "unknown fault", "the same party twice"],
)
def test_a_roster_with_malformed_faults_is_refused(tail: bytes) -> None:
    collector = collector_in(CollectorState.ROSTERS)
    assert isinstance(collector.receive(from_server(Phase.ROSTER, 0, EVERYONE + tail)), Rejected)
    assert collector.receive(from_server(Phase.ROSTER, 0, EVERYONE)) == Continue()
