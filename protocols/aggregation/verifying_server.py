"""A server that checks what parties submitted, with the other servers, before it releases a sum."""

from abc import abstractmethod
from enum import Enum, auto
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.aggregation.contract import Bodies, Bulk, Ids
from tallyroom.protocols.aggregation.one_round import ServerState, SummingServer, out_of_turn
from tallyroom.protocols.aggregation.rosters import Fault
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.wire.machine import Rejected, Step
from tallyroom.protocols.wire.messages import Message, Phase, Role

Members = NDArray[np.bool]

NAME_BYTES = 16


class VerifyingStage(Enum):
    COLLECTING = auto()  # submissions come in
    CLOSED = auto()  # the roster is sent; waits for whom to check
    CHECKING = auto()  # servers exchange what they found
    CHECKED = auto()  # its verdict is sent; waits for the release
    RELEASED = auto()


Stages = dict[tuple[VerifyingStage, Phase], Role]

SERVER_STAGES: Stages = {
    (VerifyingStage.COLLECTING, Phase.SUBMIT): Role.PARTY,
    (VerifyingStage.COLLECTING, Phase.EXCUSE): Role.COORDINATOR,
    (VerifyingStage.CLOSED, Phase.SUBMIT): Role.PARTY,
    (VerifyingStage.CLOSED, Phase.VERIFY): Role.COORDINATOR,
    (VerifyingStage.CHECKING, Phase.SUBMIT): Role.PARTY,
    (VerifyingStage.CHECKING, Phase.VERIFY): Role.COORDINATOR,
    (VerifyingStage.CHECKED, Phase.SUBMIT): Role.PARTY,
    (VerifyingStage.CHECKED, Phase.VERIFY): Role.COORDINATOR,
    (VerifyingStage.CHECKED, Phase.RELEASE): Role.COORDINATOR,
    (VerifyingStage.RELEASED, Phase.VERIFY): Role.COORDINATOR,
    (VerifyingStage.RELEASED, Phase.RELEASE): Role.COORDINATOR,
}
"""Which messages a server accepts in which stage, and from whom; all others are rejected.

Submissions after the close, verifications after the last and releases after the first are accepted
only if they repeat an earlier message.
"""


class VerifyingServer(SummingServer):
    """Checks submissions before the release, and releases only those that it accepted."""

    stages: ClassVar[Stages] = SERVER_STAGES

    def __init__(self, query: Query, index: int, randomness: Randomness, bulk: Bulk) -> None:
        super().__init__(query, index, randomness, bulk)
        self._counts = np.zeros(query.parties, dtype=np.int64)
        self._accepted = np.zeros(query.parties, dtype=bool)

    @property
    def stage(self) -> VerifyingStage:
        match self._state:
            case ServerState.COLLECTING:
                return VerifyingStage.COLLECTING
            case ServerState.RELEASED:
                return VerifyingStage.RELEASED
        return self.check_stage

    @property
    @abstractmethod
    def check_stage(self) -> VerifyingStage:
        """The stage of the check, between the close and the release."""

    def receive(self, message: Message) -> Step:
        expected = self.stages.get((self.stage, message.phase))
        refusal = out_of_turn(message, expected, self.stage.name)
        return self.take(message) if refusal is None else refusal

    def take(self, message: Message) -> Step:
        """Takes a message that is in turn."""
        return self.verify(message) if message.phase is Phase.VERIFY else super().receive(message)

    @abstractmethod
    def verify(self, message: Message) -> Step:
        """Takes the coordinator's message about the check."""

    def refuse_replays(self, names: Bodies, senders: Ids) -> None:
        """Refuses parties that sent a record, identified by its name of `NAME_BYTES`, which came
        before: it would count somebody twice.

        Nobody can submit another party's record first, because names go to servers only. (A server
        that colludes with a party can have parties of its choice refused this way, but it can also
        simply refuse them.)
        """
        for party in np.unique(senders[repeated(names)]).tolist():
            self._faults[party] = Fault.REPLAYED
            self._present[party] = False
            self._counts[party] = 0

    def may_check(self, message: Message, members: Members) -> Rejected | None:
        """Why these members cannot be checked; None if they can."""
        if (members & ~self._present).any():
            return Rejected(message.sender, "a check of parties that did not submit")
        if np.count_nonzero(members) < self._query.min_parties:
            reason = f"a check of fewer than {self._query.min_parties} parties"
            return Rejected(message.sender, reason)
        return None

    def releasable(self, message: Message) -> Members | Rejected:
        members = super().releasable(message)
        if not isinstance(members, Rejected) and (members & ~self._accepted).any():
            return Rejected(
                message.sender, "a release over parties whose submissions do not verify here"
            )
        return members


def repeated(names: Bodies) -> Members:
    """Which rows of `NAME_BYTES` repeat an earlier row."""
    words = np.ascontiguousarray(names).view("<u8").reshape(len(names), 2)
    order = np.lexsort((words[:, 1], words[:, 0]))  # stable: equal rows stay in their order
    again = np.zeros(len(names), dtype=bool)
    again[order[1:]] = (words[order[1:]] == words[order[:-1]]).all(axis=1)
    return again
