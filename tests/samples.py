"""Queries, holdings and messages that tests start from."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query, run_name
from tallyroom.protocols.records import Holdings, deal
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.wire.messages import Message, Phase, Role, address, body_of

NONCE = b"run-0001"


def a_query(**changes: Any) -> Query:
    """Four parties and two servers count four bins without noise."""
    query = Query(
        nonce=NONCE,
        statistic=Histogram(lower=0.0, upper=1.0, bins=4),
        aggregator="additive",
        parties=4,
        servers=2,
        records=4,
        epsilon=None,
        noise=Placement.EACH_SERVER,
        data="data",
        min_parties=4,
    )
    if "parties" in changes:
        changes = {"records": changes["parties"], "min_parties": changes["parties"]} | changes
    return replace(query, **changes)


RUN = a_query().run


def one(text: str = "1") -> Fraction:
    return Fraction(text)


def holdings_of(values: list[float] | NDArray[np.float64], parties: int) -> Holdings:
    return deal({"value": np.asarray(values, dtype=np.float64)}, parties)


def a_message(
    phase: Phase,
    sender: Role,
    receiver: Role,
    senders: tuple[int, ...] = (0,),
    receivers: tuple[int, ...] = (0,),
    body: bytes | NDArray[np.uint8] = b"",
    run: bytes | None = None,
    round_: int = 1,
) -> Message:
    """Of the run that is named for the query in its body, or for `a_query()`."""
    if run is None:
        asks = isinstance(body, bytes) and phase is Phase.QUERY and body.startswith(b"{")
        run = run_name(NONCE, bytes(body)) if asks else RUN
    rows = body_of(body) if isinstance(body, bytes) else body
    if len(senders) > 1 and len(rows) == 1 and isinstance(body, bytes):
        rows = np.repeat(rows, len(senders), axis=0)
    return Message(
        run, phase, sender, receiver, address(*senders), address(*receivers), rows, round_
    )


def bitmap(parties: int, members: list[int]) -> bytes:
    bits = np.zeros(parties, dtype=bool)
    bits[members] = True
    return np.packbits(bits).tobytes()


def same(left: Message, right: Message) -> bool:
    """Whether two messages are equal in every field, links one by one."""
    return left.encode() == right.encode()


def a_submission(party: int, query: Query) -> Message:
    """A share of zeros."""
    body = bytes(8 * query.plan.length)
    return a_message(
        Phase.SUBMIT, Role.PARTY, Role.SERVER, (party,), body=body, run=query.run, round_=2
    )
