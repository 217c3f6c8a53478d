"""Nothing acknowledged is lost, nothing that failed is done later, nothing is left behind."""

import itertools
import os
import shutil
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tallyroom.protocols.errors import RunFailed
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.protocols.statistics.of_pairs import Gini
from tallyroom.protocols.statistics.on_demand import EcdfPoints
from tallyroom.protocols.wire.messages import Message, Phase, Role
from tallyroom.simulation import Federation
from tallyroom.simulation.runtimes import Layout, Opened
from tallyroom.simulation.runtimes.processes import Processes
from tests.e2e.addressed import Addressed
from tests.e2e.keepers import ANYTHING, KEEPERS, PATIENCE, journals, spends, wait_until
from tests.e2e.siege import Hand, LoneServers, resident_bytes
from tests.samples import a_message, a_query, bitmap, holdings_of

BINS = 50
QUERY = a_query(statistic=Histogram(lower=0.0, upper=1.0, bins=BINS))


def submission(party: int, length: int = BINS) -> Message:
    body = np.full(length, party + 1, dtype="<u8").tobytes()
    return a_message(
        Phase.SUBMIT, Role.PARTY, Role.SERVER, (party,), body=body, run=QUERY.run, round_=2
    )


def test_refused_messages_cost_nobody_his_acknowledged_submission(tmp_path: Path) -> None:
    plan = Layout(holdings_of([0.1, 0.3, 0.6, 0.9], 4), 1, 1, seed=1, store=tmp_path)
    asked = a_message(Phase.QUERY, Role.COORDINATOR, Role.SERVER, body=QUERY.encode())
    with LoneServers(plan) as servers:
        with Hand(servers) as hand:
            assert hand.send(asked) == []
            for length in (BINS - 1, BINS + 7):
                assert "bytes, expected" in hand.send(submission(0, length))[0]
            for party in (1, 2, 3):
                assert hand.send(submission(party)) == []
        servers.children["server-0"].kill()
        servers.restart("server-0")
        with Hand(servers) as hand:
            assert hand.send(submission(0)) == []
            (roster,) = hand.heard(1)
            assert roster.body.tobytes()[:1] == bitmap(4, [0, 1, 2, 3])


def test_questions_that_failed_are_not_answered_later(tmp_path: Path) -> None:
    """While a server is dead three questions fail. It comes back, and the coordinator restarts."""
    mean = Mean(value="score")
    failures: list[str] = []

    def fail() -> None:
        with pytest.raises(RunFailed) as failed:
            federation.run(mean, 1, deadline=0.5)
        failures.append(str(failed.value))

    with Federation(parties=2, hosts=1, runtime="processes", store=tmp_path) as federation:
        federation.run(mean, 1)
        runtime = federation.runtime
        assert isinstance(runtime, Processes)
        runtime.children["server-1"].kill()
        asking = [threading.Thread(target=fail) for _ in range(3)]
        for each in asking:
            each.start()
        for each in asking:
            each.join(PATIENCE)
        assert len(failures) == 3
        assert all("server-1" in reason and "server-0" not in reason for reason in failures)
        runtime.restart("server-1")
        runtime.children["coordinator"].kill()
        runtime.restart("coordinator")
        wait_until(lambda: not journals(tmp_path))
        assert spends(tmp_path) == [1, 1, 1]
        federation.run(mean, 1)
        wait_until(lambda: not journals(tmp_path))
        assert spends(tmp_path) == [2, 2, 2]


def test_a_server_that_was_killed_forgets_what_failed_without_it(tmp_path: Path) -> None:
    """It knew of the run, which waited for a party; nobody restarts the coordinator."""
    with Federation(parties=2, hosts=2, runtime="processes", store=tmp_path) as federation:
        federation.run(Mean(value="score"), 1)
        runtime = federation.runtime
        assert isinstance(runtime, Processes)
        silent = runtime.children["host-1"].pid
        assert silent is not None
        os.kill(silent, signal.SIGSTOP)  # it is here and says nothing, so that the run waits for it
        try:
            question = threading.Thread(target=_fail, args=(federation,))
            question.start()
            wait_until(lambda: len(journals(tmp_path)) == 3)
            runtime.children["server-1"].kill()
            question.join(PATIENCE)
        finally:
            os.kill(silent, signal.SIGCONT)
        runtime.restart("server-1")
        wait_until(lambda: not journals(tmp_path))
        assert spends(tmp_path) == [1, 1, 1]


