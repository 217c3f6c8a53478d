"""One run of a sweep, by the same words as on a command line, and the row that it gives."""

import math
from functools import cache
from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand
from typer.exceptions import TyperException

from tallyroom.protocols.errors import LocalError, TallyError
from tallyroom.protocols.statistics.estimates import Estimate, shape_of
from tallyroom.simulation.command.by_statistic import ChosenOptions, statistic_command
from tallyroom.simulation.command.common import RunOptions
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
    """What the words of a command line ask for. Raises `LocalError` where they are wrong."""
    command, read = _command(statistic)
    read.clear()
    try:
        command.main(words, prog_name=statistic, standalone_mode=False)
    except TyperException as error:
        raise LocalError(f"{statistic}: {error.format_message()}") from None
    if not read:  # --help, which says more than a sweep asks for
        raise LocalError(f"{statistic} cannot be asked by {' '.join(words)}")
    return read.pop()


def check(specification: Specification) -> None:
    """Raises `LocalError` for an option or a value that no run can have, before any is made.

    Every value is read once, not every combination; a combination that cannot be asked is told in
    its row.
    """
    seen: set[tuple[str, str]] = set()
    for statistic, point in specification.points:
        fresh = {(statistic, word) for word in [statistic, *words_of(point)]} - seen
        if fresh:
            understood(statistic, words_of(point))
            seen |= fresh


def work(run: GridRun) -> Row:
    """The row of a run. One that cannot be asked, or did not finish, has the reason in it."""
    from tallyroom.simulation.command.run import simulate

    row: Row = {"statistic": run.statistic, **_cells(run), "trial": run.trial}
    row["run_seed"] = run.seed
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
    """What a table has of a result. What there is none of, or is no number, is not there."""
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
        "server_cpu_seconds": result.server_cpu_seconds,
    }
    return {
        name: value for name, value in found.items() if value is not None and math.isfinite(value)
    }


def _number(estimate: Estimate | None) -> float | None:
    return None if estimate is None else float(shape_of(estimate).values()[0])
