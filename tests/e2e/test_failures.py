"""Processes that die or fall silent: a reason that names them in time, and no leftovers."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.simulation import Federation, Result
from tallyroom.simulation.runtimes import Progress
from tallyroom.simulation.runtimes.processes import Processes

PATIENCE = 60.0
"""A hang is what these tests look for; they are never near it."""


@pytest.fixture
def federation() -> Iterator[Federation]:
    with Federation(
        parties=4, servers=2, runtime="processes", data="synthetic:scores?n=40", hosts=4
    ) as started:
        started.start()
        yield started
        for name in children(started).children:
            with contextlib.suppress(ProcessLookupError):  # those that the test killed
                signal_to(started, name, signal.SIGCONT)


def children(federation: Federation) -> Processes:
    assert isinstance(federation.runtime, Processes)
    return federation.runtime


def signal_to(federation: Federation, name: str, number: int) -> None:
    pid = children(federation).children[name].pid
    assert pid is not None
    os.kill(pid, number)


def pids(federation: Federation) -> list[int]:
    return [process.pid or 0 for process in children(federation).children.values()]


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.05)


class Question:
    """A run in a thread of its own."""

    def __init__(
        self, federation: Federation, deadline: float, min_parties: int | None = None
    ) -> None:
        self.submitting = threading.Event()
        self.outcome: Result | Exception | None = None
        self._thread = threading.Thread(target=self._ask, args=(federation, deadline, min_parties))
        self._thread.start()

    def _ask(self, federation: Federation, deadline: float, min_parties: int | None) -> None:
        try:
            self.outcome = federation.run(
                Mean(value="score"),
                1,
                deadline=deadline,
                min_parties=min_parties,
                report=self._report,
            )
        except Exception as error:
            self.outcome = error

    def _report(self, progress: Progress) -> None:
        if progress.phase == "submit":
            self.submitting.set()

    def answer(self) -> Result | Exception:
        self._thread.join(PATIENCE)
        assert self.outcome is not None, "the run hangs"
        return self.outcome


def mid_run(federation: Federation, deadline: float, min_parties: int | None = None) -> Question:
    """A run that waits for party-0, whose host is stopped."""
    federation.run(Mean(value="score"), 1)  # everybody is here and answers
    signal_to(federation, "host-0", signal.SIGSTOP)
    question = Question(federation, deadline, min_parties)
    assert question.submitting.wait(PATIENCE)
    return question


@pytest.mark.parametrize("name", ["server-0", "server-1"])
def test_a_server_that_dies_mid_run_is_named(federation: Federation, name: str) -> None:
    question = mid_run(federation, deadline=3600.0)
    children(federation).children[name].kill()
    answer = question.answer()
    assert isinstance(answer, RunFailed)
    assert name in str(answer)


def test_a_dead_server_is_named_in_the_next_run(federation: Federation) -> None:
    children(federation).children["server-1"].kill()
    with pytest.raises(RunFailed, match="server-1"):
        federation.run(Mean(value="score"), 1, deadline=5.0)


def test_a_party_that_dies_mid_run_is_named_at_once(federation: Federation) -> None:
    question = mid_run(federation, deadline=3600.0)
    children(federation).children["host-0"].kill()
    answer = question.answer()
    assert isinstance(answer, RunFailed)
    assert "only 3 of 4 parties" in str(answer)
    assert "missing: party-0" in str(answer)


def test_a_run_that_may_go_on_without_a_party_does(federation: Federation) -> None:
    question = mid_run(federation, deadline=3600.0, min_parties=3)
    children(federation).children["host-0"].kill()
    answer = question.answer()
    assert isinstance(answer, Result)
    assert "3 of 4 parties contributed" in answer.notes


def test_a_party_that_dies_before_all_servers_know_of_the_run_is_named_at_once(
    federation: Federation,
) -> None:
    """A server that hears whom not to wait for before it knows of the run would wait for them."""
    federation.run(Mean(value="score"), 1)
    signal_to(federation, "server-0", signal.SIGSTOP)  # server-1 is told after it
    question = Question(federation, deadline=3600.0)
    assert question.submitting.wait(PATIENCE)
    children(federation).children["host-0"].kill()
    wait_until(lambda: children(federation).present() == 3)
    signal_to(federation, "server-0", signal.SIGCONT)
    answer = question.answer()
    assert isinstance(answer, RunFailed)
    assert "only 3 of 4 parties" in str(answer)
    assert "missing: party-0" in str(answer)


def test_a_silent_party_is_waited_for_until_the_deadline(federation: Federation) -> None:
    answer = mid_run(federation, deadline=2.0).answer()
    assert isinstance(answer, RunFailed)
    assert "missing: party-0" in str(answer)


def test_a_dead_coordinator_is_said_to_be_gone(federation: Federation) -> None:
    question = mid_run(federation, deadline=3600.0)
    children(federation).children["coordinator"].kill()
    answer = question.answer()
    assert isinstance(answer, RunFailed)
    assert "coordinator is gone" in str(answer)


@pytest.mark.parametrize("victim", [None, "server-0", "coordinator", "host-1"])
def test_nothing_is_left_after_stop(federation: Federation, victim: str | None) -> None:
    started = pids(federation)
    assert len(started) == 7
    assert all(alive(pid) for pid in started)
    if victim is not None:
        signal_to(federation, victim, signal.SIGKILL)
    federation.stop()
    assert not [pid for pid in started if alive(pid)]


def test_nothing_is_left_when_a_question_is_refused() -> None:
    with Federation(parties=2, servers=1, runtime="processes", data="synthetic:scores?n=9") as one:
        one.start()
        started = pids(one)
        with pytest.raises(LocalError, match="at least 2 servers"):
            one.run(Mean(value="score"), 1)
    assert not [pid for pid in started if alive(pid)]


def test_children_notice_that_the_harness_was_killed() -> None:
    program = (
        "import time; from tallyroom.simulation import Federation;"
        "f = Federation(parties=3, runtime='processes', data='synthetic:scores?n=9'); f.start();"
        "print(*(p.pid for p in f.runtime.children.values()), flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as harness:
        assert harness.stdout is not None
        started = [int(pid) for pid in harness.stdout.readline().split()]
        assert len(started) == 6
        assert all(alive(pid) for pid in started)
        harness.kill()
        try:
            wait_until(lambda: not any(alive(pid) for pid in started))
        finally:
            for pid in filter(alive, started):
                os.kill(pid, signal.SIGKILL)


def test_a_capped_server_refuses_and_the_run_says_so(tmp_path: Path) -> None:
    with Federation(
        parties=3, runtime="processes", data="synthetic:scores?n=9", cap=1.5, store=tmp_path
    ) as capped:
        capped.run(Mean(value="score"), 1)
        with pytest.raises(LocalError, match=r"epsilon 1 refused: 0\.5 of 1\.5 is left"):
            capped.run(Mean(value="score"), 1)
        capped.run(Mean(value="score"), 0.5)
    assert sorted(path.parent.name for path in tmp_path.glob("*/ledger.sqlite")) == [
        "coordinator",
        "server-0",
        "server-1",
    ]


def test_a_sum_that_can_do_without_a_server_does_not_wait_for_it_to_come_back(
    tmp_path: Path,
) -> None:
    """The servers keep stores, so the lost one might; two of three open the sum."""
    with (
        Federation(parties=4, aggregator="shamir", seed=1, runtime="inprocess") as calm,
        Federation(
            parties=4, aggregator="shamir", seed=1, runtime="processes", hosts=2, store=tmp_path
        ) as hurt,
    ):
        hurt.start()
        children(hurt).children["server-1"].kill()
        expected = calm.run(Mean(value="score"), 1.0)
        assert hurt.run(Mean(value="score"), 1.0).estimate == expected.estimate
