"""Runs benchmarks by name and prints their rows; `all` also writes a page of ratios."""

import importlib
import json
import os
from pathlib import Path

from tallyroom.fss import native
from tallyroom.protocols.errors import TallyError
from tallyroom.protocols.registry import look_up
from tallyroom.simulation.bench.peers.adapters import BY_KEY
from tallyroom.simulation.bench.ratios import compared, missing, write_page
from tallyroom.simulation.bench.row import Row
from tallyroom.simulation.machine import machine as measured_with
from tallyroom.simulation.reports.terminal import out

PEERS = "peers"
PEER_KEYS = (*BY_KEY, "dp-accounting", "fedcurve")
BENCHMARKS = {
    name: f"tallyroom.simulation.bench.{name}"
    for name in (
        "fss",
        "garble",
        "aggregate",
        "smooth",
        "ecdf",
        "local",
        "diagnostics",
        "together",
        "hostile",
        "peers",
        "processes",
        "reading",
        "waiting",
        "scale",
        "metering",
        "noise",
        "load",
    )
}


def run_benchmarks(name: str, as_json: bool, folder: Path = Path("bench")) -> None:
    """With `all`, a benchmark that fails does not keep the others off the page in `folder`."""
    if name != "all":
        look_up("benchmark", name, BENCHMARKS)
    found: list[tuple[str, Row]] = []
    failed: list[str] = []
    for each in BENCHMARKS if name == "all" else [name]:
        try:
            rows: list[Row] = importlib.import_module(BENCHMARKS[each]).rows()
        except (TallyError, OSError, ImportError) as error:
            if name != "all":
                raise
            failed.append(f"the benchmark {each} failed: {error}")
            continue
        found += [(each, row) for row in rows]
        if as_json:
            document = {
                "schema": 1,
                "bench": each,
                "machine": machine(),
                "rows": [row.as_json() for row in rows],
            }
            if each == PEERS:
                document["missing"] = [
                    {"peer": peer, "reason": reason} for peer, reason in _not_installed(rows)
                ]
            print(json.dumps(document))
        else:
            _show(each, rows)
            if each == PEERS:
                for peer, reason in _not_installed(rows):
                    out.print(f"  not compared with {peer}: {reason}", markup=False)
    if name == "all":
        files = write_page(compared(found), machine(), failed, folder)
        if not as_json:
            for reason in failed:
                out.print(reason)
            for path in files:
                out.print(f"written: {path}")


def _not_installed(rows: list[Row]) -> list[tuple[str, str]]:
    """Peers that nothing was compared with; benchmarks of their own have the others."""
    return missing(compared((PEERS, row) for row in rows), PEER_KEYS)


def machine() -> dict[str, object]:
    load = os.getloadavg()[0]
    return {**measured_with(), "native": native.implementation(), "load": load}


def _show(name: str, rows: list[Row]) -> None:
    out.print(f"[bold]{name}[/bold]")
    for row in rows:
        ratios = "  ".join(f"{ratio:.3g} × {peer}" for peer, ratio in row.ratios.items())
        details = "  ".join(f"{key} {value:.4g}" for key, value in row.details.items())
        out.print(f"  {row.name:<26}{row.rate:>14,.4g} {row.unit:<14}{ratios}  {details}")
