"""Servers that are told to release compute at the same time, for as long as the question allows."""

import asyncio
import datetime as dt
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tallyroom.parties.process import PartyConfig, PartyHost
from tallyroom.protocols.aggregation.one_round import OneRoundServer
from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.identity.certificates import Identity
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.records import Holdings
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
from tests.servers.stations import COORDINATOR, Federation, started

GRACE = 0.5
"""Instead of ten seconds, what a call may take that gives a server nothing to compute."""
STATISTIC = Mean(value="v", lower=0.0, upper=1.0)


async def _event(
    folder: Path, deadline: float, ended: Callable[[], object] = lambda: None
) -> pb.Event:
    """How a question ends that is put to two servers and one party, all in this process. They are
    there until `ended` was called."""
    room = Federation(folder, create_federation(folder, 2, 1))
    shown = room.issue(Identity(Role.PARTY, 0, 0), dt.timedelta(days=1))
    analyst = read_identity(folder / "analyst", Role.ANALYST)
    held = Holdings(np.zeros(1, np.uint32), np.zeros(1, np.intp), {"v": np.full(5, 0.5)})
    servers = [
        ServerConfig(i, read_identity(folder / f"server-{i}", Role.SERVER)) for i in range(2)
    ]
    async with (
        started(lambda ready: run_server(servers[0], ready)) as first,
        started(lambda ready: run_server(servers[1], ready)) as second,
    ):
        config = CoordinatorConfig(
            read_identity(folder / "coordinator", Role.COORDINATOR),
            1,
            (f"127.0.0.1:{first}", f"127.0.0.1:{second}"),
        )
        async with started(lambda ready: run_coordinator(config, ready)) as port:
            target = f"127.0.0.1:{port}"
            party = asyncio.create_task(PartyHost(PartyConfig(shown, target, held)).run())
            question = Question(
                STATISTIC, "additive", None, Placement.EACH_SERVER, deadline=deadline
            )
            asked = pb.Question(json=question.encode())
            async with open_channel(target, COORDINATOR, analyst) as channel:
                event: pb.Event
                async for event in CoordinatorStub(channel).Ask(asked, timeout=60.0):
                    if event.WhichOneof("kind") in ("answer", "failure"):
                        break
            ended()
            party.cancel()
            await asyncio.gather(party, return_exceptions=True)
    return event


def _computing(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object]) -> None:
    """Has every server do something more before it adds up."""
    add_up = OneRoundServer.sum_over

    def slowly(self: OneRoundServer, members: NDArray[np.bool]) -> Vector:
        meanwhile()
        return add_up(self, members)

    monkeypatch.setattr(OneRoundServer, "sum_over", slowly)
    monkeypatch.setattr("tallyroom.servers.server_link.GRACE_SECONDS", GRACE)


def test_no_server_waits_for_another_to_be_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each waits until both compute, and then for longer than a call may take else."""
    both = threading.Barrier(2, timeout=10.0)

    def meanwhile() -> None:
        both.wait()
        time.sleep(2 * GRACE)

    _computing(monkeypatch, meanwhile)
    event = asyncio.run(_event(tmp_path, 20.0))
    assert event.WhichOneof("kind") == "answer", event.failure.reason
    assert not both.broken


def test_a_server_that_computes_past_the_deadline_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()
    _computing(monkeypatch, lambda: ended.wait(20.0))
    event = asyncio.run(_event(tmp_path, 1.5, ended.set))
    assert "is not done after 1.5 seconds, which is the deadline" in event.failure.reason
