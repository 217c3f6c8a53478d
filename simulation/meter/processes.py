"""The processes of a metered program as /proc shows them: CPU, memory, and whose sockets are whose.

Looked at several times a second, so a process that lives for less may be missed here. What members
took as a whole is counted by the kernel when they end, and has all of it.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tallyroom.protocols.errors import RunFailed
from tallyroom.simulation.meter.box import Limits
from tallyroom.simulation.meter.keeper import HOLDER
from tallyroom.simulation.meter.keeper import __file__ as keeper_file

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
EVERY, SHARE = 0.2, 0.01
"""Seconds between two looks, and the share of the time that looking may take."""
SOCKETS = ("tcp", "tcp6", "udp", "udp6")


@dataclass
class ProcessUse:
    """`name` is process-0, process-1 … of the program, in the order in which they were seen."""

    name: str
    member: int
    command: str
    cpu_seconds: float = 0.0
    peak_bytes: int = 0

    def as_json(self) -> dict[str, object]:
        kept = {"name": self.name, "command": self.command}
        return kept | {"cpu_seconds": self.cpu_seconds, "peak_bytes": self.peak_bytes}


class ProcessWatch:
    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.found: dict[tuple[int, str], ProcessUse] = {}
        self._alive: dict[int, ProcessUse] = {}
        self._keeper = 0
        self._lock = threading.Lock()

    def look(self, keeper: int) -> float:
        """Seconds until the next look. Raises `RunFailed` if they are too many, or too large."""
        self._keeper = keeper
        with self._lock:
            return self._look()

    def _look(self) -> float:
        begun = time.thread_time()
        self._alive = {}
        resident = 0
        for pid, fields, member in _members(self._keeper):
            key = (pid, fields[19])  # with its start: ids come again
            if key not in self.found:
                self.found[key] = ProcessUse(f"process-{len(self.found)}", member, _command(pid))
            use = self._alive[pid] = self.found[key]
            if keeper_file in use.command:  # it had not become its command yet
                use.command = _command(pid)
            use.cpu_seconds = (int(fields[11]) + int(fields[12])) / TICKS
            use.peak_bytes = max(use.peak_bytes, _peak(pid))
            resident += int(fields[21]) * PAGE
        if len(self._alive) > self._limits.processes:
            raise RunFailed(f"more than {self._limits.processes} processes; all were stopped")
        if resident > self._limits.memory:
            most = self._limits.memory >> 20
            raise RunFailed(f"more than {most:,} MB of memory; all processes were stopped")
        return max(EVERY, (time.thread_time() - begun) / SHARE)

    def owners(self) -> dict[int, str]:
        """The process that has each port open, where all members share a network."""
        with self._lock, contextlib.suppress(RunFailed):
            self._look()
            return self._owners()
        return {}

    def _owners(self) -> dict[int, str]:
        inodes: dict[str, str] = {}
        for pid, use in reversed(self._alive.items()):  # of those that share one, the first
            with contextlib.suppress(OSError):
                for each in os.scandir(f"/proc/{pid}/fd"):
                    with contextlib.suppress(OSError):
                        inodes[os.readlink(each.path)] = use.name
        ports: dict[int, str] = {}
        for pid in self._alive:
            with contextlib.suppress(OSError):
                for kind in SOCKETS:
                    for line in Path(f"/proc/{pid}/net/{kind}").read_text().splitlines()[1:]:
                        words = line.split()
                        owner = inodes.get(f"socket:[{words[9]}]")
                        if owner is not None:
                            ports.setdefault(int(words[1].rpartition(":")[2], 16), owner)
                return ports
        return ports


def _members(keeper: int) -> list[tuple[int, list[str], int]]:
    """Processes below the keeper's holders: id, the fields of their `stat` after the name, and the
    number of their member."""
    below = children_of(keeper)
    found: list[tuple[int, list[str], int]] = []
    left: list[tuple[int, int | None]] = [(keeper, None)]
    while left:
        pid, member = left.pop(0)
        for child in below(pid):
            held = member
            with contextlib.suppress(OSError), open(f"/proc/{child}/stat") as stat:
                head, _, tail = stat.read().rpartition(")")
                name = head.partition("(")[2]
                if member is not None:
                    found.append((child, tail.split(), member))
                elif name.startswith(HOLDER):
                    held = int(name.removeprefix(HOLDER))
            left.append((child, held))
    return sorted(found)


def children_of(keeper: int) -> Callable[[int], list[int]]:
    """Where the kernel tells each process's children, they are read one by one; else all processes
    of the machine are."""
    if Path(f"/proc/{keeper}/task/{keeper}/children").exists():
        return _children
    below: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{entry}/stat") as stat:
                parent = int(stat.read().rpartition(")")[2].split()[1])
                below.setdefault(parent, []).append(int(entry))
    return lambda pid: below.get(pid, [])


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children") as said:
                found += map(int, said.read().split())
    return found


def _peak(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return b" ".join(words).decode(errors="replace").strip()[:200]
    return ""
