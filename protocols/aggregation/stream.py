"""Machines of a stream: batch after batch, one question, one charge.

Parties submit batches in order, each when it has one, and may be ahead of others. A server closes a
batch when all parties that it waits for have submitted it, or when the deadline passes: who is
missing then is left out of that batch alone, and comes too late with it. The coordinator opens the
stream by one release, and asks for batch after batch over the parties that all servers have. What a
server says to a batch is fixed by what it said before: each batch is released once, over one set of
parties, with noise that follows from the server's secret and the batch. A batch said again gets the
same share again.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.aggregation.collector import Collector, CollectorState
from tallyroom.protocols.aggregation.contract import Aggregator, Bodies, Bulk, Records
from tallyroom.protocols.aggregation.mechanism import draw_noise
from tallyroom.protocols.aggregation.one_round import OneRound, out_of_turn
from tallyroom.protocols.aggregation.rosters import (
    Fault,
    members_of,
    parse_members,
    roster,
    submissions,
)
from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.stream import Stream
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.wire.machine import (
    Continue,
    Done,
    Machine,
    Rejected,
    SpeaksOnce,
    Step,
)
from tallyroom.protocols.wire.messages import (
    Message,
    Phase,
    Role,
    address,
    are_distinct,
    body_of,
)

HEAD = 8
"""Bytes that number a batch, in front of all that is said of it."""

MOST_SHARES = 1 << 14
"""Shares of one answer, of all servers and batches: all are kept until the end, to be checked."""

STREAM_ACCEPTS: dict[Phase, Role] = {
    Phase.SUBMIT: Role.PARTY,
    Phase.EXCUSE: Role.COORDINATOR,
    Phase.RELEASE: Role.COORDINATOR,
    Phase.ASK: Role.COORDINATOR,
}
"""Which messages a server takes, and from whom. Whether in turn, each says by its batch."""


class StreamMachines:
    """Over aggregators whose servers add up what parties send in one round, modulo 2^64."""

    stages = 1
    repeatable = True

    def check(self, aggregator: Aggregator, query: Query) -> None:
        _one_round(aggregator)
        if (most := MOST_SHARES // query.servers) < plan_of(query).batches:
            raise LocalError(
                f"a stream of {query.servers} servers has at most {most} batches: --batches"
            )

    def party(
        self, aggregator: Aggregator, query: Query, holdings: Holdings, randomness: Randomness
    ) -> Machine:
        return StreamParty(_one_round(aggregator), query, holdings, randomness)

    def server(
        self,
        aggregator: Aggregator,
        query: Query,
        index: int,
        randomness: Randomness,
        bulk: Bulk,
    ) -> Machine:
        return StreamServer(_one_round(aggregator), query, index, randomness)

    def collector(self, aggregator: Aggregator, query: Query, records: Records) -> Machine:
        return StreamCollector(_one_round(aggregator), query, records)


def _one_round(aggregator: Aggregator) -> OneRound:
    if not isinstance(aggregator, OneRound) or type(aggregator).unshard is not OneRound.unshard:
        raise LocalError(f"{aggregator.name} has no streams: additive and curator have")
    return aggregator


def plan_of(query: Query) -> Stream:
    assert isinstance(query.plan, Stream)
    return query.plan


def numbered(batch: int, rows: Bodies) -> Bodies:
    head = np.frombuffer(batch.to_bytes(HEAD, "little"), dtype=np.uint8)
    return np.hstack([np.broadcast_to(head, (len(rows), HEAD)), rows])


def number_of(body: Bodies) -> int | None:
    """The batch that all rows of a body are about; None if there is none."""
    if body.shape[1] < HEAD or (body[:, :HEAD] != body[:1, :HEAD]).any():
        return None
    return int.from_bytes(body[0, :HEAD].tobytes(), "little")


class StreamParty(SpeaksOnce):
    """Sees its own records. Submits batch after batch."""

    def __init__(
        self, aggregator: OneRound, query: Query, holdings: Holdings, randomness: Randomness
    ) -> None:
        self._aggregator = aggregator
        self._query = query
        self._ids = holdings.ids
        plan = plan_of(query)
        upto = plan.encode(holdings).reshape(len(self._ids), plan.batch_length, plan.batches)
        self._batches = np.diff(upto, axis=2, prepend=np.uint64(0))
        self._randomness = randomness
        self._next = 0

    def start(self) -> Step:
        return self.proceed()

    def proceed(self) -> Step:
        batch, self._next = self._next, self._next + 1
        vectors = np.ascontiguousarray(self._batches[:, :, batch])
        source = self._randomness.derive(f"batch {batch}")
        shares = self._aggregator.shard(self._ids, vectors, self._query.servers, source)
        messages = submissions(self._query, self._ids, [numbered(batch, each) for each in shares])
        if self._next == plan_of(self._query).batches:
            return Done(messages=messages)
        return Continue(messages, more=True)


class _Batch:
    """What a server holds of one batch."""

    def __init__(self, parties: int, width: int) -> None:
        self.present = np.zeros(parties, dtype=bool)
        self.rows: NDArray[np.uint8] = np.zeros((parties, width), dtype=np.uint8)
        self.prints = np.zeros(parties, dtype=np.uint64)


class StreamServer:
    """Sees one share of every batch of every party, and who submitted it when."""

    def __init__(
        self, aggregator: OneRound, query: Query, index: int, randomness: Randomness
    ) -> None:
        self._aggregator = aggregator
        self._query = query
        self._plan = plan_of(query)
        self._index = index
        self._randomness = randomness
        self._print_key = randomness.derive("fingerprints")
        self._width = aggregator.width(self._plan.batch_length, index)
        self._awaited = np.ones(query.parties, dtype=bool)
        self._batches: dict[int, _Batch] = {}
        self._faults: dict[int, Fault] = {}
        self._batch = 0
        self._closed = False
        self._opened: bytes | None = None
        self._last: tuple[bytes, Message] | None = None
        self._sums = np.zeros((self._plan.batch_length, self._plan.batches), dtype=np.uint64)

    def start(self) -> Step:
        return Continue()

    def receive(self, message: Message) -> Step:
        refusal = out_of_turn(message, STREAM_ACCEPTS.get(message.phase), "streaming")
        if refusal is not None:
            return refusal
        match message.phase:
            case Phase.SUBMIT:
                return self._submit(message)
            case Phase.EXCUSE:
                return self._excuse(message)
            case Phase.RELEASE:
                return self._open(message)
            case _:
                return self._ask(message)

    def expire(self) -> Step:
        return (
            self._close() if not self._closed and self._batch < self._plan.batches else Continue()
        )

    # --- batches come in ---

    def _submit(self, message: Message) -> Step:
        ids = message.senders
        if int(ids.max()) >= self._query.parties:
            return Rejected(message.sender, f"there are only {self._query.parties} parties")
        if message.width != HEAD + self._width:
            reason = f"a batch of {message.width} bytes, expected {HEAD + self._width}"
            return self._refuse(message, Fault.MALFORMED, reason)
        number = number_of(message.rows())
        if number is None or number >= self._plan.batches:
            return Rejected(message.sender, f"the stream has {self._plan.batches} batches")
        held = self._batches.setdefault(number, _Batch(self._query.parties, self._width))
        rows = message.rows()[:, HEAD:]
        prints, repeated = self._fingerprints(number, rows), held.present[ids]
        if not are_distinct(ids) or (prints != held.prints[ids])[repeated].any():
            reason = f"submitted two different batches {number + 1}"
            return self._refuse(message, Fault.CONTRADICTORY, reason)
        if repeated.all():
            return Continue(repeated=True)
        if repeated.any():
            return Rejected(message.sender, "some of these parties have submitted it before")
        if number < self._batch + self._closed:
            return Rejected(message.sender, f"batch {number + 1} is over")
        held.present[ids], held.prints[ids], held.rows[ids] = True, prints, rows
        self._awaited[ids] = True  # whoever was away is back
        return self._close_when_complete()

    def _fingerprints(self, number: int, rows: Bodies) -> Vector:
        """64 keyed bits of each row, as `CollectingServer` has them."""
        padded = np.ascontiguousarray(np.pad(rows, ((0, 0), (0, -rows.shape[1] % 8))))
        weights = self._print_key.derive(f"batch {number}").words(padded.shape[1] // 8)
        prints: Vector = padded.view("<u8") @ (weights | np.uint64(1))
        return prints

    def _refuse(self, message: Message, fault: Fault, reason: str) -> Rejected:
        if message.links == 1:
            self._faults[int(message.senders[0])] = fault
        return Rejected(message.sender, reason)

    def _excuse(self, message: Message) -> Step:
        excused = parse_members(message, self._query.parties)
        if isinstance(excused, Rejected):
            return excused
        self._awaited &= ~excused
        return self._close_when_complete()

    @property
    def _present(self) -> NDArray[np.bool]:
        held = self._batches.get(self._batch)
        return np.zeros(self._query.parties, dtype=bool) if held is None else held.present

    def _close_when_complete(self) -> Step:
        over = self._closed or self._batch == self._plan.batches
        if over or (self._awaited & ~self._present).any():
            return Continue()
        return self._close()

    def _close(self) -> Step:
        self._closed = True
        body = self._batch.to_bytes(HEAD, "little") + roster(self._present, self._faults)
        return Continue((self._to_coordinator(Phase.ROSTER, body_of(body)),))

    # --- releases ---

    def _open(self, message: Message) -> Step:
        """The stream is opened once. Nothing is said before a batch is asked for."""
        members = parse_members(message, self._query.parties)
        if isinstance(members, Rejected):
            return members
        if self._opened not in (None, message.body[0].tobytes()):
            return Rejected(message.sender, "a second release over other parties")
        self._opened = message.body[0].tobytes()
        return Continue()

    def _ask(self, message: Message) -> Step:
        asked = message.body[0].tobytes()
        if self._last is not None and asked == self._last[0]:
            return Continue((self._last[1],), (self._query.spend,), repeated=True)
        number = number_of(message.body) if message.links == 1 else None
        if number is None or number >= self._plan.batches:
            return Rejected(message.sender, f"the stream has {self._plan.batches} batches")
        if number < self._batch:
            return Rejected(message.sender, f"a second release of batch {number + 1}")
        if number > self._batch or not self._closed or self._opened is None:
            return Rejected(message.sender, f"batch {number + 1} is not complete")
        members = members_of(message.body[0, HEAD:], self._query.parties)
        if members is None:
            return Rejected(message.sender, f"not a bitmap of {self._query.parties} parties")
        if (members & ~self._present).any():
            return Rejected(message.sender, "a release over parties that did not submit")
        if np.count_nonzero(members) < self._query.min_parties:
            reason = f"a release over fewer than {self._query.min_parties} parties"
            return Rejected(message.sender, reason)
        share = self._to_coordinator(Phase.SHARE, numbered(number, self._share(members)))
        self._last = asked, share
        self._batch, self._closed = number + 1, False
        following = self._close_when_complete()
        assert isinstance(following, Continue)
        spends = (self._query.spend,)
        return Continue((share, *following.messages), spends, deadline=self._query.deadline)

    def _share(self, members: NDArray[np.bool]) -> Bodies:
        """This server's share of what the batch completes, plus its noise."""
        plan, batch, held = self._plan, self._batch, self._batches[self._batch]
        if members.any():
            rows = held.rows[members]
            self._sums[:, batch] = self._aggregator.merge(rows, plan.batch_length, self._index)
        held.rows = held.rows[:0]
        upto = np.cumsum(self._sums, axis=1, dtype=np.uint64)
        if self._query.noise_law is None:
            return body_of(upto[:, batch].astype("<u8").tobytes())
        first, last = plan.filling.completed[batch : batch + 2]
        nodes = plan.measure(upto.reshape(-1))[first:last]
        if self._adds_noise:
            source = self._randomness.derive(f"noise of batch {batch}")
            (drawn,) = draw_noise(self._query, len(nodes), source)
            nodes = nodes + drawn.view(np.uint64)
        return body_of(np.concatenate([nodes, upto[1:, batch]]).astype("<u8").tobytes())

    @property
    def _adds_noise(self) -> bool:
        return self._query.noise is not Placement.CURATOR or self._index == 0

    def _to_coordinator(self, phase: Phase, body: Bodies) -> Message:
        ends = (Role.SERVER, Role.COORDINATOR, address(self._index), address(0))
        return Message(self._query.run, phase, *ends, body)


