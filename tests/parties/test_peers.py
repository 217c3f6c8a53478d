"""Party hosts in a federation with enrolment: whom they believe, and what a relay can see."""

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import grpc.aio
import numpy as np
import pytest

from tallyroom.parties.peer_config import PeerConfig
from tallyroom.parties.process import PartyConfig, PartyHost
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.identity.certificates import Authority, Credentials, Identity
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.wire.messages import Message, Phase, Role
from tallyroom.protocols.wire.meter import Bill, Direction, Meter, relayed
from tallyroom.protos import tally_pb2 as pb
from tallyroom.protos.accounts import accounts_from_wire, accounts_to_wire
from tallyroom.protos.channel import open_channel
from tallyroom.protos.identity_files import read_identity
from tallyroom.protos.tally_pb2_grpc import CoordinatorStub, PeerStub, RelayStub
from tallyroom.servers.federation_folder import read_authority
from tallyroom.servers.hosts import HostRegister
from tests.e2e.ping_pong import MARKER, PlayingBlock
from tests.samples import a_message
from tests.servers.stations import (
    COORDINATOR,
    SECONDS,
    SERVER,
    Federation,
    create,
    refusal,
    running,
)

DAY = dt.timedelta(days=1)
PARTIES = 3
DENIED, CUT_OFF = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAVAILABLE
DIRECT = PeerConfig("direct", "127.0.0.1:0")
RELAY = PeerConfig("relay")
QUESTION = Question(Histogram(lower=0.0, upper=1.0, bins=2), "curator", None, Placement.CURATOR)


def party(first: int, last: int | None = None) -> Identity:
    return Identity(Role.PARTY, first, first if last is None else last)


@dataclass
class Room:
    """A federation of one server whose three parties have played once, each in its own host."""

    federation: Federation
    answer: pb.Answer
    hosts: list[PartyHost]

    @property
    def party_authority(self) -> bytes:
        return read_authority(self.federation.folder / "coordinator" / "enrolment").pem

    def issue(self, identity: Identity) -> Credentials:
        return self.federation.issue(identity, DAY)

    def among_parties(self, identity: Identity) -> Credentials:
        return self.issue(identity).among_parties(self.party_authority)

    async def locate(self, *parties: int) -> list[pb.Host]:
        ids = np.array(parties, dtype="<u4").tobytes()
        async with self.to_coordinator(party(0)) as channel:
            reply = await CoordinatorStub(channel).Locate(pb.Parties(parties=ids), timeout=SECONDS)
        return list(reply.hosts)

    def to_coordinator(self, identity: Identity) -> grpc.aio.Channel:
        return open_channel(self.federation.coordinator, COORDINATOR, self.issue(identity))

    async def address(self, number: int) -> str:
        (host,) = await self.locate(number)
        address: str = host.address
        return address


@asynccontextmanager
async def played(folder: Path, ways: list[PeerConfig]) -> AsyncIterator[Room]:
    async with running(create(folder, PARTIES)) as federation:
        hosts, tasks = [], []
        for number, way in enumerate(ways):
            ids = np.array([number], dtype=np.uint32)
            columns = {"value": np.array([0.1, 0.9])}
            holdings = Holdings(ids, np.zeros(1, dtype=np.intp), columns)
            credentials = federation.issue(party(number), DAY)
            config = PartyConfig(credentials, federation.coordinator, holdings, peer=way)
            hosts.append(PartyHost(config, PlayingBlock))
            tasks.append(asyncio.create_task(hosts[-1].run()))
        try:
            yield Room(federation, await ask(federation), hosts)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def ask(federation: Federation) -> pb.Answer:
    analyst = read_identity(federation.folder / "analyst", Role.ANALYST)
    async with open_channel(federation.coordinator, COORDINATOR, analyst) as channel:
        async for event in CoordinatorStub(channel).Ask(pb.Question(json=QUESTION.encode())):
            assert not event.HasField("failure"), event.failure.reason
            if event.HasField("answer"):
                answer: pb.Answer = event.answer
                return answer
    raise AssertionError("no answer")


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await scenario()

    asyncio.run(bounded())


def bill_of(answer: pb.Answer) -> Bill:
    return Bill([accounts_from_wire(one, "coordinator") for one in answer.stations], PARTIES)


def ball(sender: int = 1, receiver: int = 0, to: Role = Role.PARTY) -> Message:
    return a_message(Phase.PAIR, Role.PARTY, to, (sender,), (receiver,), MARKER)


@pytest.fixture
def envelopes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Identity, pb.Envelope]]:
    """All that the coordinator was ever given to relay."""
    seen: list[tuple[Identity, pb.Envelope]] = []
    forward = HostRegister.forward

    def watched(self: HostRegister, sender: Identity, envelope: pb.Envelope) -> None:
        seen.append((sender, envelope))
        forward(self, sender, envelope)

    monkeypatch.setattr(HostRegister, "forward", watched)
    return seen


