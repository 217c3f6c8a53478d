"""Additive secret sharing over Z_2^64 among m >= 2 servers.

Servers 1 to m-1 receive a 16-byte seed each, which they expand to their share; server 0 receives
the vector minus all of those. Any m-1 servers see seeds and, with server 0 among them, a vector
masked by the missing server's AES-CTR stream: uniform, if AES-128 is a pseudorandom permutation.
"""

from typing import ClassVar

import numpy as np

from tallyroom.fss.prg import expand_seeds, expand_seeds_sum
from tallyroom.protocols.aggregation.contract import Bodies, Ids, ThreatModel
from tallyroom.protocols.aggregation.one_round import OneRound
from tallyroom.protocols.algebra.ring import Vector, add_rows
from tallyroom.protocols.randomness import Randomness

SEED_BYTES = 16


class Additive(OneRound):
    """Additive shares: one masked vector and m-1 seeds; any m-1 servers may collude."""

    name: ClassVar[str] = "additive"
    min_servers: ClassVar[int] = 2
    joint: ClassVar[bool] = True
    chooses: ClassVar[bool] = True
    party_bytes: ClassVar[str] = "8L + 16(m − 1)"

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
        seeds = [
            randomness.rows(f"additive seed {server}", ids, SEED_BYTES)
            for server in range(1, servers)
        ]
        masked = vectors.astype("<u8")
        for seed in seeds:
            masked -= expand_seeds(seed, vectors.shape[1])
        return [masked.view(np.uint8), *seeds]

    def width(self, length: int, server: int) -> int:
        return 8 * length if server == 0 else SEED_BYTES

    def merge(self, bodies: Bodies, length: int, server: int) -> Vector:
        if server == 0:
            return add_rows(bodies)
        return expand_seeds_sum(bodies, length)
