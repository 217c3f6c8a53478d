"""`tally health`: checks whether a process is serving."""

from pathlib import Path
from typing import Annotated

import typer

from tallyroom.simulation.health import check_health

commands = typer.Typer()


@commands.command()
def health(
    target: Annotated[str, typer.Argument(help="host:port")],
    identity: Annotated[
        Path | None, typer.Option(help="The identity to show; if left out, only TCP is checked.")
    ] = None,
    expect: Annotated[
        str | None, typer.Option(help="The member that must answer; by default the identity's own.")
    ] = None,
) -> None:
    """Check whether a process is serving: exit code 0 if it is, 3 if not."""

    check_health(target, identity, expect)
