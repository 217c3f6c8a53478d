"""The cost of what two servers compute together: noise, choices, pairs of records.

`cpu_s` is the CPU time of both servers without transport, and `online_share` the part of it after
the data has arrived. `mb` is the traffic between the servers. Servers are real, in one process for
the first three; pairs run over gRPC with mutual TLS between processes, timed from the last
submission.
"""

import numpy as np

from tallyroom.parties.data import Dataset
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.choices import Mode
from tallyroom.protocols.statistics.first_above import FirstAboveThreshold
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.of_pairs import Auc
from tallyroom.simulation.bench.row import Row
from tallyroom.simulation.federation import Federation
from tallyroom.simulation.result import Result

NOISES = 1024
PARTIES = 2000
PAIRS = 10_000


def rows(noises: int = NOISES, parties: int = PARTIES, pairs: int = PAIRS) -> list[Row]:
    return [
        _in_one_process(f"joint-{noises}", Histogram(bins=noises), noises),
        _in_one_process(f"noisy-max-{noises}", Mode(bins=noises), noises),
        _in_one_process(f"first-above-{noises}", _search(noises), noises),
        pairs_between_servers(parties, pairs),
    ]


def _search(noises: int) -> Statistic:
    """One of the noises is the threshold's."""
    return FirstAboveThreshold(bins=noises - 1, threshold=50)


def _in_one_process(name: str, statistic: Statistic, noises: int) -> Row:
    values = np.random.default_rng(0).random(100)
    data = Dataset("uniform", {"value": values}, {"value": (0.0, 1.0)})
    with Federation(parties=10, data=data) as federation:
        federation.run(statistic, epsilon=1.0, noise="joint")  # the servers' first meeting
        result = federation.run(statistic, epsilon=1.0, noise="joint", fresh=True)
    spent = result.server_cpu_seconds
    details = {
        "cpu_s": spent,
        "online_share": 1 - result.prepare_cpu_seconds / spent,
        "mb": _between_servers(result) / 1e6,
    }
    return Row(name, noises / spent, "noises/CPU s", details=details)


def pairs_between_servers(parties: int, pairs: int) -> Row:
    """One record per party, each in as many pairs as make `pairs` in all."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, parties).astype(np.float64)
    columns = {"score": random.random(parties), "label": labels}
    data = Dataset("scores", columns, {"score": (0.0, 1.0)})
    each = str(2 * pairs // parties)
    statistic = Auc(score="score", label="label", meet="servers", pairs_per_party=each)
    with Federation(parties=parties, hosts=2, data=data, runtime="processes") as federation:
        federation.start()
        result = federation.run(statistic, epsilon=1.0, deadline=120.0)
    took = result.seconds["release"]
    details = {
        "seconds": took,
        "cpu_s": result.server_cpu_seconds,
        "mb": _between_servers(result) / 1e6,
    }
    return Row(f"pairs-servers-auc-{pairs}", pairs / took, "pairs/s", details=details)


def _between_servers(result: Result) -> int:
    return result.bill.by_link()["server->server"].bytes
