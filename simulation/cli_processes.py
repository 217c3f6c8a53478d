"""The process commands: `tally coordinator`, `tally server`, `tally party`, `tally enrol`."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated

import typer

from protocols.errors import LocalError
from protocols.messages import Role
from protocols.privacy.mechanisms import parse_epsilon
from servers.identity_files import create_federation, read_identity
from servers.process import Ready
from simulation.terminal import err

processes = typer.Typer()

IdentityFolder = Annotated[Path, typer.Option("--identity", help="Folder that enrol made.")]
Listen = Annotated[str, typer.Option(help="host:port to listen on.")]
Store = Annotated[Path | None, typer.Option(help="Folder for the ledger; memory if left out.")]
Cap = Annotated[str | None, typer.Option(help="The most epsilon ever released; no cap.")]


@processes.command()
def server(
    identity: IdentityFolder,
    listen: Listen = "127.0.0.1:7101",
    store: Store = None,
    cap: Cap = None,
) -> None:
    """Run one server until it is stopped."""
    from servers.process import ServerConfig, run_server

    credentials = read_identity(identity, Role.SERVER)
    config = ServerConfig(
        credentials.identity.first,
        credentials,
        listen,
        _ledger(store),
        None if cap is None else parse_epsilon(cap),
    )
    _serve(run_server(config, _announce(credentials.identity.name)))


@processes.command()
def coordinator(
    identity: IdentityFolder,
    server: Annotated[list[str], typer.Option(help="host:port of each server, in order.")],
    parties: Annotated[int, typer.Option(help="How many parties the federation has.")],
    listen: Listen = "127.0.0.1:7100",
    store: Store = None,
    cap: Cap = None,
) -> None:
    """Run the coordinator until it is stopped."""
    from servers.desk import CoordinatorConfig, run_coordinator

    if parties < 1:
        raise LocalError("a federation needs at least one party")
    config = CoordinatorConfig(
        read_identity(identity, Role.COORDINATOR),
        parties,
        tuple(server),
        listen,
        _ledger(store),
        None if cap is None else parse_epsilon(cap),
    )
    _serve(run_coordinator(config, _announce("coordinator")))


@processes.command()
def party(
    identity: IdentityFolder,
    coordinator: Annotated[str, typer.Option(help="host:port of the coordinator.")],
    data: Annotated[str, typer.Option(help="What this party holds: a DATA SPEC.")],
) -> None:
    """Run one party until it is stopped. It only calls out: it needs no open port."""
    import numpy as np

    from parties.data import load
    from parties.process import PartyConfig, run_party
    from protocols.records import Holdings

    credentials = read_identity(identity, Role.PARTY)
    ids = np.array([credentials.identity.first], dtype=np.uint32)
    holdings = Holdings(ids, np.zeros(1, dtype=np.intp), load(data).columns)
    config = PartyConfig(credentials, coordinator, holdings)
    err.print(f"{credentials.identity.name} holds {holdings.rows} records", markup=False)
    _serve(run_party(config))


@processes.command()
def enrol(
    folder: Annotated[Path, typer.Argument(help="A new folder for the federation.")],
    servers: Annotated[int, typer.Option(help="How many servers.")] = 2,
    parties: Annotated[int, typer.Option(help="How many parties.")] = 5,
) -> None:
    """Make a federation: its authority, and an identity folder for each member."""
    for path in create_federation(folder, servers, parties):
        print(path)


def _ledger(store: Path | None) -> Path | None:
    if store is None:
        return None
    try:
        store.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LocalError(f"cannot write to {store}: {error.strerror}") from None
    return store / "ledger.sqlite"


def _announce(name: str) -> Ready:
    return lambda port: err.print(f"{name} listens on port {port}", markup=False)


def _serve(work: Coroutine[None, None, None]) -> None:
    try:
        asyncio.run(work)
    except OSError as error:
        raise LocalError(str(error)) from None
