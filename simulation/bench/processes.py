"""What a party costs when it is a process of its own."""

import os
import time
from pathlib import Path

import numpy as np

from parties.data import Dataset
from protocols.statistics import Mean
from simulation.bench.row import Row
from simulation.federation import Federation

PARTIES = 500


def rows() -> list[Row]:
    data = Dataset("uniform", {"value": np.linspace(0, 1, PARTIES)}, {"value": (0.0, 1.0)})
    begun = time.perf_counter()
    with Federation(parties=PARTIES, runtime="processes", data=data, hosts=PARTIES) as federation:
        federation.run(Mean(), epsilon=1.0, deadline=300.0)
        seconds = time.perf_counter() - begun
        children = getattr(federation.runtime, "children")  # noqa: B009
        hosts = [process.pid for name, process in children.items() if name.startswith("host-")]
        memory = sum(_proportional_set_size(pid) for pid in hosts) / len(hosts)
        cpu = sum(_cpu_seconds(pid) for pid in hosts) / len(hosts)
    details = {"pss_mb_per_party": memory / 1e6, "cpu_ms_per_party": 1e3 * cpu, "seconds": seconds}
    return [Row(f"processes-{PARTIES}", PARTIES / seconds, "parties/s", {}, details)]


def _proportional_set_size(pid: int) -> int:
    """Bytes of memory, pages shared by k processes counted as 1/k each."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"no Pss of process {pid}")


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
