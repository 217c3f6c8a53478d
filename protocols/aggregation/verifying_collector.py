"""The coordinator of servers that check what parties submitted before they release a sum of it."""

from abc import ABC, abstractmethod
from enum import Enum, auto
from typing import ClassVar

import numpy as np

from tallyroom.protocols.aggregation.collector import Collector, CollectorState, some_parties
from tallyroom.protocols.aggregation.contract import Ids
from tallyroom.protocols.aggregation.rosters import CountType, count_type
from tallyroom.protocols.wire.machine import Continue, Failed, Rejected, Step
from tallyroom.protocols.wire.messages import Message, Phase, Role


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
"""Which messages a collector accepts in which stage, and from whom; all others are rejected."""


class VerifyingCollector(Collector, ABC):
    """Has servers check the members' submissions, between the rosters and the release."""

    good: ClassVar[str] = "a submission that verifies"
    """What honest parties sent, in words, for messages."""
    _checking = False

    @property
    def stage(self) -> CollectorStage:
        match self._state:
            case CollectorState.SHARES:
                return CollectorStage.SHARES
            case CollectorState.OVER:
                return CollectorStage.OVER
        return CollectorStage.CHECKING if self._checking else CollectorStage.ROSTERS

    @property
    def counted(self) -> CountType | None:
        return count_type(self._query)

    def receive(self, message: Message) -> Step:
        if COLLECTOR_STAGES.get((self.stage, message.phase)) is not message.sender_role:
            return Rejected(message.sender, f"{message.phase.label} is out of turn")
        if message.phase is not Phase.VERIFY:
            return super().receive(message)
        server = int(message.senders[0])
        if server not in self._here or server in self._heard or message.links != 1:
            return Rejected(message.sender, "a second or unasked verify")
        refusal = self.take_answer(server, message)
        return self._hear(message) if refusal is None else refusal

    def lose(self, parties: Ids) -> Step:
        return super().lose(parties) if self.stage is CollectorStage.ROSTERS else Continue()

    @abstractmethod
    def first_request(self) -> bytes:
        """The first request to servers: what to check."""

    @abstractmethod
    def take_answer(self, server: int, message: Message) -> Rejected | None:
        """Takes one server's answer to the last request."""

    def next_request(self) -> bytes | None:
        """The next request, after all servers have answered; None if the check is done."""
        return None

    def _proceed(self) -> Step:
        match self.stage:
            case CollectorStage.ROSTERS:
                if np.count_nonzero(self._members) < self._query.min_parties:
                    return self._release()  # which fails, and says why
                request: bytes | None = self.first_request()
            case CollectorStage.CHECKING:
                request = self.next_request()
            case _:
                return super()._proceed()
        if request is None:
            return self._release()
        self._heard.clear()
        self._checking = True
        return Continue(self._to_servers(Phase.VERIFY, request))

    def _release(self) -> Step:
        count = np.count_nonzero(self._members)
        if not self._checking or count >= self._query.min_parties:
            return super()._release()
        self._state = CollectorState.OVER
        caught = np.array(sorted(self._faults), dtype=np.uint32)
        return Failed(
            f"only {count} of {self._query.parties} parties sent {self.good} and "
            f"{self._query.min_parties} are needed; caught: {some_parties(caught)}"
        )
