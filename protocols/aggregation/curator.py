"""The trusted curator, to which parties send their vectors in the clear. Tests' oracle."""

from typing import ClassVar

import numpy as np

from tallyroom.protocols.aggregation.contract import Bodies, Ids, ThreatModel
from tallyroom.protocols.aggregation.one_round import OneRound
from tallyroom.protocols.algebra.ring import Vector, add_rows
from tallyroom.protocols.offers import Offer, Offers
from tallyroom.protocols.randomness import Randomness


class Curator(OneRound):
    """The baseline: every other aggregator is compared with its answers and costs."""

    name: ClassVar[str] = "curator"
    offers: ClassVar[Offers] = frozenset({Offer.SUM, Offer.CURATE})
    max_servers: ClassVar[int | None] = 1
    servers: ClassVar[int] = 1
    party_bytes: ClassVar[str] = "8L"

    def threat_model(self, servers: int) -> ThreatModel:
        return ThreatModel(
            colluding=0,
            behaviour="a trusted curator sees every party's vector in the clear",
            dropouts="any number of parties may drop out",
            reveals="the analyst sees the noisy sum and who contributed",
        )

    def shard(
        self, ids: Ids, vectors: Vector, servers: int, randomness: Randomness
    ) -> list[Bodies]:
        return [vectors.astype("<u8").view(np.uint8)]

    def width(self, length: int, server: int) -> int:
        return 8 * length

    def merge(self, bodies: Bodies, length: int, server: int) -> Vector:
        return add_rows(bodies)
