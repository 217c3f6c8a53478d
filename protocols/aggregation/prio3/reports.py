"""Reports for Prio3: which proof a statistic's records need, and how reports are encoded.

A report is for one record: a row with a nonce, the public share and a server's input share.
Everything here is public, and the same for every role.
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
"""Bytes that each server contributes to the verification key."""

CHUNK_BYTES = 1 << 20
"""About how many bytes of verifier shares a server sends at a time; it bounds a step's work."""

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
        """The instance of Prio3 that is run on every report."""

    @abstractmethod
    def encode(self, vectors: Vector) -> Vector:
        """Ring vectors of records as encoded measurements, with the same sum in the field.

        A vector that no record can have becomes an invalid measurement; no exception is raised.
        """

    @abstractmethod
    def total(self, share: Vector) -> Vector:
        """A server's share of the sum of ring vectors, from its share of summed measurements."""

    @property
    def field(self) -> Field:
        return self.prio3.field

    @cached_property
    def context(self) -> bytes:
        """Binds proofs to the run and its whole query: a report does not verify anywhere else."""
        return b"tallyroom prio3 " + self.query.run

    def verify_key(self, contributions: bytes) -> bytes:
        """The verification key. If at least one server keeps its contribution secret until parties
        have submitted, no party knew the key when it made its proof."""
        return hashlib.blake2s(contributions, person=b"verify").digest()

    def report_bytes(self, server: int) -> int:
        prio3 = self.prio3
        return NONCE_BYTES + prio3.public_share_bytes + prio3.input_share_bytes(server)

    def split(self, reports: Bodies) -> Parts:
        """The columns of reports, which are (rows, `report_bytes`)."""
        end = NONCE_BYTES + self.prio3.public_share_bytes
        columns = (reports[:, :NONCE_BYTES], reports[:, NONCE_BYTES:end], reports[:, end:])
        return Parts(*map(np.ascontiguousarray, columns))

    @property
    def head_bytes(self) -> int:
        """The length of a roster's head: a contribution, and a count for every party."""
        counted = count_type(self.query)
        size = 0 if counted is None else counted.itemsize
        return CONTRIBUTION_BYTES + size * self.query.parties

    def chunks(self, members: Members, counts: Counts) -> list[Ids]:
        """The members in order, in chunks of about `CHUNK_BYTES` of verifier shares."""
        ids = np.flatnonzero(members).astype(np.uint32)
        step = max(1, CHUNK_BYTES // self.prio3.verifier_share_bytes)
        number = (np.cumsum(counts[ids]) - 1) // step
        return np.split(ids, np.flatnonzero(np.diff(number)) + 1)

    def check_size(self) -> None:
        """Raises `LocalError` if a party's reports or a roster do not fit a message."""
        size = self.report_bytes(0)
        if size * self.query.max_records_per_party > MAX_ROW:
            raise LocalError(
                f"prio3 takes {size} bytes per record, so a party can send {MAX_ROW // size} "
                f"records, not {self.query.max_records_per_party}: use fewer bins or more parties"
            )
        if self.head_bytes + self.query.parties // 8 > MAX_ROW:
            raise LocalError(f"prio3: the roster of {self.query.parties} parties is too long")


class OneHotReporting(Reporting):
    """A record is a vector with a single 1, which the proof shows."""

    @cached_property
    def prio3(self) -> Prio3:
        return prio3_histogram(self.query.plan.length, shares=self.query.servers)

    def encode(self, vectors: Vector) -> Vector:
        return self.field.from_signed(signed(np.ascontiguousarray(vectors)))

    def total(self, share: Vector) -> Vector:
        return share


class StepReporting(OneHotReporting):
    """A record is a step from 0 to 1 at one of the thresholds, encoded as a 1 at the step.

    Servers sum along the thresholds, which is linear. Proving 0 or 1 at each threshold would cost
    as much, and would let a party count at some thresholds but not at higher ones.
    """

    def encode(self, vectors: Vector) -> Vector:
        return super().encode(np.diff(vectors, axis=1, prepend=np.uint64(0)))

    def total(self, share: Vector) -> Vector:
        return apply_integer_map(self.field, lambda digits: np.cumsum(digits, axis=-1), share)


class NumberReporting(Reporting):
    """A record is a number of grid steps above the lower bound; the proof shows its range."""

    @cached_property
    def _steps(self) -> int:
        measurement = self.query.plan.measurement
        assert isinstance(measurement, BoundedNumber)
        return measurement.most

    @cached_property
    def prio3(self) -> Prio3:
        return prio3_sum(self._steps, self.query.servers)

    def encode(self, vectors: Vector) -> Vector:
        """Bits of the number. If it is out of range, the excess is added to the first bit, whose
        weight is 1."""
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
"""The proof for each kind of measurement."""


def reporting(query: Query) -> Reporting:
    """The reports of a query. Raises `LocalError` if there is no proof for the statistic."""
    statistic, measurement = query.statistic, query.plan.measurement
    kind = REPORTINGS.get(type(measurement) if measurement else Measurement)
    if kind is None:
        raise LocalError(
            f"prio3 has no proof for {statistic.name}: it does sums, means, histograms and "
            "curves of counts"
        )
    return kind(query)
