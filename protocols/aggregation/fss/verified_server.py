"""A server of verified keys: it compares the prints of keys with the other server's.

    server -> coordinator      ROSTER    who submitted, and how many keys each
    server <-> server          TOGETHER  contributions to the challenge, once submissions are closed
    coordinator -> server      VERIFY    whose keys to check
    server <-> server          TOGETHER  a digest of all prints; where they differ, of parts of them
    server -> coordinator      VERIFY    whose keys are good
    coordinator -> server      RELEASE   and so on, as with keys that are not checked

Servers speak to each other directly, each sure of the other's certificate. So the coordinator
learns neither the challenge nor a digest, and cannot have a bad key accepted: all it says is whom
to check, and where the two were told different things, the run ends.
"""

import hashlib
import struct
from enum import Enum, auto

import numpy as np
from numpy.typing import NDArray

from fss.verified import CHALLENGE_BYTES, Visit
from protocols.aggregation.contract import Bodies, Bulk, Ids
from protocols.aggregation.fss.prints import DIGEST_BYTES, Prints, Range, different, parts, single
from protocols.aggregation.fss.submission import compared
from protocols.aggregation.fss.verified_keys import (
    CONTRIBUTION_BYTES,
    HEADER,
    challenge,
    header,
    verified_keys,
)
from protocols.aggregation.one_round import ServerState, SummingServer, out_of_turn
from protocols.aggregation.rosters import Fault, parse_members, roster
from protocols.algebra.ring import Vector
from protocols.randomness import Randomness
from protocols.run.machine import Continue, Failed, Rejected, Step
from protocols.run.messages import MAX_ROW, Message, Phase, Role, address, body_of
from protocols.run.query import Query

Members = NDArray[np.bool]

STEP = struct.Struct("<I")
"""What a message to the other server begins with: 0 is the contribution, later ones are digests."""


class Stage(Enum):
    COLLECTING = auto()  # submissions come in
    CLOSED = auto()  # roster and contribution went out; whom to check is awaited
    CHECKING = auto()  # digests go to and fro
    CHECKED = auto()  # whose keys are good went out; only the release is awaited
    RELEASED = auto()


# Of keys that are asked on demand, questions follow the release, each with digests of its own.
SERVER_STAGES: dict[tuple[Stage, Phase], Role] = {
    (Stage.COLLECTING, Phase.SUBMIT): Role.PARTY,
    (Stage.COLLECTING, Phase.EXCUSE): Role.COORDINATOR,
    (Stage.COLLECTING, Phase.TOGETHER): Role.SERVER,
    (Stage.CLOSED, Phase.SUBMIT): Role.PARTY,
    (Stage.CLOSED, Phase.TOGETHER): Role.SERVER,
    (Stage.CLOSED, Phase.VERIFY): Role.COORDINATOR,
    (Stage.CHECKING, Phase.SUBMIT): Role.PARTY,
    (Stage.CHECKING, Phase.TOGETHER): Role.SERVER,
    (Stage.CHECKING, Phase.VERIFY): Role.COORDINATOR,
    (Stage.CHECKED, Phase.SUBMIT): Role.PARTY,
    (Stage.CHECKED, Phase.TOGETHER): Role.SERVER,
    (Stage.CHECKED, Phase.VERIFY): Role.COORDINATOR,
    (Stage.CHECKED, Phase.RELEASE): Role.COORDINATOR,
    (Stage.RELEASED, Phase.TOGETHER): Role.SERVER,
    (Stage.RELEASED, Phase.VERIFY): Role.COORDINATOR,
    (Stage.RELEASED, Phase.RELEASE): Role.COORDINATOR,
    (Stage.RELEASED, Phase.ASK): Role.COORDINATOR,
}
"""What a server takes in which stage, and from whom; everything else is rejected.

The other server may be ahead by a step, never more. What was taken before is taken again silently
if it is the same, and rejected if it is not.
"""


