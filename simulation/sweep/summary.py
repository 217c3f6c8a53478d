"""The summary of a sweep: what its trials come to, as CSV and as LaTeX for a paper."""

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tallyroom.simulation.reports.latex import latex
from tallyroom.simulation.reports.tables import words_of
from tallyroom.simulation.sweep.columns import COLUMNS, MEASURED, SUMMARISED
from tallyroom.simulation.sweep.journal import Row

Cells = dict[str, object]


def summary_of(rows: Sequence[Row]) -> list[Cells]:
    """A row for each point of the grid: its options, how many trials have an answer, the mean of
    each column over these, and the standard deviation of the error from trial to trial."""
    found: dict[tuple[tuple[str, object], ...], list[Row]] = {}
    for row in rows:
        point = (
            ("statistic", row["statistic"]),
            *((name, value) for name, value in row.items() if name not in COLUMNS),
        )
        found.setdefault(tuple(point), []).append(row)
    return [dict(point) | _means(trials) for point, trials in found.items()]


def _means(trials: Sequence[Row]) -> Cells:
    answered = [row for row in trials if not row["failed"]]
    means: Cells = {"trials": len(answered)}
    for name in SUMMARISED:
        values = [float(row[name]) for row in answered if row.get(name) is not None]
        if values:
            means[name] = float(np.mean(values))
        if name == "rmse" and len(values) > 1:
            means["rmse_spread"] = float(np.std(values, ddof=1))
    return means


def write_summary(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Writes `summary.csv`, and `summary.tex` without the options that are the same everywhere."""
    summary = summary_of(rows)
    heads = list(dict.fromkeys(name for row in summary for name in row))
    measured = [name for name in heads if name in (*MEASURED, "trials", "rmse_spread")]
    heads = [name for name in heads if name not in measured] + measured
    table, paper = folder / "summary.csv", folder / "summary.tex"
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, heads, lineterminator="\n")
        writer.writeheader()
        writer.writerows(summary)
    told = [name for name in heads if name in measured or _varies(summary, name)] or heads
    cells = [[_cell(row.get(name)) for name in told] for row in summary]
    paper.write_text(latex([words_of(name) for name in told], cells), encoding="utf-8")
    return [table, paper]


def _varies(summary: Sequence[Mapping[str, object]], name: str) -> bool:
    return len({str(row.get(name)) for row in summary}) > 1


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else str(value)
    return "" if value is None else str(value)
