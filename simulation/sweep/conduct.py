"""Conducts a sweep from its specification to its table: unfinished runs, over all cores."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tallyroom.protocols.errors import Interrupted, RunFailed
from tallyroom.simulation.result import version
from tallyroom.simulation.sweep.journal import Machines, Row, SweepJournal
from tallyroom.simulation.sweep.specification import GridRun, Specification
from tallyroom.simulation.sweep.summary import write_summary
from tallyroom.simulation.sweep.table import write_table
from tallyroom.simulation.sweep.work import check, work
from tallyroom.simulation.sweep.workers import Pool, Workers

Report = Callable[[int, int], None]


def _quiet(done: int, of: int) -> None:
    pass


@dataclass(frozen=True)
class Swept:
    """The rows in the order of the grid, how many existed before, and the files written."""

    rows: list[Row]
    kept: int
    files: list[Path]

    @property
    def failed(self) -> list[Row]:
        return [row for row in self.rows if row["failed"]]


def conduct(
    specification: Specification,
    folder: Path,
    workers: "int | Pool[GridRun, Row]",
    report: Report = _quiet,
) -> Swept:
    """Does the runs that the journal in `folder` lacks, then writes the table, its summary
    and the plot.

    `workers` is the number of processes on this machine, or a pool that does the runs
    (`on_cluster`). `report` is called with the number of finished runs and their total. Raises
    `LocalError` for a grid that cannot be asked, and `Interrupted` or `RunFailed`, which say how
    many runs are kept.
    """
    check(specification)
    runs = list(specification.runs())
    with SweepJournal(folder, version()) as journal:
        machines = Machines(folder)
        missing = [run for run in runs if run.key not in journal.rows]
        kept = len(runs) - len(missing)
        done = kept
        report(done, len(runs))
        if isinstance(workers, int):
            workers = Workers(work, min(workers, max(len(missing), 1)))
        try:
            for run, row in workers.done(missing):
                journal.add(run.key, machines.keyed(row))
                done += 1
                report(done, len(runs))
        except KeyboardInterrupt:
            raise Interrupted(_kept(done, len(runs))) from None
        except RunFailed as error:
            raise RunFailed(f"{error}; {_kept(done, len(runs))}") from None
        rows = [journal.rows[run.key] for run in runs]
    files = [write_table(rows, folder, specification.format), machines.path]
    files += write_summary(rows, folder)
    if specification.plot is not None:
        from tallyroom.simulation.sweep.drawing import draw

        if (plot := draw(rows, specification.plot, folder)) is not None:
            files.append(plot)
    return Swept(rows, kept, files)


def on_cluster(most: int | None = None) -> Pool[GridRun, Row]:
    """Does runs as tasks of a Ray cluster, `most` at a time; None means one per core."""
    from tallyroom.simulation.sweep.ray_workers import RayWorkers

    return RayWorkers(work, most)


def _kept(done: int, of: int) -> str:
    return f"{done} of {of} runs are kept; the same command continues with the others"
