"""The coordinator of verified keys: it says whose keys to check, and names cheaters."""

from typing import ClassVar

import numpy as np

from tallyroom.protocols.aggregation.contract import Records
from tallyroom.protocols.aggregation.fss.on_demand import OnDemandCollector
from tallyroom.protocols.aggregation.rosters import parse_members
from tallyroom.protocols.aggregation.verifying_collector import VerifyingCollector
from tallyroom.protocols.algebra.ring import add_shares
from tallyroom.protocols.query import Query
from tallyroom.protocols.wire.machine import Rejected
from tallyroom.protocols.wire.messages import Message


class _KeysChecked(VerifyingCollector):
    """Servers are told once whose keys to check, and answer whose are good."""

    good: ClassVar[str] = "keys that verify"

    def first_request(self) -> bytes:
        return np.packbits(self._members).tobytes()

    def take_answer(self, server: int, message: Message) -> Rejected | None:
        accepted = parse_members(message, self._query.parties)
        if isinstance(accepted, Rejected):
            return accepted
        self._leave_out(self._members & ~accepted)
        return None


class VerifiedCollector(_KeysChecked):
    """Sees noisy shares, who contributed how many keys, and whose keys do not verify."""

    def __init__(self, query: Query, records: Records) -> None:
        super().__init__(query, records, add_shares)


class VerifiedOnDemandCollector(_KeysChecked, OnDemandCollector):
    """Asks point after point; servers check the keys at every point that it asks."""
