"""CPU and memory of processes, as the operating system tells them."""

import contextlib
import os
import time
from pathlib import Path

from tallyroom.simulation.result import Roles
from tallyroom.simulation.runtimes import Runtime


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


class Usage:
    """What each role's processes take, from when it is made. Of processes that this machine does
    not have, nothing is known."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._before = self._cpu()

    def _cpu(self) -> dict[int, float]:
        found = {}
        for pids in self._runtime.role_processes().values():
            for pid in pids:
                with contextlib.suppress(OSError):  # it was killed: what it took is not known
                    own = pid == os.getpid()
                    found[pid] = time.process_time() if own else cpu_seconds(pid)
        return found

    def by_role(self) -> Roles:
        """CPU seconds of all processes of a role, in hundredths; the most memory that one of them
        ever had."""
        after = self._cpu()
        found: Roles = {}
        for role, pids in self._runtime.role_processes().items():
            known = [pid for pid in pids if pid in after]
            spent = sum(after[pid] - self._before.get(pid, 0.0) for pid in known)
            peaks = [0]
            for pid in known:
                with contextlib.suppress(OSError):
                    peaks.append(peak_bytes(pid))
            found[role] = {
                "processes": len(known),
                "cpu_seconds": spent,
                "peak_bytes": max(peaks),
            }
        return found
