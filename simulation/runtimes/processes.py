"""`processes`: every role is a process of its own, over gRPC with mutual TLS on the loopback."""

import datetime as dt
import multiprocessing as mp
import os
import sys
import time
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import ClassVar, TypeVar

from parties.process import PartyConfig
from protocols.errors import LocalError, RunFailed
from protocols.identity import Authority, Credentials, Identity
from protocols.messages import Role
from servers.coordinator import Question
from servers.desk import CoordinatorConfig
from servers.process import ServerConfig
from simulation.analyst import Analyst
from simulation.runtimes import children
from simulation.runtimes.contract import Opened, Plan, Report, Runtime

Config = TypeVar("Config", ServerConfig, CoordinatorConfig)

LIFETIME = dt.timedelta(days=1)
START_SECONDS = 60.0
STOP_SECONDS = 5.0


class Processes(Runtime):
    name: ClassVar[str] = "processes"
    summary: ClassVar[str] = "one process a role, gRPC with mutual TLS on this machine"

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._authority = Authority.create("simulation", dt.datetime.now(dt.UTC), LIFETIME)
        self.children: dict[str, ForkServerProcess] = {}
        self._analyst: Analyst | None = None

    def start(self) -> None:
        plan = self.plan
        context = _fork_server()
        servers = [
            ServerConfig(
                i,
                self._credentials(Identity(Role.SERVER, i, i)),
                ledger=plan.ledger(f"server-{i}"),
                cap=plan.cap,
                seed=plan.seed,
            )
            for i in range(plan.servers)
        ]
        try:
            reports = [
                self._launch(context, f"server-{s.index}", children.serve, s) for s in servers
            ]
            targets = tuple(
                self.address_of(f"server-{s.index}", _port(report))
                for s, report in zip(servers, reports, strict=True)
            )
            coordinator = CoordinatorConfig(
                self._credentials(Identity(Role.COORDINATOR)),
                len(plan.holdings.ids),
                targets,
                ledger=plan.ledger("coordinator"),
                cap=plan.cap,
                seed=plan.seed,
            )
            report = self._launch(context, "coordinator", children.coordinate, coordinator)
            target = self.address_of("coordinator", _port(report))
            self._start_hosts(context, target)
        except BaseException:
            self.stop()
            raise
        analyst = self._credentials(Identity(Role.ANALYST))
        self._analyst = Analyst(target, analyst)

    def ask(self, question: Question, report: Report) -> Opened:
        if self._analyst is None:
            raise LocalError("the federation is not started")
        return self._analyst.ask(question, report)

    def stop(self) -> None:
        if self._analyst is not None:
            self._analyst.close()
        # Parties first, so that servers do not see their streams break.
        for process in reversed(self.children.values()):
            process.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for process in self.children.values():
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()
        self.children.clear()

    def address_of(self, name: str, port: int) -> str:
        """Where others find a station. A relay in between may answer another address."""
        return f"127.0.0.1:{port}"

    def _start_hosts(self, context: ForkServerContext, coordinator: str) -> None:
        for number, block in enumerate(self.plan.holdings.blocks(self.plan.hosts)):
            identity = Identity(Role.PARTY, int(block.ids[0]), int(block.ids[-1]))
            config = PartyConfig(self._credentials(identity), coordinator, block, self.plan.seed)
            process = context.Process(target=children.host, args=(config,), daemon=True)
            with _no_main_module():
                process.start()
            self.children[f"host-{number}"] = process

    def _launch(
        self,
        context: ForkServerContext,
        name: str,
        target: Callable[[Config, Connection], None],
        config: Config,
    ) -> Connection:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=target, args=(config, theirs), daemon=True)
        with _no_main_module():
            process.start()
        theirs.close()
        self.children[name] = process
        return ours

    def _credentials(self, identity: Identity) -> Credentials:
        return self._authority.issue(identity, dt.datetime.now(dt.UTC), LIFETIME)


def _fork_server() -> ForkServerContext:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(["simulation.runtimes.preload"])
    return context


@contextmanager
def _no_main_module() -> Iterator[None]:
    """Keeps the children from importing the caller's script, which would cost each of them its
    imports, and run it where it has no main guard."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _port(report: Connection) -> int:
    if not report.poll(START_SECONDS):
        raise RunFailed(f"a process did not start within {START_SECONDS:g} seconds")
    try:
        answer = report.recv()
    except EOFError:
        raise RunFailed("a process ended before it listened") from None
    if not isinstance(answer, int):
        raise LocalError(str(answer))
    return answer
