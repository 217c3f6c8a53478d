"""The coordinator's machine: waits for all rosters, then for all shares, and adds the shares up."""

from collections.abc import Callable
from dataclasses import replace
from enum import Enum, auto
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.accusation_text import split_proof, with_proof
from tallyroom.protocols.aggregation.contract import Ids, Records, Total
from tallyroom.protocols.aggregation.rosters import CountType, Fault, parse_roster
from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.query import Query
from tallyroom.protocols.wire.machine import Continue, Done, Failed, Rejected, Step
from tallyroom.protocols.wire.messages import Message, Phase, Role, address, body_of, name_block

MAX_REASON = 300
"""The most characters of a server's explanation that are shown."""


class CollectorState(Enum):
    ROSTERS = auto()
    SHARES = auto()
    OVER = auto()


COLLECTOR_ACCEPTS: dict[tuple[CollectorState, Phase], Role] = {
    (CollectorState.ROSTERS, Phase.ROSTER): Role.SERVER,
    (CollectorState.ROSTERS, Phase.GIVE_UP): Role.SERVER,
    (CollectorState.SHARES, Phase.SHARE): Role.SERVER,
    (CollectorState.SHARES, Phase.GIVE_UP): Role.SERVER,
}


class Collector:
    """Sees noisy shares and who contributed. Asks for a release over the parties whose submissions
    all servers hold.

    If `needed` is less than the number of servers, the others may be lost at any time. `public`
    says whether anybody who has the shares can open them.
    """

    public: ClassVar[bool] = True

    def __init__(
        self,
        query: Query,
        records: Records,
        unshard: Callable[[list[Vector]], Vector],
        needed: int | None = None,
    ) -> None:
        self._query = query
        self._run = query.run
        self._records = records
        self._unshard = unshard
        self.needed = query.servers if needed is None else needed
        self._state = CollectorState.ROSTERS
        self._members = np.ones(query.parties, dtype=bool)
        self._faults: dict[int, Fault] = {}
        self._answers: dict[int, NDArray[np.uint8]] = {}
        self._here = set(range(query.servers))
        self._heard: set[int] = set()

    def start(self) -> Step:
        """Sends the query to servers first, so that they know the run when submissions arrive."""
        everyone = np.arange(self._query.parties, dtype=np.uint32)
        to_servers = self._to_servers(Phase.QUERY, self._query.encode())
        to_parties = replace(to_servers[0], receiver_role=Role.PARTY, receivers=everyone)
        return Continue((*to_servers, to_parties))

    def receive(self, message: Message) -> Step:
        expected = COLLECTOR_ACCEPTS.get((self._state, message.phase))
        server = int(message.senders[0])
        if message.sender_role is not expected or message.links != 1:
            return Rejected(message.sender, f"{message.phase.label} is out of turn")
        if server not in self._here or server in self._heard:
            return Rejected(message.sender, f"a second or unexpected {message.phase.label}")
        match message.phase:
            case Phase.GIVE_UP:
                reason = message.body[0].tobytes().decode(errors="replace")
                words, proof = split_proof(reason)
                told = f"cannot go on: {words[:MAX_REASON]}"
                return self.lose_servers({server}, with_proof(told, proof) if proof else told)
            case Phase.ROSTER:
                return self._roster(message)
            case _:
                return self._share(message)

    def lose(self, parties: Ids) -> Step:
        """Tells the servers not to wait for parties that are known to be gone."""
        if self._state is not CollectorState.ROSTERS:
            return Continue()
        gone = np.zeros(self._query.parties, dtype=bool)
        gone[parties] = True
        return Continue(self._to_servers(Phase.EXCUSE, np.packbits(gone).tobytes()))

    @property
    def can_spare(self) -> bool:
        """Whether more servers are here than are needed."""
        return len(self._here) > self.needed

    @property
    def awaits_parties(self) -> bool:
        """Whether what parties submit may still count."""
        return self._state is CollectorState.ROSTERS

    @property
    def releases(self) -> bool:
        """Whether servers were told to release, so that their budget is spent."""
        return self._state is CollectorState.SHARES

    @property
    def awaited_servers(self) -> list[int]:
        """Servers that have not answered the last request."""
        return sorted(self._here - self._heard)

    def lose_servers(self, servers: set[int], reason: str) -> Step:
        """Goes on without servers that are known to be gone, or fails if too few are left."""
        if self._state is CollectorState.OVER or not servers & self._here:
            return Continue()
        self._here -= servers
        if len(self._here) < self.needed:
            self._state = CollectorState.OVER
            names = ", ".join(Role.SERVER.named(i) for i in sorted(servers))
            return Failed(f"{names} {reason}")
        return self._proceed() if self._here <= self._heard else Continue()

    def expire(self) -> Step:
        return self.lose_servers(self._here - self._heard, "did not answer within the deadline")

    @property
    def counted(self) -> CountType | None:
        """The type of the counts of records per party that rosters begin with; None if they have
        no counts."""
        return None

    def _roster(self, message: Message) -> Step:
        """Takes a roster. If it has counts, parties that did not send exactly as many records as
        they hold, which is public, are left out."""
        parsed = parse_roster(message, self._query.parties, self.counted)
        if isinstance(parsed, Rejected):
            return parsed
        self._faults |= parsed.faults
        if parsed.counts is not None:
            self._leave_out(parsed.members & (parsed.counts != self._records))
        self._members &= parsed.members
        return self._hear(message)

    def _leave_out(self, parties: NDArray[np.bool]) -> None:
        """Leaves out parties whose submission is invalid."""
        self._members &= ~parties
        for party in np.flatnonzero(parties).tolist():
            self._faults.setdefault(party, Fault.INVALID)

    def _hear(self, message: Message) -> Step:
        self._heard.add(int(message.senders[0]))
        return self._proceed() if self._here <= self._heard else Continue()

    def _proceed(self) -> Step:
        """The next step, after all remaining servers have answered."""
        return self._release() if self._state is CollectorState.ROSTERS else self._opened()

    def _release(self) -> Step:
        count = np.count_nonzero(self._members)
        if count < self._query.min_parties:
            missing = np.flatnonzero(~self._members).astype(np.uint32)
            self._state = CollectorState.OVER
            return Failed(
                f"only {count} of {self._query.parties} parties submitted to every server and "
                f"{self._query.min_parties} are needed; missing: {some_parties(missing)}"
            )
        self._heard.clear()
        self._state = CollectorState.SHARES
        return self._released()

    def _released(self) -> Step:
        return Continue(self._to_servers(Phase.RELEASE, np.packbits(self._members).tobytes()))

    @property
    def share_bytes(self) -> int:
        """The length of a server's share."""
        return 8 * self._query.released

    def open(self, shares: dict[int, NDArray[np.uint8]]) -> Vector:
        """The released values, from the shares of the servers that answered."""
        return self._unshard([shares[i].view("<u8") for i in sorted(shares)])

    def _share(self, message: Message) -> Step:
        if message.width != self.share_bytes:
            reason = f"a share of {message.width} bytes, not {self.share_bytes}"
            return Rejected(message.sender, reason)
        self._answers[int(message.senders[0])] = message.body[0]
        return self._hear(message)

    def _opened(self) -> Step:
        return self._done(self.open(self._answers))

    def _done(self, released: Vector) -> Step:
        self._state = CollectorState.OVER
        contributors = np.flatnonzero(self._members).astype(np.uint32)
        caught = tuple((party, fault.words) for party, fault in sorted(self._faults.items()))
        total = Total(
            released, contributors, self._members_records(), caught, lost_pairs=self._lost_pairs()
        )
        spend = replace(self._query.spend, receipt=self._run.hex())
        return Done(total, spends=(spend,))

    def _lost_pairs(self) -> int:
        return 0

    def _members_records(self) -> int:
        return int(self._records[self._members].sum())

    def _to_servers(self, phase: Phase, body: bytes) -> tuple[Message, ...]:
        messages = []
        for server in sorted(self._here):
            ends = (Role.COORDINATOR, Role.SERVER, address(0), address(server))
            messages.append(Message(self._run, phase, *ends, body_of(body)))
        return tuple(messages)


def some_parties(ids: Ids, limit: int = 5) -> str:
    """The names of these parties; if they are many, only the first ones."""
    if len(ids) <= limit:
        return ", ".join(name_block(Role.PARTY, ids[i : i + 1]) for i in range(len(ids)))
    return f"{some_parties(ids[:limit])} and {len(ids) - limit} more"
