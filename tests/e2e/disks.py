"""A disk that is full."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager

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
