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

from protocols.errors import RunFailed
from protocols.privacy.mechanisms import Placement
from protocols.records import deal
from protocols.run.messages import Message, Phase, body_of
from protocols.run.query import Query, decode_query
from protocols.run.question import Question
from protocols.statistics.histogram import Histogram
from protocols.statistics.moments import Sum
from servers.coordinator_process import run_coordinator
from servers.coordinator_service import CoordinatorConfig
from servers.server_link import ServerLink
from simulation.runtimes.contract import Plan
from simulation.runtimes.processes import Processes
from storage.ledger import Ledger

HOLDINGS = deal({"value": np.array([0.25, 0.5, 0.75])}, 3)
TOTAL = Sum(lower=0.0, upper=1.0)


def lie(changes: dict[str, Any], config: CoordinatorConfig, report: Connection) -> None:
    """What the coordinator's process runs: to servers it puts the query with these changes."""
    names: dict[bytes, bytes] = {}
    send, subscribe = ServerLink.send, ServerLink.subscribe

    async def send_lie(self: ServerLink, message: Message) -> list[str]:
        if message.phase is Phase.QUERY:
            query = decode_query(message.run, message.body[0].tobytes(), "coordinator")
            told: Query = replace(query, **changes)
            names[message.run] = told.run
            message = replace(message, body=body_of(told.encode()))
        return await send(self, replace(message, run=names[message.run]))

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
    runtime = Lied(Plan(HOLDINGS, servers=2, hosts=1, store=tmp_path))
    runtime.changes = changes
    question = Question(
        TOTAL, "additive", Fraction(1, 100), Placement.EACH_SERVER, deadline=2.0, key="a"
    )
    with runtime:
        if not changes:
            runtime.ask(question, lambda _: None).prove(question)
        else:
            with pytest.raises(RunFailed, match="only 0 of 3 parties submitted"):
                runtime.ask(question, lambda _: None)
    for server in range(2):
        ledger = Ledger(tmp_path / f"server-{server}" / "ledger.sqlite", None)
        assert len(ledger.rows()) == (0 if changes else 1)
        ledger.close()
