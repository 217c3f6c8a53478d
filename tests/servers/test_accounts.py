"""Meters on the wire, and the bill that is made of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallyroom.protocols.errors import PeerError
from tallyroom.protocols.query import MAX_PARTIES
from tallyroom.protocols.wire.messages import Phase, Role
from tallyroom.protocols.wire.meter import Bill, Direction, Meter
from tallyroom.protos import tally_pb2 as pb
from tallyroom.protos.accounts import accounts_from_wire, accounts_to_wire, cpu_seconds_from_wire
from tests.samples import a_message


def submission(parties: list[int], width: int, server: int = 0, round_: int = 2) -> Meter:
    meter = Meter()
    add(meter, parties, width, server, round_)
    return meter


def add(meter: Meter, parties: list[int], width: int, server: int = 0, round_: int = 2) -> None:
    body = np.zeros((len(parties), width), dtype=np.uint8)
    message = a_message(
        Phase.SUBMIT, Role.PARTY, Role.SERVER, tuple(parties), (server,), body, round_=round_
    )
    meter.record(Direction.RECEIVED, message)


blocks = st.lists(
    st.tuples(
        st.lists(st.integers(0, 300), min_size=1, max_size=5, unique=True),
        st.integers(0, 50),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=8,
)


@given(blocks)
def test_a_meter_goes_over_the_wire_and_bills_the_same(
    sent: list[tuple[list[int], int, int]],
) -> None:
    meter = Meter()
    for parties, width, server in sent:
        add(meter, parties, width, server)
    wire = pb.AccountList.FromString(accounts_to_wire(meter).SerializeToString())
    back = accounts_from_wire(wire, "server-0")
    assert list(Bill([back], 301).rows()) == list(Bill([meter], 301).rows())
    assert Bill([back], 301).wire_bytes == Bill([meter], 301).wire_bytes
    assert Bill([back], 301).total.messages == sum(len(parties) for parties, _, _ in sent)
    assert Bill([back], 301).total.bytes == sum(
        len(parties) * (54 + width) for parties, width, _ in sent
    )


def test_many_equal_parties_are_a_short_answer() -> None:
    meter = submission(list(range(100_000)), 16)
    assert len(accounts_to_wire(meter).SerializeToString()) < 200


def entry(**changes: object) -> pb.AccountList:
    accounts = accounts_to_wire(submission([0, 1], 4))
    for key, value in changes.items():
        setattr(accounts.accounts[0], key, value)
    return accounts


@pytest.mark.parametrize(
    "changes",
    [
        {"direction": 0},
        {"direction": 3},
        {"phase": 0},
        {"phase": 99},
        {"sender_role": 0},
        {"receiver_role": 9},
        {"bytes_by_party": b"x"},
        {"bytes_by_party": bytes(8)},
        {"bytes_by_party": b""},
        {"bytes_by_party": np.array([-1, 5], dtype="<i8").tobytes()},
        {"bytes_by_party": np.array([2**62, 5], dtype="<i8").tobytes()},
        {"bytes_by_party": np.array([2**62, 5] * 4, dtype="<i8").tobytes()},
        {"messages_by_party": np.array([3, 5], dtype="<i8").tobytes()},
    ],
    ids=lambda changes: str(changes)[:48],
)
def test_accounts_that_make_no_sense(changes: dict[str, object]) -> None:
    with pytest.raises(PeerError, match="malformed accounts"):
        accounts_from_wire(entry(**changes), "server-0")


def test_many_accounts_cannot_stand_for_more_than_memory_holds() -> None:
    """Sixteen bytes are a run of sixteen million; a message has room for tens of thousands."""
    bomb = pb.AccountList()
    long = np.array([MAX_PARTIES, 5], dtype="<i8").tobytes()
    for round_ in range(40):
        one = entry(bytes_by_party=long, messages_by_party=long, round=round_).accounts[0]
        bomb.accounts.append(one)
    with pytest.raises(PeerError, match="impossible length"):
        accounts_from_wire(bomb, "server-0")


def test_a_bill_counts_every_message_once() -> None:
    """What one station sends and another receives is one message."""
    query = a_message(Phase.QUERY, Role.COORDINATOR, Role.SERVER, (0,), (1,), b"question")
    sender, receiver = Meter(), Meter()
    sender.record(Direction.SENT, query)
    receiver.record(Direction.RECEIVED, query)
    add(receiver, [0, 2], 10, 1)
    bill = Bill([sender, receiver], 3)
    assert bill.total.messages == 3
    assert bill.party_bytes().tolist() == [64, 0, 64]
    assert bill.by_link().keys() == {"coordinator->server", "party->server"}
    assert [row[2:4] for row in bill.rows()] == [
        ("coordinator", "server-1"),
        ("party-0", "server-1"),
        ("party-2", "server-1"),
    ]


def test_cpu_time_goes_along() -> None:
    sent = accounts_to_wire(submission([0], 8), 1.25).SerializeToString()
    assert cpu_seconds_from_wire(pb.AccountList.FromString(sent), "server-0") == 1.25


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_a_time_that_cannot_be_is_refused(seconds: float) -> None:
    with pytest.raises(PeerError, match="malformed accounts"):
        cpu_seconds_from_wire(pb.AccountList(cpu_seconds=seconds), "server-0")
