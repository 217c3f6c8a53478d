"""Instances, clients that shard valid measurements, and servers that verify them."""

from dataclasses import dataclass

import numpy as np

from tallyroom.protocols.algebra.field import FIELD64, Bytes
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.vdaf.circuit import Count, Measurements, Sum
from tallyroom.protocols.vdaf.prio3 import (
    NONCE_BYTES,
    VERIFY_KEY_BYTES,
    Outputs,
    Prio3,
    ReportShares,
    prio3_count,
    prio3_histogram,
    prio3_multihot_count_vec,
    prio3_sum,
    prio3_sum_vec,
)
from tallyroom.protocols.vdaf.vectors import Histogram, MultihotCountVec, SumVec

CTX = b"test"
KEY = Randomness.from_seed(1, "verify key").bytes(VERIFY_KEY_BYTES)

INSTANCES = {
    "count": prio3_count(),
    "count-3": prio3_count(3),
    "sum-1": prio3_sum(1),
    "sum-1337": prio3_sum(1337, 3),
    "sum-vec": prio3_sum_vec(5, 9, 4),
    "sum-vec-4": prio3_sum_vec(3, 6, shares=4),
    "multiproof": Prio3(SumVec(4, 3, 5, FIELD64), 0xFFFFFFFF, proofs=3),
    "histogram": prio3_histogram(11, 3),
    "histogram-5": prio3_histogram(6, shares=5),
    "histogram-1": prio3_histogram(1, 1),
    "multihot": prio3_multihot_count_vec(10, 4, 3, 3),
}


def valid(prio3: Prio3, rows: int) -> Measurements:
    """Valid measurements, the largest ones among them."""
    generator = np.random.default_rng(rows)
    circuit = prio3.circuit
    if isinstance(circuit, Count):
        return generator.integers(0, 2, rows)
    if isinstance(circuit, Sum):
        found = generator.integers(0, circuit.max_measurement, rows, endpoint=True)
        found[0] = circuit.max_measurement
        return found
    if isinstance(circuit, SumVec):
        shape = (rows, circuit.length)
        found = generator.integers(0, circuit.max_measurement, shape, endpoint=True)
        found[0] = circuit.max_measurement
        return found
    if isinstance(circuit, Histogram):
        return generator.integers(0, circuit.length, rows)
    assert isinstance(circuit, MultihotCountVec)
    ranks = generator.random((rows, circuit.length)).argsort(axis=1)
    weights = np.arange(rows) % (circuit.max_weight + 1)
    return (ranks < weights[:, None]).astype(np.int64)


def expected(prio3: Prio3, measurements: Measurements) -> list[int]:
    if isinstance(prio3.circuit, Histogram):
        counts = np.bincount(measurements, minlength=prio3.circuit.length)
        return [int(count) for count in counts]
    return [int(value) for value in np.atleast_1d(measurements.sum(axis=0))]


@dataclass(frozen=True)
class Batch:
    nonces: Bytes
    rand: Bytes

    @classmethod
    def draw(cls, prio3: Prio3, rows: int, seed: int = 1) -> "Batch":
        source = Randomness.from_seed(seed, "clients")

        def drawn(width: int) -> Bytes:
            return np.frombuffer(source.bytes(rows * width), dtype=np.uint8).reshape(rows, width)

        return cls(drawn(NONCE_BYTES), drawn(prio3.rand_bytes))


def shard(prio3: Prio3, measurements: Measurements, batch: Batch) -> ReportShares:
    return prio3.shard(measurements, batch.nonces, batch.rand, CTX)


def verify(prio3: Prio3, nonces: Bytes, reports: ReportShares) -> list[Outputs]:
    """What every server ends with."""
    begun = [
        prio3.verify_init(KEY, CTX, server, nonces, reports.public_shares, shares)
        for server, shares in enumerate(reports.input_shares)
    ]
    messages = prio3.verifier_shares_to_messages(CTX, [shares for _, shares in begun])
    return [prio3.verify_next(states, messages) for states, _ in begun]


def total(prio3: Prio3, ends: list[Outputs]) -> list[int]:
    together = np.logical_and.reduce([end.accepted for end in ends])
    kept = [Outputs(end.shares, together) for end in ends]
    return prio3.unshard([prio3.aggregate(end) for end in kept])


def all_accept(ends: list[Outputs]) -> list[bool]:
    return [all(row) for row in zip(*(end.accepted.tolist() for end in ends), strict=True)]
