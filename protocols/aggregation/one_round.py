"""Aggregators whose parties send one message per server: they only need `shard`, `merge` and
`unshard`.

Their machines are here, one class per role, which shows what that role may see."""

from abc import ABC, abstractmethod
from enum import Enum, auto
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols import joint
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

if TYPE_CHECKING:
    from tallyroom.protocols.joint.computation import Program


class OneRound(Aggregator):
    """Parties send one message to each server; a server's share depends only on those messages."""

    min_servers: ClassVar[int] = 1
    max_servers: ClassVar[int | None] = None
    elementwise: ClassVar[bool] = True
    """Whether `merge` gives one element of the server's share per element of the vector. If so, a
    server can leave out single elements of a party."""

    @abstractmethod
    def shard(
        self, ids: Ids, vectors: Vector, servers: int, randomness: Randomness
    ) -> list[Bodies]:
        """What each party sends to each server: one (parties, width) matrix per server.

        Draw randomness by party id (`Randomness.rows`), so that a party's shares do not depend on
        the block in which it is computed.
        """

    @abstractmethod
    def width(self, length: int, server: int) -> int:
        """How many bytes a party sends to a server for a vector of `length`."""

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
        if (size := self._widest(query)) > MAX_ROW:
            raise LocalError(
                f"{self.name} sends a vector of {query.submitted} in {size} bytes, "
                f"and {MAX_ROW} fit a message"
            )

    def row_bytes(self, query: Query, records: int) -> int:
        return self._widest(query)

    def _widest(self, query: Query) -> int:
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
    CLOSED = auto()  # the roster is sent; waits for the release
    RELEASED = auto()


SERVER_ACCEPTS: dict[tuple[ServerState, Phase], Role] = {
    (ServerState.COLLECTING, Phase.SUBMIT): Role.PARTY,
    (ServerState.COLLECTING, Phase.EXCUSE): Role.COORDINATOR,
    (ServerState.CLOSED, Phase.SUBMIT): Role.PARTY,
    (ServerState.CLOSED, Phase.RELEASE): Role.COORDINATOR,
    (ServerState.RELEASED, Phase.RELEASE): Role.COORDINATOR,
    (ServerState.RELEASED, Phase.ASK): Role.COORDINATOR,
}
"""Which messages a server accepts in which state, and from whom; all others are rejected.

A submission while closed, and a release after the release, are accepted only if they repeat an
earlier message: a sender that got no acknowledgement may send again.
"""


def out_of_turn(message: Message, expected: Role | None, state: str) -> Rejected | None:
    """Why a server in `state` refuses a message of a phase that it expects from role `expected`, or
    from nobody if that is None; None if it takes the message."""
    if expected is None:
        state = state.lower()
        return Rejected(message.sender, f"{message.phase.label} while {state} is out of turn")
    if message.sender_role is not expected:
        return Rejected(message.sender, f"{message.phase.label} must come from {expected.label}")
    return None


