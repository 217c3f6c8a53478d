"""Runs benchmarks by name and prints their rows; of all, a page of ratios as well."""

import importlib
import json
import os
import platform
from pathlib import Path

from tallyroom.fss import native
from tallyroom.protocols.errors import TallyError
from tallyroom.protocols.names import look_up
from tallyroom.simulation.bench.ratios import compared, write_page
from tallyroom.simulation.bench.row import Row
from tallyroom.simulation.reports.terminal import out

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
        "peers",
        "processes",
        "scale",
    )
}


def run_benchmarks(name: str, as_json: bool, folder: Path = Path("bench")) -> None:
    """Of `all`, one that fails does not keep the others from the page in `folder`."""
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
            print(json.dumps(document))
        else:
            _show(each, rows)
    if name == "all":
        files = write_page(compared(found), machine(), failed, folder)
        if not as_json:
            for reason in failed:
                out.print(reason)
            for path in files:
                out.print(f"written: {path}")


def machine() -> dict[str, object]:
    return {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "native": native.implementation(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "load": os.getloadavg()[0],
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
