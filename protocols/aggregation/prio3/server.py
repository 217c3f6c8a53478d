"""A server of Prio3: verifies what parties submitted, and releases the sum of what is true."""

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import replace
from enum import Enum, auto

import numpy as np
from numpy.typing import NDArray

from protocols.aggregation.contract import Bodies, Bulk, Ids
from protocols.aggregation.one_round import ServerState, SummingServer, out_of_turn
from protocols.aggregation.prio3.reports import CONTRIBUTION_BYTES, Members, Reporting
from protocols.aggregation.rosters import Fault, parse_members, roster
from protocols.algebra.field import Field, Vector, apply_integer_map
from protocols.randomness import Randomness
from protocols.run.machine import Continue, Rejected, Step
from protocols.run.messages import Message, Phase, Role
from protocols.run.query import Query
from protocols.vdaf.prio3 import NONCE_BYTES, Messages, VerifyStates

STEP = struct.Struct("<I")
"""What a VERIFY begins with. The coordinator's step 0 is the key; step j is about chunk j - 1. A
server answers a step under its number, with the verifier shares of chunk j, or, when there are no
more chunks, with whom it accepts."""


class Stage(Enum):
    COLLECTING = auto()  # submissions come in
    CLOSED = auto()  # the roster went out; the key is awaited
    VERIFYING = auto()  # verifier shares went out; what they say together is awaited
    VERIFIED = auto()  # whom it accepts went out; only the release is awaited
    RELEASED = auto()


SERVER_STAGES: dict[tuple[Stage, Phase], Role] = {
    (Stage.COLLECTING, Phase.SUBMIT): Role.PARTY,
    (Stage.COLLECTING, Phase.EXCUSE): Role.COORDINATOR,
    (Stage.CLOSED, Phase.SUBMIT): Role.PARTY,
    (Stage.CLOSED, Phase.VERIFY): Role.COORDINATOR,
    (Stage.VERIFYING, Phase.SUBMIT): Role.PARTY,
    (Stage.VERIFYING, Phase.VERIFY): Role.COORDINATOR,
    (Stage.VERIFIED, Phase.SUBMIT): Role.PARTY,
    (Stage.VERIFIED, Phase.VERIFY): Role.COORDINATOR,
    (Stage.VERIFIED, Phase.RELEASE): Role.COORDINATOR,
    (Stage.RELEASED, Phase.VERIFY): Role.COORDINATOR,
    (Stage.RELEASED, Phase.RELEASE): Role.COORDINATOR,
}
"""What a server takes in which stage, and from whom; everything else is rejected.

Submissions after the close, verifications after the last and releases after the first are taken
only if they say again what was said before.
"""


