"""The local model: estimates, deviations, ε, and what its server refuses.

Exact sums, dropouts and blocks are in the contract that every aggregator passes.
"""

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tallyroom.protocols.aggregation.contract import Memory
from tallyroom.protocols.aggregation.local.aggregator import Local
from tallyroom.protocols.aggregation.local.reports import randomizer_of, reports_of
from tallyroom.protocols.aggregation.local.roles import LocalServer
from tallyroom.protocols.aggregation.reports import LocalReports
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.local import UnaryEncoding
from tallyroom.protocols.local.levels import LevelResponse
from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings, deal
from tallyroom.protocols.run.policy import Policy
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.protocols.statistics.planned import planned
from tallyroom.protocols.statistics.running_sum import RunningSum
from tallyroom.protocols.wire.machine import Continue, Done, Rejected
from tallyroom.protocols.wire.messages import Message, Phase, Role
from tallyroom.simulation.federation import Federation
from tests.arrays import as_array
from tests.goodness import ALPHA
from tests.protocols.aggregation.shuffle_run import COUNTS, PARTIES, release, some_holdings
from tests.protocols.aggregation.shuffle_run import a_query as shuffled_query


def a_query(statistic: Statistic = COUNTS, **changes: Any) -> Query:
    return shuffled_query(statistic, **{"aggregator": "local", "delta": 0.0, **changes})


def sent(query: Query, holdings: Holdings, seed: int = 1) -> tuple[Message, ...]:
    step = Local().party(query, holdings, Randomness.from_seed(seed, "parties")).start()
    assert isinstance(step, Done)
    return step.messages


def a_server(query: Query) -> LocalServer:
    machine = Local().server(query, 0, Randomness.from_seed(1, "server-0"), Memory())
    assert isinstance(machine, LocalServer)
    return machine


def estimated(server: LocalServer) -> list[int]:
    step = server.receive(release())
    assert isinstance(step, Continue)
    [share] = step.messages
    assert share.phase is Phase.SHARE
    assert [spend.loss.delta for spend in step.spends] == [0]
    values: list[int] = share.body[0].view("<i8").tolist()
    return values


@pytest.mark.parametrize(
    "statistic",
    [
        Histogram(lower=0.0, upper=1.0, bins=4),
        Histogram(lower=0.0, upper=1.0, bins=4, randomizer="hadamard"),
        Mean(lower=0.0, upper=1.0),
        Ecdf(lower=0.0, upper=1.0, thresholds=12, smooth="none"),
    ],
    ids=["response", "hadamard", "mean", "ecdf"],
)
def test_estimates_have_the_deviation_that_is_stated(statistic: Statistic) -> None:
    """500 runs of 400 records: means at ALPHA; the spread of a histogram is what is stated, give or
    take √(1/1000); of a mean and a curve at most that, and at least a third of it."""
    runs, records = 500, 400
    query = a_query(
        statistic, parties=records, records=records, min_parties=records, max_records_per_party=1
    )
    holdings = deal({"value": np.random.default_rng(8).beta(2, 5, records)}, records)
    values = []
    for run in range(runs):
        asked = replace(query, nonce=run.to_bytes(8, "big"))
        reports = reports_of(asked, holdings)
        payloads = reports.payloads(np.arange(records), 1, Randomness.from_seed(run, "parties"))
        opened = reports.open_from([(holdings.ids, payloads.reshape(records, -1))])
        assert (opened.records, opened.refused) == (records, 0)
        values.append(as_array(planned(statistic).decode(opened.vector, records)))
    exact = as_array(statistic.reference(holdings))
    encoded = query.plan.measure(query.plan.encode(holdings).sum(axis=0, dtype=np.uint64))
    released = Local().mechanism(query).release(encoded, records, records)
    stated = statistic.read(released).deviations
    assert stated.shape == exact.shape
    bound = stats.norm.isf(ALPHA / 2)
    assert (np.abs(np.mean(values, axis=0) - exact) <= bound * stated / math.sqrt(runs)).all()
    moving = stated > 0
    ratio = np.std(values, axis=0)[moving] / stated[moving]
    margin = bound * math.sqrt(1 / (2 * runs))
    assert (ratio < 1 + margin).all()
    assert (ratio > (1 - margin if isinstance(statistic, Histogram) else 1 / 3)).all()


def test_neither_order_nor_repetition_changes_the_estimate() -> None:
    query = a_query(Histogram(lower=0.0, upper=1.0, bins=3, randomizer="hadamard"))
    singles = [part for message in sent(query, some_holdings()) for part in message.split()]
    estimates = []
    for order in (singles, singles[::-1], [*singles, *singles]):
        server = a_server(query)
        assert all(isinstance(server.receive(message), Continue) for message in order)
        estimates.append(estimated(server))
    assert estimates[0] == estimates[1] == estimates[2]


