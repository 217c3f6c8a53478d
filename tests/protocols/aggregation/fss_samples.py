"""Queries, holdings and what parties submit, for tests of comparison keys."""

import numpy as np

from tallyroom.protocols.aggregation.fss.aggregator import Fss
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings, deal
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.wire.machine import Done
from tallyroom.protocols.wire.messages import Message, Phase, Role, address, body_of

PARTIES = 7
PLAIN = Fss(verified="no")
"""Keys that nobody checks."""
Members = np.typing.NDArray[np.bool]


def a_query(
    servers: int = 2, statistic: Statistic | None = None, max_records_per_party: int = 3
) -> Query:
    return Query(
        nonce=b"runrunru",
        statistic=statistic or Ecdf(lower=0.0, upper=1.0, thresholds=13),
        aggregator="fss?verified=no",
        parties=PARTIES,
        servers=servers,
        records=17,
        epsilon=None,
        noise=Placement.EACH_SERVER,
        data="test",
        min_parties=1,
        max_records_per_party=max_records_per_party,
    )


def some_holdings() -> Holdings:
    return deal({"value": np.random.default_rng(3).random(17)}, PARTIES)


def submissions(query: Query, holdings: Holdings, seed: int = 1) -> tuple[Message, ...]:
    machine = PLAIN.party(query, holdings, Randomness.from_seed(seed, "parties"))
    step = machine.start()
    assert isinstance(step, Done)
    return step.messages


def release(query: Query, members: Members) -> Message:
    return Message(
        query.run,
        Phase.RELEASE,
        Role.COORDINATOR,
        Role.SERVER,
        address(0),
        address(0),
        body_of(np.packbits(members).tobytes()),
    )
