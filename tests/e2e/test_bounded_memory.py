"""Memory of real processes does not grow with the number of submissions."""

from pathlib import Path

import numpy as np
import pytest

from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.wire.messages import Message, Phase, Role, address
from tallyroom.simulation import Federation
from tallyroom.simulation.bench import scale
from tallyroom.simulation.proc import peak_bytes
from tallyroom.simulation.runtimes import Layout
from tests.e2e.siege import Hand, LoneServers
from tests.samples import a_message, a_query, holdings_of

WIDE = 1 << 18
PARTIES = 64
PLAIN = {"ecdf": "fss?domain=fine&verified=no"}


@pytest.mark.parametrize("durable", [False, True], ids=["memory", "store"])
def test_a_server_does_not_keep_the_messages_that_it_took(tmp_path: Path, durable: bool) -> None:
    """64 submissions of 2 MiB are 128 MiB; what a server needs for one of them is its bound."""
    query = a_query(
        nonce=b"wide sum",
        parties=PARTIES,
        statistic=Histogram(lower=0.0, upper=1.0, bins=WIDE),
        aggregator="curator",
        servers=1,
        epsilon=None,
    )
    plan = Layout(
        holdings_of([0.5] * PARTIES, PARTIES), 1, 1, seed=1, store=tmp_path if durable else None
    )
    asked = a_message(
        Phase.QUERY, Role.COORDINATOR, Role.SERVER, body=query.encode(), run=query.run
    )
    with LoneServers(plan) as servers, Hand(servers, last=PARTIES - 1) as hand:
        assert hand.send(asked) == []
        vector = np.ones((1, WIDE), dtype="<u8").view(np.uint8)

        def share(party: int) -> Message:
            to = address(0)
            sender = address(party)
            return Message(query.run, Phase.SUBMIT, Role.PARTY, Role.SERVER, sender, to, vector, 2)

        for party in range(8):
            assert hand.send(share(party)) == []
        pid = servers.children["server-0"].pid
        before = peak_bytes(pid)
        for party in range(8, PARTIES):
            assert hand.send(share(party)) == []
        assert peak_bytes(pid) - before < 32 << 20


def test_many_keys_through_small_processes() -> None:
    """90,000 parties more are 70 MB more a server and 35 MB more a host, were they kept in memory
    just once. Keys of 768 bytes, so that also the fewer of them fill all buffers."""
    few, many = (
        {row.name.split("-")[0]: row.details for row in scale.rows(parties, PLAIN)}
        for parties in (30_000, 120_000)
    )
    for name in ("histogram", "ecdf"):
        assert many[name]["server_mb"] - few[name]["server_mb"] < 40
        assert many[name]["host_mb"] - few[name]["host_mb"] < 25
        assert many[name]["seconds"] > 0


def test_parts_over_processes_agree_with_one_process() -> None:
    """12,000 parties on two hosts go in three parts each: the same answer under one seed."""
    estimates = []
    for runtime in ("inprocess", "processes"):
        with Federation(
            parties=12_000,
            aggregator="fss",
            runtime=runtime,
            hosts=2,
            data="synthetic:scores?n=12000",
            seed=3,
        ) as federation:
            result = federation.run(Ecdf(value="score", thresholds=16), epsilon=1)
        estimates.append(result.as_json()["estimate"])
    assert estimates[0] == estimates[1]
