"""Whoever runs another version is told so at once; an expired certificate has a name."""

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tallyroom.parties.process import PartyConfig, PartyHost
from tallyroom.protocols.errors import PeerError, RunFailed
from tallyroom.protocols.identity.certificates import Identity
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.wire.messages import Role
from tallyroom.protos import channel
from tallyroom.protos import tally_pb2 as pb
from tallyroom.protos.channel import open_channel, open_enrolment_channel
from tallyroom.protos.identity_files import read_identity, replace_pair
from tallyroom.protos.tally_pb2_grpc import DirectoryStub, EnrolmentStub, MessagesStub
from tallyroom.protos.version import PROTOCOL, USER_AGENT, mismatch
from tallyroom.servers import federation_folder
from tallyroom.servers.coordinator_process import run_coordinator
from tallyroom.servers.coordinator_service import CoordinatorConfig
from tallyroom.servers.federation_folder import create_federation
from tallyroom.servers.process import ServerConfig, run_server
from tallyroom.simulation.analyst import Analyst
from tests.servers.stations import (
    COORDINATOR,
    SECONDS,
    SERVER,
    Federation,
    create,
    failure,
    running,
    started,
)

OTHER = f"tallyroom/9.9.1 protocol/{PROTOCOL + 1}"
DAY = dt.timedelta(days=1)


@pytest.mark.parametrize(
    "words",
    [
        "",
        "grpc-python/1.60",
        "tallyroom/0.1.0",
        OTHER,
        f"{OTHER} grpc-c/39",
        f"tallyroom/0.1.0 protocol/{PROTOCOL}9",
        f"tallyroom/0.1.0 protocol/{PROTOCOL}x",
        f"tallyroom/{'9' * 50} protocol/{PROTOCOL}",
        "tallyroom/\n protocol/1",
        "protocol/1",
    ],
)
def test_other_words_are_a_mismatch_and_ours_are_not(words: str) -> None:
    reason = mismatch(words)
    assert reason is not None
    assert reason.isprintable()
    assert "install the same version everywhere" in reason
    assert mismatch(USER_AGENT) is None
    assert mismatch(f"{USER_AGENT} grpc-python-asyncio/1.60 grpc-c/39 (linux; chttp2)") is None