def test_a_relay_carries_everything_and_sees_nothing(
    tmp_path: Path, envelopes: list[tuple[Identity, pb.Envelope]]
) -> None:
    async def scenario() -> None:
        async with played(tmp_path / "room", [RELAY] * PARTIES) as room:
            assert np.frombuffer(room.answer.total, dtype="<u8").tolist() == [3, 3]
            assert len(envelopes) == 3 * PARTIES * (PARTIES - 1)
            for sender, envelope in envelopes:
                assert MARKER not in envelope.SerializeToString()
                assert MARKER[:6] not in envelope.sealed
                assert sender != party(envelope.first)
            links = bill_of(room.answer).by_link()
            sealed = sum(len(envelope.sealed) for _, envelope in envelopes)
            assert links["party->coordinator"].bytes == sealed  # one party a host: as metered

    run(scenario)


def test_one_that_cannot_be_called_is_met_through_the_relay(
    tmp_path: Path, envelopes: list[tuple[Identity, pb.Envelope]]
) -> None:
    """Parties 0 and 2 listen; party 1 says direct, but has no port."""

    async def scenario() -> None:
        ways = [DIRECT, PeerConfig("direct"), DIRECT]
        async with played(tmp_path / "room", ways) as room:
            assert np.frombuffer(room.answer.total, dtype="<u8").tolist() == [3, 3]
            ends = {(sender.first, envelope.first) for sender, envelope in envelopes}
            assert ends == {(0, 1), (1, 0), (1, 2), (2, 1)}
            assert [bool(host.address) for host in await room.locate(0, 1, 2)].count(True) == 2

    run(scenario)


