"""How many connections a process can bear: each costs a file descriptor, and memory.

A connection without a certificate costs 45 KB while it is tried. All together may take a quarter of
the memory that the process may have: 2048 connections where that is 512 MB, 4096 at 1 GB.
"""

import os
import resource
from pathlib import Path

RESERVED = 192
"""For journals, ledgers, the process's own calls, and what libraries open."""
MOST = 1 << 16
CONNECTION_BYTES = 64 << 10
FOR_CONNECTIONS = 4
"""Their part of the memory: one of so many."""
LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
"""Where a container, or a unit of systemd in one, reads how much memory it may have."""


def most_connections() -> int:
    """Raises the limit on open files as far as this process may, and says how much of it
    connections may take. A server without descriptors could not even write what it was sent."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        except (OSError, ValueError):  # then what there is must do
            pass
    limit = MOST if soft == resource.RLIM_INFINITY else min(soft, MOST)
    return min(max(limit - RESERVED, limit // 2), memory() // FOR_CONNECTIONS // CONNECTION_BYTES)


def memory() -> int:
    """How many bytes this process may have: its container's limit, or all there are."""
    known = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in LIMITS:
        if path.exists() and (text := path.read_text().strip()).isdecimal():
            known.append(int(text))
    return min(known)
