"""The coordinator of Prio3: adds up what servers found, and names parties that sent falsehoods."""

from dataclasses import replace
from enum import Enum, auto

import numpy as np
from numpy.typing import NDArray

from protocols.aggregation.collector import Collector, CollectorState, _some
from protocols.aggregation.contract import Ids, Records
from protocols.aggregation.prio3.reports import CONTRIBUTION_BYTES, Counts, Members, Reporting
from protocols.aggregation.prio3.server import STEP
from protocols.aggregation.rosters import Fault, parse_members, parse_roster
from protocols.algebra.ring import Vector, add_shares
from protocols.run.machine import Continue, Failed, Rejected, Step
from protocols.run.messages import Message, Phase, Role
from protocols.run.query import Query


class CollectorStage(Enum):
    ROSTERS = auto()
    VERIFYING = auto()
    SHARES = auto()
    OVER = auto()


COLLECTOR_STAGES: dict[tuple[CollectorStage, Phase], Role] = {
    (CollectorStage.ROSTERS, Phase.ROSTER): Role.SERVER,
    (CollectorStage.ROSTERS, Phase.GIVE_UP): Role.SERVER,
    (CollectorStage.VERIFYING, Phase.VERIFY): Role.SERVER,
    (CollectorStage.VERIFYING, Phase.GIVE_UP): Role.SERVER,
    (CollectorStage.SHARES, Phase.SHARE): Role.SERVER,
    (CollectorStage.SHARES, Phase.GIVE_UP): Role.SERVER,
}


class Prio3Collector(Collector):
    """Sees noisy shares, who contributed, and verifiers, which tell nothing but who is false."""

    def __init__(self, reporting: Reporting, query: Query, records: Records) -> None:
        super().__init__(query, records.copy(), add_shares)
        self._reporting = reporting
        self._contributions: dict[int, bytes] = {}
        self._chunks: list[Ids] = []
        self._step: int | None = None
        self._verifiers: dict[int, NDArray[np.uint8]] = {}

    @property
    def stage(self) -> CollectorStage:
        match self._state:
            case CollectorState.SHARES:
                return CollectorStage.SHARES
            case CollectorState.OVER:
                return CollectorStage.OVER
        return CollectorStage.ROSTERS if self._step is None else CollectorStage.VERIFYING

    def receive(self, message: Message) -> Step:
        if COLLECTOR_STAGES.get((self.stage, message.phase)) is not message.sender_role:
            return Rejected(message.sender, f"{message.phase.label} is out of turn")
        if message.phase is Phase.VERIFY:
            return self._answer(message)
        return super().receive(message)

    def lose(self, parties: Ids) -> Step:
        return super().lose(parties) if self.stage is CollectorStage.ROSTERS else Continue()

    def _proceed(self) -> Step:
        match self.stage:
            case CollectorStage.ROSTERS:
                return self._begin()
            case CollectorStage.VERIFYING:
                return self._next()
            case _:
                return super()._proceed()

    # --- who submitted ---

    def _roster(self, message: Message) -> Step:
        """A roster after a contribution to the key, and how many reports each party sent."""
        head = self._reporting.head_bytes
        start = message.body[0, :head].tobytes()
        parsed = parse_roster(replace(message, body=message.body[:, head:]), self._query.parties)
        if isinstance(parsed, Rejected):
            return parsed
        members, faults = parsed
        self._contributions[int(message.senders[0])] = start[:CONTRIBUTION_BYTES]
        self._faults |= faults
        if (count_type := self._reporting.count_type) is not None:
            sent = np.frombuffer(start, count_type.newbyteorder("<"), offset=CONTRIBUTION_BYTES)
            self._leave_out(members & (sent != self._records))
        self._members &= members
        return self._hear(message)

    def _leave_out(self, parties: Members) -> None:
        """Whose submission is not what it must be."""
        self._members &= ~parties
        for party in np.flatnonzero(parties).tolist():
            self._faults.setdefault(party, Fault.INVALID)

    # --- verification ---

    @property
    def _counts(self) -> Counts:
        """How many reports each party sent: one for each of its records."""
        return self._records if self._reporting.count_type else np.ones_like(self._records)

    def _begin(self) -> Step:
        if np.count_nonzero(self._members) < self._query.min_parties:
            return self._release()  # which says why there is none
        self._chunks = self._reporting.chunks(self._members, self._counts)
        contributions = b"".join(self._contributions[i] for i in range(self._query.servers))
        return self._ask(0, contributions + np.packbits(self._members).tobytes())

    def _ask(self, step: int, body: bytes) -> Step:
        self._heard.clear()
        self._step = step
        return Continue(self._to_servers(Phase.VERIFY, STEP.pack(step) + body))

    def _answer(self, message: Message) -> Step:
        server = int(message.senders[0])
        if server not in self._here or server in self._heard or message.links != 1:
            return Rejected(message.sender, "a second or unasked verify")
        step = message.body[0, : STEP.size].tobytes()
        if self._step is None or step != STEP.pack(self._step):
            return Rejected(message.sender, "verify of another step")
        payload = replace(message, body=message.body[:, STEP.size :])
        if self._step == len(self._chunks):
            accepted = parse_members(payload, self._query.parties)
            if isinstance(accepted, Rejected):
                return accepted
            self._leave_out(self._members & ~accepted)
        else:
            reports = int(self._counts[self._chunks[self._step]].sum())
            width = self._reporting.prio3.verifier_share_bytes
            if payload.width != reports * width:
                reason = f"{payload.width} bytes are not {reports} verifier shares of {width}"
                return Rejected(message.sender, reason)
            shares = np.ascontiguousarray(payload.body[0]).reshape(reports, width)
            self._verifiers[server] = shares
        return self._hear(message)

    def _next(self) -> Step:
        """All servers have answered a step."""
        if not self._verifiers:
            return self._release()
        assert self._step is not None
        shares = [self._verifiers[i] for i in range(self._query.servers)]
        self._verifiers = {}
        context = self._reporting.context
        rows, right = self._reporting.prio3.verifier_shares_to_messages(context, shares)
        return self._ask(self._step + 1, np.packbits(right).tobytes() + rows.tobytes())

    def _release(self) -> Step:
        count = np.count_nonzero(self._members)
        if self._step is None or count >= self._query.min_parties:
            return super()._release()
        self._state = CollectorState.OVER
        caught = np.array(sorted(self._faults), dtype=np.uint32)
        return Failed(
            f"only {count} of {self._query.parties} parties sent what verifies and "
            f"{self._query.min_parties} are needed; caught: {_some(caught)}"
        )

    # --- the answer ---

    @property
    def share_bytes(self) -> int:
        return self._reporting.field.width * self._query.released

    def _share(self, message: Message) -> Step:
        field = self._reporting.field
        whole = message.width == self.share_bytes
        if whole and not field.canonical(field.unchecked(message.body[0])).all():
            return Rejected(message.sender, "a share with an element that is past the modulus")
        return super()._share(message)

    def open(self, shares: dict[int, NDArray[np.uint8]]) -> Vector:
        """Field elements above p/2 stand for negative numbers."""
        field = self._reporting.field
        total = field.sum(np.stack([field.decode(share) for share in shares.values()]), 0)
        values = field.to_ints(total)
        centred = np.where(values > field.modulus // 2, values - field.modulus, values)
        ring: Vector = (centred % 2**64).astype(np.uint64)
        return ring
