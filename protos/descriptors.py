"""How many connections a process can bear: each costs a file descriptor."""

import resource

RESERVED = 192
"""For journals, ledgers, the process's own calls, and what libraries open."""
MOST = 1 << 16


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
    return max(limit - RESERVED, limit // 2)
