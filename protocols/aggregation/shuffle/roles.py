"""The machines of the shuffle model: one class per role, which shows what that role may see."""

import struct
from dataclasses import replace
from enum import Enum, auto
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.aggregation.collector import Collector, CollectorState
from tallyroom.protocols.aggregation.contract import Bodies, Bulk, Records, Total
from tallyroom.protocols.aggregation.one_round import CollectingServer, ServerState
from tallyroom.protocols.aggregation.reports import is_private
from tallyroom.protocols.aggregation.rosters import submissions
from tallyroom.protocols.aggregation.shuffle.reports import (
    ShuffledReports,
    honest_reports,
    least_reports,
    reports_of,
)
from tallyroom.protocols.algebra.ring import add_shares
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.identity.sealing import (
    OVERHEAD,
    PUBLIC_BYTES,
    SECRET_BYTES,
    Recipient,
    SealingKey,
)
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.wire.machine import Continue, Done, Failed, Rejected, Step
from tallyroom.protocols.wire.messages import MAX_WIRE_BYTES, Message, Phase, Role, body_of

PART_BYTES = MAX_WIRE_BYTES // 4
"""How many bytes of reports the shuffler puts in one message, at most."""
_PART = struct.Struct("<II")  # which part this is, and of how many


def context(query: Query) -> bytes:
    """The context that reports are sealed to: they open in no other run or question."""
    return b"tallyroom shuffle " + query.run


class SealingState(Enum):
    """Whether a block of parties knows the key that reports are sealed under."""

    UNTOLD = auto()
    TOLD = auto()  # some parties know it; from now on, only the same key is accepted


PARTY_ACCEPTS: dict[tuple[SealingState, Phase], Role] = {
    (SealingState.UNTOLD, Phase.KEYS): Role.COORDINATOR,
    (SealingState.TOLD, Phase.KEYS): Role.COORDINATOR,
}
"""Which messages parties accept in which state, and from whom; all others are rejected."""


class ShuffleParty:
    """Sees its own records and the collector's public key. Sends its sealed reports, and is done.

    If a party is told two keys, it answers only the first: its coins are for one release.
    """

    def __init__(self, query: Query, holdings: Holdings, randomness: Randomness) -> None:
        self._query = query
        self._holdings = holdings
        self._randomness = randomness
        self._reports = reports_of(query, holdings)
        self._told = np.zeros(len(holdings.ids), dtype=bool)
        self._key: bytes | None = None

    @property
    def state(self) -> SealingState:
        return SealingState.UNTOLD if self._key is None else SealingState.TOLD

    def start(self) -> Step:
        return Continue()

    def receive(self, message: Message) -> Step:
        if PARTY_ACCEPTS.get((self.state, message.phase)) is not message.sender_role:
            return Rejected(message.sender, f"a party expects no {message.phase.label}")
        key = message.body[0].tobytes()
        if len(key) != PUBLIC_BYTES or (message.body != message.body[0]).any():
            return Rejected(message.sender, "not one public key")
        if self.state is SealingState.TOLD and key != self._key:
            return Rejected(message.sender, "a second public key")
        try:
            recipient = Recipient(key)
        except ValueError:
            return Rejected(message.sender, "an invalid public key, to which nothing can be sealed")
        self._key = key
        asked = np.isin(self._holdings.ids, message.receivers) & ~self._told
        self._told |= asked
        messages = self._submit(np.flatnonzero(asked), recipient)
        return Done(messages=messages) if self._told.all() else Continue(messages)

    def expire(self) -> Step:
        return Done()

    def _submit(self, asked: NDArray[np.intp], recipient: Recipient) -> tuple[Message, ...]:
        """Sends parties with equally many reports in one message, as their rows have one length."""
        counts = self._reports.counts(self._holdings)[asked]
        messages: tuple[Message, ...] = ()
        for count in np.unique(counts):
            chosen = asked[counts == count]
            rows = self._seal(chosen, int(count), recipient)
            messages += submissions(self._query, self._holdings.ids[chosen], [rows])
        return messages

    def payloads(self, chosen: NDArray[np.intp], count: int) -> Bodies:
        """What is sealed: `count` reports of each of these parties."""
        return self._reports.payloads(chosen, count, self._randomness)

    def _seal(self, chosen: NDArray[np.intp], count: int, recipient: Recipient) -> Bodies:
        """Seals each report separately, so that the collector cannot tell which came together."""
        payloads = self.payloads(chosen, count)
        ids = self._holdings.ids[chosen]
        drawn = self._randomness.rows("sealing", ids, SECRET_BYTES * count)
        secrets = np.ascontiguousarray(drawn).reshape(-1, SECRET_BYTES)
        bound = context(self._query)
        sealed = b"".join(
            recipient.seal(payload.tobytes(), bound, secret.tobytes())
            for payload, secret in zip(
                payloads.reshape(-1, payloads.shape[2]), secrets, strict=True
            )
        )
        return np.frombuffer(sealed, dtype=np.uint8).reshape(len(chosen), -1)


