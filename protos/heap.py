"""How a process keeps memory that it has freed.

Every message takes a few buffers of megabytes. The C library gives such buffers back to the system
as soon as they are freed, and the system clears every page of the next one: that is more work than
all the copying. Kept, the same pages serve message after message.
"""

import ctypes

KEPT_BYTES = 32 << 20
"""How much freed memory a process may hold back."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8


def keep_freed_memory() -> None:
    """Called once when a process starts. Does nothing where the C library is not glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, KEPT_BYTES)
        mallopt(_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(_ARENA_MAX, 1)  # every arena would hold back as much
