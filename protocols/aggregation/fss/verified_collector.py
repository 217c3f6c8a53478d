"""The coordinator of verified keys: says whose keys to check, and names those who cheated."""

from dataclasses import replace
from enum import Enum, auto

import numpy as np
from numpy.typing import NDArray

from protocols.aggregation.collector import Collector, CollectorState, _some
from protocols.aggregation.contract import Ids, Records
from protocols.aggregation.fss.on_demand import OnDemandCollector
from protocols.aggregation.fss.verified_server import count_type
from protocols.aggregation.rosters import Fault, parse_members, parse_roster
from protocols.algebra.ring import add_shares
from protocols.run.machine import Continue, Failed, Rejected, Step
from protocols.run.messages import Message, Phase, Role
from protocols.run.query import Query


class CollectorStage(Enum):
    ROSTERS = auto()
    CHECKING = auto()
    SHARES = auto()
    OVER = auto()


COLLECTOR_STAGES: dict[tuple[CollectorStage, Phase], Role] = {
    (CollectorStage.ROSTERS, Phase.ROSTER): Role.SERVER,
    (CollectorStage.ROSTERS, Phase.GIVE_UP): Role.SERVER,
    (CollectorStage.CHECKING, Phase.VERIFY): Role.SERVER,
    (CollectorStage.CHECKING, Phase.GIVE_UP): Role.SERVER,
    (CollectorStage.SHARES, Phase.SHARE): Role.SERVER,
    (CollectorStage.SHARES, Phase.GIVE_UP): Role.SERVER,
}


class _Checking(Collector):
    """Between the rosters and the release, has servers check keys."""

    _checking = False

    @property
    def stage(self) -> CollectorStage:
        match self._state:
            case CollectorState.SHARES:
                return CollectorStage.SHARES
            case CollectorState.OVER:
                return CollectorStage.OVER
        return CollectorStage.CHECKING if self._checking else CollectorStage.ROSTERS

    def receive(self, message: Message) -> Step:
        if COLLECTOR_STAGES.get((self.stage, message.phase)) is not message.sender_role:
            return Rejected(message.sender, f"{message.phase.label} is out of turn")
        if message.phase is Phase.VERIFY:
            return self._answer(message)
        return super().receive(message)

    def lose(self, parties: Ids) -> Step:
        return super().lose(parties) if self.stage is CollectorStage.ROSTERS else Continue()

    def _roster(self, message: Message) -> Step:
        """How many keys each party sent must be how many records it holds, which is public."""
        kind = count_type(self._query)
        head = 0 if kind is None else kind.itemsize * self._query.parties
        rest = replace(message, body=message.body[:, head:])
        parsed = parse_roster(rest, self._query.parties)
        if isinstance(parsed, Rejected):
            return parsed
        members, faults = parsed
        self._faults |= faults
        if kind is not None:
            sent = np.frombuffer(message.body[0, :head].tobytes(), kind)
            self._leave_out(members & (sent != self._records))
        self._members &= members
        return self._hear(message)

    def _leave_out(self, parties: NDArray[np.bool]) -> None:
        self._members &= ~parties
        for party in np.flatnonzero(parties).tolist():
            self._faults.setdefault(party, Fault.INVALID)

    def _proceed(self) -> Step:
        if self.stage is not CollectorStage.ROSTERS:
            return self._release() if self.stage is CollectorStage.CHECKING else self._opened()
        if np.count_nonzero(self._members) < self._query.min_parties:
            return self._release()  # which says why there is none
        self._heard.clear()
        self._checking = True
        return Continue(self._to_servers(Phase.VERIFY, np.packbits(self._members).tobytes()))

    def _answer(self, message: Message) -> Step:
        server = int(message.senders[0])
        if server not in self._here or server in self._heard or message.links != 1:
            return Rejected(message.sender, "a second or unasked verify")
        accepted = parse_members(message, self._query.parties)
        if isinstance(accepted, Rejected):
            return accepted
        self._leave_out(self._members & ~accepted)
        return self._hear(message)

    def _release(self) -> Step:
        count = np.count_nonzero(self._members)
        if not self._checking or count >= self._query.min_parties:
            return super()._release()
        self._state = CollectorState.OVER
        caught = np.array(sorted(self._faults), dtype=np.uint32)
        return Failed(
            f"only {count} of {self._query.parties} parties sent keys that verify and "
            f"{self._query.min_parties} are needed; caught: {_some(caught)}"
        )


class VerifiedCollector(_Checking):
    """Sees noisy shares, who contributed how many keys, and whose keys do not verify."""

    def __init__(self, query: Query, records: Records) -> None:
        super().__init__(query, records, add_shares)


class VerifiedOnDemandCollector(_Checking, OnDemandCollector):
    """Asks as the statistic plans, of keys that are checked wherever it asks."""
