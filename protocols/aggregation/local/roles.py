"""The machines of the local model: one class per role, which shows what that role may see."""

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.aggregation.contract import Bodies, Bulk, Ids
from tallyroom.protocols.aggregation.local.reports import LocalMechanism, reports_of
from tallyroom.protocols.aggregation.one_round import CollectingServer, ServerState
from tallyroom.protocols.aggregation.rosters import submissions
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.wire.machine import Continue, Done, Failed, Rejected, SpeaksOnce, Step
from tallyroom.protocols.wire.messages import Message, Phase


class LocalParty(SpeaksOnce):
    """Sees its own records. Sends a report for each, and is done."""

    def __init__(self, query: Query, holdings: Holdings, randomness: Randomness) -> None:
        self._query = query
        self._holdings = holdings
        self._randomness = randomness
        self._reports = reports_of(query, holdings)

    def start(self) -> Step:
        """Sends parties with equally many reports in one message, as their rows have one length."""
        counts = self._reports.counts(self._holdings)
        messages: tuple[Message, ...] = ()
        for count in np.unique(counts):
            chosen = np.flatnonzero(counts == count)
            payloads = self._reports.payloads(chosen, int(count), self._randomness)
            rows = payloads.reshape(len(chosen), -1)
            messages += submissions(self._query, self._holdings.ids[chosen], [rows])
        return Done(messages=messages)


class LocalServer(CollectingServer):
    """Sees every party's reports, which are private by themselves. Releases what they estimate."""

    def __init__(self, query: Query, index: int, randomness: Randomness, bulk: Bulk) -> None:
        super().__init__(query, index, randomness, bulk)
        self._reports = reports_of(query)
        self._width = self._reports.payload_bytes
        self._estimated: bytes | None = None

    def check(self, message: Message) -> str | None:
        count, rest = divmod(message.width, self._width)
        if rest or count < 1:
            return f"{message.width} bytes do not divide into reports of {self._width} bytes"
        if count > (limit := self._reports.max_per_party):
            return f"{count} reports, where a party makes at most {limit}"
        if not self._reports.possible_from(message.senders, message.rows()).all():
            return "a report that the randomizer cannot produce"
        return None

    def pack(self, message: Message) -> NDArray[np.uint8]:
        return message.rows().reshape(-1)

    def _release(self, message: Message) -> Step:
        members = self.releasable(message)
        if isinstance(members, Rejected):
            return members
        if self._estimated is None:
            try:
                opened = self._reports.open_from(self._blocks(members))
            except LocalError as error:
                return Failed(str(error))
            self._estimated = opened.vector.astype("<u8").tobytes()
            self._released_members = message.body[0].tobytes()
            self._state = ServerState.RELEASED
            self._bulk.clear()
        share = self._to_coordinator(Phase.SHARE, self._estimated)
        return Continue((share,), (LocalMechanism(self._query).spend,))

    def _blocks(self, members: NDArray[np.bool]) -> list[tuple[Ids, Bodies]]:
        """The members' reports as they came, one row per party."""
        blocks = []
        for ids, block in self._bulk.blocks():
            chosen = members[ids]
            blocks.append((ids[chosen], np.asarray(block).reshape(len(ids), -1)[chosen]))
        return blocks
