"""Bodies that more than one role reads or writes: submissions, sets of parties, rosters."""

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
    """Why a server will not have a party's submission."""

    MALFORMED = 1
    CONTRADICTORY = 2
    INVALID = 3
    REPLAYED = 4

    @property
    def words(self) -> str:
        return {
            Fault.MALFORMED: "its submission is malformed",
            Fault.CONTRADICTORY: "it submitted twice, and differently",
            Fault.INVALID: "its submission does not verify",
            Fault.REPLAYED: "its submission came before, from another party or from itself",
        }[self]


def submitted_vectors(query: Query, holdings: Holdings, randomness: Randomness) -> Vector:
    """What parties have summed: their vectors, or, where they add the noise, what is published of
    those with their shares of it. One row a party, `Query.submitted` long."""
    plan = query.plan
    vectors = plan.encode(holdings)
    if query.mechanism is None or query.noise is not Placement.PARTIES:
        return vectors
    noise = draw_noise(query, plan.noises, randomness, holdings.ids)
    rows = zip(vectors, noise.view(np.uint64), strict=True)
    return np.stack([plan.measure(row) + plan.place(drawn) for row, drawn in rows])


def submissions(query: Query, ids: Ids, bodies: list[Bodies]) -> tuple[Message, ...]:
    """One message to each server, with one row for each party."""
    return tuple(
        Message(query.run, Phase.SUBMIT, Role.PARTY, Role.SERVER, ids, address(server), rows)
        for server, rows in enumerate(bodies)
    )


def parse_members(message: Message, parties: int) -> NDArray[np.bool] | Rejected:
    """A set of parties as a bitmap; padding bits must be zero."""
    members = members_of(message.body[0], parties) if message.links == 1 else None
    if members is None:
        return Rejected(message.sender, f"not a bitmap of {parties} parties")
    return members


def count_type(query: Query) -> CountType | None:
    """How rosters tell how many records a party sent; None where it can be but one."""
    most = query.max_records_per_party
    return None if most == 1 else np.dtype(np.min_scalar_type(most)).newbyteorder("<")


def counts_body(counts: NDArray[np.integer], kind: CountType | None) -> bytes:
    """How many records each party sent, which a roster may begin with."""
    return b"" if kind is None else counts.astype(kind).tobytes()


def roster(present: NDArray[np.bool], faults: Mapping[int, Fault]) -> bytes:
    """Whose submissions a server holds, and whose it refused."""
    listed = np.array(sorted(faults.items()), dtype=_FAULT)
    return np.packbits(present).tobytes() + listed.tobytes()


class Roster(NamedTuple):
    """What a server says at the close. `counts` are None where it does not say any."""

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
    """A set of parties from its bitmap; None if that is none."""
    bits = np.unpackbits(body)
    if body.size != -(-parties // 8) or bits[parties:].any():
        return None
    return bits[:parties].astype(bool)
