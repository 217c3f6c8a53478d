"""Which implementation runs, and how work is spread over cores.

The choice is made for each call: the widest instruction set that the compiled module and this CPU
have, or the pure twin. `TALLYROOM_NATIVE=0` in the environment forces the twin.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

Result = TypeVar("Result")

if TYPE_CHECKING:
    from tallyroom.fss import _native

    compiled = _native
else:
    try:
        from tallyroom.fss import _native as compiled
    except ImportError:
        compiled = None

AES_NI: Final = 1
VAES: Final = 2
VAES_512: Final = 3
NAMES: Final = {AES_NI: "aes-ni", VAES: "vaes", VAES_512: "vaes-512"}

# Below this many keys a thread costs more than it saves.
_KEYS_PER_THREAD: Final = 512


def instruction_set() -> int | None:
    """The code of the instruction set to run with, or None for the twin."""
    if compiled is None or os.environ.get("TALLYROOM_NATIVE") == "0":
        return None
    return compiled.best() or None


def implementation() -> str:
    """The implementation that the next call will run: `vaes-512`, `vaes`, `aes-ni` or `pure`."""
    code = instruction_set()
    return "pure" if code is None else NAMES[code]


def over_blocks(
    work: Callable[[int, int], Result],
    count: int,
    threads: int | None = None,
    keys_per_thread: int = _KEYS_PER_THREAD,
) -> list[Result]:
    """Calls `work(begin, end)` on contiguous parts of `count` keys, one part per thread; results
    come in the order of the parts.

    Threads help only if `work` releases the GIL. Without `threads`, all cores that this process may
    use are taken. Ring sums do not depend on their order, so neither do they on the threads.
    """
    limit = _cores() if threads is None else threads
    parts = max(1, min(limit, count // keys_per_thread))
    if parts == 1:
        return [work(0, count)]
    bounds = [count * part // parts for part in range(parts + 1)]
    # Each call makes its own pool, because threads kept between calls do not survive a fork.
    with ThreadPoolExecutor(parts, thread_name_prefix="fss") as pool:
        return list(pool.map(work, bounds[:-1], bounds[1:]))


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