class Shuffler(CollectingServer):
    """Sees who submitted how many sealed reports. Passes them on once, in random order."""

    def __init__(self, query: Query, index: int, randomness: Randomness, bulk: Bulk) -> None:
        super().__init__(query, index, randomness, bulk)
        reports = reports_of(query)
        self._width = reports.payload_bytes + OVERHEAD
        self._max_per_party = reports.max_per_party
        self._least = least_reports(query) if is_private(query) else 1
        self._parts: tuple[Message, ...] | None = None

    def check(self, message: Message) -> str | None:
        count, rest = divmod(message.width, self._width)
        if rest or count < 1:
            return f"{message.width} bytes do not divide into reports of {self._width} bytes"
        if count > self._max_per_party:
            return f"{count} reports, where a party makes at most {self._max_per_party}"
        return None

    def pack(self, message: Message) -> NDArray[np.uint8]:
        return message.rows().reshape(-1)

    def gather(self, members: NDArray[np.bool]) -> tuple[Bodies, NDArray[np.int64]]:
        """The reports of these parties as they came, one per row, and how many each party sent."""
        kept = [np.zeros((0, self._width), dtype=np.uint8)]
        counts = [np.zeros(0, dtype=np.int64)]
        for ids, block in self._bulk.blocks():
            rows = np.asarray(block).reshape(len(ids), -1)[members[ids]]
            kept.append(rows.reshape(-1, self._width))
            counts.append(np.full(len(rows), block.size // len(ids) // self._width))
        return np.concatenate(kept), np.concatenate(counts)

    def _release(self, message: Message) -> Step:
        members = self.releasable(message)
        if isinstance(members, Rejected):
            return members
        if self._parts is None:
            reports, counts = self.gather(members)
            honest = honest_reports(self._query, counts)
            if honest < self._least:
                reason = (
                    f"a release of {len(reports)} reports, of which {honest} may be honest, where "
                    f"privacy needs {self._least}"
                )
                return Rejected(message.sender, reason)
            self._parts = self._split(reports[permutation(len(reports), self._randomness)])
            self._released_members = message.body[0].tobytes()
            self._state = ServerState.RELEASED
            self._bulk.clear()
        return Continue(self._parts, (ShuffledReports(self._query).spend,))

    def _split(self, reports: Bodies) -> tuple[Message, ...]:
        each = max(1, PART_BYTES // self._width)
        parts = -(-len(reports) // each)
        return tuple(
            self._to_coordinator(
                Phase.SHARE,
                _PART.pack(part, parts) + reports[part * each : (part + 1) * each].tobytes(),
            )
            for part in range(parts)
        )


def permutation(count: int, randomness: Randomness) -> NDArray[np.intp]:
    """A uniform order, by sorting 128-bit random keys; two of them are equal with probability below
    count²/2^129."""
    words = randomness.derive("shuffle").words(2 * count)
    return np.lexsort((words[:count], words[count:]))


class ShuffleCollector(Collector):
    """Sees reports without names, and who contributed. Only it can open the reports."""

    public: ClassVar[bool] = False

    def __init__(self, query: Query, records: Records, randomness: Randomness) -> None:
        super().__init__(query, records, add_shares)
        self._reports = reports_of(query)
        self._width = self._reports.payload_bytes + OVERHEAD
        self._sealing = SealingKey(randomness.derive("collector key").bytes(SECRET_BYTES))
        self._parts: dict[int, bytes] = {}
        self._awaited: int | None = None

    def start(self) -> Step:
        """Sends the key to the parties, and to nobody else, right after the question."""
        step = super().start()
        assert isinstance(step, Continue)
        to_parties = step.messages[-1]
        key = replace(to_parties, phase=Phase.KEYS, body=body_of(self._sealing.public))
        return Continue((*step.messages, key))

    def _share(self, message: Message) -> Step:
        body = message.body[0].tobytes()
        if len(body) <= _PART.size or (len(body) - _PART.size) % self._width:
            return Rejected(message.sender, f"{len(body)} bytes do not divide into reports")
        part, parts = _PART.unpack_from(body)
        if not part < parts <= self._max_reports or self._awaited not in (None, parts):
            return Rejected(message.sender, f"part {part} of {parts} is not expected")
        if part in self._parts and self._parts[part] != body[_PART.size :]:
            return Rejected(message.sender, f"part {part} differs from what was sent before")
        others = sum(len(kept) for number, kept in self._parts.items() if number != part)
        if others + len(body) - _PART.size > self._max_reports * self._width:
            return Rejected(message.sender, f"more than {self._max_reports} reports")
        self._awaited = parts
        self._parts[part] = body[_PART.size :]
        return Continue() if len(self._parts) < parts else self._hear(message)

    @property
    def _max_reports(self) -> int:
        """The most reports there can be. A shuffler that sends more must not fill the memory."""
        return int(np.count_nonzero(self._members)) * self._reports.max_per_party

    def _opened(self) -> Step:
        self._state = CollectorState.OVER
        sealed = b"".join(self._parts[part] for part in sorted(self._parts))
        payloads, refused = self._unseal(sealed)
        if not payloads:
            return Failed(f"none of {refused} reports could be opened")
        rows = np.frombuffer(b"".join(payloads), dtype=np.uint8).reshape(len(payloads), -1)
        try:
            opened = self._reports.open(rows)
        except LocalError as error:
            return Failed(str(error))
        if opened.records == 0:
            return Failed(f"none of {refused + opened.refused} reports is valid")
        contributors = np.flatnonzero(self._members).astype(np.uint32)
        caught = tuple((party, fault.words) for party, fault in sorted(self._faults.items()))
        refused += opened.refused
        total = Total(opened.vector, contributors, opened.records, caught, refused)
        return Done(total, spends=(ShuffledReports(self._query).spend,))

    def _unseal(self, sealed: bytes) -> tuple[list[bytes], int]:
        """The payloads that open, and how many reports do not open or came twice."""
        width, bound = self._width, context(self._query)
        reports = [sealed[i : i + width] for i in range(0, len(sealed), width)]
        different = dict.fromkeys(reports)
        opened = (self._sealing.open(report, bound) for report in different)
        payloads = [payload for payload in opened if payload is not None]
        return payloads, len(reports) - len(payloads)
