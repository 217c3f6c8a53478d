"""Aggregators whose parties speak once: `shard`, `merge` and `unshard` are all that they need.

Their machines are here, one class for each role: it shows what that role may see."""

from abc import ABC, abstractmethod
from enum import Enum, auto
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.aggregation.collector import Collector
from tallyroom.protocols.aggregation.contract import Aggregator, Bodies, Bulk, Ids, Records
from tallyroom.protocols.aggregation.mechanism import draw_noise
from tallyroom.protocols.aggregation.rosters import (
    Fault,
    parse_members,
    roster,
    submissions,
    submitted_vectors,
)
from tallyroom.protocols.algebra.field import Field
from tallyroom.protocols.algebra.ring import Vector, add_shares
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.joint.computation import Program
from tallyroom.protocols.joint.noise_circuit import JointGeometric
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.wire.machine import Continue, Done, Machine, Rejected, SpeaksOnce, Step
from tallyroom.protocols.wire.messages import (
    MAX_ROW,
    Message,
    Phase,
    Role,
    address,
    are_distinct,
    body_of,
)


class OneRound(Aggregator):
    """Parties send one message to each server; a server's share is a function of those it holds."""

    min_servers: ClassVar[int] = 1
    max_servers: ClassVar[int | None] = None
    elementwise: ClassVar[bool] = True
    """Whether `merge` makes an element of the server's share for each element of the vector, so
    that a server can leave single elements of a party out."""

    @abstractmethod
    def shard(
        self, ids: Ids, vectors: Vector, servers: int, randomness: Randomness
    ) -> list[Bodies]:
        """What each party sends to each server: one (parties, width) matrix a server.

        Randomness is drawn by party id (`Randomness.rows`): a party's shares are the same in
        whatever block it is computed.
        """

    @abstractmethod
    def width(self, length: int, server: int) -> int:
        """Bytes that one party sends to a server for a vector of `length`."""

    @abstractmethod
    def merge(self, bodies: Bodies, length: int, server: int) -> Vector:
        """The server's share of the sum over the parties that sent `bodies`, one row each."""

    def unshard(self, shares: list[Vector]) -> Vector:
        """The sum, from the shares of all servers."""
        return add_shares(shares)

    def check(self, query: Query) -> None:
        if query.servers < self.min_servers:
            raise LocalError(
                f"{self.name} needs at least {self.min_servers} servers, not {query.servers}"
            )
        if self.max_servers is not None and query.servers > self.max_servers:
            raise LocalError(
                f"{self.name} has {self.max_servers} server{'s' * (self.max_servers > 1)}, "
                f"not {query.servers}"
            )
        size = max(self.width(query.submitted, server) for server in range(query.servers))
        if size > MAX_ROW:
            raise LocalError(
                f"{self.name} sends a vector of {query.submitted} in {size} bytes, "
                f"and {MAX_ROW} fit a message"
            )

    def row_bytes(self, query: Query, records: int) -> int:
        return max(self.width(query.submitted, server) for server in range(query.servers))

    def party(self, query: Query, holdings: Holdings, randomness: Randomness) -> Machine:
        return OneRoundParty(self, query, holdings, randomness)

    def server(self, query: Query, index: int, randomness: Randomness, bulk: Bulk) -> Machine:
        return OneRoundServer(self, query, index, randomness, bulk)

    def collector(self, query: Query, records: Records, randomness: Randomness) -> Machine:
        return Collector(query, records, self.unshard)


class OneRoundParty(SpeaksOnce):
    """Sees its own vector. Sends one share to each server, and is done."""

    def __init__(
        self,
        aggregator: OneRound,
        query: Query,
        holdings: Holdings,
        randomness: Randomness,
    ) -> None:
        self._aggregator = aggregator
        self._query = query
        self._ids = holdings.ids
        self._vectors = submitted_vectors(query, holdings, randomness)
        self._randomness = randomness

    def start(self) -> Step:
        servers = self._query.servers
        bodies = self._aggregator.shard(self._ids, self._vectors, servers, self._randomness)
        return Done(messages=submissions(self._query, self._ids, bodies))


