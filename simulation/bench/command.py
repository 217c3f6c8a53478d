"""Runs benchmarks by name and prints their rows."""

import importlib
import json
import os
import platform

from fss import native
from protocols.names import look_up
from simulation.bench.row import Row
from simulation.reports.terminal import out

BENCHMARKS = {
    name: f"simulation.bench.{name}"
    for name in (
        "fss",
        "garble",
        "aggregate",
        "smooth",
        "ecdf",
        "local",
        "diagnostics",
        "together",
        "processes",
        "scale",
    )
}


def run_benchmarks(name: str, as_json: bool) -> None:
    names = list(BENCHMARKS) if name == "all" else [name]
    for each in names:
        look_up("benchmark", each, BENCHMARKS)
    for each in names:
        rows: list[Row] = importlib.import_module(BENCHMARKS[each]).rows()
        if as_json:
            document = {
                "schema": 1,
                "bench": each,
                "machine": machine(),
                "rows": [row.as_json() for row in rows],
            }
            print(json.dumps(document))
        else:
            _show(each, rows)


def machine() -> dict[str, object]:
    return {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "native": native.implementation(),
        "python": platform.python_version(),
    }


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo") as info:
            for line in info:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor()


def _show(name: str, rows: list[Row]) -> None:
    out.print(f"[bold]{name}[/bold]")
    for row in rows:
        ratios = "  ".join(f"{ratio:.3g} × {peer}" for peer, ratio in row.ratios.items())
        details = "  ".join(f"{key} {value:.4g}" for key, value in row.details.items())
        out.print(f"  {row.name:<26}{row.rate:>14,.4g} {row.unit:<14}{ratios}  {details}")
