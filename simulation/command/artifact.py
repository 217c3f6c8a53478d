"""`tally artifact`: a folder of results, or a specification that is run first, as a bundle."""

import math
from pathlib import Path
from typing import Annotated

import typer

from tallyroom.protocols.errors import LocalError
from tallyroom.simulation.artifact.bundle import BAND, bundle
from tallyroom.simulation.command.run import check_writable
from tallyroom.simulation.command.sweep import sweep_command

commands = typer.Typer()


@commands.command("artifact")
def artifact_command(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER | SPEC.toml",
            help="What --out of `tally run`, `sweep` or `meter` wrote; or a sweep to run first.",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder of the bundle; artifact/NAME if left out.")
    ] = None,
    digests: Annotated[
        bool, typer.Option("--digests", help="Leave data files out; their digests are enough.")
    ] = False,
    band: Annotated[
        float, typer.Option(help="By what factor times may differ when it is repeated.")
    ] = BAND,
) -> None:
    """Everything that repeats a result, bundled."""
    if not (math.isfinite(band) and band >= 1):
        raise LocalError(f"--band is a factor of at least 1, not {band:g}")
    folder = out or Path("artifact") / source.stem
    check_writable(folder)
    if folder.exists():
        raise LocalError(f"{folder} is there already: choose another --out")
    if source.is_file():
        results = Path("sweep") / source.stem
        sweep_command(source, results)
        source = results
    elif not source.is_dir():
        raise LocalError(f"{source} is neither a folder of results nor a SPEC.toml")
    for path in bundle(source, folder, digests, band):
        print(f"written: {path}")
