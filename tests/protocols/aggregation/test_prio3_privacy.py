"""What servers and the coordinator of prio3 see does not depend on the records."""

from functools import cache
from itertools import combinations

import numpy as np
import pytest

from tallyroom.protocols.aggregation.exchange import Exchange
from tallyroom.protocols.aggregation.prio3.aggregator import Prio3
from tallyroom.protocols.aggregation.prio3.reports import reporting
from tallyroom.protocols.aggregation.prio3.server import STEP
from tallyroom.protocols.algebra.field import Bytes, Vector
from tallyroom.protocols.query import Query
from tallyroom.protocols.records import deal
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.moments import Sum
from tallyroom.protocols.vdaf import flp
from tallyroom.protocols.wire.messages import Message, Phase, Role
from tests.goodness import ALPHA, uniform_bytes_p
from tests.protocols.aggregation.prio3_honest import Recorder
from tests.protocols.aggregation.prio3_runs import query_about

REPORTS = 600
STATISTICS: list[Statistic] = [
    Histogram(lower=0.0, upper=1.0, bins=6),
    Ecdf(lower=0.0, upper=1.0, thresholds=6),
    Sum(lower=0.0, upper=1.0),
]
EVERY_CASE = [
    pytest.param(statistic, servers, value, id=f"{statistic.name}-{servers}-{value:g}")
    for statistic in STATISTICS
    for servers in (2, 3)
    for value in (0.0, 0.9)
]


@cache
def run(statistic: Statistic, servers: int, value: float) -> tuple[Query, list[Message]]:
    """Everything that was said when all parties have the same record."""
    query = query_about(
        statistic,
        servers,
        parties=REPORTS,
        records=REPORTS,
        max_records_per_party=1,
        min_parties=REPORTS,
    )
    holdings = deal({"value": np.full(REPORTS, value)}, REPORTS)
    exchange = Exchange(Prio3(), query)
    recorders = [Recorder(exchange.coordinator), *map(Recorder, exchange.servers)]
    exchange.coordinator = recorders[0]
    exchange.servers[:] = recorders[1:]
    exchange.enter(holdings.ids, Prio3().party(query, holdings, exchange.randomness))
    exchange.run()
    assert exchange.total is not None
    assert exchange.total.caught == ()
    return query, [message for recorder in recorders for message in recorder.heard]


def input_shares(query: Query, said: list[Message]) -> list[Bytes]:
    submitted = {int(m.receivers[0]): m.rows() for m in said if m.phase is Phase.SUBMIT}
    return [reporting(query).split(submitted[i]).input_shares for i in range(query.servers)]


@pytest.mark.parametrize(("statistic", "servers", "value"), EVERY_CASE)
def test_any_servers_but_one_hold_uniform_shares(
    statistic: Statistic, servers: int, value: float
) -> None:
    """600 records: what all but one server could add up; all of them have the record."""
    query, said = run(statistic, servers, value)
    report = reporting(query)
    field = report.field
    shares = [
        report.prio3.output_shares(report.context, i, rows)
        for i, rows in enumerate(input_shares(query, said))
    ]
    for known in combinations(shares, servers - 1):
        seen = field.encode(field.sum(np.stack(known), 0))
        assert uniform_bytes_p(seen.tobytes()) > ALPHA
    opened = field.to_ints(field.sum(np.stack(shares), 0))
    assert len(np.unique(opened.astype(np.uint64), axis=0)) == 1


@pytest.mark.parametrize(("statistic", "servers", "value"), EVERY_CASE)
def test_a_servers_submissions_are_uniform_bytes(
    statistic: Statistic, servers: int, value: float
) -> None:
    _, said = run(statistic, servers, value)
    submitted = [m.rows() for m in said if m.phase is Phase.SUBMIT]
    assert len(submitted) == servers
    for rows in submitted:
        assert uniform_bytes_p(rows.tobytes()) > ALPHA
        assert len(np.unique(rows, axis=0)) == REPORTS


def verifier_shares(query: Query, said: list[Message]) -> list[Bytes]:
    """What the coordinator hears in the only chunk, one array a server."""
    heard = {
        int(m.senders[0]): m.body[0, STEP.size :]
        for m in said
        if (m.phase, m.sender_role) == (Phase.VERIFY, Role.SERVER)
        and m.body[0, : STEP.size].tobytes() == STEP.pack(0)
    }
    return [heard[i].reshape(REPORTS, -1) for i in range(query.servers)]


def added(query: Query, shares: list[Bytes]) -> tuple[Vector, list[Bytes]]:
    """The verifiers, and the parts of joint randomness that servers send along."""
    prio3 = reporting(query).prio3
    width = flp.verifier_length(prio3.circuit) * prio3.field.width
    verifiers = np.stack([prio3.field.decode(share[:, :width]) for share in shares])
    return prio3.field.sum(verifiers, 0), [share[:, width:] for share in shares]


@pytest.mark.parametrize(("statistic", "servers", "value"), EVERY_CASE)
def test_the_coordinator_sees_what_it_could_have_drawn_itself(
    statistic: Statistic, servers: int, value: float
) -> None:
    """A simulator draws all but one verifier share and the inputs of the gadget uniformly, and puts
    0 and the gadget's value beside them. Whatever the records, so does a run."""
    query, said = run(statistic, servers, value)
    prio3 = reporting(query).prio3
    shares = verifier_shares(query, said)
    for share in shares:
        assert uniform_bytes_p(share.tobytes()) > ALPHA
    verifiers, parts = added(query, shares)
    inputs = verifiers[:, 1:-1]
    assert uniform_bytes_p(prio3.field.encode(inputs).tobytes()) > ALPHA
    assert not verifiers[:, 0].any()
    assert verifiers[:, -1].tolist() == prio3.circuit.gadget(inputs).tolist()
    if prio3.joint:
        for part in parts:
            assert uniform_bytes_p(part.tobytes()) > ALPHA
            assert len(np.unique(part, axis=0)) == REPORTS


@pytest.mark.parametrize("statistic", STATISTICS, ids=lambda each: each.name)
def test_the_same_test_finds_records_where_they_show(statistic: Statistic) -> None:
    """All shares together are not uniform: the tests above can fail."""
    query, said = run(statistic, 2, 0.9)
    report = reporting(query)
    shares = [
        report.prio3.output_shares(report.context, i, rows)
        for i, rows in enumerate(input_shares(query, said))
    ]
    seen = report.field.encode(report.field.sum(np.stack(shares), 0))
    assert uniform_bytes_p(seen.tobytes()) < ALPHA
