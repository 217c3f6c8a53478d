"""`tally sweep SPEC.toml`: a grid of runs over all cores, which resumes where it was killed."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.simulation.artifact.bundle import SPEC
from tallyroom.simulation.command.run import check_writable
from tallyroom.simulation.reports.tables import counted
from tallyroom.simulation.reports.terminal import err
from tallyroom.simulation.sweep.conduct import conduct, on_cluster
from tallyroom.simulation.sweep.specification import read
from tallyroom.simulation.sweep.table import check_format

commands = typer.Typer()
MOST_WORKERS = 1024
MOST_REASONS = 5


@commands.command("sweep")
def sweep_command(
    specification: Annotated[
        Path, typer.Argument(metavar="SPEC.toml", help="Specification; see simulation/examples.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results. [default: sweep/SPEC]")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Runs at a time. [default: one per core]")
    ] = None,
    on: Annotated[
        str, typer.Option(help="cores for this machine, or ray for a cluster.")
    ] = "cores",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object and nothing else.")
    ] = False,
) -> None:
    """Run a grid of simulations in parallel, resumably, into one tidy table."""

    wanted = read(specification)
    check_format(wanted.format)
    if on not in ("cores", "ray"):
        raise LocalError(f"--on must be cores or ray, not {on[:30]!r}")
    count = len(os.sched_getaffinity(0)) if workers is None else workers
    if not 1 <= count <= MOST_WORKERS:
        raise LocalError(f"--workers must be from 1 to {MOST_WORKERS}, not {count}")
    folder = out or Path("sweep") / specification.stem
    check_writable(folder)
    with _progress() as report:
        swept = conduct(wanted, folder, on_cluster(workers) if on == "ray" else count, report)
    (folder / SPEC).write_bytes(specification.read_bytes())
    failed = swept.failed
    if len(failed) == len(swept.rows):
        raise RunFailed(f"no run of the sweep has an answer: {failed[0]['failed']}")
    if as_json:
        document = {
            "schema": 1,
            "runs": len(swept.rows),
            "kept": swept.kept,
            "failed": len(failed),
            "files": [str(path) for path in swept.files],
        }
        print(json.dumps(document))
        return
    print(f"{counted(len(swept.rows), 'run', 'runs')}, of which {swept.kept} done before")
    reasons = dict.fromkeys(str(row["failed"]) for row in failed)
    if failed:
        print(f"{counted(len(failed), 'run has', 'runs have')} no answer:")
        for reason in list(reasons)[:MOST_REASONS]:
            print(f"  {reason}")
        if len(reasons) > MOST_REASONS:
            others = counted(len(reasons) - MOST_REASONS, "other reason", "other reasons")
            print(f"  and {others}, in the table")
    for path in swept.files:
        print(f"written: {path}")


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """Shows runs done and time left; silent if standard error is not a terminal."""

    if not err.is_terminal:
        yield lambda done, of: None
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TextColumn("runs,"),
        TimeElapsedColumn(),
        TextColumn("so far,"),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task("", total=None)

        def report(done: int, of: int) -> None:
            if bar.tasks[0].total is None:  # runs kept from before say nothing about the speed
                bar.reset(task, total=of, completed=done)
            bar.update(task, completed=done)

        yield report