class CollectingServer(ABC):
    """Sees one submission of every party, and who contributed. Releases once.

    A second release over other parties would reveal the difference, so it is refused; a repeated
    request is answered with the same noise. Subclasses decide what a submission must look like and
    how submissions add up.
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
        """What is wrong with a submission; None if it is fine."""

    @abstractmethod
    def pack(self, message: Message) -> NDArray[np.uint8]:
        """A submission as it is stored, as a one-dimensional array of bytes."""

    @abstractmethod
    def _release(self, message: Message) -> Step:
        """Releases, if that is allowed (`releasable`). A repeated request gets the same answer."""

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
            return Rejected(message.sender, "some of these parties have submitted before")
        if self._state is not ServerState.COLLECTING:
            return Rejected(message.sender, "submitted too late")
        if (wrong := self.check(message)) is not None:
            return self._refuse(message, Fault.MALFORMED, wrong)
        self._bulk.append(ids, self.pack(message))
        self._present[ids] = True
        self._prints[ids] = prints
        return self._close_when_complete()

    def _refuse(self, message: Message, fault: Fault, reason: str) -> Rejected:
        """Notes the fault only if the message has one sender: in a batch it may be anybody's."""
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
        """Closes if no awaited party is missing. All parties are looked at only after the one known
        to be missing has submitted."""
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
        return Rejected(message.sender, "this run does not answer questions on demand")

    def releasable(self, message: Message) -> NDArray[np.bool] | Rejected:
        """The members of the release that is asked for, if it may be made."""
        members = parse_members(message, self._query.parties)
        return members if isinstance(members, Rejected) else self.may_release(message, members)

    def may_release(
        self, message: Message, members: NDArray[np.bool]
    ) -> NDArray[np.bool] | Rejected:
        """`members` themselves, if a release over them may be made."""
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
        """64 keyed bits of each row, to tell a repeated submission from a different one.

        They are linear and may collide. A party that finds a collision only has its second
        submission ignored, which would have happened anyway.
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
    """Releases its share of the sum, plus its noise."""

    def __init__(self, query: Query, index: int, randomness: Randomness, bulk: Bulk) -> None:
        super().__init__(query, index, randomness, bulk)
        self._share: bytes | None = None
        self.total: Vector | None = None
        """This server's share of the sum, after it was told to release it."""
        self.drawn: Vector | None = None
        """This server's share of noise drawn jointly with the other one; `open` waits for it."""
        self.awaits_program = query.choice is not None
        """Whether both servers still have to run a program on their shares."""
        self._chosen: Vector | None = None

    @abstractmethod
    def sum_over(self, members: NDArray[np.bool]) -> Vector:
        """This server's share of the sum over the members' submissions, for `publish`."""

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
        """Releases the share, if that was asked for and the noise is there."""
        drawing = self._query.joint_noise is not None and self.drawn is None
        if self.total is None or drawing or self.awaits_program:
            return Continue()
        if self._share is None and self._chosen is not None:
            self._share = self._chosen.astype("<u8").tobytes()
        elif self._share is None:
            self._share = self.publish(self.total)
        return Continue((self._to_coordinator(Phase.SHARE, self._share),), (self._query.spend,))

    def program(self) -> "tuple[str, Program]":
        """The program that both servers run on their shares, and a name for its public parameters.
        Call it when the sum and the noise are there."""
        choice, noise = self._query.choice, self._query.joint_noise
        assert choice is not None
        assert self.total is not None
        width = choice.width(noise.largest if isinstance(noise, joint.JointGeometric) else 0)
        scores = self._query.plan.measure(self.total)
        program = choice.program(self._index, scores, self.drawn, width)
        return repr((choice, width)), program

    def take_result(self, result: Vector) -> None:
        """Takes this server's share of the program's result, which is all that is released."""
        self._chosen = result
        self.awaits_program = False

    @property
    def noise_field(self) -> Field | None:
        """The field in which noise is added; None if it is added modulo 2^64."""
        return None

    def publish(self, share: Vector) -> bytes:
        """A share of the sum as it is released: measured by the plan, plus this server's noise. If
        parties add the noise, they have already done both."""
        query, curated = self._query, self._query.curated
        if curated is not None and query.epsilon is not None:
            noise = self._randomness.derive("curator's noise")
            share = curated.mechanism.publish(share, query.epsilon, query.delta, noise)
        elif curated is not None and curated.gathered:
            share = curated.mechanism.publish_exactly(share)
        elif query.noise_law is not None and query.noise is not Placement.PARTIES:
            share = query.plan.measure(share)
            if (own := self.noise()) is not None:
                share = share + own
        return share.astype("<u8").tobytes()

    def noise(self) -> Vector | None:
        """This server's noise, as it is added to the share; None if it adds none."""
        plan = self._query.plan
        if self.drawn is not None:
            return plan.place(self.drawn)
        if self._query.noise_law is None or not self._adds_noise:
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
    """Stores shares as they come and merges the members' shares at the release."""

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
        """For a curator: the members' vectors, concatenated in the order of their ids."""
        vectors: dict[int, Vector] = {}
        for ids, block in self._bulk.blocks():
            rows = block.reshape(len(ids), self._width).view("<u8")
            vectors |= {int(party): rows[at] for at, party in enumerate(ids) if members[party]}
        return np.concatenate([vectors[party].astype(np.uint64) for party in sorted(vectors)])
