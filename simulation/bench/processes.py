"""What a party costs when it is a process of its own."""

import time

import numpy as np

from parties.data import Dataset
from protocols.statistics import Mean
from simulation.bench.proc import cpu_seconds, proportional_bytes
from simulation.bench.row import Row
from simulation.federation import Federation
from simulation.runtimes import Progress

PARTIES = 500


def rows() -> list[Row]:
    """Memory and CPU are read when every party has joined over TLS and none has been asked yet."""
    data = Dataset("uniform", {"value": np.linspace(0, 1, PARTIES)}, {"value": (0.0, 1.0)})
    figures: dict[str, float] = {}
    begun = time.perf_counter()
    with Federation(parties=PARTIES, runtime="processes", data=data, hosts=PARTIES) as federation:

        def sample(progress: Progress) -> None:
            if progress.enrolled < PARTIES or figures:
                return
            figures["seconds"] = time.perf_counter() - begun
            children = getattr(federation.runtime, "children")  # noqa: B009
            hosts = [p.pid for name, p in children.items() if name.startswith("host-")]
            figures["pss_mb_per_party"] = sum(map(proportional_bytes, hosts)) / PARTIES / 1e6
            figures["cpu_ms_per_party"] = 1e3 * sum(map(cpu_seconds, hosts)) / PARTIES

        federation.run(Mean(), epsilon=1.0, deadline=300.0, report=sample)
    return [Row(f"processes-{PARTIES}", PARTIES / figures["seconds"], "parties/s", {}, figures)]