@asynccontextmanager
async def another_version(patch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Channels that are opened meanwhile are those of another version."""
    with patch.context() as patched:
        patched.setattr(channel, "USER_AGENT", OTHER)
        yield


async def details(call: Awaitable[object]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return refused.value.code(), str(refused.value.details())


def test_every_station_refuses_another_version_at_once_and_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with running(create(tmp_path / "room")) as room:
            party = room.issue(Identity(Role.PARTY, 0, 0), DAY)
            shown = (room.folder / "coordinator" / "certificate.pem").read_bytes()
            async with another_version(monkeypatch):
                server = open_channel(room.server, SERVER, party)
                desk = open_channel(room.coordinator, COORDINATOR, party)
                enrolment = open_enrolment_channel(room.enrolment, COORDINATOR, shown)
            async with server, desk, enrolment:
                for call in (
                    MessagesStub(server).Send(pb.Parcel(), timeout=SECONDS),
                    DirectoryStub(desk).Describe(pb.DescribeRequest(), timeout=SECONDS),
                    EnrolmentStub(enrolment).Enrol(pb.EnrolRequest(), timeout=SECONDS),
                    MessagesStub(server).Receive(pb.Subscription(), timeout=SECONDS).read(),
                ):
                    code, words = await details(call)
                    assert code is grpc.StatusCode.UNIMPLEMENTED
                    assert "the caller runs Tallyroom 9.9.1, protocol" in words
                check = health_pb2_grpc.HealthStub(server).Check  # a probe of any maker
                answer = await check(health_pb2.HealthCheckRequest(), timeout=SECONDS)
                assert answer.status == health_pb2.HealthCheckResponse.SERVING

    asyncio.run(scenario())


def test_a_party_and_an_analyst_of_another_version_end_with_that_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with running(create(tmp_path / "room")) as room:
            async with another_version(monkeypatch):
                ids, starts = np.zeros(1, dtype=np.uint32), np.zeros(1, dtype=np.intp)
                holdings = Holdings(ids, starts, {"v": np.array([0.5])})
                config = PartyConfig(
                    room.issue(Identity(Role.PARTY, 0, 0), DAY), room.coordinator, holdings
                )
                with pytest.raises(PeerError, match=r"Tallyroom 9\.9\.1"):
                    await asyncio.wait_for(PartyHost(config).run(), SECONDS)
                shown = read_identity(room.folder / "analyst", Role.ANALYST)
                analyst = Analyst(room.coordinator, shown)
            with pytest.raises(RunFailed, match=r"coordinator refuses: .* Tallyroom 9\.9\.1"):
                await asyncio.to_thread(analyst.describe, 30.0)
            analyst.close()

    asyncio.run(scenario())


def test_a_run_fails_at_once_on_a_server_that_runs_another_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a store too, where servers that are away are waited for."""

    async def scenario() -> None:
        room = Federation(tmp_path, create_federation(tmp_path, 2, 1))
        config = ServerConfig(0, read_identity(tmp_path / "server-0", Role.SERVER))
        async with started(lambda ready: run_server(config, ready)) as port:
            desk = CoordinatorConfig(
                read_identity(tmp_path / "coordinator", Role.COORDINATOR),
                1,
                (f"127.0.0.1:{port}", "127.0.0.1:1"),
                store=tmp_path / "store",
            )
            async with another_version(monkeypatch):
                opened = started(lambda ready: run_coordinator(desk, ready))
                target = f"127.0.0.1:{await opened.__aenter__()}"
            try:
                reason = await asyncio.wait_for(failure(target, room, deadline=600), SECONDS)
            finally:
                await opened.__aexit__(None, None, None)
            assert reason.startswith("server-0 refuses: the caller runs Tallyroom 9.9.1"), reason

    asyncio.run(scenario())


def _expired(folder: Path, name: str, role: Role, patch: pytest.MonkeyPatch) -> None:
    """The member's certificate has just run out."""
    with patch.context() as patched:
        patched.setattr(federation_folder, "MEMBER_LIFETIME", -DAY / 1440)
        made = federation_folder.renew_member(folder, name)
    renewed = read_identity(made, role)
    replace_pair(folder / name, renewed.key, renewed.certificate)


def test_an_expired_certificate_of_a_server_or_the_coordinator_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        room = Federation(tmp_path, create_federation(tmp_path, 2, 1))
        _expired(tmp_path, "server-0", Role.SERVER, monkeypatch)
        config = ServerConfig(0, read_identity(tmp_path / "server-0", Role.SERVER))
        async with started(lambda ready: run_server(config, ready)) as port:
            identity = read_identity(tmp_path / "coordinator", Role.COORDINATOR)
            servers = (f"127.0.0.1:{port}", "127.0.0.1:1")
            desk = CoordinatorConfig(identity, 1, servers, store=tmp_path / "store")
            async with started(lambda ready: run_coordinator(desk, ready)) as port:
                reason = await failure(f"127.0.0.1:{port}", room)
                assert "the certificate of server-0 expired on" in reason
        _expired(tmp_path, "coordinator", Role.COORDINATOR, monkeypatch)
        identity = read_identity(tmp_path / "coordinator", Role.COORDINATOR)
        desk = CoordinatorConfig(identity, 1, ("127.0.0.1:1",))
        async with started(lambda ready: run_coordinator(desk, ready)) as port:
            analyst = Analyst(
                f"127.0.0.1:{port}", read_identity(tmp_path / "analyst", Role.ANALYST)
            )
            with pytest.raises(RunFailed, match="the certificate of coordinator expired on"):
                await asyncio.to_thread(analyst.describe, 60.0)
            analyst.close()

    monkeypatch.setattr("tallyroom.servers.runs.GRACE_SECONDS", 0.3)
    monkeypatch.setattr("tallyroom.servers.server_link.GRACE_SECONDS", 0.5)
    monkeypatch.setattr("tallyroom.simulation.analyst.LOOK_SECONDS", 0.5)
    asyncio.run(scenario())
