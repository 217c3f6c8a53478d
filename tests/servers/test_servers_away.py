"""A run that fails names the server that is away, and none is left over when all is over."""

import asyncio
import socket
from pathlib import Path

import pytest

from tallyroom.protocols.wire.messages import Role
from tallyroom.protos.identity_files import read_identity
from tallyroom.servers.coordinator_process import run_coordinator
from tallyroom.servers.coordinator_service import CoordinatorConfig
from tallyroom.servers.federation_folder import create_federation
from tallyroom.servers.process import ServerConfig, run_server
from tests.servers.stations import Federation, failure, started


def _closed_port() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


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
