"""`tally demo`, `tally bench` and `tally reproduce`.

Each imports what it needs on demand: figures need matplotlib, which is slow to load.
"""

from pathlib import Path
from typing import Annotated

import typer

from tallyroom.simulation.command.common import Json
from tallyroom.simulation.command.run import check_writable

commands = typer.Typer()


@commands.command()
def demo() -> None:
    """Run a guided tour on bundled data; a minute at most."""
    from tallyroom.simulation.demo import guided_run

    guided_run()


@commands.command()
def bench(
    name: Annotated[str, typer.Argument(help="The name of a benchmark, or all.")],
    out: Annotated[Path, typer.Option(help="Folder for the page of `all`.")] = Path("bench"),
    as_json: Json = False,
) -> None:
    """Measure performance, compared with peers and with the limits of the hardware."""
    from tallyroom.simulation.bench.command import run_benchmarks

    run_benchmarks(name, as_json, out)


@commands.command()
def reproduce(
    figures: Annotated[list[str], typer.Argument(help="Names from `tally list figures`, or all.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results. [default: reproduce/FIGURE]")
    ] = None,
    small: Annotated[
        bool | None,
        typer.Option(
            "--small/--full",
            help="small takes seconds and proves little; full has the paper's sizes. "
            "[default: small for all]",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per figure.")
    ] = False,
) -> None:
    """Reproduce figures of papers, with a verdict on each claim; `all` also writes a gallery."""
    from tallyroom.simulation.reproduce import command
    from tallyroom.simulation.reproduce.contract import Scale

    chosen = command.named(figures)
    for figure in chosen:
        check_writable(command.folder_of(figure, out))
    every = "all" in figures
    scale = Scale.SMALL if (every if small is None else small) else Scale.PAPER
    command.reproduce(chosen, out, scale, as_json, gallery=every)
