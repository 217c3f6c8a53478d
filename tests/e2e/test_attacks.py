"""Replays, disorder, releases that nobody paid for, and parties that only hold things up."""

import contextlib
import socket
import ssl
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from tallyroom.parties.block import PartyBlock
from tallyroom.protocols.aggregation.rosters import Fault
from tallyroom.protocols.errors import RunFailed
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.run.receipts import RECEIPT_BYTES
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.wire.messages import Message, Phase, Role
from tallyroom.protos import tally_pb2 as pb
from tallyroom.protos.tally_pb2_grpc import CoordinatorStub, MessagesStub
from tallyroom.simulation.runtimes import Layout, Opened
from tallyroom.storage.ledger import Ledger
from tests.e2e.addressed import ANALYST, SECONDS, Addressed, party, refusal
from tests.e2e.siege import Hand, LoneServers, Undermined, serves
from tests.samples import a_message, a_query, bitmap, holdings_of

VALUES = [0.1, 0.3, 0.6, 0.9]
EVERYONE = [0, 1, 2, 3]


@pytest.fixture(scope="module")
def servers() -> Iterator[LoneServers]:
    with LoneServers(Layout(holdings_of(VALUES, 4), 2, 1, seed=1)) as started:
        yield started


def question(query: Query) -> Message:
    return a_message(Phase.QUERY, Role.COORDINATOR, Role.SERVER, body=query.encode(), run=query.run)


def shares(query: Query) -> list[Message]:
    """What each of four parties sends to server-0: counts of 1, 2, 3 and 4 in every bin."""
    return [
        a_message(
            Phase.SUBMIT,
            Role.PARTY,
            Role.SERVER,
            (i,),
            body=np.full(query.plan.length, i + 1, dtype="<u8").tobytes(),
            run=query.run,
            round_=2,
        )
        for i in range(4)
    ]


def release(query: Query, members: list[int]) -> Message:
    body = bitmap(query.parties, members)
    return a_message(
        Phase.RELEASE, Role.COORDINATOR, Role.SERVER, body=body, run=query.run, round_=4
    )


def values(share: Message) -> list[int]:
    found: list[int] = share.body[0, RECEIPT_BYTES:].view("<u8").tolist()
    return found


def test_replayed_submissions_count_once(servers: LoneServers) -> None:
    query = a_query(nonce=b"replayed")
    with Hand(servers) as hand:
        assert hand.send(question(query)) == []
        first, *others = shares(query)
        for message in (first, first, others[0], first, others[1], first):
            assert hand.send(message) == []
        changed = a_message(
            Phase.SUBMIT, Role.PARTY, Role.SERVER, (0,), body=bytes(32), run=query.run, round_=2
        )
        assert hand.send(changed) == ["submitted twice"]
        assert hand.send(others[2]) == []
        assert hand.send(first) == []
        assert hand.send(changed) == ["submitted twice"]
        assert hand.send(release(query, EVERYONE)) == []
        roster, share = hand.heard(2)
        caught = bytes([0, 0, 0, 0, Fault.CONTRADICTORY])
        assert roster.body.tobytes() == bitmap(4, EVERYONE) + caught
        assert values(share) == [1 + 2 + 3 + 4] * 4


def test_messages_out_of_turn_are_refused_and_the_run_is_unharmed(servers: LoneServers) -> None:
    query = a_query(nonce=b"reorders")
    excuse = a_message(
        Phase.EXCUSE, Role.COORDINATOR, Role.SERVER, body=bitmap(4, [0]), run=query.run
    )
    ask = a_message(Phase.ASK, Role.COORDINATOR, Role.SERVER, body=bytes(16), run=query.run)
    from_party = a_message(
        Phase.RELEASE, Role.PARTY, Role.SERVER, body=bitmap(4, EVERYONE), run=query.run, round_=2
    )
    with Hand(servers) as hand:
        for early in (release(query, EVERYONE), shares(query)[0], excuse, ask):
            assert "is unknown" in hand.send(early)[0]
        assert hand.send(question(query)) == []
        for early in (release(query, EVERYONE), from_party, ask):
            assert "while collecting is out of turn" in hand.send(early)[0]
        for message in reversed(shares(query)):
            assert hand.send(message) == []
        for late in (excuse, ask):
            assert "while closed is out of turn" in hand.send(late)[0]
        assert "must come from coordinator" in hand.send(from_party)[0]
        other = a_query(nonce=query.nonce, min_parties=1)
        assert "asks another question in run" in hand.send(question(other))[0]
        assert hand.send(release(query, EVERYONE)) == []
        assert values(hand.heard(2)[1]) == [10] * 4


