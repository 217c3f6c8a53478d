"""Additive sharing over Z_2^64 with whole random vectors, where `additive` sends seeds."""

from typing import ClassVar

import numpy as np

from tallyroom.protocols.aggregation.contract import Bodies, Ids, ThreatModel
from tallyroom.protocols.aggregation.one_round import OneRound
from tallyroom.protocols.algebra.ring import Vector, add_rows
from tallyroom.protocols.randomness import Randomness


class Pads(OneRound):
    """One-time pads: m vectors as long as the data; needs no pseudorandom generator at a server."""

    name: ClassVar[str] = "pads"
    min_servers: ClassVar[int] = 2
    party_bytes: ClassVar[str] = "8Lm"

    def threat_model(self, servers: int) -> ThreatModel:
        return ThreatModel(
            colluding=servers - 1,
            behaviour=f"semi-honest parties and {servers} semi-honest servers",
            dropouts="any number of parties may drop out before the release, no server may",
            reveals="the analyst and the servers see who contributed, the analyst the noisy sum",
        )

    def shard(
        self, ids: Ids, vectors: Vector, servers: int, randomness: Randomness
    ) -> list[Bodies]:
        masked = vectors.astype("<u8")
        width = self.width(vectors.shape[1], 0)
        pads = [randomness.rows(f"pad {server}", ids, width) for server in range(1, servers)]
        for pad in pads:
            masked -= pad.view("<u8")
        return [masked.view(np.uint8), *pads]

    def width(self, length: int, server: int) -> int:
        return 8 * length

    def merge(self, bodies: Bodies, length: int, server: int) -> Vector:
        return add_rows(bodies)
