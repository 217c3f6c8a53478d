"""Random, truncated, altered and oversized bytes to every call: refused, and nothing else happens.

No crash, no hang, no memory: afterwards the stations serve, and a proper run is exact.
"""

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tallyroom.protocols.identity.certificates import Identity
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.wire.messages import MAX_WIRE_BYTES, Phase, Role
from tallyroom.protos import tally_pb2 as pb
from tallyroom.protos.channel import open_enrolment_channel
from tallyroom.simulation.runtimes import Layout
from tests.e2e.addressed import ANALYST, COORDINATOR, SERVER, Addressed, party
from tests.e2e.siege import resident_bytes, serves
from tests.samples import RUN, a_message, a_query, holdings_of
from tests.servers import stations

PATIENCE = 5.0
EXAMPLES = 12
MORE_MEMORY = 96 << 20
QUESTION = Question(
    Histogram(lower=0.0, upper=1.0, bins=4), "additive", None, Placement.EACH_SERVER, deadline=2.0
)


@dataclass(frozen=True)
class Call:
    """A method, who may call it, and what a proper request looks like."""

    method: str
    station: str
    caller: Identity
    valid: bytes
    streams: bool = False

    @property
    def listens(self) -> bool:
        """A proper call goes on for as long as the station lives."""
        return self.method.endswith("Receive")

    def __str__(self) -> str:
        return f"{self.station}{self.method}-{self.caller.name}"


def _sent(*senders: int) -> bytes:
    message = a_message(Phase.SUBMIT, Role.PARTY, Role.SERVER, senders, body=bytes(32), round_=2)
    return pb.Parcel(message=message.encode()).SerializeToString()


_QUERY = a_message(Phase.QUERY, Role.COORDINATOR, Role.SERVER, body=a_query().encode())
_ASKED = pb.Parcel(message=_QUERY.encode()).SerializeToString()
_RUN = pb.RunRef(run=RUN).SerializeToString()
_JOIN = pb.JoinRequest(
    parties=np.array([3], dtype="<u4").tobytes(), records=np.array([1], dtype="<u4").tobytes()
).SerializeToString()
_ANNOUNCE = pb.Announcement(address="127.0.0.1:1", key=bytes(32), signature=bytes(70))
_REPORT = pb.AccountReport(run=RUN, accounts=pb.AccountList())
_FORWARD = pb.Envelope(first=0, last=1, key=bytes(32), sealed=bytes(64))
_ASK = pb.Question(json=QUESTION.encode()).SerializeToString()

CALLS = [
    Call("/tallyroom.Messages/Send", "server-0", party(0, 1), _sent(0, 1)),
    Call("/tallyroom.Messages/Send", "server-0", COORDINATOR, _ASKED),
    Call("/tallyroom.Messages/Send", "coordinator", party(0), _sent(0)),
    Call("/tallyroom.Messages/Send", "coordinator", SERVER, _sent(0)),
    Call("/tallyroom.Messages/Receive", "server-0", party(5), b"", streams=True),
    Call("/tallyroom.Messages/Receive", "coordinator", party(5), b"", streams=True),
    Call("/tallyroom.Messages/Status", "server-0", COORDINATOR, _RUN),
    Call("/tallyroom.Messages/Accounts", "server-0", COORDINATOR, _RUN),
    Call("/tallyroom.Messages/Forget", "server-0", COORDINATOR, _RUN),
    Call("/tallyroom.Coordinator/Join", "coordinator", party(3), _JOIN),
    Call(
        "/tallyroom.Coordinator/Announce",
        "coordinator",
        party(3),
        _ANNOUNCE.SerializeToString(),
    ),
    Call("/tallyroom.Coordinator/Locate", "coordinator", party(3), b"\x0a\x04\x00\x00\x00\x00"),
    Call("/tallyroom.Coordinator/Report", "coordinator", party(3), _REPORT.SerializeToString()),
    Call("/tallyroom.Relay/Forward", "coordinator", party(3), _FORWARD.SerializeToString()),
    Call("/tallyroom.Relay/Receive", "coordinator", party(5), b"", streams=True),
    Call("/tallyroom.Coordinator/Ask", "coordinator", ANALYST, _ASK, streams=True),
    Call("/tallyroom.Directory/Describe", "coordinator", ANALYST, b""),
    Call("/tallyroom.Revocation/Update", "coordinator", COORDINATOR, b"\x0a\x03PEM"),
    Call("/tallyroom.Revocation/Update", "server-0", COORDINATOR, b"\x0a\x03PEM"),
]


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Addressed]:
    """With stores: what is refused must not trip a server that starts again."""
    plan = Layout(
        holdings_of([0.1, 0.3, 0.6, 0.9], 4), 2, 2, 1, store=tmp_path_factory.mktemp("room")
    )
    with Addressed(plan) as started:
        yield started


