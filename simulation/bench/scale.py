"""A million parties: how long a question takes, and how much memory a server and a host need.

Over gRPC with mutual TLS between processes, the parties dealt to a few hosts. `server_mb` and
`host_mb` are the largest peak of any server and any host; `cpu_seconds` are those of all processes
for the question, which on a busy machine says more than `seconds` does.
"""

import numpy as np

from parties.data import Dataset
from protocols.statistics import Statistic
from protocols.statistics.ecdf import Ecdf
from protocols.statistics.histogram import Histogram
from simulation.bench.proc import cpu_seconds, peak_bytes
from simulation.bench.row import Row
from simulation.federation import Federation
from simulation.runtimes.processes import Processes

PARTIES = 1_000_000
BINS = 100
THRESHOLDS = 1024


def rows(parties: int = PARTIES) -> list[Row]:
    return [
        _row(f"histogram-{parties}", "additive", Histogram(bins=BINS), parties),
        _row(f"ecdf-fss-{parties}", "fss", Ecdf(thresholds=THRESHOLDS), parties),
    ]


def _row(name: str, aggregator: str, statistic: Statistic, parties: int) -> Row:
    """From the question to the answer; starting and enrolling processes is not in it."""
    values = np.random.default_rng(0).random(parties)
    data = Dataset("uniform", {"value": values}, {"value": (0.0, 1.0)})
    with Federation(
        parties=parties, aggregator=aggregator, runtime="processes", data=data
    ) as federation:
        federation.start()
        assert isinstance(federation.runtime, Processes)
        children = {name: child.pid for name, child in federation.runtime.children.items()}
        before = sum(map(cpu_seconds, children.values()))
        result = federation.run(statistic, epsilon=1.0, deadline=300.0)
        spent = sum(map(cpu_seconds, children.values())) - before
        servers = [peak_bytes(pid) for name, pid in children.items() if name.startswith("server")]
        hosts = [peak_bytes(pid) for name, pid in children.items() if name.startswith("host")]
    took = result.seconds["submit"] + result.seconds["release"]
    details = {
        "seconds": took,
        "cpu_seconds": spent,
        "server_mb": max(servers) / 1e6,
        "host_mb": max(hosts) / 1e6,
    }
    return Row(name, parties / took, "parties/s", {}, details)
