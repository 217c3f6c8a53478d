"""A disk that fills up: refused in clear words, nothing acknowledged is lost, and it goes on."""

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path

import grpc
import numpy as np
import pytest

from tallyroom.protocols.errors import RunFailed
from tallyroom.protocols.query import Query
from tallyroom.protocols.run.receipts import RECEIPT_BYTES
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.protocols.wire.messages import Message, Phase, Role
from tallyroom.simulation import Federation
from tallyroom.simulation.runtimes import Layout
from tallyroom.simulation.runtimes.processes import Processes
from tallyroom.storage.ledger import Ledger
from tests.e2e.disks import full
from tests.e2e.siege import Hand, LoneServers
from tests.samples import a_message, a_query, bitmap, holdings_of

BINS = 2000
QUERY = a_query(
    nonce=b"fulldisk",
    statistic=Histogram(lower=0.0, upper=1.0, bins=BINS),
    aggregator="additive",
    epsilon=None,
)


def question(query: Query) -> Message:
    return a_message(Phase.QUERY, Role.COORDINATOR, Role.SERVER, body=query.encode(), run=query.run)


def share(party: int) -> Message:
    body = np.full(BINS, party + 1, dtype="<u8").tobytes()
    return a_message(
        Phase.SUBMIT, Role.PARTY, Role.SERVER, (party,), body=body, run=QUERY.run, round_=2
    )


def release(query: Query) -> Message:
    body = bitmap(query.parties, [0, 1, 2, 3])
    return a_message(
        Phase.RELEASE, Role.COORDINATOR, Role.SERVER, body=body, run=query.run, round_=4
    )


@pytest.mark.parametrize("dies", [False, True], ids=["lives", "killed"])
@pytest.mark.parametrize("room", [8 * BINS * 2 + 900, 8 * BINS * 4 + 100], ids=["neither", "bulk"])
def test_what_does_not_fit_is_not_acknowledged_and_is_taken_later(
    tmp_path: Path, dies: bool, room: int
) -> None:
    """The last submission completes the roster: it must be said once there is room again.

    Keys and shares take a little less room in the bulk than in the journal: with room for `bulk`
    alone the machine could take what the journal cannot keep.
    """
    fit = room // (8 * BINS + 100)
    plan = Layout(holdings_of([0.1, 0.3, 0.6, 0.9], 4), 1, 1, seed=1, store=tmp_path)
    with LoneServers(plan) as servers:
        with Hand(servers) as hand:
            assert hand.send(question(QUERY)) == []
            for party in range(fit):
                assert hand.send(share(party)) == []
            with full(servers, "server-0", room):
                for _ in range(2):
                    for party in range(fit, 4):
                        with pytest.raises(grpc.RpcError) as refused:
                            hand.send(share(party))
                        assert isinstance(refused.value, grpc.Call)
                        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                        assert "cannot store a submission" in (refused.value.details() or "")
            assert hand.heard(0) == []
            if not dies:
                _finish(hand)
        if dies:
            servers.children["server-0"].kill()
            servers.restart("server-0")
            with Hand(servers) as hand:
                _finish(hand)


def _finish(hand: Hand) -> None:
    for party in (2, 3):
        assert hand.send(share(party)) == []
    assert hand.send(release(QUERY)) == []
    roster, answer = hand.heard(2)
    assert roster.body.tobytes() == bitmap(4, [0, 1, 2, 3])
    assert np.unique(answer.body[0, RECEIPT_BYTES:].view("<u8")).tolist() == [1 + 2 + 3 + 4]


def test_a_ledger_that_cannot_be_written_releases_nothing(tmp_path: Path) -> None:
    query = a_query(nonce=b"unwriten", epsilon=Fraction(1))
    plan = Layout(holdings_of([0.1, 0.3, 0.6, 0.9], 4), 1, 1, seed=1, store=tmp_path)
    path = tmp_path / "server-0" / "ledger.sqlite"
    with LoneServers(plan) as servers, Hand(servers) as hand:
        hand.send(question(query))
        body = np.ones((4, 32), dtype=np.uint8)
        everyone = a_message(
            Phase.SUBMIT, Role.PARTY, Role.SERVER, (0, 1, 2, 3), body=body, run=query.run, round_=2
        )
        assert hand.send(everyone) == []
        assert len(hand.heard(1)) == 1
        journal = tmp_path / "server-0" / "runs" / f"{query.run.hex()}.log"
        with full(servers, "server-0", journal.stat().st_size + 200):
            assert hand.send(release(query)) == []
            assert hand.heard(0) == []
            assert _spends(path) == 0
        (answer,) = hand.heard(1)  # nobody had to ask again
        assert answer.phase is Phase.SHARE
        assert _spends(path) == 1


def _spends(path: Path) -> int:
    ledger = Ledger(path)
    try:
        return len(ledger.rows())
    finally:
        ledger.close()


@pytest.mark.parametrize("name", ["server-0", "coordinator"])
def test_a_run_waits_for_room_and_finishes(tmp_path: Path, name: str) -> None:
    """Parties and coordinator repeat themselves until a full server has room again."""
    common = {"parties": 4, "data": "synthetic:scores?n=40", "seed": 3}
    with (
        Federation(**common, runtime="inprocess") as calm,  # type: ignore[arg-type]
        Federation(**common, runtime="processes", hosts=2, store=tmp_path) as filled,  # type: ignore[arg-type]
    ):
        expected = [calm.run(Mean(value="score"), 1).estimate for _ in range(3)]
        assert filled.run(Mean(value="score"), 1).estimate == expected[0]
        assert isinstance(filled.runtime, Processes)
        if name == "coordinator":
            with (
                full(filled.runtime, name, 10),
                pytest.raises(RunFailed, match="cannot store a run"),
            ):
                filled.run(Mean(value="score"), 1)
        else:
            with ExitStack() as fullness:
                fullness.enter_context(full(filled.runtime, name, 10))
                timer = threading.Timer(1.0, fullness.pop_all().close)
                timer.start()
                assert filled.run(Mean(value="score"), 1).estimate == expected[1]
                timer.join()
        assert filled.run(Mean(value="score"), 1).estimate == expected[2]


def test_a_coordinator_without_room_hears_its_servers_again(tmp_path: Path) -> None:
    """They tell it who submitted while it cannot write that down, and once more when it can."""
    with Federation(
        parties=4,
        data="synthetic:scores?n=40",
        seed=3,
        runtime="processes",
        hosts=1,
        store=tmp_path,
    ) as federation:
        expected = federation.run(Mean(value="score"), "inf").estimate
        runtime = federation.runtime
        assert isinstance(runtime, Processes)
        host = runtime.children["host-0"].pid
        assert host is not None
        answers: list[object] = []
        asking = threading.Thread(
            target=lambda: answers.append(federation.run(Mean(value="score"), "inf").estimate)
        )
        os.kill(host, signal.SIGSTOP)
        try:
            asking.start()
            (journal,) = _until(lambda: list((tmp_path / "coordinator" / "runs").glob("*.log")))
            _until(lambda: list((tmp_path / "server-1" / "runs").glob("*.log")))
            with full(runtime, "coordinator", journal.stat().st_size):
                os.kill(host, signal.SIGCONT)
                time.sleep(1.0)
        finally:
            os.kill(host, signal.SIGCONT)
        asking.join(60.0)
        assert answers == [expected]
        assert federation.run(Mean(value="score"), "inf").estimate == expected


def _until(found: Callable[[], list[Path]]) -> list[Path]:
    end = time.monotonic() + 10.0
    while not (there := found()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return there
