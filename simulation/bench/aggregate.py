"""Secret-shared sums compared with a trusted curator that does the same job in the clear.

Both run over gRPC with mutual TLS between real processes. `ratios.curator` is our time divided by
the curator's in the same run: the cost of trusting nobody. The cost of not trusting parties either
is in `simulation.bench.prio3`, and that of sums without a second server in
`simulation.bench.secure_aggregation`; their rows follow.
"""

import numpy as np

from tallyroom.parties.data import Dataset
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.simulation.bench import prio3, secure_aggregation
from tallyroom.simulation.bench.row import Row
from tallyroom.simulation.federation import Federation

LENGTH = 100
SIZES = (25_000, 50_000, 100_000)
HOSTS = 2
REPEATS = 3


def rows() -> list[Row]:
    found = []
    for parties in SIZES:
        curator = _seconds("curator", parties)
        additive = _seconds("additive", parties)
        found.append(
            Row(
                f"additive-{parties}x{LENGTH}",
                parties / additive,
                "parties/s",
                {"curator": additive / curator},
                {"seconds": additive, "curator_seconds": curator},
            )
        )
    return found + secure_aggregation.rows() + prio3.rows()


def _seconds(aggregator: str, parties: int) -> float:
    """Time from the question to the answer, without starting and enrolling processes."""
    values = np.random.default_rng(0).random(parties)
    data = Dataset("uniform", {"value": values}, {"value": (0.0, 1.0)})
    with Federation(
        parties=parties, aggregator=aggregator, runtime="processes", data=data, hosts=HOSTS
    ) as federation:
        runs = [
            federation.run(Histogram(bins=LENGTH), epsilon=1.0, deadline=120.0)
            for _ in range(REPEATS)
        ]
    return min(run.seconds["submit"] + run.seconds["release"] for run in runs)
