"""`tally compare`: one question put to several aggregators, in one table."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tallyroom.simulation.command.messages import warn
from tallyroom.simulation.compared_programs import ComparedProgram
from tallyroom.simulation.comparison import HEADS, LEGEND, TIME_HEADS, TIME_LEGEND, compare
from tallyroom.simulation.reports.terminal import show_table
from tallyroom.simulation.result import Result


def compare_aggregators(
    statistic: str,
    specs: list[str] | None,
    answer: Callable[[str, int], Result],
    out: Path | None,
    as_json: bool,
    repeat: int = 1,
    beside: Sequence[ComparedProgram] = (),
) -> None:
    """Prints one row per aggregator, and the reason for those that could not answer."""
    comparison = replace(compare(statistic, specs, answer, repeat), programs=tuple(beside))
    for note in comparison.notes():
        warn(note)
    written = comparison.write(out) if out is not None else []
    if as_json:
        print(json.dumps(comparison.as_json(), allow_nan=False))
        return
    show_table(HEADS, [row.cells() for row in comparison.everything])
    print(f"\n{LEGEND}\n")
    show_table(TIME_HEADS, [row.time_cells() for row in comparison.rows])
    print(f"\n{TIME_LEGEND}\n")
    for row in comparison.everything:
        print(f"{row.aggregator}: {row.behaviour}")
    for spec, reason in comparison.unable:
        print(f"{spec} could not answer: {reason}")
    for path in written:
        print(f"written: {path}")
