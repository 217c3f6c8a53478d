"""Parties and servers of function secret sharing, which make, keep and count keys."""

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tallyroom.fss.comparison import Comparison
from tallyroom.fss.ring import Ring
from tallyroom.protocols.aggregation.contract import Bulk, Ids
from tallyroom.protocols.aggregation.fss.submission import compared, domain_bits
from tallyroom.protocols.aggregation.fss.verified_keys import generate, verified_keys
from tallyroom.protocols.aggregation.fss.verified_keys import header as verified_header
from tallyroom.protocols.aggregation.one_round import SummingServer
from tallyroom.protocols.aggregation.partial_sums import total_over
from tallyroom.protocols.aggregation.rosters import submissions
from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.wire.machine import Done, SpeaksOnce, Step
from tallyroom.protocols.wire.messages import Message

VERSION = 2
RING = Ring(64)
_HEADER = struct.Struct("<BBBBI")
HEADER_BYTES = _HEADER.size


def comparison(query: Query) -> Comparison:
    try:
        return Comparison(domain_bits(query), RING, query.servers)
    except ValueError as error:
        raise LocalError(f"fss: {error}") from None


def header(query: Query, keys: int) -> bytes:
    """The head of a submission, with its domain. The run's name binds it to the question."""
    return _HEADER.pack(VERSION, comparison(query).bits, RING.bits, query.servers, keys)


class FssParty(SpeaksOnce):
    """Sees its own values. Sends each server one key per record, and is done.

    With `verified`, it sends keys that servers can check.
    """

    def __init__(
        self,
        query: Query,
        holdings: Holdings,
        randomness: Randomness,
        verified: bool = False,
    ) -> None:
        self._query = query
        self._holdings = holdings
        self._randomness = randomness
        self._verified = verified
        bits = verified_keys(query).bits if verified else comparison(query).bits
        self._alphas = compared(query).alphas(query.plan.measured(holdings), bits)

    def start(self) -> Step:
        """Sends parties with equally many records in one message, as their rows have one length."""
        counts = self._holdings.counts
        messages: list[Message] = []
        for count in np.unique(counts):
            chosen = np.flatnonzero(counts == count)
            messages += self._submit(chosen, int(count))
        return Done(messages=tuple(messages))

    def _submit(self, chosen: NDArray[np.intp], count: int) -> list[Message]:
        ids = self._holdings.ids[chosen]
        records = self._holdings.starts[chosen][:, None] + np.arange(count)
        made = verified_keys(self._query) if self._verified else comparison(self._query)
        width = made.randomness_bytes
        randomness = self._randomness.rows("comparison keys", ids, count * width)
        rows = np.ascontiguousarray(randomness).reshape(len(chosen) * count, width)
        alphas = self._alphas[records.ravel()]
        if self._verified:
            keys = generate(self._query, alphas, rows, self.weights(ids, count))
            head = verified_header(self._query, count)
        else:
            keys, head = comparison(self._query).gen(alphas, rows), header(self._query, count)
        heads = np.broadcast_to(np.frombuffer(head, dtype=np.uint8), (len(chosen), len(head)))
        bodies = [np.hstack([heads, rows.reshape(len(chosen), -1)]) for rows in keys]
        return list(submissions(self._query, ids, bodies))

    def weights(self, ids: Ids, count: int) -> NDArray[np.uint64] | None:
        """The weights of these parties' keys, `count` keys each; None for the 1 of honest keys."""
        return None


class FssServer(SummingServer):
    """Sees one key of every record. Counts at the thresholds on its shares, and adds noise."""

    def __init__(self, query: Query, index: int, randomness: Randomness, bulk: Bulk) -> None:
        super().__init__(query, index, randomness, bulk)
        self._comparison = comparison(query)

    def check(self, message: Message) -> str | None:
        head = _HEADER.size
        width = self._comparison.key_bytes(self._index)
        keys, rest = divmod(message.width - head, width)
        if message.width < head or rest or keys < 1:
            return f"{message.width} bytes do not divide into keys of {width} bytes"
        if keys > (most := self._query.max_records_per_party):
            return f"{keys} keys, where a party holds at most {most} records"
        rows = message.rows()
        expected = np.frombuffer(header(self._query, keys), dtype=np.uint8)
        if not (rows[:, :head] == expected).all():
            return "keys of another version or domain"
        if not self._comparison.validate(self._index, self._keys(rows)).all():
            return "a malformed key"
        return None

    def pack(self, message: Message) -> NDArray[np.uint8]:
        """The rows as they came: keys are read once, so sorting them by level would not pay."""
        return message.rows().reshape(-1)

    def sum_over(self, members: NDArray[np.bool]) -> Vector:
        measurement = compared(self._query)
        counts = self.counts_at(measurement.points(self._comparison.bits), members)
        return measurement.of_counts(counts)

    def counts_at(self, points: NDArray[np.uint64], members: NDArray[np.bool]) -> Vector:
        """This server's share of how many of the members' values are at most each point."""
        part = CountedKeys(self._comparison, self._index, points, members)
        return total_over(self._bulk, part, len(points))

    def _keys(self, rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
        return keys_in(rows, self._comparison.key_bytes(self._index))


@dataclass(frozen=True, eq=False)
class CountedKeys:
    """Counts the members' keys of one block: their part of a server's share at `points`."""

    comparison: Comparison
    index: int
    points: NDArray[np.uint64]
    members: NDArray[np.bool]

    def __call__(self, ids: Ids, block: NDArray[np.uint8]) -> Vector:
        chosen = self.members[ids]
        if not chosen.any():
            return np.zeros(len(self.points), dtype=np.uint64)
        rows = block.reshape(len(ids), -1)
        width = self.comparison.key_bytes(self.index)
        keys = keys_in(rows if chosen.all() else rows[chosen], width)
        return self.comparison.evaluate_sum(self.index, keys, self.points)


def keys_in(rows: NDArray[np.uint8], width: int) -> NDArray[np.uint8]:
    """The keys of some submissions, one per row."""
    keys = rows[:, _HEADER.size :]
    return keys if keys.shape[1] == width else keys.reshape(-1, width)
