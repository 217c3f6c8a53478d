"""Masked sums with one server: 100 parties, 1024 elements of 64 bits, all roles in one process.

`cpu_s` is the CPU time of all parties, the server and the coordinator together, from the first key
to the sum; `upload_bytes` is what one party sends, including headers. In `drop33`, a third of the
parties leave after they have dealt their shares, which is the most expensive moment. In `sparse`,
each party has 20 neighbours.

Parties are computed in one block, in which the two ends of a pair agree once; `apart_cpu_s` is the
same with every party in a block of its own, agreeing for itself as in a deployment.

`ratios.flower` is ours, apart, divided by the CPU time of Flower's SecAgg+ for the same sparse sum
in the same run (`simulation.bench.peers.flower_sum`), if Flower is there. On the full graph Flower
takes many minutes, and is not run.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tallyroom.protocols.aggregation.exchange import Exchange
from tallyroom.protocols.aggregation.masking.aggregator import Masking
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.wire.messages import Message, Phase
from tallyroom.simulation.bench.peers.adapters import FLOWER
from tallyroom.simulation.bench.row import Row

PARTIES = 100
LENGTH = 1024
DROPPED = 33
NEIGHBOURS = 20
REPEATS = 3


@dataclass(frozen=True)
class Cost:
    cpu_seconds: float
    apart_cpu_seconds: float
    upload_bytes: int


def rows() -> list[Row]:
    full = _best("0", DROPPED)
    sparse = _best(str(NEIGHBOURS), 0)
    ratios = {}
    shares = NEIGHBOURS + 1
    asked = (PARTIES, LENGTH, shares, 2 * shares // 3 + 1)
    if (peer := FLOWER.ask(*map(str, asked))) is not None:
        ratios["flower"] = sparse.apart_cpu_seconds / peer["cpu_seconds"]
    return [
        _row(f"masking-{PARTIES}x{LENGTH}-drop{DROPPED}", full, {}),
        _row(f"masking-sparse-{PARTIES}x{LENGTH}", sparse, ratios),
    ]


def _row(name: str, cost: Cost, ratios: dict[str, float]) -> Row:
    details = {
        "cpu_s": cost.cpu_seconds,
        "apart_cpu_s": cost.apart_cpu_seconds,
        "upload_bytes": float(cost.upload_bytes),
    }
    return Row(name, PARTIES / cost.cpu_seconds, "parties/CPU s", ratios, details)


def _best(neighbours: str, dropped: int) -> Cost:
    together, apart = (
        [_masked_sum(neighbours, dropped, blocks) for _ in range(REPEATS)]
        for blocks in (1, PARTIES)
    )
    uploads = {upload for _, upload in together + apart}
    assert len(uploads) == 1, "a block is billed as its parties would be one by one"
    return Cost(min(together)[0], min(apart)[0], uploads.pop())


def _masked_sum(neighbours: str, dropped: int, blocks: int) -> tuple[float, int]:
    """Returns the CPU seconds of one sum, whose result is checked, and the bytes that the last
    party sent. The first `dropped` parties leave before they submit."""
    last = PARTIES - 1
    vectors = np.random.default_rng(1).integers(0, 2**64, (PARTIES, LENGTH), dtype=np.uint64)

    def way(message: Message) -> Iterable[Message]:
        if message.phase is not Phase.SUBMIT:
            return (message,)
        stay = np.flatnonzero(message.senders >= dropped)
        return (message.select(stay),) if len(stay) else ()

    query = Query(
        nonce=b"benchrun",
        statistic=Histogram(lower=0.0, upper=1.0, bins=LENGTH),
        aggregator=f"masking?neighbours={neighbours}",
        parties=PARTIES,
        servers=1,
        records=PARTIES,
        epsilon=None,
        noise=Placement.CURATOR,
        data="bench",
        min_parties=PARTIES - dropped,
    )
    begin = time.process_time()
    exchange = Exchange(Masking(neighbours=neighbours), query, way=way)
    for ids in np.array_split(np.arange(PARTIES, dtype=np.uint32), blocks):
        exchange.join(ids, vectors[ids])
    exchange.expire()
    seconds = time.process_time() - begin
    assert exchange.total is not None
    assert np.array_equal(exchange.total.vector, vectors[dropped:].sum(axis=0, dtype=np.uint64))
    return seconds, sum(m.charge for m in exchange.sent_by_parties if last in m.senders)
