"""One run of a sweep, with the arguments of a command line, and its row of the table."""

import math
from functools import cache
from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand
from typer.exceptions import TyperException

from tallyroom.protocols.errors import LocalError, TallyError
from tallyroom.protocols.statistics.estimates import Estimate, shape_of
from tallyroom.simulation.command.by_statistic import ChosenOptions, statistic_command
from tallyroom.simulation.command.common import RunOptions
from tallyroom.simulation.machine import machine
from tallyroom.simulation.sweep.journal import Row
from tallyroom.simulation.sweep.specification import GridRun, Specification, words_of

if TYPE_CHECKING:
    from tallyroom.simulation.result import Result


@cache
def _command(statistic: str) -> tuple[TyperCommand, list[tuple[ChosenOptions, RunOptions]]]:
    read: list[tuple[ChosenOptions, RunOptions]] = []

    def keep(chosen: ChosenOptions, options: RunOptions) -> None:
        read.append((chosen, options))

    return statistic_command(statistic, RunOptions, keep), read


def understood(statistic: str, words: list[str]) -> tuple[ChosenOptions, RunOptions]:
    """Parses command-line arguments. Raises `LocalError` if they are wrong."""
    command, read = _command(statistic)
    read.clear()
    try:
        command.main(words, prog_name=statistic, standalone_mode=False)
    except TyperException as error:
        raise LocalError(f"{statistic}: {error.format_message()}") from None
    if not read:  # --help, which does not run the command
        raise LocalError(f"{statistic} cannot be asked by {' '.join(words)}")
    return read.pop()


def check(specification: Specification) -> None:
    """Raises `LocalError` for an option or a value that no run can have, before any run is made.

    Every value is read once, not every combination; a combination that cannot be asked is reported
    in its row.
    """
    seen: set[tuple[str, str]] = set()
    for statistic, point in specification.points:
        fresh = {(statistic, word) for word in [statistic, *words_of(point)]} - seen
        if fresh:
            understood(statistic, words_of(point))
            seen |= fresh


def work(run: GridRun) -> Row:
    """Returns the row of a run, with the machine that it was made on. If it cannot be asked or did
    not finish, the row has the reason."""
    from tallyroom.simulation.command.run import simulate

    row: Row = {"statistic": run.statistic, **_cells(run), "trial": run.trial}
    row |= {"run_seed": run.seed, "machine": machine()}
    try:
        result = simulate(*understood(run.statistic, run.words))
    except TallyError as error:
        return row | {"failed": str(error)}
    return row | measured(result) | {"failed": ""}


def _cells(run: GridRun) -> Row:
    return {
        name: " ".join(map(str, value)) if isinstance(value, tuple) else value
        for name, value in run.point.items()
    }


def measured(result: "Result") -> Row:
    """The columns of a result. Empty fields, and those that are not numbers, are omitted."""
    error, noise = result.error or {}, result.noise_error or {}
    party = result.bill.party_bytes()
    scalar = result.shape.scalar
    found: dict[str, Any] = {
        "estimate": float(result.shape.values()[0]) if scalar else None,
        "truth": _number(result.truth) if scalar else None,
        "rmse": error.get("rmse"),
        "max_error": error.get("max"),
        "noise_rmse": noise.get("rmse"),
        "expected_rmse": math.sqrt(float((result.deviations**2).mean())),
        "party_bytes": float(party.mean()),
        "party_bytes_max": int(party.max()),
        "total_bytes": result.bill.total.bytes,
        "messages": result.bill.total.messages,
        "rounds": result.bill.rounds,
        "delta_spent": result.privacy.delta,
        "seconds": sum(result.seconds.values()),
        **result.times.parts,
        **result.times.of_roles,
        "server_cpu_seconds": result.server_cpu_seconds,
        "cpu_seconds": sum(use["cpu_seconds"] for use in result.roles.values()),
        "peak_bytes": max((use["peak_bytes"] for use in result.roles.values()), default=None),
    }
    return {
        name: value for name, value in found.items() if value is not None and math.isfinite(value)
    }


def _number(estimate: Estimate | None) -> float | None:
    return None if estimate is None else float(shape_of(estimate).values()[0])
