"""Verified keys that are asked on demand: servers check the keys at the points of each question."""

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.aggregation.contract import Bulk, Ids
from tallyroom.protocols.aggregation.fss.on_demand import NodeNoise, parse_points
from tallyroom.protocols.aggregation.fss.verified_server import VerifiedServer
from tallyroom.protocols.aggregation.one_round import ServerState
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.wire.machine import Continue, Failed, Rejected, Step
from tallyroom.protocols.wire.messages import Message, Phase, Role, name_block


class VerifiedOnDemandServer(VerifiedServer):
    """Keeps the keys after the release. Answers a question once all keys verify at its points.

    Before the release keys are checked at the second level, where a wrong weight shows, and parties
    that fail are left out. A key that is wrong further down is found by the first question that
    looks there. It ends the run, and its party is named: the noise of nodes was drawn for the sum
    with that party, and answers with and without it under the same noise would reveal its data.
    """

    forgets_questions = True

    def __init__(self, query: Query, index: int, randomness: Randomness, bulk: Bulk) -> None:
        super().__init__(query, index, randomness, bulk)
        self._node_noise = NodeNoise(query, randomness)
        self._question = np.zeros(0, dtype=np.uint64)

    @property
    def _points(self) -> NDArray[np.uint64]:
        return np.array([(1 << self._keys.bits) - 1], dtype=np.uint64)

    def _release(self, message: Message) -> Step:
        members = self.releasable(message)
        if isinstance(members, Rejected):
            return members
        self._ids = np.flatnonzero(members).astype(np.uint32)
        self._released_members = message.body[0].tobytes()
        self._state = ServerState.RELEASED
        return Continue(spends=(self._query.spend,))

    def _ask(self, message: Message) -> Step:
        points = parse_points(message, self._query)
        if isinstance(points, Rejected):
            return points
        if self._compared is not None:
            return Rejected(message.sender, "a question before the last one is answered")
        self._question = points
        assert self._released_members is not None
        told = self._released_members + message.body[0].tobytes()
        return self._and_then([self._compare(points, told)])

    def _concluded(self, messages: list[Message], refused: Ids) -> Step:
        if self._state is not ServerState.RELEASED:
            return super()._concluded(messages, refused)
        if len(refused):
            names = name_block(Role.PARTY, refused[:1])
            more = f" and of {len(refused) - 1} more" if len(refused) > 1 else ""
            return Failed(f"keys of {names}{more} do not verify at the points that were asked")
        share = self._counted
        if self._adds_noise:
            share = share + self._node_noise.at(self._question)
        answer = self._to_coordinator(Phase.SHARE, share.astype("<u8").tobytes())
        return Continue((*messages, answer))
