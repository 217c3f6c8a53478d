"""Bodies that more than one role reads or writes: submissions, and sets of parties as bitmaps."""

import numpy as np
from numpy.typing import NDArray

from protocols.aggregation.contract import Bodies, Ids
from protocols.machine import Rejected
from protocols.messages import Message, Phase, Role, address
from protocols.query import Query


def submissions(query: Query, ids: Ids, bodies: list[Bodies]) -> tuple[Message, ...]:
    """One message to each server, with one row for each party."""
    return tuple(
        Message(query.run, Phase.SUBMIT, Role.PARTY, Role.SERVER, ids, address(server), rows)
        for server, rows in enumerate(bodies)
    )


def parse_members(message: Message, parties: int) -> NDArray[np.bool] | Rejected:
    """A set of parties as a bitmap; padding bits must be zero."""
    bits = np.unpackbits(message.body[0])
    if message.links != 1 or message.width != -(-parties // 8) or bits[parties:].any():
        return Rejected(message.sender, f"not a bitmap of {parties} parties")
    return bits[:parties].astype(bool)