def made(
    channel: grpc.Channel, call: Call, request: bytes, seconds: float = PATIENCE
) -> grpc.StatusCode:
    """The status that a call with these bytes as its request ends with."""
    try:
        if call.streams:
            stream: Any = channel.unary_stream(call.method)
            list(stream(request, timeout=seconds))
        else:
            single: Any = channel.unary_unary(call.method)
            single(request, timeout=PATIENCE)
    except grpc.RpcError as error:
        code: grpc.StatusCode = error.code()
        return code
    return grpc.StatusCode.OK


def altered(valid: bytes) -> st.SearchStrategy[bytes]:
    """Bytes that have nothing, or nearly everything, of a proper request."""
    cut = st.integers(0, max(0, len(valid) - 1)).map(lambda end: valid[:end])
    flipped = st.tuples(st.integers(0, max(0, len(valid) - 1)), st.integers(1, 255)).map(
        lambda change: (
            valid[: change[0]]
            + bytes(byte ^ change[1] for byte in valid[change[0] : change[0] + 1])
            + valid[change[0] + 1 :]
        )
    )
    longer = st.binary(min_size=1, max_size=8).map(lambda tail: valid + tail)
    wrapped = st.binary(max_size=60).map(lambda data: b"\x0a" + bytes([len(data)]) + data)
    return st.one_of(st.binary(max_size=80), cut, flipped, longer, wrapped)


def exact_run(federation: Addressed) -> None:
    opened = federation.ask(QUESTION, lambda _: None)
    assert opened.total.tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_no_bytes_upset_a_station(federation: Addressed, call: Call) -> None:
    exact_run(federation)
    before = resident_bytes(federation, call.station)
    oversized = bytes(MAX_WIRE_BYTES + (1 << 20))
    with federation.reach(call.station, call.caller) as channel:

        @settings(max_examples=EXAMPLES)
        @given(altered(call.valid))
        @example(b"")
        @example(b"\xff" * 64)
        def refused_or_harmless(request: bytes) -> None:
            code = made(channel, call, request, 0.2 if call.listens else PATIENCE)
            hangs = code is grpc.StatusCode.DEADLINE_EXCEEDED
            assert call.streams or not hangs
            assert code is not grpc.StatusCode.UNKNOWN, "an error that nobody foresaw"
            assert code is not grpc.StatusCode.UNAVAILABLE

        refused_or_harmless()
    # Our own channels do not send what is too long: an attacker's does.
    mine = federation.issue(call.caller)
    tls = grpc.ssl_channel_credentials(mine.authority, mine.key, mine.certificate)
    options = [("grpc.ssl_target_name_override", call.station)]
    with grpc.secure_channel(federation.addresses[call.station], tls, options) as channel:
        for _ in range(4):
            assert made(channel, call, oversized) is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert serves(federation, call.station, ANALYST)
    exact_run(federation)
    assert resident_bytes(federation, call.station) - before < MORE_MEMORY


@pytest.mark.parametrize(
    "run", [b"", b"x", bytes(27), bytes(29), b"../" * 9 + b"x", bytes(4096)], ids=len
)
def test_a_server_that_was_told_to_forget_nonsense_starts_again(
    federation: Addressed, run: bytes
) -> None:
    with federation.reach("server-0", COORDINATOR) as channel:
        call = Call("/tallyroom.Messages/Forget", "server-0", COORDINATOR, b"")
        code = made(channel, call, pb.RunRef(run=run).SerializeToString())
    assert (code is grpc.StatusCode.OK) == (len(run) == 28)
    federation.children["server-0"].kill()
    federation.restart("server-0")
    exact_run(federation)


def test_no_bytes_upset_the_enrolment(tmp_path: Path) -> None:
    """Anybody may call it: a good token is not lost to a bad request, nor the station to either."""
    dice = np.random.default_rng(1)
    made_up = [dice.bytes(int(size)) for size in dice.integers(0, 300, 15)]

    async def attack() -> None:
        async with stations.running(stations.create(tmp_path / "room")) as room:
            token = room.tokens[0].encode()
            proper = stations.request_for(0)
            shown = (room.folder / "coordinator" / "certificate.pem").read_bytes()
            requests = [pb.EnrolRequest(token=token, request=data) for data in made_up[:6]]
            requests += [
                pb.EnrolRequest(token=token, request=proper[:end]) for end in (1, 100, 200)
            ]
            async with open_enrolment_channel(room.enrolment, COORDINATOR, shown) as channel:
                enrol: Any = channel.unary_unary("/tallyroom.Enrolment/Enrol")
                raw = [request.SerializeToString() for request in requests] + made_up[6:]
                for data in raw:
                    code = await stations.refusal(enrol(data, timeout=PATIENCE))
                    assert code.name in ("PERMISSION_DENIED", "INVALID_ARGUMENT"), code
                big = pb.EnrolRequest(token="x" * (1 << 20)).SerializeToString()
                code = await stations.refusal(enrol(big, timeout=PATIENCE))
                assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
            certified = await room.enrol(token, proper)
            assert certified.certificate.startswith(b"-----BEGIN CERTIFICATE")

    asyncio.run(attack())
    assert os.listdir(tmp_path) == ["room"]
