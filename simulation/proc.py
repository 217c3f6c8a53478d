"""Reads figures of a running process from the operating system."""

import os
from pathlib import Path


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
