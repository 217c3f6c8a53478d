"""Vectors, their Shamir shares and the queries that ask for them."""

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.aggregation.shamir import Shamir
from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.statistics.histogram import Histogram
from tests.samples import a_query

TOP = 2**64 - 1
SHAPES = [
    (servers, threshold, pack)
    for servers in range(2, 6)
    for threshold in range(servers // 2 + 1, servers + 1)
    for pack in range(1, threshold)
]
"""Every (m, t, k) that can be, up to five servers."""


def a_shared_query(parties: int, length: int, servers: int, **changes: object) -> Query:
    return a_query(
        statistic=Histogram(lower=0.0, upper=1.0, bins=length),
        aggregator="shamir",
        parties=parties,
        servers=servers,
        **changes,
    )


def some_vectors(parties: int, length: int) -> Vector:
    vectors = np.random.default_rng(7).integers(0, 2**64, (parties, length), dtype=np.uint64)
    vectors[0] = TOP
    return vectors


def shares_of(
    shamir: Shamir, vectors: Vector, servers: int, seed: int = 1
) -> list[NDArray[np.uint8]]:
    ids = np.arange(len(vectors), dtype=np.uint32)
    return shamir.shard(ids, vectors, servers, Randomness.from_seed(seed, "parties"))
