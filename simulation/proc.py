"""CPU and memory of processes, as the operating system tells them."""

import contextlib
import os
import time
from pathlib import Path

from tallyroom.simulation.runtimes import Runtime
from tallyroom.simulation.times import Roles


def cpu_seconds(pid: int | None) -> float:
    """CPU time to hundredths of a second, including threads that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_seconds_of_threads(pid: int | None) -> float:
    """CPU time of the living threads to the nanosecond: a process that starts uses little."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def peak_bytes(pid: int | None) -> int:
    """The most memory that the process ever had, including pages of mapped files."""
    return _kilobytes(Path(f"/proc/{pid}/status"), "VmHWM:") * 1024


def resident_bytes(pid: int | None) -> int:
    return _kilobytes(Path(f"/proc/{pid}/status"), "VmRSS:") * 1024


def proportional_bytes(pid: int | None) -> int:
    """Memory with pages shared by k processes counted as 1/k each."""
    return _kilobytes(Path(f"/proc/{pid}/smaps_rollup"), "Pss:") * 1024


def _kilobytes(path: Path, name: str) -> int:
    for line in path.read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1])
    raise OSError(f"{path} has no {name}")


Times = dict[int, float]
"""CPU seconds by process id; processes of other machines are left out."""


def cpu_times(runtime: Runtime) -> Times:
    """The CPU seconds that each role's processes have taken so far."""
    found = {}
    for pids in runtime.role_processes().values():
        for pid in pids:
            with contextlib.suppress(OSError):  # it was killed: what it took is not known
                own = pid == os.getpid()
                found[pid] = time.process_time() if own else cpu_seconds(pid)
    return found


def used_since(before: Times, runtime: Runtime) -> Roles:
    """For each role the CPU seconds of all its processes since `before`, in hundredths, and the
    most memory that one of them ever had."""
    after = cpu_times(runtime)
    found: Roles = {}
    for role, pids in runtime.role_processes().items():
        use = found[role] = {"processes": 0, "cpu_seconds": 0.0, "peak_bytes": 0}
        for pid in after.keys() & pids:
            use["processes"] += 1
            use["cpu_seconds"] += after[pid] - before.get(pid, 0.0)
            with contextlib.suppress(OSError):
                use["peak_bytes"] = max(use["peak_bytes"], peak_bytes(pid))
    return found
