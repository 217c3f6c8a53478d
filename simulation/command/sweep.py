"""`tally sweep SPEC.toml`: a grid of runs over all cores, which goes on where it was killed."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.simulation.command.run import check_writable
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
        Path, typer.Argument(metavar="SPEC.toml", help="See simulation/examples.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results; sweep/SPEC if left out.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Runs at a time; one per core if left out.")
    ] = None,
    on: Annotated[
        str, typer.Option(help="cores of this machine, or ray: tasks of a cluster.")
    ] = "cores",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object and nothing else.")
    ] = False,
) -> None:
    """A grid of runs: resumable, in parallel, one tidy table."""

    wanted = read(specification)
    check_format(wanted.format)
    if on not in ("cores", "ray"):
        raise LocalError(f"--on is cores or ray, not {on[:30]!r}")
    count = len(os.sched_getaffinity(0)) if workers is None else workers
    if not 1 <= count <= MOST_WORKERS:
        raise LocalError(f"--workers is from 1 to {MOST_WORKERS}, not {count}")
    folder = out or Path("sweep") / specification.stem
    check_writable(folder)
    with _progress() as report:
        swept = conduct(wanted, folder, on_cluster(workers) if on == "ray" else count, report)
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
    print(f"{len(swept.rows)} runs, of which {swept.kept} were done before")
    reasons = dict.fromkeys(str(row["failed"]) for row in failed)
    if failed:
        print(f"{len(failed)} have no answer:")
        for reason in list(reasons)[:MOST_REASONS]:
            print(f"  {reason}")
        if len(reasons) > MOST_REASONS:
            print(f"  and {len(reasons) - MOST_REASONS} other reasons, in the table")
    for path in swept.files:
        print(f"written: {path}")


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """Runs done and the time left; silent where standard error is not a terminal."""

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
            if bar.tasks[0].total is None:  # what was there before says nothing about the speed
                bar.reset(task, total=of, completed=done)
            bar.update(task, completed=done)

        yield report