class VerifiedServer(SummingServer):
    """Sees one key of every record, and whose keys are not what they must be."""

    def __init__(self, query: Query, index: int, randomness: Randomness, bulk: Bulk) -> None:
        super().__init__(query, index, randomness, bulk)
        self._keys = verified_keys(query)
        # Kept until parties can change nothing any more: who knows the challenge can forge keys.
        self._contribution = randomness.derive("challenge").bytes(CONTRIBUTION_BYTES)
        self._counts = np.zeros(query.parties, dtype=np.int64)
        self._said: list[bytes] = []
        self._heard: list[bytes] = []
        self._asked: bytes | None = None
        self._batches = 0
        self._suspects: list[Range] = []
        self._ids = np.zeros(0, dtype=np.uint32)
        self._compared: Prints | None = None
        self._accepted: Members | None = None
        self._counted = np.zeros(0, dtype=np.uint64)

    @property
    def stage(self) -> Stage:
        match self._state:
            case ServerState.COLLECTING:
                return Stage.COLLECTING
            case ServerState.RELEASED:
                return Stage.RELEASED
        if self._accepted is not None:
            return Stage.CHECKED
        return Stage.CLOSED if self._asked is None else Stage.CHECKING

    def receive(self, message: Message) -> Step:
        expected = SERVER_STAGES.get((self.stage, message.phase))
        if (refusal := out_of_turn(message, expected, self.stage.name)) is not None:
            return refusal
        match message.phase:
            case Phase.TOGETHER:
                return self._together(message)
            case Phase.VERIFY:
                return self._verify(message)
        return super().receive(message)

    # --- submissions ---

    def check(self, message: Message) -> str | None:
        width = self._keys.key_bytes
        keys, rest = divmod(message.width - HEADER.size, width)
        if message.width < HEADER.size or rest or keys < 1:
            return f"{message.width} bytes are no whole number of keys of {width} bytes"
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
        roots = [np.zeros((0, 2), dtype=np.uint64)]
        senders = [np.zeros(0, dtype=np.uint32)]
        for ids, block in self._bulk.blocks():
            keys = self._rows(block.reshape(len(ids), -1))
            each = len(keys) // len(ids)
            self._counts[ids] = each
            roots.append(np.ascontiguousarray(keys[:, :16]).view("<u8"))
            senders.append(np.repeat(ids, each))
        self._refuse_replays(np.concatenate(roots), np.concatenate(senders))
        body = counts_body(self._query, self._counts) + roster(self._present, self._faults)
        to_coordinator = self._to_coordinator(Phase.ROSTER, body)
        return self._and_then([to_coordinator, self._say(self._contribution)])

    def _refuse_replays(self, roots: NDArray[np.uint64], senders: Ids) -> None:
        """A key that came before would count somebody twice. Nobody can come first with another's,
        for keys go to servers only."""
        _, first, number = np.unique(roots[:, 0], return_index=True, return_inverse=True)
        again = (roots == roots[first[number]]).all(axis=1)
        again[first] = False
        for party in np.unique(senders[again]).tolist():
            self._faults[party] = Fault.REPLAYED
            self._present[party] = False
            self._counts[party] = 0

    # --- what the servers say to each other ---

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
            return Continue()
        if step != len(self._heard) or step > len(self._said):
            return Rejected(message.sender, f"step {step} of a check is out of turn")
        if step == 0 and len(payload) != CONTRIBUTION_BYTES:
            return Rejected(message.sender, "not a contribution to a challenge")
        self._heard.append(payload)
        return self._and_then([])

    def _verify(self, message: Message) -> Step:
        """Whose keys to check: said once."""
        members = parse_members(message, self._query.parties)
        if isinstance(members, Rejected):
            return members
        body = message.body[0].tobytes()
        if self._asked is not None:
            return Continue() if body == self._asked else self._second(message)
        if (members & ~self._present).any():
            return Rejected(message.sender, "a check of parties that did not submit")
        if np.count_nonzero(members) < self._query.min_parties:
            reason = f"a check of fewer than {self._query.min_parties} parties"
            return Rejected(message.sender, reason)
        self._asked = body
        self._ids = np.flatnonzero(members).astype(np.uint32)
        return self._and_then([])

    def _second(self, message: Message) -> Rejected:
        return Rejected(message.sender, "a second check, of other parties")

    def _and_then(self, messages: list[Message]) -> Step:
        """These messages, and what follows from all that is known by now."""
        if self._asked is not None and self._heard and not self._batches:
            messages.append(self._compare(self._points, self._asked))
        while self._compared is not None and len(self._heard) >= len(self._said):
            ours, theirs, size = self._said[-1], self._heard[-1], self._size
            if len(ours) != len(theirs) or ours[:-size] != theirs[:-size]:
                return Failed("the two servers were told to check different parties or points")
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
        """Where keys are checked before the release: wherever they are counted."""
        return compared(self._query).points(self._keys.bits)

    def _compare(self, points: NDArray[np.uint64], told: bytes) -> Message:
        """Counts, and says to the other server a digest of what it was `told` to count, and one of
        all prints."""
        pair = (self._contribution, self._heard[0])
        key = challenge(self._query, pair if self._index == 0 else pair[::-1], self._batches)
        self._batches += 1
        self._counted, prints = self._evaluate(self._keys.visit(points, key), self._ids)
        self._compared = Prints(prints, self._counts[self._ids], key)
        self._suspects = [(0, len(self._ids))]
        what = hashlib.blake2s(told, key=key, digest_size=DIGEST_BYTES, person=b"told")
        return self._say(what.digest() + self._compared.digests(self._suspects))

    def _concluded(self, messages: list[Message], refused: Ids) -> Step:
        """Who was checked is known to be good, but for these."""
        accepted = np.zeros(self._query.parties, dtype=bool)
        accepted[self._ids] = True
        accepted[refused] = False
        self._accepted = accepted
        self._counted = self._counted - self._count_again(refused)
        verdict = self._to_coordinator(Phase.VERIFY, np.packbits(accepted).tobytes())
        return Continue((*messages, verdict))

    # --- counting ---

    def _evaluate(self, visit: Visit, ids: Ids) -> tuple[Vector, NDArray[np.uint64]]:
        """This server's share of the counts over these parties, in ascending order, and the prints
        of their keys in that order."""
        counts = np.zeros(self._query.parties, dtype=np.int64)
        counts[ids] = self._counts[ids]
        starts = np.cumsum(counts) - counts
        prints = np.empty((int(counts.sum()), 3), dtype=np.uint64)
        share = np.zeros(len(visit.nodes.ends), dtype=np.uint64)
        wanted = counts > 0
        for block_ids, block in self._bulk.blocks():
            chosen = wanted[block_ids]
            if not chosen.any():
                continue
            rows = block.reshape(len(block_ids), -1)
            keys = self._rows(rows if chosen.all() else rows[chosen])
            counted, found = self._keys.evaluate_sum(self._index, keys, visit)
            share += counted
            here = block_ids[chosen]
            each = len(keys) // len(here)
            prints[(starts[here][:, None] + np.arange(each)).reshape(-1)] = found
        return share, prints

    def _count_again(self, ids: Ids) -> Vector:
        """The share of parties that are left out after all; nothing is compared."""
        if not len(ids):
            return np.zeros_like(self._counted)
        return self._evaluate(self._keys.visit(self._points, bytes(CHALLENGE_BYTES)), ids)[0]

    def _rows(self, rows: Bodies) -> Bodies:
        """The keys of some submissions, one below the other."""
        return np.ascontiguousarray(rows[:, HEADER.size :]).reshape(-1, self._keys.key_bytes)

    # --- the release ---

    def releasable(self, message: Message) -> Members | Rejected:
        members = super().releasable(message)
        if isinstance(members, Rejected) or self._accepted is None:
            return members
        if (members & ~self._accepted).any():
            return Rejected(message.sender, "a release over parties whose keys do not verify here")
        return members

    def sum_over(self, members: Members) -> Vector:
        """Of those accepted here, without those that the release leaves out."""
        assert self._accepted is not None
        left_out = np.flatnonzero(self._accepted & ~members).astype(np.uint32)
        counts = self._counted - self._count_again(left_out)
        return compared(self._query).of_counts(counts)


def counts_body(query: Query, counts: NDArray[np.int64]) -> bytes:
    """How many keys each party sent; nothing where that can be but one."""
    if (kind := count_type(query)) is None:
        return b""
    return counts.astype(kind).tobytes()


def count_type(query: Query) -> np.dtype[np.unsignedinteger] | None:
    most = query.max_records_per_party
    return None if most == 1 else np.dtype(np.min_scalar_type(most)).newbyteorder("<")
