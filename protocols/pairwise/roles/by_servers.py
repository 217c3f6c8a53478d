"""Pairs by two servers: parties send XOR shares of their records once, and may leave.

A record is the bits that the kernel's circuit takes. Server 1 gets a seed of 16 bytes for each
party, server 0 the bits XOR the seed's stream: each by itself is uniform. When all who came are
there, the two garble the kernel on all pairs of their records. XOR is free in a circuit, so shares
cost nothing to join; what a pair costs is its ANDs, 32 bytes each, and 16 bytes for each bit of
both records. Outputs come as XOR shares of their code, which the two turn into shares of the totals
(`joint.conversion`); `weighed`, as shares modulo 2^64, which each server adds up over all pairs.

    party -> server             SUBMIT    how many records, and a share of them
    server -> coordinator       ROSTER    how many records each party sent, and who is here
    coordinator -> server       RELEASE   whose records, and how many pairs that makes
    server <-> server           TOGETHER  the circuits of all pairs
    server -> coordinator       SHARE     its share of the totals, with noise

Trust: the two must not collude. Nobody checks what server 0 garbles. Whatever it is, a pair's
outputs are possible ones, so that the total moves no further than the noise is for; server 0 may
learn one bit, from whether server 1 refuses. `weighed`, it can make the released total tell any
record, past any noise. Whom records meet is drawn from the public seed over the records of those
who are here, so no pair is ever lost.
"""

import struct

import numpy as np
from numpy.typing import NDArray

from tallyroom.fss.prg import expand_seeds
from tallyroom.protocols.aggregation.collector import Collector, CollectorState
from tallyroom.protocols.aggregation.contract import Aggregator, Bulk, Records
from tallyroom.protocols.aggregation.one_round import ServerState, SummingServer
from tallyroom.protocols.aggregation.rosters import (
    CountType,
    counts_body,
    members_of,
    roster,
    submissions,
)
from tallyroom.protocols.algebra.ring import Vector, add_shares
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.garbling.circuit import Circuit
from tallyroom.protocols.garbling.circuit_builder import Builder, Word
from tallyroom.protocols.garbling.outputs import IntegerShares, OutputShares
from tallyroom.protocols.joint.computation import Program, Task, instances_that_fit
from tallyroom.protocols.joint.conversion import convert
from tallyroom.protocols.kernels.contract import Kernel
from tallyroom.protocols.pairwise.sampling.schedule import pairs_of
from tallyroom.protocols.plans.pairs import PairwiseMean
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.wire.machine import (
    Continue,
    Done,
    Failed,
    Machine,
    Rejected,
    SpeaksOnce,
    Step,
)
from tallyroom.protocols.wire.messages import MAX_ROW, Message, Phase

Bytes = NDArray[np.uint8]

SEED_BYTES = 16
COUNT = struct.Struct("<I")
COUNTED: CountType = np.dtype("<u4")
PAIRS = struct.Struct("<Q")
MAX_PAIRS = 1 << 22
"""Some gigabytes between the servers."""


class ServerMachines:
    """The roles of pairs that servers compute (`protocols.run.machines`)."""

    stages = 1
    repeatable = True

    def check(self, aggregator: Aggregator, query: Query) -> None:
        plan = pairs_of(query)
        if aggregator.name != "additive" or query.servers != 2:
            raise LocalError(
                "--meet servers takes the two servers of additive, "
                f"not {query.servers} of {aggregator.name}"
            )
        if COUNT.size + query.max_records_per_party * _record_bytes(plan.kernel) > MAX_ROW:
            raise LocalError(
                f"{query.max_records_per_party} records of one party do not fit a message"
            )
        if (pairs := plan.sample.count(query.records)) > MAX_PAIRS:
            raise LocalError(
                f"{pairs} pairs are too many for two servers: "
                f"choose fewer --pairs-per-party, {MAX_PAIRS} at most in all"
            )

    def party(
        self, aggregator: Aggregator, query: Query, holdings: Holdings, randomness: Randomness
    ) -> Machine:
        return SubmittingParty(query, holdings, randomness)

    def server(
        self,
        aggregator: Aggregator,
        query: Query,
        index: int,
        randomness: Randomness,
        bulk: Bulk,
    ) -> Machine:
        return MeetingServer(query, index, randomness, bulk)

    def collector(self, aggregator: Aggregator, query: Query, records: Records) -> Machine:
        return MeetingCollector(query, records)