class Prio3Server(SummingServer):
    """Sees one share of every record and its proof, and which parties' records are not possible.

    It verifies every report under one key only: the answers to two keys together would not be of
    zero knowledge.
    """

    def __init__(
        self, reporting: Reporting, query: Query, index: int, randomness: Randomness, bulk: Bulk
    ) -> None:
        super().__init__(query, index, randomness, bulk)
        self._reporting = reporting
        self._prio3 = reporting.prio3
        self._width = reporting.report_bytes(index)
        # Kept until parties can change nothing any more: who knows the key can forge proofs.
        self._contribution = randomness.derive("verification key").bytes(CONTRIBUTION_BYTES)
        self._key = b""
        self._counts = np.zeros(query.parties, dtype=np.int64)
        self._places = np.zeros((query.parties, 2), dtype=np.int64)
        self._taken: list[bytes] = []
        self._chunks: list[Ids] = []
        self._states: VerifyStates | None = None
        self._accepted = np.zeros(query.parties, dtype=bool)
        self._total = reporting.field.zeros(self._prio3.circuit.output_length)

    @property
    def stage(self) -> Stage:
        match self._state:
            case ServerState.COLLECTING:
                return Stage.COLLECTING
            case ServerState.RELEASED:
                return Stage.RELEASED
        if not self._taken:
            return Stage.CLOSED
        return Stage.VERIFYING if len(self._taken) <= len(self._chunks) else Stage.VERIFIED

    def receive(self, message: Message) -> Step:
        expected = SERVER_STAGES.get((self.stage, message.phase))
        if (refusal := out_of_turn(message, expected, self.stage.name)) is not None:
            return refusal
        if message.phase is Phase.VERIFY:
            return self._verify(message)
        return super().receive(message)

    # --- submissions ---

    def check(self, message: Message) -> str | None:
        reports, rest = divmod(message.width, self._width)
        if rest or reports < 1:
            return f"{message.width} bytes are no whole number of reports of {self._width} bytes"
        if reports > (most := self._query.max_records_per_party):
            return f"{reports} reports, where a party holds at most {most} records"
        return None

    def pack(self, message: Message) -> NDArray[np.uint8]:
        return np.ascontiguousarray(message.rows()).reshape(-1)

    def _blocks(self) -> Iterator[tuple[Ids, Bodies]]:
        """Reports as they came, (parties, reports of each, bytes)."""
        for ids, block in self._bulk.blocks():
            yield ids, block.reshape(len(ids), -1, self._width)

    def _close(self) -> Step:
        self._state = ServerState.CLOSED
        nonces = [np.zeros((0, NONCE_BYTES), dtype=np.uint8)]
        senders = [np.zeros(0, dtype=np.uint32)]
        for number, (ids, reports) in enumerate(self._blocks()):
            each = reports.shape[1]
            self._counts[ids] = each
            self._places[ids, 0] = number
            self._places[ids, 1] = np.arange(len(ids))
            nonces.append(reports[:, :, :NONCE_BYTES].reshape(-1, NONCE_BYTES))
            senders.append(np.repeat(ids, each))
        self._refuse_replays(np.concatenate(nonces), np.concatenate(senders))
        body = self._contribution
        if (count_type := self._reporting.count_type) is not None:
            body += self._counts.astype(count_type.newbyteorder("<")).tobytes()
        body += roster(self._present, self._faults)
        return Continue((self._to_coordinator(Phase.ROSTER, body),))

    def _refuse_replays(self, nonces: Bodies, senders: Ids) -> None:
        """A report that came before is not its sender's own: it would count somebody twice.

        Nobody can come first with another's: nonces go to servers only. (One that colludes with a
        party can have that party's choice of others refused, as it can by refusing them itself.)
        """
        whole = np.ascontiguousarray(nonces).view(f"V{NONCE_BYTES}").ravel()
        _, first = np.unique(whole, return_index=True)
        again = np.ones(len(senders), dtype=bool)
        again[first] = False
        for party in np.unique(senders[again]).tolist():
            self._faults[party] = Fault.REPLAYED
            self._present[party] = False
            self._counts[party] = 0

    # --- verification ---

    def _verify(self, message: Message) -> Step:
        """One step; one that was taken before is taken again silently."""
        if message.links != 1 or message.width < STEP.size:
            return Rejected(message.sender, "not a step of a verification")
        (step,) = STEP.unpack(message.body[0, : STEP.size].tobytes())
        digest = hashlib.blake2s(message.body[0].tobytes()).digest()
        if step < len(self._taken) and self._taken[step] == digest:
            return Continue()
        if step != len(self._taken) or step > len(self._chunks):
            return Rejected(message.sender, f"step {step} is out of turn")
        payload = replace(message, body=message.body[:, STEP.size :])
        refusal = self._take_key(payload) if step == 0 else self._take_verdict(payload, step - 1)
        if refusal is not None:
            return refusal
        self._taken.append(digest)
        if step < len(self._chunks):
            answer = self._verifier_shares(self._chunks[step])
        else:
            answer = np.packbits(self._accepted).tobytes()
        return Continue((self._to_coordinator(Phase.VERIFY, STEP.pack(step) + answer),))

    def _take_key(self, message: Message) -> Rejected | None:
        size = CONTRIBUTION_BYTES * self._query.servers
        contributions = message.body[0, :size].tobytes()
        members = parse_members(replace(message, body=message.body[:, size:]), self._query.parties)
        if isinstance(members, Rejected):
            return members
        mine = slice(CONTRIBUTION_BYTES * self._index, CONTRIBUTION_BYTES * (self._index + 1))
        if contributions[mine] != self._contribution:
            return Rejected(message.sender, "a key without this server's contribution")
        if (members & ~self._present).any():
            return Rejected(message.sender, "a verification of parties that did not submit")
        if np.count_nonzero(members) < self._query.min_parties:
            reason = f"a verification of fewer than {self._query.min_parties} parties"
            return Rejected(message.sender, reason)
        self._key = self._reporting.verify_key(contributions)
        self._chunks = self._reporting.chunks(members, self._counts)
        return None

    def _verifier_shares(self, ids: Ids) -> bytes:
        parts = self._reporting.split(self._reports(ids))
        self._states, shares = self._prio3.verify_init(
            self._key, self._reporting.context, self._index, *parts
        )
        return shares.tobytes()

    def _take_verdict(self, message: Message, chunk: int) -> Rejected | None:
        ids = self._chunks[chunk]
        counts = self._counts[ids]
        reports = int(counts.sum())
        end = -(-reports // 8)
        bits = np.unpackbits(message.body[0, :end])
        width = self._prio3.message_bytes
        if message.width != end + reports * width or bits[reports:].any():
            return Rejected(message.sender, f"not a verdict on {reports} reports")
        assert self._states is not None
        rows = np.ascontiguousarray(message.body[0, end:]).reshape(reports, width)
        right = Messages(rows, bits[:reports].astype(bool))
        outputs = self._prio3.verify_next(self._states, right)
        self._states = None
        # One false record of a party costs it all of them.
        accepted = np.logical_and.reduceat(outputs.accepted, np.cumsum(counts) - counts)
        self._accepted[ids[accepted]] = True
        kept = outputs.shares[np.repeat(accepted, counts)]
        self._total = self._reporting.field.add(self._total, self._reporting.field.sum(kept, 0))
        return None

    def _reports(self, ids: Ids) -> Bodies:
        """The reports of these parties, in the order of `ids`, (reports, bytes)."""
        counts = self._counts[ids]
        starts = np.cumsum(counts) - counts
        blocks = list(self._blocks())
        number, row = self._places[ids].T
        gathered = np.empty((int(counts.sum()), self._width), dtype=np.uint8)
        for block in np.unique(number):
            here = np.flatnonzero(number == block)
            reports = blocks[block][1][row[here]]
            gathered[starts[here][:, None] + np.arange(reports.shape[1])] = reports
        return gathered

    # --- the release ---

    def releasable(self, message: Message) -> Members | Rejected:
        members = super().releasable(message)
        if not isinstance(members, Rejected) and (members & ~self._accepted).any():
            return Rejected(message.sender, "a release over parties that are not accepted here")
        return members

    @property
    def noise_field(self) -> Field | None:
        return self._reporting.field

    def sum_over(self, members: Members) -> Vector:
        """Of those accepted here, without those that others did not accept."""
        field, share = self._reporting.field, self._total
        left_out = np.flatnonzero(self._accepted & ~members).astype(np.uint32)
        if len(left_out):
            inputs = self._reporting.split(self._reports(left_out)).input_shares
            outputs = self._prio3.output_shares(self._reporting.context, self._index, inputs)
            share = field.sub(share, field.sum(outputs, 0))
        return self._reporting.total(share)

    def publish(self, share: Vector) -> bytes:
        field, statistic = self._reporting.field, self._query.statistic
        if self._query.mechanism is not None:
            if statistic.measures:
                share = apply_integer_map(field, statistic.measure, share)
            if self.drawn is not None:
                share = field.add(share, apply_integer_map(field, statistic.place, self.drawn))
            elif (noise := self.noise()) is not None:
                share = field.add(share, field.from_signed(noise.view(np.int64)))
        return field.encode(share).tobytes()