class StreamCollector(Collector):
    """Asks for batch after batch, over the parties whose batch all servers have."""

    def __init__(self, aggregator: OneRound, query: Query, records: Records) -> None:
        super().__init__(query, records, aggregator.unshard)
        self._plan = plan_of(query)
        self._batch = 0
        self._early: list[Message] = []
        self._values: list[Vector] = []
        self._contributors = np.zeros(query.parties, dtype=bool)

    @property
    def releases(self) -> bool:
        return self._batch > 0 or super().releases

    @property
    def awaits_parties(self) -> bool:
        return self._state is not CollectorState.OVER

    @property
    def share_bytes(self) -> int:
        return 8 * self._plan.released_at(self._batch, self._query.noise_law is None)

    def receive(self, message: Message) -> Step:
        """A server may be one roster ahead. What it says again after a restart is old."""
        if message.phase not in (Phase.ROSTER, Phase.SHARE) or message.links != 1:
            return super().receive(message)
        number = number_of(message.body)
        if number is None:
            return Rejected(message.sender, f"{message.phase.label} of no batch")
        answering = self._state is CollectorState.SHARES
        roster_is_old = message.phase is Phase.ROSTER and answering
        if number < self._batch or (number == self._batch and roster_is_old):
            return Continue(repeated=True)
        unnumbered = replace(message, body=message.body[:, HEAD:])
        if number == self._batch + 1 and roster_is_old:
            if any((early.senders == message.senders).all() for early in self._early):
                return Rejected(message.sender, f"a second or unexpected {message.phase.label}")
            self._early.append(unnumbered)
            return Continue()
        if number != self._batch:
            return Rejected(message.sender, f"batch {number + 1} is out of turn")
        return super().receive(unnumbered)

    def _released(self) -> Step:
        members = np.packbits(self._members).tobytes()
        self._contributors |= self._members
        asked = self._to_servers(Phase.ASK, self._batch.to_bytes(HEAD, "little") + members)
        if self._batch:
            return Continue(asked)
        return Continue((*self._to_servers(Phase.RELEASE, members), *asked))

    def _opened(self) -> Step:
        self._values.append(self.open(self._answers))
        self._batch += 1
        if self._batch == self._plan.batches:
            self._members = self._contributors
            return self._done(self._plan.in_order(self._values))
        self._heard.clear()
        self._answers.clear()
        self._members = np.ones(self._query.parties, dtype=bool)
        self._state = CollectorState.ROSTERS
        early, self._early = self._early, []
        step: Step = Continue()
        for message in early:
            step = super().receive(message)
        return step
