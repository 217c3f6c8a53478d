"""What parties report to Prio3: which proof a statistic's records take, and the bytes of reports.

A report is one record. It is a nonce, the public share and a server's input share, in a row. All
here is public, and the same for every role.
"""

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.aggregation.contract import Bodies, Ids
from tallyroom.protocols.aggregation.rosters import count_type
from tallyroom.protocols.algebra.field import Field, Vector, apply_integer_map
from tallyroom.protocols.algebra.ring import signed
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.measurement import BoundedNumber, Measurement, OneHot, Step
from tallyroom.protocols.query import Query
from tallyroom.protocols.vdaf.circuit import weighted_bits
from tallyroom.protocols.vdaf.prio3 import NONCE_BYTES, Prio3, prio3_histogram, prio3_sum
from tallyroom.protocols.wire.messages import MAX_ROW

CONTRIBUTION_BYTES = 32
"""What each server gives to the verification key."""

CHUNK_BYTES = 1 << 20
"""About as many verifier shares as a server sends at a time, which bounds the work of a step."""

Members = NDArray[np.bool]
Counts = NDArray[np.int64]


class Parts(NamedTuple):
    """The columns of reports."""

    nonces: Bodies
    public_shares: Bodies
    input_shares: Bodies


@dataclass(frozen=True)
class Reporting(ABC):
    """How the records of one query are proved and summed."""

    query: Query

    @property
    @abstractmethod
    def prio3(self) -> Prio3:
        """What is run on every report."""

    @abstractmethod
    def encode(self, vectors: Vector) -> Vector:
        """Ring vectors of records as encoded measurements, with the same sum in the field.

        A vector that is none of a record becomes something that is not valid; nothing is raised.
        """

    @abstractmethod
    def total(self, share: Vector) -> Vector:
        """A server's share of the sum of ring vectors, from that of measurements."""

    @property
    def field(self) -> Field:
        return self.prio3.field

    @cached_property
    def context(self) -> bytes:
        """Binds proofs to the run and to all of its query: elsewhere, a report does not verify."""
        return b"tallyroom prio3 " + self.query.run

    def verify_key(self, contributions: bytes) -> bytes:
        """One server that keeps its contribution to itself until parties have submitted suffices
        for no party to have known this when it made its proof."""
        return hashlib.blake2s(contributions, person=b"verify").digest()

    def report_bytes(self, server: int) -> int:
        prio3 = self.prio3
        return NONCE_BYTES + prio3.public_share_bytes + prio3.input_share_bytes(server)

    def split(self, reports: Bodies) -> Parts:
        """Reports of (rows, `report_bytes`)."""
        end = NONCE_BYTES + self.prio3.public_share_bytes
        columns = (reports[:, :NONCE_BYTES], reports[:, NONCE_BYTES:end], reports[:, end:])
        return Parts(*map(np.ascontiguousarray, columns))

    @property
    def head_bytes(self) -> int:
        """What a roster begins with: a contribution, and a count for every party."""
        counted = count_type(self.query)
        size = 0 if counted is None else counted.itemsize
        return CONTRIBUTION_BYTES + size * self.query.parties

    def chunks(self, members: Members, counts: Counts) -> list[Ids]:
        """Parties in order, as many at a time as have about `CHUNK_BYTES` of verifier shares."""
        ids = np.flatnonzero(members).astype(np.uint32)
        step = max(1, CHUNK_BYTES // self.prio3.verifier_share_bytes)
        number = (np.cumsum(counts[ids]) - 1) // step
        return np.split(ids, np.flatnonzero(np.diff(number)) + 1)

    def check_size(self) -> None:
        """Raises `LocalError` where a message cannot hold what must be in one."""
        size = self.report_bytes(0)
        if size * self.query.max_records_per_party > MAX_ROW:
            raise LocalError(
                f"prio3 proves each record in {size} bytes, and a party can send {MAX_ROW // size} "
                f"records, not {self.query.max_records_per_party}: have fewer bins, or more parties"
            )
        if self.head_bytes + self.query.parties // 8 > MAX_ROW:
            raise LocalError(f"{self.query.parties} parties are too many for a roster of prio3")


class OneHotReporting(Reporting):
    """A record is a vector with a single 1, and proved to be."""

    @cached_property
    def prio3(self) -> Prio3:
        return prio3_histogram(self.query.plan.length, shares=self.query.servers)

    def encode(self, vectors: Vector) -> Vector:
        return self.field.from_signed(signed(np.ascontiguousarray(vectors)))

    def total(self, share: Vector) -> Vector:
        return share


class StepReporting(OneHotReporting):
    """A record is a step from 0 to 1 at one of the thresholds: a 1 where the step is.

    Servers add up along the thresholds, which is linear. Proving 0 or 1 at each threshold would
    cost as much and let a party count at some thresholds and not at higher ones.
    """

    def encode(self, vectors: Vector) -> Vector:
        return super().encode(np.diff(vectors, axis=1, prepend=np.uint64(0)))

    def total(self, share: Vector) -> Vector:
        return apply_integer_map(self.field, lambda digits: np.cumsum(digits, axis=-1), share)


class NumberReporting(Reporting):
    """A record is a number of grid steps above the lower bound, and proved to be in the range."""

    @cached_property
    def _steps(self) -> int:
        measurement = self.query.plan.measurement
        assert isinstance(measurement, BoundedNumber)
        return measurement.most

    @cached_property
    def prio3(self) -> Prio3:
        return prio3_sum(self._steps, self.query.servers)

    def encode(self, vectors: Vector) -> Vector:
        """What does not fit the bits is put on the first of them, whose weight is 1."""
        steps = signed(np.ascontiguousarray(vectors[:, 0]))
        fitting = np.clip(steps, 0, self._steps)
        bits = weighted_bits(fitting, self._steps)
        bits[:, 0] += steps - fitting
        return self.field.from_signed(bits)

    def total(self, share: Vector) -> Vector:
        return share


REPORTINGS: dict[type[Measurement], type[Reporting]] = {
    OneHot: OneHotReporting,
    Step: StepReporting,
    BoundedNumber: NumberReporting,
}
"""The proof of what a record is."""


def reporting(query: Query) -> Reporting:
    """Raises `LocalError` where there is no proof of what a record of the statistic may be."""
    statistic, measurement = query.statistic, query.plan.measurement
    kind = REPORTINGS.get(type(measurement) if measurement else Measurement)
    if kind is None:
        raise LocalError(
            f"prio3 has no proof for {statistic.name}: it does sums, means, histograms and "
            "curves of counts"
        )
    return kind(query)
