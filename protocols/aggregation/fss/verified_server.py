"""A server of verified keys: it compares the prints of keys with the other server's.

    server -> coordinator      ROSTER    who submitted, and how many keys each
    server <-> server          TOGETHER  contributions to the challenge, once submissions are closed
    coordinator -> server      VERIFY    whose keys to check
    server <-> server          TOGETHER  a digest of all prints; where they differ, of parts of them
    server -> coordinator      VERIFY    whose keys are good
    coordinator -> server      RELEASE   and so on, as with keys that are not checked

Servers talk to each other directly, and each checks the other's certificate. So the coordinator
learns neither the challenge nor a digest, and cannot have a bad key accepted: it only says whom to
check, and if it told the two servers different things, the run ends.
"""

import hashlib
import struct
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tallyroom.fss.verified import CHALLENGE_BYTES
from tallyroom.protocols.aggregation import verifying_server
from tallyroom.protocols.aggregation.contract import Bodies, Bulk, Ids
from tallyroom.protocols.aggregation.fss.prints import (
    DIGEST_BYTES,
    Prints,
    Range,
    different,
    parts,
    single,
)
from tallyroom.protocols.aggregation.fss.submission import compared
from tallyroom.protocols.aggregation.fss.verified_keys import (
    CONTRIBUTION_BYTES,
    HEADER,
    challenge,
    header,
    verified_keys,
)
from tallyroom.protocols.aggregation.one_round import ServerState
from tallyroom.protocols.aggregation.rosters import count_type, counts_body, parse_members, roster
from tallyroom.protocols.aggregation.verifying_server import (
    NAME_BYTES,
    Members,
    Stages,
    VerifyingServer,
    VerifyingStage,
)
from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.wire.machine import Continue, Failed, Rejected, Step
from tallyroom.protocols.wire.messages import MAX_ROW, Message, Phase, Role, address, body_of

STEP = struct.Struct("<I")
"""A message to the other server begins with its step: 0 is the contribution, later ones digests."""


SERVER_STAGES: Stages = (
    verifying_server.SERVER_STAGES
    | {(stage, Phase.TOGETHER): Role.SERVER for stage in VerifyingStage}
    # If keys are asked on demand, questions follow the release, each with its own digests.
    | {(VerifyingStage.RELEASED, Phase.ASK): Role.COORDINATOR}
)
"""Which messages a server accepts in which stage, and from whom; all others are rejected.

The other server may be ahead by one step, never more. A repeated message is accepted silently if it
is the same, and rejected if it differs.
"""


