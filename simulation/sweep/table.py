"""The tidy table of a sweep: one row per run, one column per option and per number."""

import csv
import os
from collections.abc import Sequence
from pathlib import Path

from tallyroom.protocols.errors import LocalError
from tallyroom.simulation.sweep.columns import COLUMNS, MEASURED
from tallyroom.simulation.sweep.journal import Row


def heads_of(rows: Sequence[Row]) -> list[str]:
    """Statistic, options in the order of the grid, trial and seed, then the measurements."""
    found = dict.fromkeys(name for row in rows for name in row)
    options = [name for name in found if name not in COLUMNS]
    return ["statistic", *options, "trial", "run_seed", *MEASURED, "machine", "failed"]


def check_format(format: str) -> None:
    """Raises `LocalError` if Parquet cannot be written, before any run is made."""
    if format == "parquet":
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError:
            raise LocalError("Parquet needs the package pyarrow: `pip install pyarrow`") from None


def write_table(rows: Sequence[Row], folder: Path, format: str) -> Path:
    """Writes `results.csv` or `results.parquet` in one step, so a reader sees a whole table."""
    path = folder / f"results.{format}"
    draft = path.with_suffix(f".{os.getpid()}.draft")
    heads = heads_of(rows)
    if format == "parquet":
        import pyarrow
        import pyarrow.parquet

        columns = {head: _alike([row.get(head) for row in rows]) for head in heads}
        pyarrow.parquet.write_table(pyarrow.table(columns), draft)
    else:
        with draft.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, heads, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    draft.replace(path)
    return path


def _alike(values: list[object]) -> list[object]:
    """Converts values to one type: text if any is text, else numbers; ε may be 1 and "inf"."""
    kinds = {type(value) for value in values if value is not None}
    if str in kinds and len(kinds) > 1:
        return [None if value is None else str(value) for value in values]
    if float in kinds:
        return [None if value is None else float(value) for value in values]  # type: ignore[arg-type]
    return values
