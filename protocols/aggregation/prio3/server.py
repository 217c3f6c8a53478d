"""A server of Prio3: verifies what parties submitted, and releases the sum of valid records."""

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.aggregation.contract import Bodies, Bulk, Ids
from tallyroom.protocols.aggregation.one_round import ServerState
from tallyroom.protocols.aggregation.prio3.reports import CONTRIBUTION_BYTES, Reporting
from tallyroom.protocols.aggregation.rosters import count_type, counts_body, parse_members, roster
from tallyroom.protocols.aggregation.verifying_server import (
    Members,
    VerifyingServer,
    VerifyingStage,
)
from tallyroom.protocols.algebra.field import Field, Vector, apply_integer_map
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.vdaf.prio3 import NONCE_BYTES, Messages, VerifyStates
from tallyroom.protocols.wire.machine import Continue, Rejected, Step
from tallyroom.protocols.wire.messages import Message, Phase

STEP = struct.Struct("<I")
"""A VERIFY message begins with its step. The coordinator's step 0 has the key; step j is about
chunk j - 1. A server answers step j, under the same number, with the verifier shares of chunk j or,
after the last chunk, with the parties that it accepts."""


class Prio3Server(VerifyingServer):
    """Sees one share of every record and its proof, and which parties' records are impossible.

    It verifies every report under one key only: the answers under two keys together would not be
    zero-knowledge.
    """

    def __init__(
        self, reporting: Reporting, query: Query, index: int, randomness: Randomness, bulk: Bulk
    ) -> None:
        super().__init__(query, index, randomness, bulk)
        self._reporting = reporting
        self._prio3 = reporting.prio3
        self._width = reporting.report_bytes(index)
        # Kept secret until parties can no longer submit: whoever knows the key can forge proofs.
        self._contribution = randomness.derive("verification key").bytes(CONTRIBUTION_BYTES)
        self._key = b""
        self._places = np.zeros((query.parties, 2), dtype=np.int64)
        self._taken: list[bytes] = []
        self._chunks: list[Ids] = []
        self._states: VerifyStates | None = None
        self._total = reporting.field.zeros(self._prio3.circuit.output_length)

    @property
    def check_stage(self) -> VerifyingStage:
        if not self._taken:
            return VerifyingStage.CLOSED
        over = len(self._taken) > len(self._chunks)
        return VerifyingStage.CHECKED if over else VerifyingStage.CHECKING

    # --- submissions ---

    def check(self, message: Message) -> str | None:
        reports, rest = divmod(message.width, self._width)
        if rest or reports < 1:
            return f"{message.width} bytes do not divide into reports of {self._width} bytes"
        if reports > (most := self._query.max_records_per_party):
            return f"{reports} reports, where a party holds at most {most} records"
        return None

    def pack(self, message: Message) -> NDArray[np.uint8]:
        return np.ascontiguousarray(message.rows()).reshape(-1)

    def _blocks(self) -> Iterator[tuple[Ids, Bodies]]:
        """Reports as they came, of shape (parties, reports per party, bytes)."""
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
        self.refuse_replays(np.concatenate(nonces), np.concatenate(senders))
        counts = counts_body(self._counts, count_type(self._query))
        body = self._contribution + counts + roster(self._present, self._faults)
        return Continue((self._to_coordinator(Phase.ROSTER, body),))

    # --- verification ---

    def verify(self, message: Message) -> Step:
        """Takes one step; a repeated one is accepted silently."""
        if message.links != 1 or message.width < STEP.size:
            return Rejected(message.sender, "not a step of a verification")
        (step,) = STEP.unpack(message.body[0, : STEP.size].tobytes())
        digest = hashlib.blake2s(message.body[0].tobytes()).digest()
        if step < len(self._taken) and self._taken[step] == digest:
            return Continue(repeated=True)
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
        if (refusal := self.may_check(message, members)) is not None:
            return refusal
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
        # If one record of a party is false, all of its records are left out.
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

    @property
    def noise_field(self) -> Field | None:
        return self._reporting.field

    def sum_over(self, members: Members) -> Vector:
        """The share over the parties accepted here, minus those that the release leaves out."""
        field, share = self._reporting.field, self._total
        left_out = np.flatnonzero(self._accepted & ~members).astype(np.uint32)
        if len(left_out):
            inputs = self._reporting.split(self._reports(left_out)).input_shares
            outputs = self._prio3.output_shares(self._reporting.context, self._index, inputs)
            share = field.sub(share, field.sum(outputs, 0))
        return self._reporting.total(share)

    def publish(self, share: Vector) -> bytes:
        field, plan = self._reporting.field, self._query.plan
        if self._query.noise_law is not None:
            if plan.measures:
                share = apply_integer_map(field, plan.measure, share)
            if self.drawn is not None:
                share = field.add(share, apply_integer_map(field, plan.place, self.drawn))
            elif (noise := self.noise()) is not None:
                share = field.add(share, field.from_signed(noise.view(np.int64)))
        return field.encode(share).tobytes()