class VerifiedServer(VerifyingServer):
    """Sees one key of every record, and whose keys do not verify."""

    stages: ClassVar[Stages] = SERVER_STAGES

    def __init__(self, query: Query, index: int, randomness: Randomness, bulk: Bulk) -> None:
        super().__init__(query, index, randomness, bulk)
        self._keys = verified_keys(query)
        # Secret until parties can no longer submit: whoever knows the challenge can forge keys.
        self._contribution = randomness.derive("challenge").bytes(CONTRIBUTION_BYTES)
        self._said: list[bytes] = []
        self._heard: list[bytes] = []
        self._asked: bytes | None = None
        self._batches = 0
        self._suspects: list[Range] = []
        self._ids = np.zeros(0, dtype=np.uint32)
        self._compared: Prints | None = None
        self._checked = False
        self._counted = np.zeros(0, dtype=np.uint64)

    @property
    def check_stage(self) -> VerifyingStage:
        if self._checked:
            return VerifyingStage.CHECKED
        return VerifyingStage.CLOSED if self._asked is None else VerifyingStage.CHECKING

    def take(self, message: Message) -> Step:
        return self._together(message) if message.phase is Phase.TOGETHER else super().take(message)

    # --- submissions ---

    def check(self, message: Message) -> str | None:
        width = self._keys.key_bytes
        keys, rest = divmod(message.width - HEADER.size, width)
        if message.width < HEADER.size or rest or keys < 1:
            return f"{message.width} bytes do not divide into keys of {width} bytes"
        if keys > (most := self._query.max_records_per_party):
            return f"{keys} keys, where a party holds at most {most} records"
        rows = message.rows()
        expected = np.frombuffer(header(self._query, keys), dtype=np.uint8)
        if not (rows[:, : HEADER.size] == expected).all():
            return "keys of another version or domain"
        if not self._keys.validate(self._index, self._rows(rows)).all():
            return "a malformed key"
        return None

    def pack(self, message: Message) -> Bodies:
        return message.rows().reshape(-1)

    def _close(self) -> Step:
        self._state = ServerState.CLOSED
        roots = [np.zeros((0, NAME_BYTES), dtype=np.uint8)]
        senders = [np.zeros(0, dtype=np.uint32)]
        for ids, block in self._bulk.blocks():
            keys = self._rows(block.reshape(len(ids), -1))
            each = len(keys) // len(ids)
            self._counts[ids] = each
            roots.append(keys[:, :NAME_BYTES].copy())  # a view would keep the whole block alive
            senders.append(np.repeat(ids, each))
        self.refuse_replays(np.concatenate(roots), np.concatenate(senders))
        counts = counts_body(self._counts, count_type(self._query))
        body = counts + roster(self._present, self._faults)
        to_coordinator = self._to_coordinator(Phase.ROSTER, body)
        return self._and_then([to_coordinator, self._say(self._contribution)])

    # --- messages between the servers ---

    def _say(self, payload: bytes) -> Message:
        body = STEP.pack(len(self._said)) + payload
        self._said.append(payload)
        return Message(
            self._query.run,
            Phase.TOGETHER,
            Role.SERVER,
            Role.SERVER,
            address(self._index),
            address(1 - self._index),
            body_of(body),
        )

    def _together(self, message: Message) -> Step:
        if message.links != 1 or message.senders.tolist() != [1 - self._index]:
            return Rejected(message.sender, "only the other server checks keys with this one")
        if message.width < STEP.size:
            return Rejected(message.sender, "not a step of a check")
        (step,) = STEP.unpack(message.body[0, : STEP.size].tobytes())
        payload = message.body[0, STEP.size :].tobytes()
        if step < len(self._heard) and self._heard[step] == payload:
            return Continue(repeated=True)
        if step != len(self._heard) or step > len(self._said):
            return Rejected(message.sender, f"step {step} of a check is out of turn")
        if step == 0 and len(payload) != CONTRIBUTION_BYTES:
            return Rejected(message.sender, "not a contribution to a challenge")
        self._heard.append(payload)
        return self._and_then([])

    def verify(self, message: Message) -> Step:
        """Takes whose keys to check, which the coordinator says once."""
        members = parse_members(message, self._query.parties)
        if isinstance(members, Rejected):
            return members
        body = message.body[0].tobytes()
        if self._asked is not None:
            second = Rejected(message.sender, "a second check, of other parties")
            return Continue(repeated=True) if body == self._asked else second
        if (refusal := self.may_check(message, members)) is not None:
            return refusal
        self._asked = body
        self._ids = np.flatnonzero(members).astype(np.uint32)
        return self._and_then([])

    def _and_then(self, messages: list[Message]) -> Step:
        """These messages, and whatever else can be sent by now."""
        if self._asked is not None and self._heard and not self._batches:
            messages.append(self._compare(self._points, self._asked))
        while self._compared is not None and len(self._heard) >= len(self._said):
            ours, theirs, size = self._said[-1], self._heard[-1], self._size
            if len(ours) != len(theirs) or ours[:-size] != theirs[:-size]:
                other = Role.SERVER.named(1 - self._index)
                return Failed(f"{other}: it was told to check other parties or points")
            bad = different(self._suspects, ours[-size:], theirs[-size:])
            if not bad or single(bad):
                self._compared = None
                return self._concluded(messages, self._ids[[first for first, _ in bad]])
            self._suspects = parts(bad)
            if self._size > MAX_ROW - STEP.size:
                return Failed(f"the keys of too many parties do not verify: {len(self._suspects)}")
            messages.append(self._say(self._compared.digests(self._suspects)))
        return Continue(tuple(messages))

    @property
    def _size(self) -> int:
        return DIGEST_BYTES * len(self._suspects)

    @property
    def _points(self) -> NDArray[np.uint64]:
        """The points at which keys are checked before the release: those where they are counted."""
        return compared(self._query).points(self._keys.bits)

    def _compare(self, points: NDArray[np.uint64], told: bytes) -> Message:
        """Counts at `points`. The message to the other server has a digest of what this server was
        `told` to count, and one of all prints."""
        pair = (self._contribution, self._heard[0])
        key = challenge(self._query, pair if self._index == 0 else pair[::-1], self._batches)
        self._batches += 1
        self._counted, prints = self._evaluate(points, key, self._ids)
        self._compared = Prints(prints, self._counts[self._ids], key)
        self._suspects = [(0, len(self._ids))]
        what = hashlib.blake2s(told, key=key, digest_size=DIGEST_BYTES, person=b"told")
        return self._say(what.digest() + self._compared.digests(self._suspects))

    def _concluded(self, messages: list[Message], refused: Ids) -> Step:
        """The check is over: all parties that were checked are accepted, except `refused`."""
        self._accepted[self._ids] = True
        self._accepted[refused] = False
        self._checked = True
        self._counted = self._counted - self._count_again(refused)
        verdict = self._to_coordinator(Phase.VERIFY, np.packbits(self._accepted).tobytes())
        return Continue((*messages, verdict))

    # --- counting ---

    def _evaluate(
        self, points: NDArray[np.uint64], key: bytes, ids: Ids
    ) -> tuple[Vector, NDArray[np.uint64]]:
        """This server's share of the counts over these parties, and the prints of their keys in the
        parties' order, which is ascending."""
        counts = np.zeros(self._query.parties, dtype=np.int64)
        counts[ids] = self._counts[ids]
        starts = np.cumsum(counts) - counts
        prints = np.empty((int(counts.sum()), 3), dtype=np.uint64)
        evaluate = self._keys.at(points, key)
        share = np.zeros(len(points), dtype=np.uint64)
        wanted = counts > 0
        for block_ids, block in self._bulk.blocks():
            chosen = wanted[block_ids]
            if not chosen.any():
                continue
            rows = block.reshape(len(block_ids), -1)
            keys = self._rows(rows if chosen.all() else rows[chosen])
            counted, found = evaluate(self._index, keys)
            share += counted
            here = block_ids[chosen]
            each = len(keys) // len(here)
            prints[(starts[here][:, None] + np.arange(each)).reshape(-1)] = found
        return share, prints

    def _count_again(self, ids: Ids) -> Vector:
        """The share of parties that are left out after all, counted without a check."""
        if not len(ids):
            return np.zeros_like(self._counted)
        return self._evaluate(self._points, bytes(CHALLENGE_BYTES), ids)[0]

    def _rows(self, rows: Bodies) -> Bodies:
        """The keys of some submissions, one per row."""
        return rows[:, HEADER.size :].reshape(-1, self._keys.key_bytes)

    # --- the release ---

    def sum_over(self, members: Members) -> Vector:
        """The share over the parties accepted here, minus those that the release leaves out."""
        left_out = np.flatnonzero(self._accepted & ~members).astype(np.uint32)
        counts = self._counted - self._count_again(left_out)
        return compared(self._query).of_counts(counts)