class ServerState(Enum):
    COLLECTING = auto()  # submissions come in
    CLOSED = auto()  # the roster went out; only the release is awaited
    RELEASED = auto()


SERVER_ACCEPTS: dict[tuple[ServerState, Phase], Role] = {
    (ServerState.COLLECTING, Phase.SUBMIT): Role.PARTY,
    (ServerState.COLLECTING, Phase.EXCUSE): Role.COORDINATOR,
    (ServerState.CLOSED, Phase.SUBMIT): Role.PARTY,
    (ServerState.CLOSED, Phase.RELEASE): Role.COORDINATOR,
    (ServerState.RELEASED, Phase.RELEASE): Role.COORDINATOR,
    (ServerState.RELEASED, Phase.ASK): Role.COORDINATOR,
}
"""What a server takes in which state, and from whom; everything else is rejected.

A submission while closed, and a release after the release, are taken only if they say again what
was said before: a sender that was not acknowledged may repeat itself.
"""


def out_of_turn(message: Message, expected: Role | None, state: str) -> Rejected | None:
    """Why a server in `state`, which expects such a message from that role or from nobody, does not
    take it; None if it does."""
    if expected is None:
        state = state.lower()
        return Rejected(message.sender, f"{message.phase.label} while {state} is out of turn")
    if message.sender_role is not expected:
        return Rejected(message.sender, f"{message.phase.label} must come from {expected.label}")
    return None


