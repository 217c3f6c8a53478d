"""Pairs of parties whose outputs nobody can weigh.

The two parties of a pair end up with XOR shares of their outputs in a code, every string of whose
bits stands for possible outputs (`kernels.codes`). Each party shares its bits once more, between
the two servers: server 1 gets a seed, server 0 the bits XOR the seed's stream. So neither server
sees an output, not even together with one party of the pair. A server XORs what it has of both
ends of a pair and holds an XOR share of its code. The two turn these into shares of the totals
(`joint.conversion`). A single server, a curator, gets the bits themselves.

    coordinator -> party    PAIRING   whom to meet
    party <-> party         PAIR      the circuits of their pairs
    party -> server         SUBMIT    a share of its bits, slot after slot
    party -> coordinator    PAIRED    which of its slots are done
    coordinator -> server   RELEASE   whose slots count, and how many records each party has
    server <-> server       TOGETHER  from shares of bits to shares of totals
    server -> coordinator   SHARE     its share of the totals, with noise

Servers work out who met whom from the public seed and the numbers of records, which the coordinator
tells both alike, or they compute nothing together. Every slot is in one pair at most. So whatever
parties, the coordinator and one server say, a record moves the totals by its number of pairs times
the code's reach, which is what the noise is for where the reach is Δ.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

from tallyroom.fss.prg import expand_seeds
from tallyroom.protocols.aggregation.contract import Aggregator, Bodies, Bulk, Records
from tallyroom.protocols.aggregation.one_round import SummingServer
from tallyroom.protocols.aggregation.rosters import members_of
from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.garbling.links import Mask
from tallyroom.protocols.joint.computation import Program
from tallyroom.protocols.joint.conversion import convert
from tallyroom.protocols.pairwise.roles.machines import PairwiseMachines, one_round
from tallyroom.protocols.pairwise.roles.party import PairwiseParty
from tallyroom.protocols.pairwise.roles.server_and_collector import STAGES, PairwiseCollector
from tallyroom.protocols.pairwise.sampling.pair_assignment import (
    both_ends,
    draw_meetings,
    parse_cells,
)
from tallyroom.protocols.pairwise.sampling.schedule import Schedule, pairs_of
from tallyroom.protocols.plans.pairs import COUNT_BYTES, PairwiseMean
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings, bound_to_rows
from tallyroom.protocols.wire.machine import Continue, Machine, Rejected, Step
from tallyroom.protocols.wire.messages import Message

Bytes = NDArray[np.uint8]

SEED_BYTES = 16


class BoundedMachines(PairwiseMachines):
    def party(
        self, aggregator: Aggregator, query: Query, holdings: Holdings, randomness: Randomness
    ) -> Machine:
        return BoundedParty(one_round(aggregator, query), query, holdings, randomness)

    def server(
        self,
        aggregator: Aggregator,
        query: Query,
        index: int,
        randomness: Randomness,
        bulk: Bulk,
    ) -> Machine:
        return BoundedServer(query, index, randomness, bulk)

    def collector(self, aggregator: Aggregator, query: Query, records: Records) -> Machine:
        return BoundedCollector(one_round(aggregator, query), query, records)


def slot_bytes(plan: PairwiseMean) -> int:
    """Of the bits of one slot."""
    return -(-plan.kernel.code.wires // 8)


class BoundedParty(PairwiseParty):
    """Sees its own records, and whom they meet. Learns shares of bits."""

    def _no_shares(self, shape: tuple[int, int]) -> NDArray[np.unsignedinteger]:
        return np.zeros((*shape, self._plan.kernel.code.wires), dtype=np.uint8)

    def _own_shares(self, values: NDArray[np.int64]) -> NDArray[np.unsignedinteger]:
        return self._plan.kernel.code.bits(values)

    def _bodies(self) -> list[Bodies]:
        packed = np.packbits(self._shares, axis=2).reshape(len(self._ids), -1)
        if self._query.servers == 1:
            return [packed]
        words = np.pad(packed, ((0, 0), (0, -packed.shape[1] % 8))).view("<u8").astype(np.uint64)
        masks = bound_to_rows(self._randomness, self._ids, words)
        seeds = np.ascontiguousarray(masks.rows("seeds of bits", self._ids, SEED_BYTES))
        return [packed ^ _stream(seeds, packed.shape[1]), seeds]


class BoundedServer(SummingServer):
    """Sees a share of every party's bits, and who met whom."""

    def __init__(self, query: Query, index: int, randomness: Randomness, bulk: Bulk) -> None:
        super().__init__(query, index, randomness, bulk)
        self._plan = pairs_of(query)
        self._width = self._plan.slots * slot_bytes(self._plan)
        self.unseen_rounds = Schedule.of(query).rounds
        self._cells: Mask = np.zeros((query.parties, self._plan.slots), dtype=bool)
        self._counts: Records = np.zeros(query.parties, dtype=np.int64)
        self._bits: Bytes = np.zeros((0, self._plan.kernel.code.wires), dtype=np.uint8)
        self.awaits_program = query.servers > 1

    def start(self) -> Step:
        return Continue(deadline=STAGES * self._query.deadline)

    def check(self, message: Message) -> str | None:
        width = self._width if self._index == 0 else SEED_BYTES
        if message.width != width:
            return f"a share of {message.width} bytes, expected {width}"
        return None

    def pack(self, message: Message) -> Bytes:
        return message.rows().reshape(-1)

    def releasable(self, message: Message) -> NDArray[np.bool] | Rejected:
        """A release names parties, the slots of each that count, and how many records each has."""
        parties, plan = self._query.parties, self._plan
        body = message.body[0]
        ends = np.cumsum([-(-parties // 8), parties * -(-plan.slots // 8), parties * COUNT_BYTES])
        refusal = Rejected(message.sender, f"not {plan.slots} slots for each of {parties} parties")
        if message.links != 1 or body.size != ends[-1]:
            return refusal
        cells = parse_cells(body[ends[0] : ends[1]].reshape(parties, -1), plan.slots)
        members = members_of(body[: ends[0]], parties)
        if cells is None or members is None or cells[~members].any():
            return refusal
        counts = np.ascontiguousarray(body[ends[1] :]).view("<u4").astype(np.int64)
        if (wrong := self._wrong(counts, cells)) is not None:
            return Rejected(message.sender, wrong)
        allowed = self.may_release(message, members)
        if not isinstance(allowed, Rejected):
            self._cells, self._counts = cells, counts
        return allowed

    def _wrong(self, counts: Records, cells: Mask) -> str | None:
        most, sample = self._query.max_records_per_party, self._plan.sample
        records = int(counts.sum())
        if counts.max() > most or not 2 <= records <= self._query.records:
            return f"{records} records, where parties hold at most {most} each"
        if min(sample.matchings, records - 1) > sample.met:
            return "records in more pairs than the noise is for"
        if not np.array_equal(both_ends(sample, counts, cells), cells):
            return "half a pair"
        return None

    def sum_over(self, members: NDArray[np.bool]) -> Vector:
        """Shares of the codes of all pairs that count, side by side. A curator adds them up."""
        plan, width = self._plan, slot_bytes(self._plan)
        rows = np.zeros((self._query.parties, plan.slots, width), dtype=np.uint8)
        for ids, block in self._bulk.blocks():
            own = np.ascontiguousarray(block.reshape(len(ids), -1))
            bits = own if self._index == 0 else _stream(own, self._width)
            rows[ids] = bits.reshape(len(ids), plan.slots, width)
        parties, entries = draw_meetings(plan.sample, self._counts)
        counted = self._cells[parties, entries["slot"]] & (entries["second"] == 0)
        party, pair = parties[counted], entries[counted]
        both = rows[party, pair["slot"]] ^ rows[pair["partner"], pair["theirs"]]
        self._bits = np.unpackbits(both, axis=1)[:, : plan.kernel.code.wires]
        if self.awaits_program:
            return np.zeros(plan.released, dtype=np.uint64)
        total: Vector = plan.kernel.code.values(self._bits).sum(axis=0).view(np.uint64)
        return total

    def program(self) -> tuple[str, Program]:
        told = hashlib.sha256(self._cells.tobytes() + self._counts.tobytes()).hexdigest()
        return repr((self._plan.identity, told)), convert(
            self._plan.kernel.code, self._bits, self._index
        )

    def take_result(self, result: Vector) -> None:
        self.total = result
        self._bits = self._bits[:0]
        self.awaits_program = False


class BoundedCollector(PairwiseCollector):
    """As that of any pairs. Tells servers how many records each party has, too."""

    def _release_body(self) -> bytes:
        return super()._release_body() + self._records.astype("<u4").tobytes()


def _stream(seeds: Bytes, width: int) -> Bytes:
    """`width` bytes of every seed's stream."""
    words = expand_seeds(seeds, -(-width // 8))
    stream: Bytes = np.ascontiguousarray(words.astype("<u8")).view(np.uint8)[:, :width]
    return stream
