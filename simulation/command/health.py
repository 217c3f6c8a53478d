"""`tally health`: whether a process serves."""

from pathlib import Path
from typing import Annotated

import typer

from tallyroom.simulation.health import check_health

commands = typer.Typer()


@commands.command()
def health(
    target: Annotated[str, typer.Argument(help="host:port")],
    identity: Annotated[
        Path | None, typer.Option(help="Whose certificate to show; TCP alone if left out.")
    ] = None,
    expect: Annotated[
        str | None, typer.Option(help="Who must answer; the identity itself if left out.")
    ] = None,
) -> None:
    """Ask a process whether it serves: exit code 0 if so, 3 if not."""

    check_health(target, identity, expect)
