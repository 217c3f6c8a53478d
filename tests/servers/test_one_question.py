"""One question, seen alike by everybody: a coordinator that shows parties and servers different
queries gets no release, whichever field they differ in.

The fields are those of the class: one that is added later makes these tests fail until there is
another value to lie with.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from tallyroom.parties.block import PartyBlock
from tallyroom.protocols.aggregation import aggregators
from tallyroom.protocols.aggregation.shamir import Shamir
from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import deal
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.statistics import Statistic, statistics
from tallyroom.protocols.statistics.ecdf import Ecdf
from tallyroom.protocols.statistics.first_above import FirstAboveThreshold
from tallyroom.protocols.statistics.moments import Mean
from tallyroom.protocols.statistics.of_pairs import Gini
from tallyroom.protocols.statistics.on_demand import QuantileSearch
from tallyroom.protocols.statistics.pairwise import Pairs
from tallyroom.protocols.wire.messages import NONCE_BYTES, Phase, Role
from tallyroom.servers.aggregation_server import AggregationServer
from tallyroom.simulation.runtimes.contract import Layout
from tallyroom.storage.ledger import Ledger
from tests.every_statistic import EVERY, LOCALLY, put, records
from tests.samples import a_message, a_query
from tests.servers.lying_coordinator import (
    LyingCoordinator,
    changed,
    names_in,
    parameters_in,
    with_another,
)
from tests.servers.other_values import COUNTS, ONE_VALUE, OTHER, OTHER_PARAMETER, names_of

PARTIES = 4
HOLDINGS = deal({"value": np.linspace(0.05, 0.95, 8)}, PARTIES)
PAIR = deal({"value": np.array([0.25, 0.75])}, 2)
"""Every two parties that meet cost tens of milliseconds."""

CURVE = Ecdf(lower=0.05, upper=1.0, thresholds=4)
RUNS: dict[str, tuple[int, Question]] = {
    "curator": (1, Question(COUNTS, "curator", Fraction(1), Placement.CURATOR, min_parties=2)),
    "additive": (
        2,
        Question(COUNTS, "additive", Fraction(1), Placement.EACH_SERVER, min_parties=2),
    ),
    "additive mean": (
        3,
        Question(
            Mean(lower=0.0, upper=1.0), "additive", Fraction(1), Placement.PARTIES, min_parties=2
        ),
    ),
    "shared": (
        3,
        Question(COUNTS, "additive", Fraction(1), Placement.SHARED, min_parties=2, honest=2),
    ),
    "first above": (
        2,
        Question(
            FirstAboveThreshold(lower=0.0, upper=1.0, bins=4, threshold=2),
            "additive",
            Fraction(1),
            Placement.JOINT,
            min_parties=2,
        ),
    ),
    "prio3": (2, Question(COUNTS, "prio3", Fraction(1), Placement.EACH_SERVER, min_parties=2)),
    "fss": (2, Question(CURVE, "fss", Fraction(1), Placement.EACH_SERVER, min_parties=2)),
    "fss of three": (3, Question(CURVE, "fss", Fraction(1), Placement.EACH_SERVER, min_parties=2)),
    "on demand": (
        2,
        Question(
            QuantileSearch(lower=0.05, upper=1.0),
            "fss",
            Fraction(1),
            Placement.EACH_SERVER,
            min_parties=2,
        ),
    ),
    "shamir": (3, Question(COUNTS, "shamir", Fraction(1), Placement.PARTIES, min_parties=2)),
    "masking": (1, Question(COUNTS, "masking", Fraction(1), Placement.CURATOR, min_parties=3)),
    "shuffle": (
        1,
        Question(COUNTS, "shuffle", Fraction(1), Placement.CURATOR, delta=1e-3, min_parties=2),
    ),
    "local": (
        1,
        Question(COUNTS, "local", Fraction(1), Placement.CURATOR, min_parties=2),
    ),
    "local curve": (
        1,
        Question(
            Ecdf(lower=0.05, upper=1.0, thresholds=4, randomizer="hashing"),
            "local",
            Fraction(1),
            Placement.CURATOR,
            min_parties=2,
        ),
    ),
    "pairs": (
        2,
        Question(
            Gini(lower=0.0, upper=1.0, bits=4, pairs_per_party="1"),
            "additive",
            Fraction(1),
            Placement.TOTAL,
            min_parties=1,
        ),
    ),
}


@pytest.fixture(params=RUNS, ids=str)
def room(request: pytest.FixtureRequest) -> Iterator[tuple[LyingCoordinator, Question]]:
    servers, question = RUNS[request.param]
    holdings = PAIR if isinstance(question.statistic, Pairs) else HOLDINGS
    with LyingCoordinator(Layout(holdings, servers, hosts=2)) as runtime:
        yield runtime, question


def asked(question: Question, key: str) -> Question:
    return replace(question, key=key)


def test_without_a_lie_there_is_an_answer(room: tuple[LyingCoordinator, Question]) -> None:
    runtime, question = room
    runtime.lie(lambda role, index: True, lambda query: query)
    runtime.ask_lying(asked(question, "the truth"))
    assert min(runtime.shares) >= 1
    assert runtime.spends() == [1] * runtime.layout.servers


@pytest.mark.parametrize("whom", ["servers", "parties", "the last server"])
def test_who_is_asked_something_else_has_no_part_in_a_release(
    room: tuple[LyingCoordinator, Question], whom: str
) -> None:
    runtime, question = room
    runtime.lie(lambda role, index: False, lambda query: query)
    names = names_in(runtime._coordinator.query(asked(question, "names")))
    assert len(names) >= 12
    tell_lies(runtime, question, whom, names)


@pytest.mark.parametrize(
    "statistic", [*EVERY, *LOCALLY], ids=lambda each: each.name + "-local" * (each in LOCALLY)
)
def test_no_statistic_has_a_parameter_to_lie_about(statistic: Statistic) -> None:
    """Nobody has to remember a parameter: whatever a statistic has is walked."""
    servers, question = put(statistic)
    parties = 2 if isinstance(statistic, Pairs) else PARTIES
    with LyingCoordinator(Layout(records(parties), servers, hosts=2)) as runtime:
        names = parameters_in(runtime._coordinator.query(question).statistic)
        for whom in ("parties", "the last server"):
            tell_lies(runtime, question, whom, names)
        runtime.lie(lambda role, index: True, lambda query: query)
        runtime.ask_lying(asked(question, "the truth"))
        assert runtime.spends() == [1] * servers


def tell_lies(
    runtime: LyingCoordinator, question: Question, whom: str, names: Sequence[str]
) -> None:
    """About each of them, and nobody who was told one of them gives anything for it."""
    servers = runtime.layout.servers
    last = servers - 1
    lied_to: Callable[[Role, int], bool] = {
        "servers": lambda role, index: role is Role.SERVER,
        "parties": lambda role, index: role is Role.PARTY,
        "the last server": lambda role, index: role is Role.SERVER and index == last,
    }[whom]
    spared = whom == "the last server" and question.aggregator == "shamir"
    for name in names:
        runtime.lie(lied_to, partial(changed, name=name))
        before = runtime.spends()
        try:
            runtime.ask_lying(asked(question, f"{whom}: {name}"))
            assert spared, f"an answer although {whom} were asked another {name}"
        except RunFailed:
            pass
        released = range(servers) if whom != "the last server" else [last]
        for server in released:
            assert runtime.shares[server] == 0, f"server-{server} released: {name}"
            assert runtime.spends()[server] == before[server]


def test_servers_that_are_told_to_release_over_different_parties_give_no_answer(
    room: tuple[LyingCoordinator, Question],
) -> None:
    """Their receipts say so; and what they gave adds up to nothing."""
    runtime, question = room
    runtime.lie(lambda role, index: False, lambda query: query)
    runtime.without_party_0 = runtime.layout.servers - 1
    with pytest.raises(RunFailed):
        runtime.ask_lying(asked(question, "equivocation")).prove(question)


def test_no_two_groups_of_honest_servers_can_each_open_a_sum() -> None:
    """Told of different parties, they would give two sums of the same noise."""
    for servers in range(2, 65):
        for threshold in range(1, servers + 1):
            if 2 * threshold <= servers:
                with pytest.raises(LocalError, match="threshold"):
                    Shamir(threshold).needed(servers)
            else:
                assert Shamir(threshold).needed(servers) == threshold
        assert 2 * Shamir().needed(servers) > servers


def test_every_field_has_another_value() -> None:
    """A field with none would be one that nobody tried to lie about."""
    assert OTHER.keys() == {field.name for field in dataclasses.fields(Query)}
    parameters = {
        field.name for kind in statistics().values() for field in dataclasses.fields(kind)
    }
    assert parameters <= OTHER_PARAMETER.keys()
    assert {each.name for each in EVERY} == statistics().keys()


def test_a_parameter_without_another_value_has_none() -> None:
    """One that is left out for having a single value is refused with any other."""
    by_name = {name: each for each in EVERY for name in names_of(each)}
    for name, parameter in ONE_VALUE:
        servers, question = put(by_name[name])
        query = question.query(bytes(NONCE_BYTES), 2, servers, 4, 2)
        with pytest.raises(LocalError):
            replace(query, statistic=with_another(query.statistic, parameter))


def test_every_aggregator_is_tried() -> None:
    assert {question.aggregator for _, question in RUNS.values()} >= aggregators().keys()


def test_who_was_asked_something_else_is_named() -> None:
    """By the server to the party, with both digests."""
    query, other = a_query(), a_query(epsilon=Fraction(1))
    server = AggregationServer(0, Ledger(None), Randomness(bytes(16)))
    server.handle(a_message(Phase.QUERY, Role.COORDINATOR, Role.SERVER, body=query.encode()))
    holdings = deal({"value": np.linspace(0, 1, 4)}, 4)
    block = PartyBlock(holdings, Randomness(bytes(16)))
    question = a_message(
        Phase.QUERY, Role.COORDINATOR, Role.PARTY, receivers=(0, 1, 2, 3), body=other.encode()
    )
    submission = block.handle(question).messages[0].select(slice(3, 4))
    (refusal,) = server.handle(submission).refused
    assert refusal.sender == "party-3"
    assert refusal.reason == (
        f"was asked another question in run {query.nonce.hex()}: its digest is "
        f"{other.run[8:].hex()}, here it is {query.run[8:].hex()}"
    )
