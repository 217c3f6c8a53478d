"""A coordinator that asks parties one thing and servers another, over real processes and TLS.

Everything it has is real and certified; between its machines and the servers sits the lie. Each of
these two would have the exact sum released, were submissions not bound to what was asked.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tallyroom.protocols.errors import RunFailed
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query, decode_query
from tallyroom.protocols.records import deal
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.moments import Sum
from tallyroom.protocols.wire.messages import Message, Phase, body_of
from tallyroom.protos import tally_pb2 as pb
from tallyroom.servers import coordinator_service
from tallyroom.servers.coordinator_process import run_coordinator
from tallyroom.servers.coordinator_service import CoordinatorConfig
from tallyroom.servers.runs import Runs
from tallyroom.servers.server_link import ServerLink
from tallyroom.simulation.runtimes.contract import Layout
from tallyroom.simulation.runtimes.processes import Processes
from tallyroom.storage.ledger import Ledger

HOLDINGS = deal({"value": np.array([0.25, 0.5, 0.75])}, 3)
TOTAL = Sum(lower=0.0, upper=1.0)


def lie(changes: dict[str, Any], config: CoordinatorConfig, report: Connection) -> None:
    """What the coordinator's process runs: to servers it puts the query with these changes."""
    names: dict[bytes, bytes] = {}
    send, subscribe = ServerLink.send, ServerLink.subscribe

    async def send_lie(self: ServerLink, message: Message, seconds: float = 0.0) -> list[str]:
        if message.phase is Phase.QUERY:
            query = decode_query(message.run, message.body[0].tobytes(), "coordinator")
            told: Query = replace(query, **changes)
            names[message.run] = told.run
            message = replace(message, body=body_of(told.encode()))
        return await send(self, replace(message, run=names[message.run]), seconds)

    async def hear(self: ServerLink) -> AsyncIterator[tuple[Message, bytes]]:
        messages = await subscribe(self)

        async def renamed() -> AsyncIterator[tuple[Message, bytes]]:
            async for message, _ in messages:
                true = {told: asked for asked, told in names.items()}[message.run]
                said = replace(message, run=true)
                yield said, said.encode()

        return renamed()

    ServerLink.send, ServerLink.subscribe = send_lie, hear  # type: ignore[method-assign]
    asyncio.run(run_coordinator(config, report.send))


class Lied(Processes):
    changes: dict[str, Any]

    def _launch(self, name: str, target: Any, config: Any) -> str:
        if name == "coordinator":
            target = partial(lie, self.changes)
        return super()._launch(name, target, config)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"noise": Placement.PARTIES},
        {"statistic": Histogram(lower=0.0, upper=1.0, bins=1)},
    ],
    ids=["the truth", "nobody adds noise", "a sum for a count"],
)
def test_no_release_to_a_coordinator_that_asks_parties_and_servers_different_things(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    runtime = Lied(Layout(HOLDINGS, servers=2, hosts=1, store=tmp_path))
    runtime.changes = changes
    question = Question(
        TOTAL, "additive", Fraction(1, 100), Placement.EACH_SERVER, deadline=4.0, key="a"
    )
    with runtime:
        if not changes:
            runtime.ask(question, lambda _: None).prove(question)
        else:
            with pytest.raises(RunFailed, match="only 0 of 3 parties submitted"):
                runtime.ask(question, lambda _: None)
    for server in range(2):
        ledger = Ledger(tmp_path / f"server-{server}" / "ledger.sqlite")
        assert len(ledger.rows()) == (0 if changes else 1)
        ledger.close()


# --- old answers ---


def replay(config: CoordinatorConfig, report: Connection) -> None:
    """What the coordinator's process runs: whatever it is asked, it gives the first answer again,
    as it was or as one that is reused."""
    kept = Runs.kept

    def first(self: Runs, name: bytes) -> pb.Kept | None:
        names = self._answers.names()
        found = kept(self, names[0]) if names else None
        if found is not None:
            found.events[-1].answer.reused = Path(config.store or "", "say-so").exists()
        return found

    Runs.kept = first  # type: ignore[method-assign]
    coordinator_service._must_be_same = lambda asked, before: None
    asyncio.run(run_coordinator(config, report.send))


class Replayed(Processes):
    def _launch(self, name: str, target: Any, config: Any) -> str:
        return super()._launch(name, replay if name == "coordinator" else target, config)


def test_an_old_answer_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    """Neither to the same question under a new key, nor to a curve that is to be fresh; one that
    may be reused has to be called so."""
    curve = Ecdf(value="value", lower=0.0, upper=1.0, thresholds=4)
    asked = Question(curve, "additive", Fraction(1), Placement.EACH_SERVER, key="first")
    with Replayed(Layout(HOLDINGS, 2, 1, store=tmp_path)) as federation:
        federation.ask(asked, lambda _: None).prove(asked)

        def again(**changes: Any) -> None:
            question = replace(asked, key="second", **changes)
            federation.ask(question, lambda _: None).prove(question)

        with pytest.raises(RunFailed, match="it is the answer to an earlier asking"):
            again(fresh=True)
        with pytest.raises(RunFailed, match="it passes an earlier release off as a new one"):
            again()
        (tmp_path / "coordinator" / "say-so").touch()
        again()
        with pytest.raises(RunFailed, match="it is the answer to an earlier asking"):
            again(fresh=True)
