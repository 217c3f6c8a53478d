"""A federation with stores of its own, asked by many aggregators, and what its processes take."""

import contextlib
import os
import stat
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tallyroom.protocols.errors import RunFailed
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.statistics.cumulative import Cumulative
from tallyroom.simulation import Federation
from tallyroom.simulation.proc import resident_bytes
from tallyroom.simulation.runtimes import Layout, Opened, Report, Runtime
from tallyroom.simulation.runtimes.processes import Processes
from tallyroom.storage.ledger import Ledger
from tests.soak.questions import DATA, DELTA, KINDS, PARTIES, Kind

HOSTS = 3
DEADLINE = 10.0
NOISE = {"shamir": "parties", "masking": "parties"}


class _Borrowed(Runtime):
    """A runtime that is up already, and stays so."""

    name = "processes"
    summary = "a federation that somebody else started"

    def __init__(self, layout: Layout, lender: Runtime) -> None:
        super().__init__(layout)
        self._lender = lender

    def start(self) -> None:
        pass

    def ask(self, question: Question, report: Report) -> Opened:
        return self._lender.ask(question, report)

    def stop(self) -> None:
        pass


@dataclass(frozen=True)
class Usage:
    """What one process takes, and its store."""

    megabytes: float
    descriptors: int
    threads: int
    store_bytes: int
    files: int


class Room:
    """`servers` servers, a coordinator and three party hosts, each a process with a store.

    Raises from `ask` what a run raises; counts what was asked and answered for a price.
    """

    def __init__(self, servers: int, folder: Path) -> None:
        self.servers = servers
        self.folder = folder
        layout = Layout(DATA.deal(PARTIES), servers, HOSTS, store=folder)
        self.runtime = Processes(layout)
        self.lock = threading.Lock()
        self.kinds = [kind for kind in KINDS if kind.servers == servers]
        self._federations = {
            name: self._federation(name) for name in {kind.aggregator for kind in self.kinds}
        }
        self.asked = 0
        self.paid_for = 0

    def __enter__(self) -> Self:
        self.runtime.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.runtime.stop()

    def ask(self, kind: Kind, exact: bool) -> bool:
        """Whether the answer is right; a noisy one counts as right if there is one. One that says
        which pairs it lost with a party is no answer here: nobody knows what it should be."""
        federation = self._federations[kind.aggregator]
        if exact:
            result = federation.run(kind.statistic, "inf", delta=DELTA, deadline=DEADLINE)
            if result.lost_pairs:
                raise RunFailed("pairs are left out, and it says so")
            return kind.is_right(result.estimate)
        self.asked += 1
        noise = NOISE.get(kind.aggregator)
        federation.run(kind.statistic, "1", noise=noise, delta=DELTA, deadline=DEADLINE)
        if not isinstance(kind.statistic, Cumulative):  # a curve may have been paid for before
            self.paid_for += 1
        return True

    def keepers(self) -> list[str]:
        return ["coordinator", *(f"server-{i}" for i in range(self.servers))]

    def spent(self, keeper: str) -> float:
        """What is in a ledger: every question costs 1, a curve that was released before nothing."""
        ledger = Ledger(self.folder / keeper / "ledger.sqlite")
        try:
            return ledger.totals().noisy.size
        finally:
            ledger.close()

    def usage(self) -> dict[str, Usage]:
        with self.lock:
            return {
                name: _usage(child.pid, self.folder / name)
                for name, child in self.runtime.children.items()
            }

    def restart(self, name: str) -> None:
        """Kills a process and starts it again."""
        with self.lock:
            self.runtime.children[name].kill()
            self.runtime.restart(name)

    def pid(self, name: str) -> int:
        with self.lock:
            pid = self.runtime.children[name].pid
        if pid is None:
            raise RunFailed(f"{name} is not running")
        return pid

    def port(self, name: str) -> int:
        return int(self.runtime.listens(name).rpartition(":")[2])

    def _federation(self, aggregator: str) -> Federation:
        federation = Federation(
            parties=PARTIES, servers=self.servers, aggregator=aggregator, data=DATA, hosts=HOSTS
        )
        federation.runtime = _Borrowed(self.runtime.layout, self.runtime)
        return federation


def _usage(pid: int | None, store: Path) -> Usage:
    sizes = []
    for path in store.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # a run that ends takes its files along
            found = path.stat()
            if stat.S_ISREG(found.st_mode):
                sizes.append(found.st_size)
    return Usage(
        megabytes=resident_bytes(pid) / 1e6,
        descriptors=len(os.listdir(f"/proc/{pid}/fd")),
        threads=len(os.listdir(f"/proc/{pid}/task")),
        store_bytes=sum(sizes),
        files=len(sizes),
    )
