"""`tally serve`: serves the web page."""

import ipaddress
import re
import secrets
from pathlib import Path
from typing import Annotated

import typer

from tallyroom.protocols.errors import LocalError
from tallyroom.simulation.command.messages import warn
from tallyroom.simulation.command.run import check_writable
from tallyroom.simulation.web.federation import Deployed

commands = typer.Typer()
PACKAGES = ("starlette", "uvicorn")


@commands.command("serve")
def serve(
    folder: Annotated[
        Path, typer.Argument(help="Folder of runs: one subfolder each, as --out makes them.")
    ] = Path("runs"),
    host: Annotated[
        str, typer.Option(help="Address to listen on; by default only this machine can reach it.")
    ] = ("127.0.0.1"),
    port: Annotated[int, typer.Option(help="Port to listen on; 0 picks a free one.")] = 8642,
    coordinator: Annotated[
        str | None,
        typer.Option(help="host:port of a deployed federation to show; it is asked nothing."),
    ] = None,
    identity: Annotated[
        Path | None, typer.Option(help="Folder of the analyst's identity, for --coordinator.")
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="TALLY_PAGE_TOKEN",
            help="Secret that a browser must show; if left out, a new one each time.",
        ),
    ] = None,
) -> None:
    """Serve a web page of past and running runs. Its form starts simulations."""
    from importlib.util import find_spec

    if missing := [each for each in PACKAGES if find_spec(each) is None]:
        raise LocalError(f"the page needs {', '.join(missing)}: pip install 'tallyroom[web]'")
    if (coordinator is None) != (identity is None):
        raise LocalError("to show a deployed federation, give both --coordinator and --identity")
    if token is not None and re.fullmatch(r"[A-Za-z0-9_-]{16,200}", token) is None:
        raise LocalError("--token must have 16 to 200 letters, digits, - or _")
    if not 0 <= port < 65536:
        raise LocalError(f"--port must be from 0 to 65535, not {port}")

    check_writable(folder)
    _listen(folder, host, port, coordinator, identity, token or secrets.token_urlsafe(24))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listen(
    folder: Path,
    host: str,
    port: int,
    coordinator: str | None,
    identity: Path | None,
    token: str,
) -> None:
    import socket

    import uvicorn

    from tallyroom.simulation.web.app import Page

    local = _is_loopback(host)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)  # before the address is printed
    except OSError as error:
        listener.close()
        raise LocalError(f"cannot listen on {host}:{port}: {error.strerror}") from None
    port = listener.getsockname()[1]
    folder.mkdir(parents=True, exist_ok=True)
    deployed = None
    if coordinator is not None and identity is not None:
        deployed = Deployed(coordinator, identity)
    hosts = ["127.0.0.1", "localhost", "[::1]"] if local else ["*"]
    page = Page(folder.resolve(), token, hosts, local, deployed, f"tallyroom-{port}")
    if not local:
        warn("other machines can reach this page without encryption: put a TLS proxy in front")
    shown = f"[{host}]" if ":" in host else host
    print(f"open http://{shown}:{port}/?token={token}", flush=True)
    config = uvicorn.Config(
        page.app(),
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    try:
        uvicorn.Server(config).run(sockets=[listener])
    finally:
        listener.close()
        if deployed is not None:
            deployed.close()
