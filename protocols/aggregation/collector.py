"""The coordinator's machine: waits for all servers twice, and adds up what they release."""

from collections.abc import Callable
from enum import Enum, auto

import numpy as np

from protocols.aggregation.bodies import parse_members
from protocols.aggregation.contract import Ids, Records, Total
from protocols.machine import Continue, Done, Failed, Rejected, Step
from protocols.messages import Message, Phase, Role, address, body_of, name_block
from protocols.query import Query
from protocols.ring import Vector


class CollectorState(Enum):
    ROSTERS = auto()
    SHARES = auto()
    OVER = auto()


COLLECTOR_TRANSITIONS: dict[tuple[CollectorState, Phase], Role] = {
    (CollectorState.ROSTERS, Phase.ROSTER): Role.SERVER,
    (CollectorState.SHARES, Phase.SHARE): Role.SERVER,
}


class Collector:
    """Sees noisy shares and who contributed. Asks for the release over those all servers hold."""

    def __init__(
        self, query: Query, records: Records, unshard: Callable[[list[Vector]], Vector]
    ) -> None:
        self._query = query
        self._records = records
        self._unshard = unshard
        self._state = CollectorState.ROSTERS
        self._members = np.ones(query.parties, dtype=bool)
        self._answers: dict[int, Vector] = {}
        self._heard: set[int] = set()

    def start(self) -> Step:
        """Servers are told before parties, so that no submission finds its run unknown."""
        everyone = np.arange(self._query.parties, dtype=np.uint32)
        question = self._query.encode()
        return Continue(
            (
                *self._to_servers(Phase.QUERY, question),
                self._message(Phase.QUERY, Role.PARTY, everyone, question),
            )
        )

    def receive(self, message: Message) -> Step:
        expected = COLLECTOR_TRANSITIONS.get((self._state, message.phase))
        server = int(message.senders[0])
        if message.sender_role is not expected or message.links != 1:
            return Rejected(message.sender, f"{message.phase.label} is out of turn")
        if server >= self._query.servers or server in self._heard:
            return Rejected(message.sender, f"a second or unasked {message.phase.label}")
        return self._roster(message) if message.phase is Phase.ROSTER else self._share(message)

    def lose(self, parties: Ids) -> Step:
        """Parties are known to be gone: the servers need not wait for them."""
        if self._state is not CollectorState.ROSTERS:
            return Continue()
        gone = np.zeros(self._query.parties, dtype=bool)
        gone[parties] = True
        return Continue(self._to_servers(Phase.EXCUSE, np.packbits(gone).tobytes()))

    def expire(self) -> Step:
        silent = [i for i in range(self._query.servers) if i not in self._heard]
        names = ", ".join(Role.SERVER.named(i) for i in silent)
        self._state = CollectorState.OVER
        return Failed(f"{names} did not answer within the deadline")

    def _roster(self, message: Message) -> Step:
        members = parse_members(message, self._query.parties)
        if isinstance(members, Rejected):
            return members
        self._members &= members
        self._heard.add(int(message.senders[0]))
        if len(self._heard) < self._query.servers:
            return Continue()
        count = np.count_nonzero(self._members)
        if count < self._query.minimum:
            missing = np.flatnonzero(~self._members).astype(np.uint32)
            self._state = CollectorState.OVER
            return Failed(
                f"only {count} of {self._query.parties} parties submitted to every server and "
                f"{self._query.minimum} are needed; missing: {_some(missing)}"
            )
        self._heard.clear()
        self._state = CollectorState.SHARES
        return self._released()

    def _released(self) -> Step:
        return Continue(self._to_servers(Phase.RELEASE, np.packbits(self._members).tobytes()))

    def _collect(self, message: Message, length: int) -> Step | None:
        """Takes one server's share of `length` values; None once all servers' are there."""
        if message.width != 8 * length:
            return Rejected(message.sender, f"a share of {message.width} bytes, not {8 * length}")
        server = int(message.senders[0])
        self._heard.add(server)
        self._answers[server] = message.body[0].view("<u8")
        return None if len(self._heard) == self._query.servers else Continue()

    def _share(self, message: Message) -> Step:
        step = self._collect(message, self._query.released)
        if step is not None:
            return step
        return self._done(self._unshard([self._answers[i] for i in range(self._query.servers)]))

    def _done(self, released: Vector) -> Step:
        self._state = CollectorState.OVER
        contributors = np.flatnonzero(self._members).astype(np.uint32)
        total = Total(released, contributors, self._members_records())
        return Done(total, spends=(self._query.spend,))

    def _members_records(self) -> int:
        return int(self._records[self._members].sum())

    def _to_servers(self, phase: Phase, body: bytes) -> tuple[Message, ...]:
        return tuple(
            self._message(phase, Role.SERVER, address(server), body)
            for server in range(self._query.servers)
        )

    def _message(self, phase: Phase, to: Role, receivers: Ids, body: bytes) -> Message:
        return Message(
            self._query.run, phase, Role.COORDINATOR, to, address(0), receivers, body_of(body)
        )


def _some(ids: Ids, limit: int = 5) -> str:
    if len(ids) <= limit:
        return ", ".join(name_block(Role.PARTY, ids[i : i + 1]) for i in range(len(ids)))
    return f"{_some(ids[:limit])} and {len(ids) - limit} more"