def test_a_server_that_lost_its_store_is_named_at_once(tmp_path: Path) -> None:
    """A run that it had a part in fails long before its deadline. It begins nothing until its
    ledger is raised by what its receipts prove: it would not know what it has spent."""
    plan = Layout(holdings_of([0.1, 0.4, 0.6, 0.9], 2), 2, 2, store=tmp_path, policy=ANYTHING)
    points = EcdfPoints(value="value", lower=0.0, upper=1.0, at=(0.5,))
    failures: list[str] = []
    submitted: list[int] = []

    def ask(statistic: Any, aggregator: str, key: str) -> list[int]:
        asked = Question(statistic, aggregator, None, Placement.EACH_SERVER, key=key, deadline=600)
        opened = federation.ask(asked, lambda progress: submitted.append(progress.submissions))
        opened.prove(asked)
        return [int(each) for each in opened.total]

    def fail() -> None:
        with pytest.raises(RunFailed) as failed:
            ask(Histogram(lower=0.0, upper=1.0, bins=2), "additive", "waits for a party")
        failures.append(str(failed.value))

    with Processes(plan) as federation:
        assert ask(points, "fss", "first") == [2]
        silent = federation.children["host-1"].pid
        assert silent is not None
        os.kill(silent, signal.SIGSTOP)
        submitted.clear()
        try:
            asking = threading.Thread(target=fail)
            asking.start()
            wait_until(lambda: submitted and submitted[-1] == 1)  # to both servers
            federation.children["server-1"].kill()
            federation.children["server-1"].join()
            shutil.rmtree(tmp_path / "server-1")
            federation.restart("server-1")
            asking.join(PATIENCE)
        finally:
            os.kill(silent, signal.SIGCONT)
        assert failures
        assert failures[0].startswith("server-1 has lost its store")
        with pytest.raises(RunFailed, match="server-1 refused: its ledger lacks run"):
            ask(points, "fss", "second")
        assert spends(tmp_path)[2] == 0


def _fail(federation: Federation) -> None:
    with pytest.raises(RunFailed):
        federation.run(Mean(value="score"), 1, deadline=2.0, min_parties=1)


def test_hundreds_of_questions_leave_nothing_behind(tmp_path: Path) -> None:
    """Descriptors, memory and files of every station, after some questions and after many. Memory
    that grows by 10 KiB a question is found."""
    some, more = 60, 140
    plan = Layout(holdings_of(np.linspace(0, 1, 8), 2), 2, 1, store=tmp_path)

    def ask(number: int) -> Opened:
        statistic = Histogram(value="value", lower=0.0, upper=1.0, bins=64)
        key = f"question {number}"
        placed = Question(statistic, "additive", None, Placement.EACH_SERVER, key=key)
        return federation.ask(placed, lambda _: None)

    def weigh() -> dict[str, tuple[int, int, int]]:
        wait_until(lambda: not journals(tmp_path))
        return {
            name: (
                len(os.listdir(f"/proc/{federation.children[name].pid}/fd")),
                len(list((tmp_path / name / "runs").iterdir())),
                resident_bytes(federation, name),
            )
            for name in KEEPERS
        }

    with Addressed(plan) as federation:
        for number in range(some):
            ask(number)
        before = weigh()
        for number in range(some, some + more):
            ask(number)
        after = weigh()
        assert ask(7).records == 8  # an old one is still known
    for name in KEEPERS:
        assert after[name][0] <= before[name][0] + 3, f"{name} opens files"
        assert after[name][1] <= 2, f"{name} keeps journals"  # the mark, and names
        assert after[name][2] < before[name][2] + more * (10 << 10), f"{name} grows"


def test_lost_pairs_are_counted_and_nobody_who_is_well_is_left_out() -> None:
    """A party that stands still keeps those waiting that are to meet it, each for its deadline."""
    with Federation(
        parties=4,
        hosts=4,
        runtime="processes",
        data="synthetic:scores?n=4",
        seed=3,
    ) as federation:
        gini = Gini(value="score", bits=8, pairs_per_party="all")
        whole = federation.run(gini, "inf")
        assert (whole.lost_pairs, whole.notes) == (0, whole.notes[:1])
        runtime = federation.runtime
        assert isinstance(runtime, Processes)
        pid = runtime.children["host-3"].pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            result = federation.run(gini, "inf", min_parties=3, deadline=1.5)
        finally:
            os.kill(pid, signal.SIGCONT)
    assert result.lost_pairs == result.as_json()["lost_pairs"] == 3  # of four there are six pairs
    assert "3 of 6 pairs are left out: a party of each was lost" in result.notes
    assert "3 of 4 parties contributed" in result.notes
    assert result.caught == ()
    scores = federation.holdings.column("score")[:3]
    expected = np.mean([abs(a - b) for a, b in itertools.combinations(scores, 2)])
    assert isinstance(result.estimate, float)
    assert abs(result.estimate - expected) < 2 / 2**8