def test_a_relay_that_plays_tricks_is_not_believed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It repeats, alters, redirects and renames what it carries; the game goes on as if not."""
    forward = HostRegister.forward

    def tricky(self: HostRegister, sender: Identity, envelope: pb.Envelope) -> None:
        forward(self, sender, envelope)
        forward(self, sender, envelope)
        broken = bytes([envelope.sealed[0], 9, *envelope.sealed[2:]])
        forward(
            self,
            sender,
            pb.Envelope(first=envelope.first, last=envelope.last, key=envelope.key, sealed=broken),
        )
        third = party(3 - sender.first - envelope.first)
        if (host := self.find(third)) is not None:
            elsewhere = pb.Envelope(
                first=third.first, last=third.last, key=host.key, sealed=envelope.sealed
            )
            forward(self, sender, elsewhere)
            forward(self, third, envelope)

    monkeypatch.setattr(HostRegister, "forward", tricky)

    async def scenario() -> None:
        async with played(tmp_path / "room", [RELAY] * PARTIES) as room:
            assert np.frombuffer(room.answer.total, dtype="<u8").tolist() == [3, 3]

    run(scenario)
    said = [
        record.getMessage() for record in caplog.records if record.name == "tallyroom.parties.peers"
    ]
    assert any("repeated" in line for line in said)
    assert any("was altered" in line for line in said)
    assert not any(MARKER.decode() in line for line in said)


def test_who_may_call_a_host_and_as_whom(
    tmp_path: Path, envelopes: list[tuple[Identity, pb.Envelope]]
) -> None:
    async def scenario() -> None:
        async with played(tmp_path / "room", [DIRECT] * PARTIES) as room:
            assert not envelopes
            assert bill_of(room.answer).by_link()["party->party"].messages == 18
            address = await room.address(0)

            async def send(shown: Credentials, message: bytes) -> grpc.StatusCode:
                async with open_channel(address, party(0), shown) as channel:
                    call = PeerStub(channel).Send(pb.Parcel(message=message), timeout=SECONDS)
                    return await refusal(call)

            one = room.among_parties(party(1))
            assert await send(one, ball().encode()) is grpc.StatusCode.OK
            assert await send(room.among_parties(party(0, 2)), ball().encode()) is (
                grpc.StatusCode.OK
            )
            # Its own certificate, others' words, or words for others.
            for message in (ball(2), ball(0), ball(1, 2), ball(1, 0, Role.SERVER)):
                assert await send(one, message.encode()) is DENIED
            both = a_message(Phase.PAIR, Role.PARTY, Role.PARTY, (1, 2), (0, 0), MARKER)
            assert await send(one, both.encode()) is DENIED
            for data in (b"", b"x", ball().encode() + b"\0"):
                assert await send(one, data) is grpc.StatusCode.INVALID_ARGUMENT
            # Members are no parties, whoever says so.
            folder = room.federation.folder
            for name, role in (("server-0", Role.SERVER), ("coordinator", Role.COORDINATOR)):
                member = read_identity(folder / name, role).among_parties(room.party_authority)
                assert await send(member, ball().encode()) is CUT_OFF
            for identity in (SERVER, COORDINATOR, Identity(Role.ANALYST)):
                assert await send(room.among_parties(identity), ball().encode()) is DENIED
            # Of another federation, or of nobody.
            now = dt.datetime.now(dt.UTC)
            other = Authority.create("other", now, DAY, parties_only=True)
            foreign = other.issue(party(1), now, DAY)
            shown = Credentials(party(1), foreign.certificate, room.party_authority, foreign.key)
            assert await send(shown, ball().encode()) is CUT_OFF
            tls = grpc.ssl_channel_credentials(room.party_authority)
            options = [("grpc.ssl_target_name_override", "party-0")]
            async with grpc.aio.secure_channel(address, tls, options) as channel:
                call = PeerStub(channel).Send(pb.Parcel(message=ball().encode()), timeout=SECONDS)
                assert await refusal(call) is CUT_OFF

    run(scenario)


def test_a_caller_speaks_only_to_the_host_it_looks_for(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with played(tmp_path / "room", [DIRECT] * PARTIES) as room:
            address = await room.address(0)
            mine = room.among_parties(party(1))
            for expected, shown in (
                (party(2), mine),  # a party, and not the one
                (SERVER, mine),
                (COORDINATOR, mine),
                (party(0), room.issue(party(1))),  # members' authority alone certifies no party
                (SERVER, room.issue(party(1))),
            ):
                async with open_channel(address, expected, shown) as channel:
                    call = PeerStub(channel).Send(
                        pb.Parcel(message=ball().encode()), timeout=SECONDS
                    )
                    assert await refusal(call) is CUT_OFF

    run(scenario)


def test_what_the_coordinator_takes_from_hosts(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with played(tmp_path / "room", [DIRECT] * PARTIES) as room:
            hosts = await room.locate(0, 2)
            assert sorted((host.first, host.last) for host in hosts) == [(0, 0), (2, 2)]
            assert await room.locate(77) == []
            report = pb.AccountReport(run=bytes(8), accounts=pb.AccountList())
            for identity in (SERVER, COORDINATOR, Identity(Role.ANALYST)):
                shown = read_identity(
                    room.federation.folder / identity.name.replace("server-0", "server-0"),
                    identity.role,
                )
                async with open_channel(room.federation.coordinator, COORDINATOR, shown) as channel:
                    desk = CoordinatorStub(channel)
                    for call in (
                        desk.Locate(pb.Parties(parties=bytes(4)), timeout=SECONDS),
                        desk.Announce(pb.Announcement(key=bytes(32)), timeout=SECONDS),
                        desk.Report(report, timeout=SECONDS),
                        RelayStub(channel).Forward(pb.Envelope(), timeout=SECONDS),
                    ):
                        assert await refusal(call) is DENIED
            async with room.to_coordinator(party(1, 2)) as channel:  # it does not listen
                desk = CoordinatorStub(channel)
                call = desk.Announce(pb.Announcement(key=bytes(32)), timeout=SECONDS)
                assert await refusal(call) is grpc.StatusCode.FAILED_PRECONDITION
                forward = RelayStub(channel).Forward(pb.Envelope(), timeout=SECONDS)
                assert await refusal(forward) is grpc.StatusCode.FAILED_PRECONDITION
                call = desk.Report(report, timeout=SECONDS)
                assert await refusal(call) is grpc.StatusCode.NOT_FOUND
                call = desk.Locate(pb.Parties(parties=b"odd"), timeout=SECONDS)
                assert await refusal(call) is grpc.StatusCode.INVALID_ARGUMENT

    run(scenario)


def test_hosts_that_renewed_their_certificates_meet_under_the_new_ones(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with played(tmp_path / "room", [DIRECT, DIRECT, RELAY]) as room:
            before = {host.first: host for host in await room.locate(0, 1, 2)}
            for number, host in enumerate(room.hosts):
                host.use(room.issue(party(number)))
            answer = await ask(room.federation)
            assert np.frombuffer(answer.total, dtype="<u8").tolist() == [3, 3]
            after = {host.first: host for host in await room.locate(0, 1, 2)}
            for number in range(PARTIES):
                assert after[number].certificate != before[number].certificate
                assert after[number].key == before[number].key
            assert after[0].address != before[0].address

    run(scenario)


def test_a_host_that_meets_nobody_opens_nothing(tmp_path: Path) -> None:
    """A plain run costs no port, no key on the wire and no second connection."""

    async def scenario() -> None:
        async with running(create(tmp_path / "room", 1)) as federation:
            ids = np.zeros(1, dtype=np.uint32)
            holdings = Holdings(ids, np.zeros(1, dtype=np.intp), {"value": np.array([0.1, 0.9])})
            credentials = federation.issue(party(0), DAY)
            config = PartyConfig(credentials, federation.coordinator, holdings, peer=DIRECT)
            host = PartyHost(config)
            task = asyncio.create_task(host.run())
            assert np.frombuffer((await ask(federation)).total, dtype="<u8").tolist() == [1, 1]
            assert host._peers is None
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    run(scenario)


def test_ways_that_there_are_not() -> None:
    for way in ("", "smoke", "Direct"):
        with pytest.raises(LocalError, match="direct or relay"):
            PeerConfig(way)
    assert DIRECT.listens
    assert not RELAY.listens
    assert not PeerConfig().listens
    assert not replace(DIRECT, way="relay").listens


def test_a_relayed_report_becomes_both_legs() -> None:
    meter = Meter()
    meter.record(Direction.SENT, ball())
    wire = accounts_to_wire(relayed(meter))
    assert list(Bill([accounts_from_wire(wire, "host")], 2).by_link()) == ["party->coordinator"]
