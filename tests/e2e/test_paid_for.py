"""What servers have released arrives, whatever the disk or the ledger of anybody does meanwhile."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tallyroom.protocols.statistics.moments import Mean
from tallyroom.simulation import Federation
from tallyroom.simulation.runtimes.processes import Processes
from tests.e2e.disks import full, locked
from tests.e2e.keepers import journals, spends, wait_until

COMMON = {"parties": 4, "data": "synthetic:scores?n=40", "seed": 3}
TROUBLED_SECONDS = 2.5  # several times as long as a ledger is waited for at once
DEADLINE = 2.0


@contextmanager
def _held_up(federation: Federation) -> Iterator[None]:
    """The parties stand still until the stations have begun the run."""
    assert isinstance(federation.runtime, Processes)
    pid = federation.runtime.children["host-0"].pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _amid_a_release(
    folder: Path, trouble: Callable[[Processes, Path], ExitStack], deadline: float = 20.0
) -> None:
    """The answer is that of a federation without trouble, and every ledger has it once."""
    with (
        Federation(**COMMON, runtime="inprocess") as calm,  # type: ignore[arg-type]
        Federation(**COMMON, runtime="processes", hosts=1, store=folder) as troubled,  # type: ignore[arg-type]
    ):
        troubled.start()
        expected = calm.run(Mean(value="score"), 1).estimate
        answers: list[object] = []

        def ask() -> None:
            try:
                found = troubled.run(Mean(value="score"), 1, deadline=deadline)
                answers.append(found.estimate)
            except Exception as error:
                answers.append(error)

        asking = threading.Thread(target=ask)
        runtime = troubled.runtime
        assert isinstance(runtime, Processes)
        wait_until(lambda: runtime.present() == 4)
        with ExitStack() as stack:
            with _held_up(troubled):
                asking.start()
                wait_until(lambda: len(journals(folder)) == 3)
                stack.enter_context(trouble(runtime, folder))
            time.sleep(TROUBLED_SECONDS)
            assert not answers
        asking.join(30.0)
        assert answers == [expected]
        assert spends(folder) == [1, 1, 1]


def _locked(*keepers: str) -> Callable[[Processes, Path], ExitStack]:
    def trouble(_: Processes, folder: Path) -> ExitStack:
        stack = ExitStack()
        for keeper in keepers:
            stack.enter_context(locked(folder / keeper / "ledger.sqlite"))
        return stack

    return trouble


def _full_for_the_ledger(*keepers: str) -> Callable[[Processes, Path], ExitStack]:
    """The journal takes what is small, the ledger takes nothing."""

    def trouble(runtime: Processes, folder: Path) -> ExitStack:
        stack = ExitStack()
        for keeper in keepers:
            stack.enter_context(full(runtime, keeper, 6000))
        return stack

    return trouble


@pytest.mark.parametrize("keeper", ["coordinator", "server-0", "server-1"])
def test_a_locked_ledger_delays_an_answer(keeper: str, tmp_path: Path) -> None:
    _amid_a_release(tmp_path, _locked(keeper))


@pytest.mark.parametrize("keeper", ["coordinator", "server-1"])
def test_a_full_disk_delays_an_answer(keeper: str, tmp_path: Path) -> None:
    _amid_a_release(tmp_path, _full_for_the_ledger(keeper))
