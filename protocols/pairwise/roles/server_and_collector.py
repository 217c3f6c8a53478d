"""The server and the collector of a statistic of pairs.

They are those of any one-round aggregator, but that a slot counts only if both of its parties'
submissions are there and both call it done: half a pair is a random number.
"""

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.aggregation.collector import COLLECTOR_ACCEPTS, Collector, CollectorState
from tallyroom.protocols.aggregation.contract import Bulk, Records
from tallyroom.protocols.aggregation.one_round import OneRound, OneRoundServer
from tallyroom.protocols.aggregation.rosters import members_of
from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.garbling.links import Mask
from tallyroom.protocols.pairwise.sampling.pair_assignment import (
    both_ends,
    draw_meetings,
    meeting_messages,
    pack_cells,
    parse_cells,
)
from tallyroom.protocols.pairwise.sampling.schedule import Schedule, pairs_of
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.wire.machine import Continue, Failed, Rejected, Step
from tallyroom.protocols.wire.messages import Message, Phase, Role

STAGES = 20
"""Deadlines that may pass until servers give up on parties, which may be at work all the while. The
collector excuses those that are not, once the others are done."""

PATIENCE = 2
"""Deadlines without news until a party is left out. One whose partner is gone waits for it for a
deadline of its own, which may begin when others are done: it must not pass for gone itself."""


class PairwiseServer(OneRoundServer):
    """Sees one share of every party's shares, and who met whom."""

    def __init__(
        self,
        aggregator: OneRound,
        query: Query,
        index: int,
        randomness: Randomness,
        bulk: Bulk,
    ) -> None:
        super().__init__(aggregator, query, index, randomness, bulk)
        self._slots = pairs_of(query).slots
        self._outputs = pairs_of(query).outputs
        self.unseen_rounds = Schedule.of(query).rounds
        self._cells: Mask = np.zeros((query.parties, self._slots), dtype=bool)

    def start(self) -> Step:
        return Continue(deadline=STAGES * self._query.deadline)

    def releasable(self, message: Message) -> NDArray[np.bool] | Rejected:
        """A release names parties, and the slots of each that count."""
        parties = self._query.parties
        width = -(-parties // 8)
        body = message.body[0]
        refusal = Rejected(message.sender, f"not {self._slots} slots for each of {parties} parties")
        if message.links != 1 or body.size != width + parties * -(-self._slots // 8):
            return refusal
        cells = parse_cells(body[width:].reshape(parties, -1), self._slots)
        members = members_of(body[:width], parties)
        if cells is None or members is None or cells[~members].any():
            return refusal
        allowed = self.may_release(message, members)
        if not isinstance(allowed, Rejected):
            self._cells = cells
        return allowed

    def sum_over(self, members: NDArray[np.bool]) -> Vector:
        length = self._query.plan.length
        share = np.zeros(length, dtype=np.uint64)
        whole: Mask = np.asarray(self._cells.all(axis=1))
        for ids, block in self._bulk.blocks():
            rows = block.reshape(len(ids), self._width)
            entire: Mask = whole[ids]
            if entire.any():
                share += self._aggregator.merge(rows[entire], length, self._index)
            for at in np.flatnonzero(self._cells[ids].any(axis=1) & ~entire).tolist():
                one = self._aggregator.merge(rows[at : at + 1], length, self._index)
                share += one * np.repeat(self._cells[ids[at]], self._outputs).astype(np.uint64)
        return share


PAIRS_ACCEPTS: dict[tuple[CollectorState, Phase], Role] = COLLECTOR_ACCEPTS | {
    (CollectorState.ROSTERS, Phase.PAIRED): Role.PARTY,
}
"""What a collector of pairs takes in which state, and from whom; everything else is rejected. Which
pairs a party completed may be said again, in the same words."""


class PairwiseCollector(Collector):
    """Tells parties whom to meet, and hears which meetings took place."""

    def __init__(self, aggregator: OneRound, query: Query, records: Records) -> None:
        super().__init__(query, records, aggregator.unshard)
        self._sample = pairs_of(query).sample
        self._slots = pairs_of(query).slots
        self.unseen_rounds = Schedule.of(query).rounds
        self._met = np.zeros((query.parties, self._slots), dtype=bool)
        self._told = np.zeros(query.parties, dtype=bool)
        self._excused = False
        self._cells: Mask = np.zeros_like(self._met)

    def start(self) -> Step:
        step = super().start()
        assert isinstance(step, Continue)
        meetings = meeting_messages(self._query, self._sample, self._records)
        return Continue((*step.messages, *meetings))

    def receive(self, message: Message) -> Step:
        if PAIRS_ACCEPTS.get((self._state, message.phase)) is not message.sender_role:
            return Rejected(message.sender, f"{message.phase.label} is out of turn")
        return self._paired(message) if message.phase is Phase.PAIRED else super().receive(message)

    def _paired(self, message: Message) -> Step:
        cells = parse_cells(message.rows(), self._slots)
        if int(message.senders.max()) >= self._query.parties or cells is None:
            return Rejected(message.sender, f"not a bitmap of {self._slots} slots")
        again = self._told[message.senders]
        if (again & (self._met[message.senders] != cells).any(axis=1)).any():
            return Rejected(message.sender, "it said otherwise before")
        self._met[message.senders] = cells
        self._told[message.senders] = True
        if self._here <= self._heard:
            return self._proceed()
        return Continue(deadline=PATIENCE * self._query.deadline)

    def expire(self) -> Step:
        """Who did not say in time which pairs are done has none: servers need not wait for what it
        submits."""
        waiting = self._state is CollectorState.ROSTERS and not self._here <= self._heard
        if waiting and self._told.any() and not self._excused:
            self._excused = True
            excuse = self._to_servers(Phase.EXCUSE, np.packbits(~self._told).tobytes())
            return Continue(excuse, deadline=PATIENCE * self._query.deadline)
        if self._state is CollectorState.ROSTERS and self._here <= self._heard:
            self._members &= self._told
            return self._proceed()
        return super().expire()

    def _release(self) -> Step:
        """Only once all that submitted have said which pairs are done."""
        if (self._members & ~self._told).any():
            return Continue()
        return super()._release()

    def _released(self) -> Step:
        present = self._met & self._members[:, None]
        self._cells = both_ends(self._sample, self._records, present)
        if not self._cells.any():
            self._state = CollectorState.OVER
            return Failed("no pair was completed")
        return Continue(self._to_servers(Phase.RELEASE, self._release_body()))

    def _release_body(self) -> bytes:
        return np.packbits(self._members).tobytes() + pack_cells(self._cells).tobytes()

    def _members_records(self) -> int:
        """Pairs here: each of them fills two slots."""
        return int(np.count_nonzero(self._cells)) // 2

    def _lost_pairs(self) -> int:
        _, entries = draw_meetings(self._sample, self._records)
        return len(entries) // 2 - self._members_records()
