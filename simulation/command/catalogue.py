"""What there is to choose from, in words."""

import ast
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fss import native
from parties.data import BUNDLED, load
from protocols.statistics import offered
from protocols.studies import studies
from simulation.reports.trust import promises
from simulation.runtimes import runtimes


def _statistics() -> dict[str, str]:
    return {name: kind.summary() for name, kind in offered().items()}


def _studies() -> dict[str, str]:
    return {name: kind.summary() for name, kind in studies().items()}


def _runtimes() -> dict[str, str]:
    return {name: kind.summary for name, kind in runtimes().items()}


def _networks() -> dict[str, str]:
    from simulation.networks.profile import SUMMARIES

    return {"none": "the network as it is", **SUMMARIES}


def _figures() -> dict[str, str]:
    from simulation.reproduce.registry import FIGURES  # draws in matplotlib, slow to import

    return {name: figure.claim for name, figure in FIGURES.items()}


def _benchmarks() -> dict[str, str]:
    from simulation.bench.command import BENCHMARKS

    return {name: summary_of_module(module) for name, module in BENCHMARKS.items()}


def summary_of_module(name: str) -> str:
    """The first line of its documentation, without running it."""
    spec = find_spec(name)
    source = "" if spec is None or spec.origin is None else Path(spec.origin).read_text("utf-8")
    return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]


def _data() -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = {}
    for name in BUNDLED:
        data = load(name)
        found[name] = {
            "summary": (BUNDLED[name].__doc__ or "").partition("\n")[0],
            "records": len(next(iter(data.columns.values()))),
            "roles": data.roles,
            "columns": {column: list(data.bounds[column]) for column in data.columns},
        }
    return found


def show_data(rows: Mapping[str, Any]) -> None:
    """Each set with its columns and their public bounds."""
    for name, row in rows.items():
        print(f"{name}: {row['summary']} {row['records']:,} records.")
        columns = row["columns"]
        assert isinstance(columns, dict)
        width = max(map(len, columns))
        for column, (lower, upper) in columns.items():
            print(f"  {column:<{width}}  {lower:g} to {upper:g}")
        print()
    print("a public file with its published schema: --data adult:FILE.csv")
    print("a file: --data FILE.csv, or 'FILE.csv?value=COLUMN&party=COLUMN'; also label=, score=,")
    print("x=, y=, target=, time=COLUMN; missing=drop or a number, sep=;, positive=NAME,")
    print("categories=A,B or @FILE, order=LOW,HIGH")


CATALOGUES: dict[str, Callable[[], Mapping[str, object]]] = {
    "aggregators": promises,
    "statistics": _statistics,
    "studies": _studies,
    "runtimes": _runtimes,
    "networks": _networks,
    "figures": _figures,
    "benchmarks": _benchmarks,
    "data": _data,
}


def describe_native() -> str:
    return native.implementation()
