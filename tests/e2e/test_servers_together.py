"""Servers that compute together, over real processes and TLS: killed, lied to, called by others."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from fractions import Fraction
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from tallyroom.parties.data import Dataset
from tallyroom.protocols.errors import RunFailed
from tallyroom.protocols.identity.certificates import Identity
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import decode_query
from tallyroom.protocols.records import deal
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.choices import TopK
from tallyroom.protocols.statistics.estimates import shape_of
from tallyroom.protocols.statistics.first_above import FirstAboveThreshold
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.moments import Sum
from tallyroom.protocols.statistics.of_pairs import Gini
from tallyroom.protocols.wire.messages import Message, Phase, Role, address, body_of
from tallyroom.protos import tally_pb2 as pb
from tallyroom.protos.channel import open_blocking_channel
from tallyroom.protos.tally_pb2_grpc import MessagesStub
from tallyroom.servers.coordinator_process import run_coordinator
from tallyroom.servers.coordinator_service import CoordinatorConfig
from tallyroom.servers.server_link import ServerLink
from tallyroom.simulation import Federation, Result
from tallyroom.simulation.runtimes.contract import Layout
from tallyroom.simulation.runtimes.processes import Processes
from tallyroom.storage.ledger import Ledger

DATA = Dataset("three", {"value": np.array([0.1, 0.5, 0.9])}, {"value": (0.0, 1.0)})
MORE = Dataset("sixty", {"value": np.linspace(0.0, 1.0, 60) ** 2}, {"value": (0.0, 1.0)})
SECONDS = 10.0


def test_either_server_may_be_killed_at_any_stage(tmp_path: Path) -> None:
    """Under one seed the answer, noise included, is that of a run in which nothing happened: a
    histogram, two choices, and pairs."""
    with (
        Federation(parties=3, data=MORE, seed=7) as calm,
        Federation(
            parties=3, hosts=1, data=MORE, seed=7, runtime="processes", store=tmp_path
        ) as stormy,
    ):
        stormy.start()
        runtime = stormy.runtime
        assert isinstance(runtime, Processes)
        for victim, delay, statistic in (
            ("server-0", 0.05, Histogram(value="value", bins=400)),
            ("server-1", 0.15, TopK(value="value", bins=200, k=4)),
            ("server-1", 0.1, FirstAboveThreshold(value="value", bins=200, threshold=2)),
            ("server-0", 0.25, Gini(value="value", bits=8, meet="servers", pairs_per_party="all")),
        ):
            expected = calm.run(statistic, 1.0, noise="joint")
            found: list[Result] = []

            def ask(statistic: Statistic = statistic, found: list[Result] = found) -> None:
                found.append(stormy.run(statistic, 1.0, noise="joint"))

            asking = threading.Thread(target=ask)
            asking.start()
            time.sleep(delay)
            runtime.children[victim].kill()
            runtime.restart(victim)
            asking.join(timeout=60)
            assert found, f"no answer after {victim} was killed"
            assert found[0].estimate == expected.estimate
    for server in range(2):
        ledger = Ledger(tmp_path / f"server-{server}" / "ledger.sqlite")
        assert len(ledger.rows()) == 4
        ledger.close()


def test_the_bill_is_that_of_one_process() -> None:
    statistic = Histogram(value="value", bins=10)
    bills = []
    for runtime in ("inprocess", "processes"):
        with Federation(parties=3, hosts=3, data=DATA, seed=7, runtime=runtime) as federation:
            result = federation.run(statistic, 1.0, noise="joint")
            bills.append((sorted(result.bill.rows()), shape_of(result.estimate).values().tolist()))
    assert bills[0] == bills[1]


def lie(config: CoordinatorConfig, report: Connection) -> None:
    """A coordinator that tells server 1 of another ε than server 0, and hears both."""
    names: dict[bytes, bytes] = {}
    send, subscribe = ServerLink.send, ServerLink.subscribe

    async def send_lie(self: ServerLink, message: Message, seconds: float = 0.0) -> list[str]:
        if self.index == 1:
            if message.phase is Phase.QUERY:
                query = decode_query(message.run, message.body[0].tobytes(), "coordinator")
                told = replace(query, epsilon=Fraction(50))
                names[message.run] = told.run
                message = replace(message, body=body_of(told.encode()))
            message = replace(message, run=names[message.run])
        return await send(self, message, seconds)

    async def hear(self: ServerLink) -> AsyncIterator[tuple[Message, bytes]]:
        messages = await subscribe(self)

        async def renamed() -> AsyncIterator[tuple[Message, bytes]]:
            async for message, _ in messages:
                true = {told: asked for asked, told in names.items()}
                said = replace(message, run=true.get(message.run, message.run))
                yield said, said.encode()

        return renamed()

    ServerLink.send, ServerLink.subscribe = send_lie, hear  # type: ignore[method-assign]
    asyncio.run(run_coordinator(config, report.send))


class Lied(Processes):
    def _launch(self, name: str, target: Any, config: Any) -> str:
        return super()._launch(name, lie if name == "coordinator" else target, config)


def test_a_coordinator_that_asks_servers_different_things_gets_nothing(tmp_path: Path) -> None:
    holdings = deal({"value": np.array([0.25, 0.5, 0.75])}, 3)
    question = Question(
        Sum(lower=0.0, upper=1.0), "additive", Fraction(1), Placement.JOINT, deadline=2.0, key="a"
    )
    with (
        Lied(Layout(holdings, servers=2, hosts=1, store=tmp_path)) as runtime,
        pytest.raises(RunFailed, match="server-0 refused: was asked another question"),
    ):
        runtime.ask(question, lambda _: None)
    for server in range(2):
        ledger = Ledger(tmp_path / f"server-{server}" / "ledger.sqlite")
        assert not ledger.rows()
        ledger.close()


def test_whoever_is_not_the_other_server_is_refused_on_the_wire() -> None:
    """A party with a good certificate says it is server 1, then speaks as itself."""
    with Federation(parties=3, hosts=1, data=DATA, runtime="processes") as federation:
        federation.start()
        runtime = federation.runtime
        assert isinstance(runtime, Processes)
        party = Identity(Role.PARTY, 0, 2)
        target = runtime.listens("server-0")
        with open_blocking_channel(
            target, Identity(Role.SERVER, 0, 0), runtime._credentials(party)
        ) as channel:
            stub = MessagesStub(channel)
            body = np.zeros((1, 40), dtype=np.uint8)
            forged = Message(
                bytes(28), Phase.PREPARE, Role.SERVER, Role.SERVER, address(1), address(0), body
            )
            with pytest.raises(grpc.RpcError) as refused:
                stub.Send(pb.Parcel(message=forged.encode()), timeout=SECONDS)
            assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
            own = replace(forged, sender_role=Role.PARTY)
            receipt = stub.Send(pb.Parcel(message=own.encode()), timeout=SECONDS)
            assert "unknown" in receipt.refused[0].reason
