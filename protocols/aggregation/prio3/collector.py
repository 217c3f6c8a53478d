"""The coordinator of Prio3: adds up verifier shares, and names parties that sent false records."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.aggregation.contract import Ids, Records
from tallyroom.protocols.aggregation.prio3.reports import CONTRIBUTION_BYTES, Counts, Reporting
from tallyroom.protocols.aggregation.prio3.server import STEP
from tallyroom.protocols.aggregation.rosters import parse_members
from tallyroom.protocols.aggregation.verifying_collector import VerifyingCollector
from tallyroom.protocols.algebra.ring import Vector, add_shares
from tallyroom.protocols.query import Query
from tallyroom.protocols.wire.machine import Rejected, Step
from tallyroom.protocols.wire.messages import Message


class Prio3Collector(VerifyingCollector):
    """Sees noisy shares, who contributed, and verifiers, which reveal only false records."""

    def __init__(self, reporting: Reporting, query: Query, records: Records) -> None:
        super().__init__(query, records.copy(), add_shares)
        self._reporting = reporting
        self._contributions: dict[int, bytes] = {}
        self._chunks: list[Ids] = []
        self._step = 0
        self._verifiers: dict[int, NDArray[np.uint8]] = {}

    def _roster(self, message: Message) -> Step:
        """Takes a server's contribution to the key, and the roster after it."""
        contribution = message.body[0, :CONTRIBUTION_BYTES].tobytes()
        self._contributions[int(message.senders[0])] = contribution
        return super()._roster(replace(message, body=message.body[:, CONTRIBUTION_BYTES:]))

    # --- verification ---

    @property
    def _counts(self) -> Counts:
        """How many reports each party sent: one for each of its records."""
        return np.ones_like(self._records) if self.counted is None else self._records

    def first_request(self) -> bytes:
        self._chunks = self._reporting.chunks(self._members, self._counts)
        contributions = b"".join(self._contributions[i] for i in range(self._query.servers))
        return STEP.pack(0) + contributions + np.packbits(self._members).tobytes()

    def take_answer(self, server: int, message: Message) -> Rejected | None:
        if message.body[0, : STEP.size].tobytes() != STEP.pack(self._step):
            return Rejected(message.sender, "a verify message of another step")
        payload = replace(message, body=message.body[:, STEP.size :])
        if self._step == len(self._chunks):
            accepted = parse_members(payload, self._query.parties)
            if isinstance(accepted, Rejected):
                return accepted
            self._leave_out(self._members & ~accepted)
            return None
        reports = int(self._counts[self._chunks[self._step]].sum())
        width = self._reporting.prio3.verifier_share_bytes
        if payload.width != reports * width:
            reason = f"{payload.width} bytes are not {reports} verifier shares of {width}"
            return Rejected(message.sender, reason)
        shares = np.ascontiguousarray(payload.body[0]).reshape(reports, width)
        self._verifiers[server] = shares
        return None

    def next_request(self) -> bytes | None:
        if not self._verifiers:
            return None
        shares = [self._verifiers[i] for i in range(self._query.servers)]
        self._verifiers = {}
        context = self._reporting.context
        rows, right = self._reporting.prio3.verifier_shares_to_messages(context, shares)
        self._step += 1
        return STEP.pack(self._step) + np.packbits(right).tobytes() + rows.tobytes()

    # --- the answer ---

    @property
    def share_bytes(self) -> int:
        return self._reporting.field.width * self._query.released

    def _share(self, message: Message) -> Step:
        field = self._reporting.field
        whole = message.width == self.share_bytes
        if whole and not field.canonical(field.unchecked(message.body[0])).all():
            return Rejected(message.sender, "a share with an element that is not below the modulus")
        return super()._share(message)

    def open(self, shares: dict[int, NDArray[np.uint8]]) -> Vector:
        """Field elements above p/2 stand for negative numbers."""
        field = self._reporting.field
        total = field.sum(np.stack([field.decode(share) for share in shares.values()]), 0)
        values = field.to_ints(total)
        centred = np.where(values > field.modulus // 2, values - field.modulus, values)
        ring: Vector = (centred % 2**64).astype(np.uint64)
        return ring
