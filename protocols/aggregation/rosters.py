"""Message bodies that several roles read or write: submissions, sets of parties, rosters."""

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.aggregation.contract import Bodies, Ids
from tallyroom.protocols.aggregation.mechanism import draw_noise
from tallyroom.protocols.algebra.ring import Vector
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.wire.machine import Rejected
from tallyroom.protocols.wire.messages import Message, Phase, Role, address

CountType = np.dtype[np.unsignedinteger]

_FAULT = np.dtype([("party", "<u4"), ("fault", "u1")])


class Fault(IntEnum):
    """Why a server refuses a party's submission."""

    MALFORMED = 1
    CONTRADICTORY = 2
    INVALID = 3
    REPLAYED = 4

    @property
    def words(self) -> str:
        return {
            Fault.MALFORMED: "its submission is malformed",
            Fault.CONTRADICTORY: "it submitted two different things",
            Fault.INVALID: "its submission does not verify",
            Fault.REPLAYED: "its submission repeats one of its own or of another party",
        }[self]


def submitted_vectors(query: Query, holdings: Holdings, randomness: Randomness) -> Vector:
    """The vectors that are summed: the parties' own, or, if parties add the noise, what is
    published of them plus their shares of the noise. One row per party, `Query.submitted` long."""
    plan = query.plan
    vectors = plan.encode(holdings)
    if query.noise_law is None or query.noise is not Placement.PARTIES:
        return vectors
    noise = draw_noise(query, plan.noises, randomness, holdings.ids)
    rows = zip(vectors, noise.view(np.uint64), strict=True)
    return np.stack([plan.measure(row) + plan.place(drawn) for row, drawn in rows])


def submissions(query: Query, ids: Ids, bodies: list[Bodies]) -> tuple[Message, ...]:
    """One message to each server, with one row per party."""
    return tuple(
        Message(query.run, Phase.SUBMIT, Role.PARTY, Role.SERVER, ids, address(server), rows)
        for server, rows in enumerate(bodies)
    )


def parse_members(message: Message, parties: int) -> NDArray[np.bool] | Rejected:
    """Reads a set of parties from a bitmap. Padding bits must be zero."""
    members = members_of(message.body[0], parties) if message.links == 1 else None
    if members is None:
        return Rejected(message.sender, f"not a bitmap of {parties} parties")
    return members


def count_type(query: Query) -> CountType | None:
    """The type of the counts of records per party in rosters; None if a party has one record."""
    largest = query.max_records_per_party
    return None if largest == 1 else np.dtype(np.min_scalar_type(largest)).newbyteorder("<")


def counts_body(counts: NDArray[np.integer], kind: CountType | None) -> bytes:
    """How many records each party sent, as a roster may begin with; empty without a `kind`."""
    return b"" if kind is None else counts.astype(kind).tobytes()


def roster(present: NDArray[np.bool], faults: Mapping[int, Fault]) -> bytes:
    """The body that says whose submissions a server holds, and whose it refused."""
    listed = np.array(sorted(faults.items()), dtype=_FAULT)
    return np.packbits(present).tobytes() + listed.tobytes()


class Roster(NamedTuple):
    """A server's roster. `counts` is None if the roster has no counts of records."""

    members: NDArray[np.bool]
    faults: dict[int, Fault]
    counts: NDArray[np.unsignedinteger] | None


def parse_roster(
    message: Message, parties: int, counted: CountType | None = None
) -> Roster | Rejected:
    width = -(-parties // 8)
    head = 0 if counted is None else counted.itemsize * parties
    counts, body = message.body[0, :head], message.body[0, head:]
    members = members_of(body[:width], parties) if message.links == 1 else None
    refusal = Rejected(message.sender, f"not a roster of {parties} parties")
    if members is None or (body.size - width) % _FAULT.itemsize:
        return refusal
    listed = np.frombuffer(body[width:].tobytes(), dtype=_FAULT)
    if (listed["party"] >= parties).any() or len(np.unique(listed["party"])) < len(listed):
        return refusal
    if not np.isin(listed["fault"], list(Fault)).all():
        return refusal
    said = None if counted is None else np.frombuffer(counts.tobytes(), counted)
    return Roster(members, {int(party): Fault(int(fault)) for party, fault in listed}, said)


def members_of(body: NDArray[np.uint8], parties: int) -> NDArray[np.bool] | None:
    """A set of parties from its bitmap; None if the bitmap is not valid."""
    bits = np.unpackbits(body)
    if body.size != -(-parties // 8) or bits[parties:].any():
        return None
    return bits[:parties].astype(bool)


def points_body(points: list[int]) -> bytes:
    """The points that servers are asked for next (`Phase.ASK`)."""
    return np.array(points, dtype="<u8").tobytes()
