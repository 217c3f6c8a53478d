"""`tally list`: everything that can be chosen, with a line on each."""

import ast
import json
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from tallyroom.fss import native
from tallyroom.parties.data import BUNDLED, load
from tallyroom.protocols.privacy.noise_law import noise_laws
from tallyroom.protocols.registry import look_up
from tallyroom.protocols.statistics import offered
from tallyroom.protocols.statistics.option import TOPICS
from tallyroom.protocols.studies import studies
from tallyroom.simulation.bench.command import BENCHMARKS
from tallyroom.simulation.command.common import Json
from tallyroom.simulation.networks.profile import SUMMARIES
from tallyroom.simulation.reports.terminal import err
from tallyroom.simulation.reports.trust import promises, show_promises
from tallyroom.simulation.runtimes import runtimes


def _statistics() -> dict[str, str]:
    return {name: kind.summary() for name, kind in offered().items()}


def _studies() -> dict[str, str]:
    return {name: kind.summary() for name, kind in studies().items()}


def _runtimes() -> dict[str, str]:
    return {name: kind.summary for name, kind in runtimes().items()}


def _noise_laws() -> dict[str, str]:
    return {name: (kind.__doc__ or "").partition("\n")[0] for name, kind in noise_laws().items()}


def _networks() -> dict[str, str]:
    return {"none": "the network as it is", **SUMMARIES}


def _figures() -> dict[str, str]:
    from tallyroom.simulation.reproduce.registry import (
        loadable,  # imports matplotlib, which is slow to load
    )

    figures, broken = loadable()
    for why in broken:
        err.print(f"left out: {why}", markup=False)
    return {figure.name: figure.claim for figure in figures}


def _benchmarks() -> dict[str, str]:
    return {name: summary_of_module(module) for name, module in BENCHMARKS.items()}


def summary_of_module(name: str) -> str:
    """Reads the first line of a module's docstring without importing the module."""
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
    """Lists each data set with its columns and their public bounds."""
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
    print("x=, y=, target=, time=, event=, group=COLUMN; missing=drop or a number, sep=;,")
    print("positive=NAME, categories=A,B or @FILE, order=LOW,HIGH")


def show_by_topic() -> None:
    """Lists statistics and studies by what people look for."""
    found = {**offered(), **studies()}
    width = max(map(len, found))
    for topic in TOPICS:
        if told := {name: kind for name, kind in found.items() if kind.topic == topic}:
            print(topic)
            for name, kind in told.items():
                print(f"  {name:<{width}}  {kind.summary()}")
            print()
    print("`tally run NAME --help` has the options of one. Those that ask several questions are")
    print("studies: `tally list studies`.")


def _lists() -> dict[str, str]:
    return {
        "aggregators": "who must be trusted, and what each aggregator costs",
        "statistics": "what `tally run` can ask",
        "studies": "several questions in one, also asked with `tally run`",
        "noise-laws": "laws of noise that --noise-law takes",
        "data": "bundled data sets, and how to name your own",
        "runtimes": "where parties and servers run",
        "networks": "networks that --network emulates",
        "figures": "figures of papers for `tally reproduce`",
        "benchmarks": "measurements for `tally bench`",
    }


CATALOGUES: dict[str, Callable[[], Mapping[str, object]]] = {
    "lists": _lists,
    "aggregators": promises,
    "statistics": _statistics,
    "studies": _studies,
    "noise-laws": _noise_laws,
    "runtimes": _runtimes,
    "networks": _networks,
    "figures": _figures,
    "benchmarks": _benchmarks,
    "data": _data,
}


def describe_native() -> str:
    return native.implementation()


commands = typer.Typer()


@commands.command("list")
def list_things(
    what: Annotated[
        str,
        typer.Argument(
            help="aggregators, statistics, studies, noise-laws, data, runtimes, networks, figures, "
            "benchmarks."
        ),
    ] = "lists",
    as_json: Json = False,
) -> None:
    """List what can be chosen: aggregators, statistics, data and so on."""
    rows = look_up("list", what, CATALOGUES)()
    if as_json:
        print(json.dumps({"schema": 1, what: rows}))
        return
    if what == "aggregators":
        show_promises(promises())
    elif what == "data":
        show_data(rows)
    elif what == "statistics":
        show_by_topic()
    else:
        width = max(len(name) for name in rows)
        for name, summary in rows.items():
            print(f"{name:<{width}}  {summary}")
    print(f"\nnative loops: {describe_native()}")