class SubmittingParty(SpeaksOnce):
    """Sees its own records. Sends each server a share of them, and is done."""

    def __init__(self, query: Query, holdings: Holdings, randomness: Randomness) -> None:
        self._query = query
        self._holdings = holdings
        self._randomness = randomness
        plan = pairs_of(query)
        self._bits = plan.kernel.input_bits(plan.measured(holdings))

    def start(self) -> Step:
        """Parties with equally many records travel together: their rows have one length."""
        holdings = self._holdings
        messages: list[Message] = []
        for count in np.unique(holdings.counts).tolist():
            chosen = np.flatnonzero(holdings.counts == count)
            ids = holdings.ids[chosen]
            records = holdings.starts[chosen][:, None] + np.arange(count)
            packed = np.packbits(self._bits[records.ravel()], axis=1).reshape(len(ids), -1)
            seeds = np.ascontiguousarray(self._randomness.rows("record seeds", ids, SEED_BYTES))
            head = np.broadcast_to(np.frombuffer(COUNT.pack(count), np.uint8), (len(ids), 4))
            masked = packed ^ _stream(seeds, packed.shape[1])
            bodies = [np.ascontiguousarray(np.hstack([head, each])) for each in (masked, seeds)]
            messages += submissions(self._query, ids, bodies)
        return Done(messages=tuple(messages))


