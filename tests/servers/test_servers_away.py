"""A run that fails names the server that is away, and none is left over when all is over."""

import asyncio
import datetime as dt
import socket
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tallyroom.protocols.identity.certificates import Identity
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.protocols.wire.messages import Role
from tallyroom.protos import tally_pb2 as pb
from tallyroom.protos.channel import open_channel
from tallyroom.protos.identity_files import read_identity
from tallyroom.protos.tally_pb2_grpc import CoordinatorStub
from tallyroom.servers.coordinator_process import run_coordinator
from tallyroom.servers.coordinator_service import CoordinatorConfig
from tallyroom.servers.federation_folder import create_federation
from tallyroom.servers.process import ServerConfig, run_server
from tests.servers.stations import COORDINATOR, SECONDS, Federation, started

QUESTION = Question(Mean(value="v", lower=0.0, upper=1.0), "additive", None, Placement.EACH_SERVER)


def _closed_port() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


async def failure(coordinator: str, room: Federation, deadline: float = 0.3) -> str:
    """One party is here and never answers; why the question fails."""
    shown = room.issue(Identity(Role.PARTY, 0, 0), dt.timedelta(days=1))
    analyst = read_identity(room.folder / "analyst", Role.ANALYST)
    joining = pb.JoinRequest(
        parties=np.array([0], dtype="<u4").tobytes(), records=np.array([5], dtype="<u4").tobytes()
    )
    async with (
        open_channel(coordinator, COORDINATOR, shown) as party,
        open_channel(coordinator, COORDINATOR, analyst) as channel,
    ):
        await CoordinatorStub(party).Join(joining, timeout=SECONDS)
        question = pb.Question(json=replace(QUESTION, deadline=deadline).encode())
        async for event in CoordinatorStub(channel).Ask(question, timeout=60.0):
            if event.WhichOneof("kind") == "failure":
                return str(event.failure.reason)
    raise AssertionError("it did not fail")


@pytest.mark.parametrize("away", [0, 1])
@pytest.mark.parametrize("durable", [True, False])
def test_the_server_that_is_away_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, away: int, durable: bool
) -> None:
    monkeypatch.setattr("tallyroom.servers.runs.GRACE_SECONDS", 0.3)
    monkeypatch.setattr("tallyroom.servers.server_link.GRACE_SECONDS", 0.5)

    async def scenario() -> None:
        room = Federation(tmp_path, create_federation(tmp_path, 2, 1))
        here = ServerConfig(1 - away, read_identity(tmp_path / f"server-{1 - away}", Role.SERVER))
        async with started(lambda ready: run_server(here, ready)) as port:
            targets = [f"127.0.0.1:{port}"]
            targets.insert(away, _closed_port())
            config = CoordinatorConfig(
                read_identity(tmp_path / "coordinator", Role.COORDINATOR),
                1,
                tuple(targets),
                store=tmp_path / "store" if durable else None,
            )
            async with started(lambda ready: run_coordinator(config, ready)) as port:
                reason = await failure(f"127.0.0.1:{port}", room)
                assert reason.startswith(f"server-{away} "), reason

    asyncio.run(scenario())
