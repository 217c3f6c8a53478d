"""A million parties: how long a question takes, and how much memory a server and a host need.

It runs over gRPC with mutual TLS between processes, with the parties on a few hosts. `server_mb`
and `host_mb` are the largest peak of any server and any host; `cpu_seconds` are those of all
processes for the question, which on a busy machine says more than `seconds` does.
"""

from collections.abc import Mapping

import numpy as np

from tallyroom.parties.data import Dataset
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.simulation.bench.row import Row
from tallyroom.simulation.federation import Federation
from tallyroom.simulation.proc import cpu_seconds, peak_bytes
from tallyroom.simulation.runtimes.processes import Processes

PARTIES = 1_000_000
BINS = 100
THRESHOLDS = 1024
KEYS = {"ecdf-fss": "fss?verified=no", "ecdf-fss-verified": "fss?verified=yes"}


def rows(parties: int = PARTIES, keys: Mapping[str, str] = KEYS) -> list[Row]:
    curve = Ecdf(thresholds=THRESHOLDS)
    return [
        _row(f"histogram-{parties}", "additive", Histogram(bins=BINS), _uniform(parties)),
        *(_row(f"{name}-{parties}", spec, curve, _uniform(parties)) for name, spec in keys.items()),
        auc_row(parties),
    ]


def auc_row(parties: int = PARTIES) -> Row:
    """Two hierarchical histograms under local privacy, one bit per record (S1 §4)."""
    return _row(f"auc-local-{parties}", "local", "auc", _scored(parties))


def _uniform(parties: int) -> Dataset:
    values = np.random.default_rng(0).random(parties)
    return Dataset("uniform", {"value": values}, {"value": (0.0, 1.0)})


def _scored(parties: int) -> Dataset:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, parties).astype(np.float64)
    scores = np.clip(0.4 + 0.2 * labels + 0.2 * rng.standard_normal(parties), 0.0, 1.0)
    return Dataset("scores", {"score": scores, "label": labels}, {"score": (0.0, 1.0)})


def _row(name: str, aggregator: str, statistic: Statistic | str, data: Dataset) -> Row:
    """Measures from the question to the answer, without starting and enrolling processes."""
    parties = len(next(iter(data.columns.values())))
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
        "party_bytes": float(result.bill.party_bytes().mean()),
    }
    return Row(name, parties / took, "parties/s", {}, details)
