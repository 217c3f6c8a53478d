"""Options of the process commands, and the checks that they have in common."""

import asyncio
import datetime as dt
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated

import typer

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.identity.certificates import Credentials, validity_of
from tallyroom.protocols.privacy.ledger import Cap as Limit
from tallyroom.protocols.privacy.ledger import Composition, parse_cap
from tallyroom.protocols.wire.messages import Role
from tallyroom.protos.identity_files import read_identity
from tallyroom.servers.metrics import parse_address
from tallyroom.simulation.command.messages import say
from tallyroom.storage.store import keep_private

IdentityFolder = Annotated[
    Path, typer.Option("--identity", help="Folder of the identity that `tally enrol` made.")
]
Lifetime = Annotated[float, typer.Option(help="How many days party certificates are valid.")]
Listen = Annotated[str, typer.Option(help="host:port to listen on.")]
Store = Annotated[Path | None, typer.Option(help="Folder for the ledger and received messages.")]
Cap = Annotated[
    str | None,
    typer.Option(
        envvar="TALLY_CAP",
        help="The most that is ever released: epsilon; `3, delta = 1e-6`, added up in rho; or "
        "`rho 0.1`.",
    ),
]
CapDelta = Annotated[
    float, typer.Option(envvar="TALLY_CAP_DELTA", help="The most delta that is ever released.")
]
Composes = Annotated[
    Composition,
    typer.Option(
        "--composition",
        help="How releases add up: sum; or tight, if no epsilon depends on an earlier answer.",
    ),
]
Insecure = Annotated[
    bool,
    typer.Option("--insecure", envvar="TALLY_INSECURE", help="For trials: run without safeguards."),
]
LogFormat = Annotated[str, typer.Option(envvar="TALLY_LOG_FORMAT", help="text or json.")]
LogLevel = Annotated[
    str, typer.Option(envvar="TALLY_LOG_LEVEL", help="debug, info, warning or error.")
]
MetricsAt = Annotated[
    str | None, typer.Option("--metrics", help="host:port for Prometheus; if left out, none.")
]


def limit_of(cap: str | None) -> Limit:

    return parse_cap(cap) if cap else None


def days_of(lifetime: float) -> dt.timedelta:
    if not 0 < lifetime <= 365:
        raise LocalError("party certificates must be valid for more than 0 and at most 365 days")
    return dt.timedelta(days=lifetime)


def member_of(folder: Path, role: Role) -> Credentials:
    """Raises `LocalError` on an identity whose certificate has expired."""

    credentials = read_identity(folder, role)
    if has_expired(folder, role):
        raise LocalError(
            f"the certificate in {folder} has expired: a party enrols again with a new token, in "
            "the same folder, where its ledger is; for other members use `tally enrol renew`"
        )
    return credentials


def has_expired(folder: Path, role: Role) -> bool:
    """Raises `LocalError` unless the folder holds an identity of that role."""
    return validity_of(read_identity(folder, role).certificate).ends < dt.datetime.now(dt.UTC)


def check_listens(**addresses: str | None) -> None:
    """Raises `LocalError`, which names the option, for an address that nobody can listen on."""
    for option, address in addresses.items():
        if address:
            _check_address(option, address, least_port=0)


def check_calls(**addresses: str | None) -> None:
    """The same for addresses that are called: they need a port."""
    for option, address in addresses.items():
        if address:
            _check_address(option, address, least_port=1)


def _check_address(option: str, address: str, least_port: int) -> None:
    try:
        _, port = parse_address(address)
    except LocalError as error:
        raise LocalError(f"--{option}: {error}") from None
    if port < least_port:
        raise LocalError(f"--{option}: {address!r} has no port that can be called")


def check_safe(role: str, store: Path | None, cap: Limit, insecure: bool) -> None:
    """Raises `LocalError` for a process that would release without limit or forget its releases."""
    missing = [name for name, given in (("--cap", cap), ("--store", store)) if given is None]
    if missing and not insecure:
        raise LocalError(
            f"a {role} without {' and '.join(missing)} does not limit what it releases across "
            "restarts: give both, or --insecure for a trial without real data"
        )


def announce(name: str) -> Callable[[int], None]:
    return lambda port: say(f"{name} listens on port {port}")


def serve_until_stopped(work: Coroutine[None, None, None]) -> None:

    keep_private()
    try:
        asyncio.run(work)
    except OSError as error:
        raise LocalError(str(error)) from None
