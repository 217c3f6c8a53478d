"""A disk that is full, and a ledger that is held."""

import resource
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tallyroom.simulation.runtimes.processes import Processes


@contextmanager
def full(federation: Processes, name: str, room: int) -> Iterator[None]:
    """No file of that process may grow past `room` bytes: a full disk, to all that it writes."""
    pid = federation.children[name].pid
    assert pid is not None
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


@contextmanager
def locked(ledger: Path) -> Iterator[None]:
    """Another process holds a ledger: nobody else reads or writes it."""
    with closing(sqlite3.connect(ledger, timeout=10.0, isolation_level=None)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        yield
