"""A small federation of the shuffle model, machine by machine, for tests."""

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from tallyroom.protocols.aggregation.contract import Memory, Total
from tallyroom.protocols.aggregation.shuffle.aggregator import Shuffle
from tallyroom.protocols.aggregation.shuffle.roles import ShuffleCollector, ShuffleParty, Shuffler
from tallyroom.protocols.identity.sealing import OVERHEAD
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings, deal
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.wire.machine import Continue, Done, Step
from tallyroom.protocols.wire.messages import Message, Phase, Role
from tests.samples import NONCE, a_message, bitmap

PARTIES, RECORDS = 6, 15
WIDTH = 4 + OVERHEAD
COUNTS = Histogram(lower=0.0, upper=1.0, bins=3)


def a_query(statistic: Statistic = COUNTS, **changes: Any) -> Query:
    """Six parties with two or three records each; little privacy, so that ε0 is ε."""
    query = Query(
        nonce=NONCE,
        statistic=statistic,
        aggregator="shuffle",
        parties=PARTIES,
        servers=1,
        records=RECORDS,
        epsilon=Fraction(2),
        noise=Placement.CURATOR,
        data="data",
        min_parties=PARTIES,
        max_records_per_party=3,
        delta=1e-6,
    )
    return replace(query, **changes)


def some_holdings(records: int = RECORDS, parties: int = PARTIES) -> Holdings:
    return deal({"value": np.random.default_rng(3).random(records)}, parties)


def a_collector(query: Query) -> ShuffleCollector:
    machine = Shuffle().collector(
        query, some_holdings().counts.astype(np.int64), Randomness.from_seed(1, "coordinator")
    )
    assert isinstance(machine, ShuffleCollector)
    return machine


def key_of(collector: ShuffleCollector) -> Message:
    step = collector.start()
    assert isinstance(step, Continue)
    keys = [message for message in step.messages if message.phase is Phase.KEYS]
    assert [message.receiver_role for message in keys] == [Role.PARTY]
    return keys[0]


def a_party(query: Query, holdings: Holdings, seed: int = 1) -> ShuffleParty:
    machine = Shuffle().party(query, holdings, Randomness.from_seed(seed, "parties"))
    assert isinstance(machine, ShuffleParty)
    assert machine.start() == Continue()
    return machine


def submissions(query: Query, holdings: Holdings, key: Message) -> tuple[Message, ...]:
    step = a_party(query, holdings).receive(key)
    assert isinstance(step, Done)
    return step.messages


def a_shuffler(query: Query, messages: Iterable[Message], seed: int = 1) -> Shuffler:
    machine = Shuffle().server(query, 0, Randomness.from_seed(seed, "server-0"), Memory())
    assert isinstance(machine, Shuffler)
    for message in messages:
        assert isinstance(machine.receive(message), Continue)
    return machine


def release(*members: int) -> Message:
    body = bitmap(PARTIES, list(members or range(PARTIES)))
    return a_message(Phase.RELEASE, Role.COORDINATOR, Role.SERVER, body=body)


def released(shuffler: Shuffler) -> tuple[Message, ...]:
    step = shuffler.receive(release())
    assert isinstance(step, Continue)
    assert all(message.phase is Phase.SHARE for message in step.messages)
    return step.messages


def reports_in(messages: Iterable[Message], head: int = 0) -> list[bytes]:
    found = []
    for message in messages:
        for row in message.rows():
            body = row[head:].tobytes()
            found += [body[i : i + WIDTH] for i in range(0, len(body), WIDTH)]
    return found


def to_collector(collector: ShuffleCollector, reports: list[bytes]) -> Step:
    """What a collector makes of one part with these reports."""
    everyone = bitmap(PARTIES, list(range(PARTIES)))
    roster = a_message(Phase.ROSTER, Role.SERVER, Role.COORDINATOR, body=everyone)
    assert isinstance(collector.receive(roster), Continue)
    return collector.receive(share(reports))


def share(reports: list[bytes], part: int = 0, parts: int = 1) -> Message:
    head = part.to_bytes(4, "little") + parts.to_bytes(4, "little")
    return a_message(Phase.SHARE, Role.SERVER, Role.COORDINATOR, body=head + b"".join(reports))


def total_of(step: Step) -> Total:
    assert isinstance(step, Done)
    assert isinstance(step.output, Total)
    return step.output
