"""CPU and peak memory of each role's processes while a question is answered."""

import contextlib
import os
import time

from tallyroom.simulation.proc import cpu_seconds, peak_bytes
from tallyroom.simulation.result import Roles
from tallyroom.simulation.runtimes import Runtime


class Usage:
    """From when it is made. Of processes that this machine does not have, nothing is known."""

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
