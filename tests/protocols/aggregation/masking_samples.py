"""Queries and vectors for tests of masking."""

import numpy as np

from tallyroom.protocols.aggregation.masking.aggregator import Masking
from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.query import Query
from tallyroom.protocols.statistics.histogram import Histogram
from tests.samples import a_query

FULL = Masking(neighbours="0")


def a_masked_query(parties: int, length: int = 3, **changes: object) -> Query:
    return a_query(
        statistic=Histogram(lower=0.0, upper=1.0, bins=length),
        aggregator="masking",
        parties=parties,
        servers=1,
        **{"min_parties": 1} | changes,
    )


def some_vectors(parties: int, length: int = 3) -> Vector:
    return np.random.default_rng(parties).integers(0, 2**64, (parties, length), dtype=np.uint64)


def sum_over(vectors: Vector, members: list[int]) -> list[int]:
    values: list[int] = vectors[members].sum(axis=0, dtype=np.uint64).tolist()
    return values