class CollectingServer(ABC):
    """Sees one submission of every party, and who contributed. Releases once.

    A second release over other parties would cost the privacy of the difference, so there is none;
    the same one is answered again with the same noise. What a submission must look like and how it
    adds up is up to the aggregator's own server.
    """

    def __init__(self, query: Query, index: int, randomness: Randomness, bulk: Bulk) -> None:
        self._query = query
        self._index = index
        self._randomness = randomness
        self._bulk = bulk
        self._state = ServerState.COLLECTING
        self._present = np.zeros(query.parties, dtype=bool)
        self._awaited = np.ones(query.parties, dtype=bool)
        self._missing = query.parties - 1
        self._prints = np.zeros(query.parties, dtype=np.uint64)
        self._print_key = randomness.derive("fingerprints")
        self._faults: dict[int, Fault] = {}
        self._released_members: bytes | None = None

    @abstractmethod
    def check(self, message: Message) -> str | None:
        """What is wrong with a submission; None if nothing is."""

    @abstractmethod
    def pack(self, message: Message) -> NDArray[np.uint8]:
        """A submission as it is kept, as one run of bytes."""

    @abstractmethod
    def _release(self, message: Message) -> Step:
        """The release, if it may be made (`releasable`); the same one again is the same answer."""

    @property
    def state(self) -> ServerState:
        return self._state

    def start(self) -> Step:
        return Continue()

    def receive(self, message: Message) -> Step:
        expected = SERVER_ACCEPTS.get((self._state, message.phase))
        if (refusal := out_of_turn(message, expected, self._state.name)) is not None:
            return refusal
        match message.phase:
            case Phase.SUBMIT:
                return self._submit(message)
            case Phase.EXCUSE:
                return self._excuse(message)
            case Phase.ASK:
                return self._ask(message)
            case _:
                return self._release(message)

    def expire(self) -> Step:
        return self._close() if self._state is ServerState.COLLECTING else Continue()

    def _submit(self, message: Message) -> Step:
        ids = message.senders
        if int(ids.max()) >= self._query.parties:
            return Rejected(message.sender, f"there are only {self._query.parties} parties")
        prints = self._fingerprints(message)
        repeated = self._present[ids]
        if not are_distinct(ids) or (prints != self._prints[ids])[repeated].any():
            return self._refuse(message, Fault.CONTRADICTORY, "submitted twice")
        if repeated.all():
            return Continue(repeated=True)
        if repeated.any():
            return Rejected(message.sender, "some of these submitted before")
        if self._state is not ServerState.COLLECTING:
            return Rejected(message.sender, "submitted too late")
        if (wrong := self.check(message)) is not None:
            return self._refuse(message, Fault.MALFORMED, wrong)
        self._bulk.append(ids, self.pack(message))
        self._present[ids] = True
        self._prints[ids] = prints
        return self._close_when_complete()

    def _refuse(self, message: Message, fault: Fault, reason: str) -> Rejected:
        """Noted only of a single party: in a batch it is not known yet whose fault it is."""
        if message.links == 1:
            self._faults[int(message.senders[0])] = fault
        return Rejected(message.sender, reason)

    def _excuse(self, message: Message) -> Step:
        excused = parse_members(message, self._query.parties)
        if isinstance(excused, Rejected):
            return excused
        self._awaited &= ~excused
        return self._close_when_complete()

    def _close_when_complete(self) -> Step:
        """Looks at all parties only when the one that is known to be missing has come."""
        if self._awaited[self._missing] and not self._present[self._missing]:
            return Continue()
        missing = np.flatnonzero(self._awaited & ~self._present)
        if not len(missing):
            return self._close()
        self._missing = int(missing[-1])
        return Continue()

    def _close(self) -> Step:
        self._state = ServerState.CLOSED
        body = roster(self._present, self._faults)
        return Continue((self._to_coordinator(Phase.ROSTER, body),))

    def _ask(self, message: Message) -> Step:
        return Rejected(message.sender, "this run answers no questions on demand")

    def releasable(self, message: Message) -> NDArray[np.bool] | Rejected:
        """The members of a release that may be made."""
        members = parse_members(message, self._query.parties)
        return members if isinstance(members, Rejected) else self.may_release(message, members)

    def may_release(
        self, message: Message, members: NDArray[np.bool]
    ) -> NDArray[np.bool] | Rejected:
        """Those members again, if a release over them may be made."""
        if self._released_members not in (None, message.body[0].tobytes()):
            return Rejected(message.sender, "a second release over other parties")
        if (members & ~self._present).any():
            return Rejected(message.sender, "a release over parties that did not submit")
        if np.count_nonzero(members) < self._query.min_parties:
            return Rejected(
                message.sender, f"a release over fewer than {self._query.min_parties} parties"
            )
        return members

    def _fingerprints(self, message: Message) -> Vector:
        """64 keyed bits of each row, to tell a repeated submission from another one.

        Linear and not collision-free: a party that finds a collision has its second submission
        ignored, which is what would have happened to it anyway.
        """
        rows = message.rows()
        if message.width % 8:
            rows = np.pad(rows, ((0, 0), (0, -message.width % 8)))
        weights = self._print_key.derive("weights").words(rows.shape[1] // 8)
        prints: Vector = rows.view("<u8") @ (weights | np.uint64(1))
        return prints

    def _to_coordinator(self, phase: Phase, body: bytes) -> Message:
        return Message(
            self._query.run,
            phase,
            Role.SERVER,
            Role.COORDINATOR,
            address(self._index),
            address(0),
            body_of(body),
        )


class SummingServer(CollectingServer):
    """Releases its share of the sum, with its noise."""

    def __init__(self, query: Query, index: int, randomness: Randomness, bulk: Bulk) -> None:
        super().__init__(query, index, randomness, bulk)
        self._share: bytes | None = None
        self.total: Vector | None = None
        """This server's share of the sum, once it was told to release it."""
        self.drawn: Vector | None = None
        """This server's share of noise that it drew with the other one; `open` waits for it."""
        self.awaits_program = query.choice is not None
        """Whether there is something yet that both servers have to compute on what they share."""
        self._chosen: Vector | None = None

    @abstractmethod
    def sum_over(self, members: NDArray[np.bool]) -> Vector:
        """This server's share of the sum over the members' submissions, as `publish` takes it."""

    def _release(self, message: Message) -> Step:
        members = self.releasable(message)
        if isinstance(members, Rejected):
            return members
        if self.total is None:
            self.total = self.sum_over(members)
            self._released_members = message.body[0].tobytes()
            self._state = ServerState.RELEASED
            self._bulk.clear()
        return self.open()

    def open(self) -> Step:
        """The release, if it was asked for, and its noise is there."""
        drawing = self._query.joint_noise is not None and self.drawn is None
        if self.total is None or drawing or self.awaits_program:
            return Continue()
        if self._share is None and self._chosen is not None:
            self._share = self._chosen.astype("<u8").tobytes()
        elif self._share is None:
            self._share = self.publish(self.total)
        return Continue((self._to_coordinator(Phase.SHARE, self._share),), (self._query.spend,))

    def program(self) -> tuple[str, Program]:
        """What both servers compute on what they share, and the name of all that is public of it.
        Sum and noise are there."""
        choice, noise = self._query.choice, self._query.joint_noise
        assert choice is not None
        assert self.total is not None
        width = choice.width(noise.largest if isinstance(noise, JointGeometric) else 0)
        scores = self._query.plan.measure(self.total)
        program = choice.program(self._index, scores, self.drawn, width)
        return repr((choice, width)), program

    def take_result(self, result: Vector) -> None:
        """This server's share of what the program gave: of what is chosen, and all that is to be
        released."""
        self._chosen = result
        self.awaits_program = False

    @property
    def noise_field(self) -> Field | None:
        """Where noise is added, if not modulo 2^64."""
        return None

    def publish(self, share: Vector) -> bytes:
        """A share of the sum as it is released: measured, with this server's noise in place; both
        were done by the parties if the noise is theirs."""
        query, curated = self._query, self._query.curated
        if curated is not None and query.epsilon is not None:
            noise = self._randomness.derive("curator's noise")
            share = curated.mechanism.publish(share, query.epsilon, query.delta, noise)
        elif curated is not None and curated.gathered:
            share = curated.mechanism.publish_exactly(share)
        elif query.mechanism is not None and query.noise is not Placement.PARTIES:
            share = query.plan.measure(share)
            if (own := self.noise()) is not None:
                share = share + own
        return share.astype("<u8").tobytes()

    def noise(self) -> Vector | None:
        """This server's noise, in place; None where it adds none."""
        plan = self._query.plan
        if self.drawn is not None:
            return plan.place(self.drawn)
        if self._query.mechanism is None or not self._adds_noise:
            return None
        (drawn,) = draw_noise(self._query, plan.noises, self._randomness)
        return plan.place(drawn.view(np.uint64))

    @property
    def _adds_noise(self) -> bool:
        match self._query.noise:
            case Placement.EACH_SERVER | Placement.SHARED:
                return True
            case Placement.CURATOR | Placement.TOTAL:
                return self._index == 0
            case Placement.PARTIES | Placement.PER_PAIR | Placement.JOINT:
                return False


class OneRoundServer(SummingServer):
    """Keeps shares as they came and merges those of the members at the release."""

    def __init__(
        self,
        aggregator: OneRound,
        query: Query,
        index: int,
        randomness: Randomness,
        bulk: Bulk,
    ) -> None:
        super().__init__(query, index, randomness, bulk)
        self._aggregator = aggregator
        self._width = aggregator.width(query.submitted, index)

    def check(self, message: Message) -> str | None:
        if message.width != self._width:
            return f"a share of {message.width} bytes, expected {self._width}"
        if (curated := self._query.curated) is None:
            return None
        most = self._query.max_records_per_party
        possible = curated.encoding.possible(message.rows().view("<u8"), most)
        return None if possible.all() else f"not a vector of 1 to {most} records"

    def pack(self, message: Message) -> NDArray[np.uint8]:
        return message.rows().reshape(-1)

    def sum_over(self, members: NDArray[np.bool]) -> Vector:
        length = self._query.submitted
        if (curated := self._query.curated) is not None and curated.gathered:
            return self._side_by_side(members)
        share = np.zeros(length, dtype=np.uint64)
        for ids, block in self._bulk.blocks():
            rows = block.reshape(len(ids), self._width)
            chosen = members[ids]
            if not chosen.all():
                rows = rows[chosen]
            if len(rows):
                share += self._aggregator.merge(rows, length, self._index)
        return share

    def _side_by_side(self, members: NDArray[np.bool]) -> Vector:
        """A curator's: the members' vectors one after another, by their ids."""
        found: dict[int, Vector] = {}
        for ids, block in self._bulk.blocks():
            rows = block.reshape(len(ids), self._width).view("<u8")
            found |= {int(party): rows[at] for at, party in enumerate(ids) if members[party]}
        return np.concatenate([found[party].astype(np.uint64) for party in sorted(found)])