class MeetingServer(SummingServer):
    """Sees one share of every record, and how many each party has."""

    def __init__(self, query: Query, index: int, randomness: Randomness, bulk: Bulk) -> None:
        super().__init__(query, index, randomness, bulk)
        self._plan = pairs_of(query)
        self._record_bytes = _record_bytes(self._plan.kernel)
        self._counts = np.zeros(query.parties, dtype=np.uint32)
        self._members = np.zeros(query.parties, dtype=bool)
        self._records: Bytes = np.zeros((0, self._plan.kernel.record_bits), dtype=np.uint8)
        self.awaits_program = True

    def check(self, message: Message) -> str | None:
        rows = message.rows()
        if message.width < COUNT.size or len(np.unique(rows[:, : COUNT.size], axis=0)) != 1:
            return "not the records of parties that have equally many"
        (count,) = COUNT.unpack(rows[0, : COUNT.size].tobytes())
        if not 1 <= count <= self._query.max_records_per_party:
            return f"{count} records, where a party holds 1 to {self._query.max_records_per_party}"
        body = count * self._record_bytes if self._index == 0 else SEED_BYTES
        if message.width != COUNT.size + body:
            return f"a share of {message.width} bytes, expected {COUNT.size + body}"
        return None

    def pack(self, message: Message) -> Bytes:
        return np.ascontiguousarray(message.rows()).reshape(-1)

    def _close(self) -> Step:
        self._state = ServerState.CLOSED
        for ids, block in self._bulk.blocks():
            self._counts[ids] = _count(block)
        body = counts_body(self._counts, COUNTED) + roster(self._present, self._faults)
        return Continue((self._to_coordinator(Phase.ROSTER, body),))

    def releasable(self, message: Message) -> NDArray[np.bool] | Rejected:
        """A release names parties, and how many pairs that makes."""
        body, width = message.body[0], -(-self._query.parties // 8)
        members = members_of(body[:width], self._query.parties)
        if message.links != 1 or members is None or body.size != width + PAIRS.size:
            return Rejected(message.sender, f"not {self._query.parties} parties and their pairs")
        (pairs,) = PAIRS.unpack(body[width:].tobytes())
        records = int(self._counts[members].sum())
        if records < 2 or pairs != self._plan.sample.count(records):
            return Rejected(message.sender, f"{records} records do not make {pairs} pairs")
        if min(self._plan.sample.matchings, records - 1) > self._plan.sample.met:
            return Rejected(message.sender, "records in more pairs than the noise is for")
        return self.may_release(message, members)

    def sum_over(self, members: NDArray[np.bool]) -> Vector:
        """Nothing is summed yet: the shares of the members' records are laid out, by party."""
        self._members = members
        starts = np.cumsum(np.where(members, self._counts, 0)) - self._counts
        packed = np.zeros((int(self._counts[members].sum()), self._record_bytes), dtype=np.uint8)
        for ids, block in self._bulk.blocks():
            count = _count(block)
            rows = block.reshape(len(ids), -1)[:, COUNT.size :]
            if self._index != 0:
                rows = _stream(np.ascontiguousarray(rows), count * self._record_bytes)
            chosen = members[ids]
            places = starts[ids[chosen]].astype(np.int64)[:, None] + np.arange(count)
            packed[places.ravel()] = rows[chosen].reshape(-1, self._record_bytes)
        bits = self._plan.kernel.record_bits
        self._records = np.unpackbits(packed, axis=1)[:, :bits]
        return np.zeros(self._plan.released, dtype=np.uint64)

    def program(self) -> tuple[str, Program]:
        plan = self._plan
        of = (plan.identity, self._members.tobytes(), self._counts[self._members].tolist())
        return repr(of), meet(plan, self._records, self._index)

    def take_result(self, result: Vector) -> None:
        self.total = result
        self._records = self._records[:0]
        self.awaits_program = False


def meet(plan: PairwiseMean, records: Bytes, index: int) -> Program:
    """Shares of the total of each output over all pairs, from shares of the records' bits."""
    if plan.bounded:
        return _meet_bounded(plan, records, index)
    return _meet_weighed(plan, records)


def _meet_bounded(plan: PairwiseMean, records: Bytes, index: int) -> Program:
    """Outputs as XOR shares of their code, which are then converted (`joint.conversion`)."""
    pairs = plan.sample.pairs(len(records))
    circuit, form = coded_pair_circuit(plan.kernel), OutputShares.XOR
    most = instances_that_fit(circuit, form)
    code = plan.kernel.code
    bits = np.zeros((len(pairs), code.wires), dtype=np.uint8)
    for start in range(0, len(pairs), most):
        some = pairs[start : start + most]
        shares = yield Task(circuit, form, records[some].reshape(len(some), -1))
        bits[start : start + most] = shares
    found: Vector = yield from convert(code, bits, index)
    return found


def _meet_weighed(plan: PairwiseMean, records: Bytes) -> Program:
    pairs = plan.sample.pairs(len(records))
    circuit = pair_circuit(plan.kernel)
    form = IntegerShares(tuple((out.bits, out.signed) for out in plan.kernel.outputs))
    most = instances_that_fit(circuit, form)
    total = np.zeros(plan.outputs, dtype=np.uint64)
    for start in range(0, len(pairs), most):
        some = pairs[start : start + most]
        shares = yield Task(circuit, form, records[some].reshape(len(some), -1))
        total += shares.sum(axis=0, dtype=np.uint64)
    return total


def pair_circuit(kernel: Kernel) -> Circuit:
    """The kernel of two records, of both of which each side brings a share."""
    bits = kernel.record_bits
    builder = Builder(2 * bits, 2 * bits)
    sides = zip(builder.garbler, builder.evaluator, strict=True)
    wires = tuple(builder.xor(ours, theirs) for ours, theirs in sides)
    return builder.circuit(list(kernel.joined(builder, wires[:bits], wires[bits:])))


def coded_pair_circuit(kernel: Kernel) -> Circuit:
    """The same in the outputs' code."""
    bits = kernel.record_bits
    builder = Builder(0, 2 * bits, shared_inputs=True)
    x, y = builder.evaluator[:bits], builder.evaluator[bits:]
    return builder.circuit([Word(kernel.coded(builder, x, y))])


class MeetingCollector(Collector):
    """Sees noisy shares, and who contributed how many records."""

    def __init__(self, query: Query, records: Records) -> None:
        super().__init__(query, records, add_shares)
        self._plan = pairs_of(query)

    @property
    def counted(self) -> CountType | None:
        return COUNTED

    def _released(self) -> Step:
        pairs = self._members_records()
        if not pairs:
            self._state = CollectorState.OVER
            return Failed("fewer than two records are here: there is no pair")
        body = np.packbits(self._members).tobytes() + PAIRS.pack(pairs)
        return Continue(self._to_servers(Phase.RELEASE, body))

    def _members_records(self) -> int:
        """Pairs here."""
        records = int(self._records[self._members].sum())
        return self._plan.sample.count(records) if records > 1 else 0


def _record_bytes(kernel: Kernel) -> int:
    return -(-kernel.record_bits // 8)


def _count(block: Bytes) -> int:
    """How many records each party of a block has: all have equally many."""
    (count,) = COUNT.unpack(block[: COUNT.size].tobytes())
    return int(count)


def _stream(seeds: Bytes, width: int) -> Bytes:
    """`width` bytes of every seed's stream."""
    words = expand_seeds(seeds, -(-width // 8))
    stream: Bytes = np.ascontiguousarray(words.astype("<u8")).view(np.uint8)[:, :width]
    return stream
