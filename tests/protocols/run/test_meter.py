"""Accounts of what parties say to each other, and the bill that hosts' accounts add up to."""

import numpy as np

from tallyroom.protocols.wire.messages import Message, Phase, Role
from tallyroom.protocols.wire.meter import SEALING_BYTES, Bill, Direction, Meter, relayed
from tests.samples import a_message

PARTIES = 5
HEADER = 54


def pair(senders: tuple[int, ...], receivers: tuple[int, ...], width: int = 4) -> Message:
    body = np.zeros((len(senders), width), dtype=np.uint8)
    return a_message(Phase.PAIR, Role.PARTY, Role.PARTY, senders, receivers, body, round_=3)


def hosts_of(*blocks: tuple[int, ...]) -> list[Meter]:
    """Every host meters what its own parties send and receive of one batch of six links."""
    senders, receivers = (0, 0, 1, 2, 3, 4), (1, 2, 3, 0, 0, 4)
    meters = []
    for block in blocks:
        meter = Meter()
        batch = pair(senders, receivers)
        sent, got = (np.flatnonzero(np.isin(ids, block)) for ids in (senders, receivers))
        meter.record(Direction.SENT, batch.select(sent))
        meter.record(Direction.RECEIVED, batch.select(got))
        meters.append(meter)
    return meters


def test_messages_between_parties_are_entered_at_both_ends() -> None:
    (meter,) = hosts_of((0, 1, 2, 3, 4))
    (sent, got) = meter.accounts.values()
    assert {link.station for _, link in meter.accounts} == {0}
    assert sent.messages[:PARTIES].tolist() == [2, 1, 1, 1, 1]
    assert got.messages[:PARTIES].tolist() == [2, 1, 1, 1, 1]
    assert (sent.bytes == (HEADER + 4) * sent.messages).all()


def test_hosts_accounts_add_up_to_the_same_bill_however_parties_are_dealt() -> None:
    whole = Bill(hosts_of((0, 1, 2, 3, 4)), PARTIES)
    assert whole.total.messages == 6
    assert whole.total.bytes == 6 * (HEADER + 4)
    assert whole.party_bytes().tolist() == [each * (HEADER + 4) for each in (4, 2, 2, 2, 2)]
    assert whole.by_link().keys() == {"party->party"}
    for blocks in (((0, 1), (2, 3, 4)), ((0,), (1,), (2,), (3,), (4,)), ((4, 0), (3, 1), (2,))):
        split = Bill(hosts_of(*blocks), PARTIES)
        assert split.as_json() == whole.as_json()
        assert list(split.rows()) == list(whole.rows())


def test_rows_name_the_sender_and_no_single_receiver() -> None:
    rows = list(Bill(hosts_of((0, 1), (2, 3, 4)), PARTIES).rows())
    assert rows[0] == ("pair", 3, "party-0", "other parties", 2 * (HEADER + 4), 2)
    assert [row[2] for row in rows] == [f"party-{i}" for i in range(PARTIES)]


def test_adding_up_changes_no_account() -> None:
    meters = hosts_of((0, 1), (2, 3, 4))
    before = [a.bytes.tolist() for m in meters for a in m.accounts.values()]
    Bill(meters, PARTIES)
    relayed(meters[0])
    assert [a.bytes.tolist() for m in meters for a in m.accounts.values()] == before


def test_only_what_went_between_parties_is_handed_in() -> None:
    (meter,) = hosts_of((0, 1, 2, 3, 4))
    submission = a_message(Phase.SUBMIT, Role.PARTY, Role.SERVER, (0,), (1,), bytes(8))
    meter.record(Direction.SENT, submission)
    meter.record(Direction.RECEIVED, a_message(Phase.QUERY, Role.COORDINATOR, Role.PARTY))
    assert len(meter.accounts) == 4
    part = meter.between_parties()
    assert [link.label for _, link in part.accounts] == ["party->party"] * 2


def test_relayed_messages_travel_twice_and_sealed() -> None:
    for blocks in (((0, 1, 2, 3, 4),), ((0, 1), (2, 3, 4))):
        direct = Bill(hosts_of(*blocks), PARTIES)
        twice = Bill([relayed(meter) for meter in hosts_of(*blocks)], PARTIES)
        leg = 6 * (HEADER + 4 + SEALING_BYTES)
        assert {name: tally.bytes for name, tally in twice.by_link().items()} == {
            "party->coordinator": leg,
            "coordinator->party": leg,
        }
        assert twice.total.messages == 2 * direct.total.messages
        sealing = SEALING_BYTES * np.array([4, 2, 2, 2, 2])
        assert (twice.party_bytes() == direct.party_bytes() + sealing).all()
        assert {row[3] for row in twice.rows() if row[2] != "coordinator"} == {"coordinator"}