def test_an_old_runs_messages_do_nothing_to_a_new_run(servers: LoneServers) -> None:
    old, new = a_query(nonce=b"old run."), a_query(nonce=b"new run.")
    with Hand(servers) as hand:
        hand.send(question(old))
        for message in shares(old):
            assert hand.send(message) == []
        assert hand.send(release(old, EVERYONE)) == []
        assert len(hand.heard(2)) == 2
        hand.forget(old.run)
        assert hand.send(question(new)) == []
        for again in (question(old), *shares(old), release(old, EVERYONE)):
            assert "is over" in hand.send(again)[0]
        for message in shares(new):
            assert hand.send(message) == []
        assert hand.send(release(new, EVERYONE)) == []
        found = hand.heard(2)
        assert {message.run for message in found} == {new.run}
        assert values(found[1]) == [10] * 4


def test_keys_for_another_run_or_question_are_refused(servers: LoneServers) -> None:
    curve = Ecdf(lower=0.0, upper=1.0, thresholds=4)
    old, other, new = (
        a_query(
            nonce=nonce, statistic=curve, aggregator="fss?verified=no", epsilon=Fraction(epsilon)
        )
        for nonce, epsilon in ((b"old keys", 1), (b"new keys", 2), (b"new keys", 1))
    )

    def keys(query: Query) -> Message:
        asked = a_message(
            Phase.QUERY,
            Role.COORDINATOR,
            Role.PARTY,
            receivers=(0, 1, 2, 3),
            body=query.encode(),
            run=query.run,
        )
        block = PartyBlock(holdings_of(VALUES, 4), Randomness.from_seed(1, "parties"))
        return block.handle(asked).messages[0]

    with Hand(servers) as hand:
        assert hand.send(question(new)) == []
        assert "is unknown" in hand.send(keys(old))[0]
        assert "was asked another question in run" in hand.send(keys(other))[0]
        assert hand.send(keys(new)) == []
        assert [message.phase for message in hand.heard(1)] == [Phase.ROSTER]


def test_a_coordinator_gets_nothing_past_a_servers_cap(tmp_path: Path) -> None:
    """Both runs are open before either is released, which no cap can know; then one is paid."""
    plan = Layout(holdings_of(VALUES, 4), 2, 1, seed=1, cap=Fraction(1), store=tmp_path)
    paid, unpaid, late = (
        a_query(nonce=run, epsilon=Fraction(3, 4))
        for run in (b"paid....", b"unpaid..", b"late....")
    )
    with LoneServers(plan) as capped:
        with Hand(capped) as hand:
            for query in (paid, unpaid):
                assert hand.send(question(query)) == []
                for message in shares(query):
                    assert hand.send(message) == []
            assert hand.send(release(paid, EVERYONE)) == []
            assert [m.phase for m in hand.heard(3)] == [Phase.ROSTER, Phase.ROSTER, Phase.SHARE]
            for _ in range(2):
                assert hand.send(release(unpaid, EVERYONE)) != []
            assert "0.25 of 1 is left" in hand.send(question(late))[0]
            without_noise = a_query(nonce=b"no noise")
            assert "without noise is refused" in hand.send(question(without_noise))[0]
            assert hand.heard(0) == []
        capped.children["server-0"].kill()
        capped.restart("server-0")
        with Hand(capped) as hand:
            assert hand.send(release(unpaid, EVERYONE)) != []
            assert unpaid.run not in {m.run for m in hand.heard(0) if m.phase is Phase.SHARE}
    ledger = Ledger(tmp_path / "server-0" / "ledger.sqlite")
    assert [row[0] for row in ledger.rows()] == [paid.run.hex()]
    ledger.close()


