"""Every statistic of the local model by every randomizer, from parties to the server and back.

What a hostile party may try: an answer that is none to its own question, bytes behind it, a second
report, the same one again.
"""

import itertools
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tallyroom.protocols.aggregation.contract import Memory
from tallyroom.protocols.aggregation.local.aggregator import Local
from tallyroom.protocols.aggregation.local.reports import randomizer_of, reports_of
from tallyroom.protocols.aggregation.local.roles import LocalServer
from tallyroom.protocols.aggregation.reports import LocalReports
from tallyroom.protocols.local import AUTO, RANDOMIZERS
from tallyroom.protocols.local.pairs_by_oracle import PAIR_RANDOMIZERS
from tallyroom.protocols.query import Query, decode_query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.run.machines import check
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.statistics.ecdf import CumulativeHistogram, Ecdf, Quantile
from tallyroom.protocols.statistics.histogram import Histogram
from tallyroom.protocols.statistics.of_pairs import Auc, Gini, KendallTau
from tallyroom.protocols.wire.machine import Continue, Done, Rejected
from tallyroom.protocols.wire.messages import Message, Phase, Role
from tallyroom.simulation.federation import Federation
from tests.protocols.statistics.local_form_samples import a_query, holdings
from tests.samples import a_message, bitmap

UNIT: dict[str, Any] = {"lower": 0.0, "upper": 1.0}
COUNTED = [
    kind(**UNIT, randomizer=name)
    for kind, name in itertools.product(
        (Histogram, Ecdf, Quantile, CumulativeHistogram), (AUTO, *RANDOMIZERS)
    )
]
PAIRED = [
    kind(**UNIT, bins="4", randomizer=name)
    for kind, name in itertools.product((Gini, KendallTau), (AUTO, *PAIR_RANDOMIZERS))
]
TREES = [Auc(**UNIT, levels=levels) for levels in ("one", "all")]
EVERY = [*COUNTED, *PAIRED, *TREES]


def called(statistic: Statistic) -> str:
    option = "levels" if isinstance(statistic, Auc) else "randomizer"
    return f"{statistic.name} {getattr(statistic, option)}"


def query_of(statistic: Statistic) -> Query:
    return a_query(statistic, epsilon=Fraction(2))


def sent(query: Query) -> list[Message]:
    """A message of each party."""
    step = Local().party(query, holdings(), Randomness.from_seed(1, "parties")).start()
    assert isinstance(step, Done)
    return [part for message in step.messages for part in message.split()]


def a_server(query: Query) -> LocalServer:
    server = Local().server(query, 0, Randomness.from_seed(1, "server-0"), Memory())
    assert isinstance(server, LocalServer)
    return server


def released(server: LocalServer, query: Query) -> bytes:
    members = bitmap(query.parties, list(range(query.parties)))
    asked = a_message(Phase.RELEASE, Role.COORDINATOR, Role.SERVER, body=members, run=query.run)
    step = server.receive(asked)
    assert isinstance(step, Continue)
    return step.messages[0].body.tobytes()


@pytest.mark.parametrize("statistic", EVERY, ids=called)
def test_order_changes_nothing_and_who_sends_twice_is_counted_once(statistic: Statistic) -> None:
    query = query_of(statistic)
    check(query)
    assert decode_query(query.run, query.encode(), "coordinator") == query
    messages = sent(query)
    assert len(messages) == 8
    answers = set()
    for order in (messages, messages[::-1], [*messages, *messages[:3]]):
        server = a_server(query)
        assert all(isinstance(server.receive(message), Continue) for message in order)
        answers.add(released(server, query))
    assert len(answers) == 1


@pytest.mark.parametrize("statistic", EVERY, ids=called)
def test_what_is_no_answer_to_a_party_s_own_question_is_refused(statistic: Statistic) -> None:
    """Every byte of a report, turned into every other: refused by name, or one that the randomizer
    could have made to this very question; and a second report that differs is refused whatever it
    says."""
    query = query_of(statistic)
    first = sent(query)[0]
    reports = reports_of(query)
    assert isinstance(reports, LocalReports)
    width, randomizer = reports.payload_bytes, randomizer_of(query)
    [question] = reports.questions(first.senders, 50)[:1]
    refused = 0
    for place, value in itertools.product((0, width - 1), (1, 3, 8, 64, 255)):
        body = first.body.copy()
        body[0, place] = value
        step = a_server(query).receive(replace(first, body=body))
        possible = randomizer.possible(body[:, :width], question[None, :])[0]
        assert isinstance(step, Continue if possible else Rejected)
        if isinstance(step, Rejected):
            assert (step.sender, step.reason) == (
                first.sender,
                "a report that the randomizer cannot produce",
            )
            refused += 1
    assert refused or width > 1 or randomizer.report_bits == 8
    server = a_server(query)
    server.receive(first)
    other = first.body.copy()
    other[0, 0] ^= 1
    assert isinstance(server.receive(replace(first, body=other)), Rejected)
    lengths = [0, first.width + width] + [first.width - 1] * (width > 1)
    for length in lengths:
        cut = np.resize(first.body, (1, length))
        assert isinstance(a_server(query).receive(replace(first, body=cut)), Rejected)


@pytest.mark.parametrize("aggregator", ["local", "shuffle"])
@pytest.mark.parametrize(
    ("statistic", "said"),
    [
        (Ecdf(value="score", thresholds=16, randomizer="unary"), "optimised unary encoding"),
        (Gini(value="score", bins="16", randomizer="hadamard"), "Hadamard response, one bit"),
    ],
    ids=["ecdf", "gini"],
)
def test_a_run_says_which_it_took(aggregator: str, statistic: Statistic, said: str) -> None:
    """Seeded; 600 records at ε = 4. Six of the deviations that are stated are allowed."""
    data = "synthetic:scores?n=600"
    with Federation(100, aggregator=aggregator, data=data, seed=3) as federation:
        result = federation.run(statistic, 4, delta=1e-6)
    assert said in result.privacy.mechanism
    assert result.error is not None
    assert result.error["max"] < 6 * result.deviations.max()
    assert result.interval is not None
    if isinstance(statistic, Ecdf):  # as wide as it is, within what a share can be
        assert (result.interval.low >= 0).all()
        assert (result.interval.high <= 1).all()
        assert (result.interval.high > result.interval.low)[:-1].all()
