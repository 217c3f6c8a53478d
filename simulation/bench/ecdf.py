"""A private curve from many key-holding parties, compared with the raw evaluation of the same keys.

The server's time is that of its release: counting on all keys at N thresholds, measuring, noise.
`ratios.raw` is this time divided by that of a full-domain evaluation of as many keys for N leaves,
in the same run.
"""

from fractions import Fraction

import numpy as np

from tallyroom.fss import dcf
from tallyroom.fss.ring import Z64, Bytes
from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.aggregation.contract import Memory
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import deal
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.wire.machine import Done
from tallyroom.protocols.wire.messages import Message, Phase, Role, address, body_of
from tallyroom.simulation.bench.row import Row, seconds

PARTIES = 100_000
THRESHOLDS = 1024
PLAIN = "fss?verified=no"
REPEATS = 7
BITS, RING = THRESHOLDS.bit_length() - 1, Z64


def rows() -> list[Row]:
    values = np.random.default_rng(0).random(PARTIES)
    holdings = deal({"value": values}, PARTIES)
    query = Query(
        nonce=bytes(8),
        statistic=Ecdf(lower=0.0, upper=1.0, thresholds=THRESHOLDS),
        aggregator=PLAIN,
        parties=PARTIES,
        servers=2,
        records=PARTIES,
        epsilon=Fraction(1),
        noise=Placement.EACH_SERVER,
        data="uniform",
        min_parties=PARTIES,
    )
    aggregator = aggregator_named(PLAIN)
    submitted = aggregator.party(query, holdings, Randomness.from_seed(1, "parties")).start()
    assert isinstance(submitted, Done)
    keys = _raw_keys()
    ours = raw = float("inf")
    # In turns, so that both meet the same quiet moments of a shared machine.
    for _ in range(REPEATS):
        ours = min(ours, _release_seconds(query, submitted.messages[0]))
        raw = min(raw, seconds(lambda: dcf.full_domain_sum(0, keys, BITS, RING), repeats=1))
    counts = PARTIES * THRESHOLDS
    details = {"seconds": ours, "raw_seconds": raw}
    return [
        Row(
            f"curve-{PARTIES}x{THRESHOLDS}", counts / ours, "counts/s", {"raw": ours / raw}, details
        )
    ]


def _release_seconds(query: Query, submission: Message) -> float:
    server = aggregator_named(PLAIN).server(query, 0, Randomness.from_seed(1, "server-0"), Memory())
    server.start()
    server.receive(submission)
    everyone = np.packbits(np.ones(PARTIES, dtype=bool)).tobytes()
    release = Message(
        query.run,
        Phase.RELEASE,
        Role.COORDINATOR,
        Role.SERVER,
        address(0),
        address(0),
        body_of(everyone),
    )
    return seconds(lambda: server.receive(release), repeats=1)


def _raw_keys() -> Bytes:
    """Keys of a domain that has just the thresholds, to be evaluated at all of them."""
    generator = np.random.default_rng(0)
    alphas = generator.integers(0, THRESHOLDS, PARTIES, dtype=np.uint64)
    randomness = generator.integers(0, 256, (PARTIES, dcf.RANDOMNESS_BYTES), dtype=np.uint8)
    return dcf.gen(alphas, BITS, RING, randomness)[0]
