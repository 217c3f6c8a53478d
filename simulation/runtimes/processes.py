"""`processes`: every role is a process of its own, over gRPC with mutual TLS on the loopback."""

import datetime as dt
import multiprocessing as mp
import os
import signal
import sys
import time
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import ClassVar, TypeVar

from tallyroom.parties.peer_config import PeerConfig
from tallyroom.parties.process import PartyConfig
from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.identity.certificates import Authority, Credentials, Identity
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.wire.messages import Role
from tallyroom.servers.coordinator_service import CoordinatorConfig
from tallyroom.servers.process import ServerConfig
from tallyroom.simulation.analyst import Analyst
from tallyroom.simulation.misbehaviour import HONEST
from tallyroom.simulation.networks.emulation import Emulation, LineAccess, NoEmulation
from tallyroom.simulation.networks.namespaces import Namespaces
from tallyroom.simulation.networks.network import Network
from tallyroom.simulation.networks.relay import Relays
from tallyroom.simulation.runtimes import children
from tallyroom.simulation.runtimes.contract import Layout, Opened, Report, Runtime

Config = TypeVar("Config", ServerConfig, CoordinatorConfig)

LIFETIME = dt.timedelta(days=1)
START_SECONDS = 60.0
STOP_SECONDS = 5.0


class Processes(Runtime):
    name: ClassVar[str] = "processes"
    summary: ClassVar[str] = "one process a role, gRPC with mutual TLS on this machine"
    networks: ClassVar[bool] = True

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self._authority = Authority.create("simulation", dt.datetime.now(dt.UTC), LIFETIME)
        self.children: dict[str, ForkServerProcess] = {}
        self._analyst: Analyst | None = None
        self._context = fork_server()
        self._blocks = list(layout.holdings.blocks(layout.hosts))
        self._listen: dict[str, str] = {}
        self._targets: list[str] = []
        self._coordinator = ""
        self._network: Emulation = NoEmulation()
        self._outlets: dict[str, LineAccess] = {}

    def role_processes(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for name, process in self.children.items():
            if process.pid is not None:
                role = name.partition("-")[0].replace("host", "party")
                found.setdefault(role, []).append(process.pid)
        return found

    def start(self) -> None:
        if self.layout.network is not None:
            self._network = emulated(self.layout.network)
        try:
            self._lay_lines()
            targets = tuple(self._start_server(i) for i in range(self.layout.servers))
            self._coordinator = self._start_coordinator(targets)
            for number in range(self.layout.hosts):
                self._start_host(number)
        except BaseException:
            self.stop()
            raise
        self._analyst = self.another_analyst()

    def another_analyst(self) -> Analyst:
        """One with a connection of its own."""
        analyst = self._credentials(Identity(Role.ANALYST))
        port = int(self._listen["coordinator"].rpartition(":")[2])
        return Analyst(self._network.from_here("coordinator", port), analyst)

    def _lay_lines(self) -> None:
        for index in range(self.layout.servers):
            name = Role.SERVER.named(index)
            self._outlets[name] = self._network.line(name, Role.SERVER)
        self._outlets["coordinator"] = self._network.line("coordinator", Role.COORDINATOR)
        for number, block in enumerate(self._blocks):
            name = f"host-{number}"
            self._outlets[name] = self._network.line(name, Role.PARTY, len(block.ids))

    def restart(self, name: str) -> None:
        """Starts a process again that died, where it was and with what it had stored."""
        self.children.pop(name).join()
        role, _, number = name.partition("-")
        match role:
            case "server":
                self._start_server(int(number))
            case "coordinator":
                self._start_coordinator(tuple(self._targets))
            case _:
                self._start_host(int(number))

    def _start_server(self, index: int) -> str:
        name = Role.SERVER.named(index)
        config = ServerConfig(
            index,
            self._credentials(Identity(Role.SERVER, index, index)),
            self._listens_at(name),
            self.layout.store_of(name),
            self.layout.cap,
            self.layout.seed,
            cap_delta=self.layout.cap_delta,
        )
        return self._launch(name, children.serve, config)

    def _start_coordinator(self, servers: tuple[str, ...]) -> str:
        self._targets = list(servers)
        config = CoordinatorConfig(
            self._credentials(Identity(Role.COORDINATOR)),
            len(self.layout.holdings.ids),
            servers,
            self._listens_at("coordinator"),
            self.layout.store_of("coordinator"),
            self.layout.cap,
            self.layout.seed,
            cap_delta=self.layout.cap_delta,
        )
        return self._launch("coordinator", children.coordinate, config)

    def ask(self, question: Question, report: Report) -> Opened:
        if self._analyst is None:
            raise LocalError("the federation is not started")
        return self._analyst.ask(question, report)

    def present(self) -> int:
        """How many parties have joined."""
        return 0 if self._analyst is None else self._analyst.describe(START_SECONDS).present

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
        self._network.close()

    def listens(self, name: str) -> str:
        """Where a station itself listens."""
        return self._listen[name]

    def address_of(self, name: str, port: int) -> str:
        """Where others find a station."""
        return f"{self._network.address(name)}:{port}"

    def _listens_at(self, name: str) -> str:
        """Where it did before; else at any port."""
        return self._listen.get(name, f"{self._network.address(name)}:0")

    def host_program(self) -> Callable[[PartyConfig], None]:
        """What a party host runs."""
        if self.layout.misbehaviour == HONEST:
            return children.host
        return partial(children.scripted_host, self.layout.misbehaviour)

    def _start_host(self, number: int) -> None:
        name = f"host-{number}"
        block = self._blocks[number]
        identity = Identity(Role.PARTY, int(block.ids[0]), int(block.ids[-1]))
        store = self.layout.store_of(name)
        listen = self._listens_at(name) if self.layout.peer == "direct" else ""
        config = PartyConfig(
            self._credentials(identity),
            self._coordinator,
            block,
            self.layout.seed,
            store,
            PeerConfig(self.layout.peer, listen),
            self.layout.policy,
        )
        arguments = (self._outlets[name], self.host_program(), config)
        process = self._context.Process(target=children.behind, args=arguments, daemon=True)
        with no_main_module(), _deaf_to_the_keyboard():
            process.start()
        self.children[name] = process

    def _launch(
        self, name: str, target: Callable[[Config, Connection], None], config: Config
    ) -> str:
        """Starts a process that listens; returns where."""
        ours, theirs = self._context.Pipe(duplex=False)
        arguments = (self._outlets[name], target, config, theirs)
        process = self._context.Process(target=children.behind, args=arguments, daemon=True)
        with no_main_module(), _deaf_to_the_keyboard():
            process.start()
        theirs.close()
        self.children[name] = process
        port = _port(ours)
        self._listen[name] = f"{self._network.address(name)}:{port}"
        self._network.listens(name, port)
        return self.address_of(name, port)

    def _credentials(self, identity: Identity) -> Credentials:
        return self._authority.issue(identity, dt.datetime.now(dt.UTC), LIFETIME)


def fork_server() -> ForkServerContext:
    """The context in which processes start, with what all of them import loaded once."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(["tallyroom.simulation.runtimes.preload"])
    return context


def emulated(network: Network) -> Emulation:
    """Raises `LocalError` where that cannot be done here."""
    return Namespaces(network) if network.by == "namespaces" else Relays(network)


@contextmanager
def _deaf_to_the_keyboard() -> Iterator[None]:
    """A terminal sends its interrupt to all processes: those started here leave it to the command,
    which ends them."""
    resource_tracker.ensure_running()  # which would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def no_main_module() -> Iterator[None]:
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