def test_a_second_release_over_other_parties_is_refused(servers: LoneServers) -> None:
    """The difference of the two would be one party's share."""
    query = a_query(nonce=b"differs.", min_parties=2, epsilon=Fraction(1))
    with Hand(servers) as hand:
        hand.send(question(query))
        for message in shares(query):
            assert hand.send(message) == []
        assert "fewer than 2" in hand.send(release(query, [0]))[0]
        assert hand.send(release(query, EVERYONE)) == []
        for members in ([0, 1, 2], [1, 2, 3], [0, 1]):
            assert "a second release over other parties" in hand.send(release(query, members))[0]
        assert hand.send(release(query, EVERYONE)) == []
        roster, first, again = hand.heard(3)
        assert roster.phase is Phase.ROSTER
        assert values(first) == values(again)
        assert hand.heard(0) == []


# --- parties that hold things up ---


@pytest.fixture(scope="module")
def undermined() -> Iterator[Undermined]:
    """The test is party-3."""
    with Undermined(Layout(holdings_of(VALUES, 4), 2, 4, seed=1), played=3) as started:
        yield started


def ask(federation: Addressed, min_parties: int | None) -> Opened:
    statistic = Histogram(lower=0.0, upper=1.0, bins=4)
    asked = Question(
        statistic, "additive", None, Placement.EACH_SERVER, min_parties=min_parties, deadline=1.5
    )
    begun = time.monotonic()
    try:
        return federation.ask(asked, lambda _: None)
    finally:
        assert time.monotonic() < begun + 10.0


@contextlib.contextmanager
def lurking(federation: Addressed) -> Iterator[MessagesStub]:
    """Party-3 is there, opens its stream, and never reads it."""
    me = np.array([3], dtype="<u4").tobytes()
    with federation.reach("coordinator", party(3)) as channel:
        stream = MessagesStub(channel).Receive(pb.Subscription())
        list(stream.initial_metadata())
        one = np.array([1], dtype="<u4").tobytes()
        CoordinatorStub(channel).Join(pb.JoinRequest(parties=me, records=one), timeout=SECONDS)
        yield MessagesStub(channel)
        stream.cancel()


def dribble(federation: Addressed, station: str, folder: Path) -> list[socket.socket]:
    """Connections that say a little and then nothing: before TLS, in it, and behind it."""
    mine = federation.issue(party(3))
    (folder / "mine.pem").write_bytes(mine.key + mine.certificate)
    tls = ssl.create_default_context(cadata=mine.authority.decode())
    tls.load_cert_chain(folder / "mine.pem")
    tls.set_alpn_protocols(["h2"])
    host, port = federation.addresses[station].split(":")
    opened: list[socket.socket] = []
    for number in range(30):
        plain = socket.create_connection((host, int(port)), timeout=SECONDS)
        if number % 3 == 0:
            plain.send(b"\x16\x03\x01")
            opened.append(plain)
            continue
        secured = tls.wrap_socket(plain, server_hostname=station)
        if number % 3 == 1:
            secured.send(b"PRI * HTTP/2.0\r\n")
        opened.append(secured)
    return opened


def test_a_party_that_dribbles_and_never_reads_holds_nobody_up(
    undermined: Undermined, tmp_path: Path
) -> None:
    with contextlib.ExitStack() as stack:
        for station in ("coordinator", "server-0", "server-1"):
            for each in dribble(undermined, station, tmp_path):
                stack.enter_context(contextlib.closing(each))
        post = stack.enter_context(lurking(undermined))
        for _ in range(20):
            again = post.Receive(pb.Subscription(), timeout=SECONDS)
            assert refusal(lambda again=again: next(again)).name == "ALREADY_EXISTS"  # type: ignore[misc]
        opened = ask(undermined, min_parties=3)
        assert opened.contributors.tolist() == [0, 1, 2]
        for station in ("coordinator", "server-0", "server-1"):
            assert serves(undermined, station, ANALYST)
        with pytest.raises(RunFailed, match="missing: party-3"):
            ask(undermined, min_parties=None)


def test_a_party_that_joins_and_never_submits_is_named(undermined: Undermined) -> None:
    with undermined.reach("coordinator", party(3)) as channel:
        three, one = (np.array([n], dtype="<u4").tobytes() for n in (3, 1))
        for _ in range(50):  # joining again gains nothing
            CoordinatorStub(channel).Join(
                pb.JoinRequest(parties=three, records=one), timeout=SECONDS
            )
        assert ask(undermined, min_parties=2).contributors.tolist() == [0, 1, 2]
        with pytest.raises(RunFailed, match="missing: party-3"):
            ask(undermined, min_parties=4)