def test_a_second_report_that_differs_is_refused_and_its_sender_named() -> None:
    query = a_query()
    server = a_server(query)
    messages = [part for message in sent(query, some_holdings()) for part in message.split()]
    assert isinstance(server.receive(messages[0]), Continue)
    other = replace(messages[0], body=(messages[0].body + 1) % 3)
    assert server.receive(other) == Rejected(messages[0].sender, "submitted twice")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"\x03\x00", "the randomizer cannot produce"),
        (b"\x00\xff", "the randomizer cannot produce"),
        (b"", "do not divide into"),
        (bytes(4), "at most 3"),
    ],
)
def test_what_is_no_report_is_refused_and_its_sender_named(body: bytes, reason: str) -> None:
    query = a_query()
    server = a_server(query)
    first = next(iter(sent(query, some_holdings())[0].split()))
    bad = replace(first, body=np.frombuffer(body, dtype=np.uint8)[None, :])
    refusal = server.receive(bad)
    assert isinstance(refusal, Rejected)
    assert refusal.sender == first.sender
    assert reason in refusal.reason


def test_an_answer_of_one_bit_travels_in_a_byte_and_its_question_does_not() -> None:
    query = a_query(
        Ecdf(lower=0.0, upper=1.0, thresholds=64), max_records_per_party=1, records=PARTIES
    )
    holdings = some_holdings(PARTIES)
    reports = reports_of(query, holdings)
    assert isinstance(reports, LocalReports)
    assert isinstance(reports.randomizer, LevelResponse)
    assert reports.randomizer.report_bits == 1
    [message] = sent(query, holdings)
    assert message.width == 1
    assert message.charge == 55
    words = Local().mechanism(query).words
    assert "says 1 bit, sent in 1 byte, and the message around a party's reports adds 54" in words


def test_questions_are_the_run_s_and_differ_between_parties_and_runs() -> None:
    query = a_query(Ecdf(lower=0.0, upper=1.0, thresholds=1 << 16))
    ids = np.arange(PARTIES, dtype=np.uint32)

    def asked(query: Query, ids: Any) -> Any:
        reports = reports_of(query)
        assert isinstance(reports, LocalReports)
        return reports.questions(ids, 2)

    whole = asked(query, ids)
    assert (whole[4:6] == asked(query, ids[2:3])).all()
    assert len(np.unique(whole, axis=0)) > PARTIES
    assert (whole != asked(replace(query, nonce=b"another1"), ids)).any()


def test_a_whole_party_shares_its_budget_among_its_records() -> None:
    query = a_query(Histogram(lower=0.0, upper=1.0, bins=64), records_per_unit=3)
    randomizer = randomizer_of(query)
    assert isinstance(randomizer, UnaryEncoding)
    assert randomizer == UnaryEncoding.spending(Fraction(2, 3), 64)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (lambda: a_query(servers=2), "local has 1 server"),
        (lambda: a_query(noise=Placement.EACH_SERVER), "leave --noise out"),
        (lambda: a_query(epsilon=Fraction(1, 10**25)), "too small"),
        (lambda: a_query(epsilon=Fraction(1, 10**18), parties=9000, records=9000), "too small"),
        (lambda: a_query(RunningSum(lower=0.0, upper=1.0, steps=4)), "no randomizer for running"),
        (lambda: a_query(Ecdf(lower=0.0, upper=1.0, strategy="tree")), "no randomizer for ecdf"),
        (lambda: a_query(max_records_per_party=9 * 10**6, records=10**7), "do not fit a message"),
    ],
)
def test_what_cannot_be_asked(query: Any, reason: str) -> None:
    with pytest.raises(LocalError, match=reason):
        Local().check(query())


def test_a_policy_takes_reports_and_no_vectors_in_the_clear() -> None:
    """A server of the local model sees nothing that is not private; without ε, all of it."""
    assert not Local().exposes(a_query())
    assert Local().exposes(a_query(epsilon=None))
    assert not Local().threat_model(1).exposes
    anything = Policy(per_question=PrivacyLoss.of(None))
    assert "lets one server see" in str(anything.refusal(a_query(epsilon=None)))


def test_a_run_names_who_cheats() -> None:
    with Federation(40, aggregator="local", seed=1, cheats=["3:out-of-range"]) as federation:
        result = federation.run(Histogram(value="score", bins=4), 1, min_parties=39)
    assert [party for party, _ in result.caught] == [3]
    assert result.privacy.noise == "local"
    assert result.privacy.delta == 0
    assert Role.PARTY.named(3) in result.notes[1]
