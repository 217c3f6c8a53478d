"""The life of a run where it is cut short: nobody is left to wait for what does not come."""

import asyncio
import datetime as dt
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from tallyroom.protocols.errors import RunFailed
from tallyroom.protocols.identity.certificates import Authority, Identity
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.protocols.wire.loop import Reply
from tallyroom.protocols.wire.messages import Role
from tallyroom.servers.coordinator_service import CoordinatorConfig, CoordinatorService
from tallyroom.servers.run import Run
from tallyroom.servers.runs import CANCELLED

SECONDS = 5.0
QUESTION = Question(
    Mean(lower=0.0, upper=1.0), "additive", Fraction(1), Placement.EACH_SERVER, key="mean"
)


@asynccontextmanager
async def a_service(folder: Path) -> AsyncIterator[CoordinatorService]:
    """Two parties have joined; nobody listens at the servers' addresses."""
    now, lifetime = dt.datetime.now(dt.UTC), dt.timedelta(days=1)
    authority = Authority.create("members", now, lifetime)
    credentials = authority.issue(Identity(Role.COORDINATOR), now, lifetime)
    servers = ("127.0.0.1:1", "127.0.0.1:1")
    service = CoordinatorService(CoordinatorConfig(credentials, 2, servers, store=folder))
    service.coordinator.enrol(
        np.arange(2, dtype=np.uint32), np.ones(2, dtype=np.uint32), bytes(range(16))
    )
    try:
        yield service
    finally:
        await service.close()


def try_with(folder: Path, scene: Callable[[CoordinatorService], Awaitable[None]]) -> None:
    async def play() -> None:
        async with a_service(folder) as service, asyncio.timeout(SECONDS):
            await scene(service)

    asyncio.run(play())


def test_all_who_wait_for_a_run_hear_that_it_cannot_begin(tmp_path: Path) -> None:
    """And the same may be asked again, once there is room for it."""

    async def scene(service: CoordinatorService) -> None:
        journals = tmp_path / "runs"
        shutil.rmtree(journals)
        first = asyncio.create_task(service.runs.begin(QUESTION))
        await asyncio.sleep(0)
        other = await service.runs.begin(QUESTION)
        with pytest.raises(RunFailed, match="cannot store a run"):
            await first
        (event,) = await other.over
        assert "cannot store a run" in event.failure.reason
        journals.mkdir()
        again = await service.runs.begin(QUESTION)
        assert again is not other
        assert service.runs.live.all() == [again]

    try_with(tmp_path, scene)


def test_a_run_that_is_cancelled_as_it_begins_does_not_begin(tmp_path: Path) -> None:
    async def scene(service: CoordinatorService) -> None:
        beginning = asyncio.create_task(service.runs.begin(QUESTION))
        await asyncio.sleep(0)
        name = service.coordinator.named(QUESTION.key)
        assert service.runs.live.asked(name) is not None
        said = await service.runs.cancel(name)
        assert (said.cancelled, said.words) == (True, CANCELLED)
        with pytest.raises(RunFailed, match="it was cancelled"):
            await beginning
        assert not service.coordinator.open_runs()

    try_with(tmp_path, scene)


def test_keys_that_are_asked_just_now_are_forgotten_later(tmp_path: Path) -> None:
    """A fresh release makes them outdated while another question is put to them."""

    async def scene(service: CoordinatorService) -> None:
        coordinator, runs = service.coordinator, service.runs
        query = coordinator.query(QUESTION)
        coordinator.ask(query)
        asked = Run(b"name", "", query, b"", query.run)
        runs.live.add(asked)
        coordinator.releases.outdated.append(query.run)
        await runs._forget(bytes(len(query.run)))
        assert coordinator.is_open(query.run)
        runs.live.remove(asked)
        await runs._forget(query.run)
        assert not coordinator.is_open(query.run)
        assert not coordinator.releases.outdated

    try_with(tmp_path, scene)


def test_a_party_that_joins_is_asked_only_once_servers_know_of_the_run(tmp_path: Path) -> None:
    """Sooner, they refuse what it submits, and it takes the question for answered."""

    async def scene(service: CoordinatorService) -> None:
        host, ids = Identity(Role.PARTY, 0, 1), np.arange(2, dtype=np.uint32)
        mailbox = service.mailboxes.of(host)
        run = await service.runs.begin(QUESTION)  # no server can be told of it
        service._remind(host, ids)
        assert mailbox.empty()
        await service.dispatch.carry(Reply(run.run, [service.coordinator.remind(run.query, ids)]))
        assert mailbox.qsize() == 1
        service._remind(host, ids)
        assert mailbox.qsize() == 2

    try_with(tmp_path, scene)


def test_certificates_of_servers_are_known_before_they_are_heard_again(tmp_path: Path) -> None:
    """What a journal replays was signed with the key of before the restart."""

    async def heard(service: CoordinatorService) -> None:
        service.coordinator.certificates.keep(1, b"shown before")

    async def restarted(service: CoordinatorService) -> None:
        assert service.coordinator.certificates == {1: b"shown before"}

    try_with(tmp_path, heard)
    try_with(tmp_path, restarted)
