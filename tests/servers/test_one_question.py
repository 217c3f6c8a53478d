"""One question, seen alike by everybody: a coordinator that shows parties and servers different
queries gets no release, whichever field they differ in.

The fields are those of the class: one that is added later makes these tests fail until there is
another value to lie with.
"""

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest

from parties.block import PartyBlock
from protocols.aggregation import aggregators
from protocols.aggregation.shamir import Shamir
from protocols.errors import LocalError, RunFailed
from protocols.privacy.mechanisms import Placement
from protocols.randomness import Randomness
from protocols.records import deal
from protocols.run.messages import Message, Phase, Role, body_of
from protocols.run.participant import Participant
from protocols.run.query import Query
from protocols.run.question import Question
from protocols.statistics import statistics
from protocols.statistics.ecdf import Ecdf
from protocols.statistics.first_above import FirstAboveThreshold
from protocols.statistics.moments import Mean
from protocols.statistics.of_pairs import Gini
from protocols.statistics.on_demand import QuantileSearch
from protocols.statistics.pairwise import Pairs
from servers.aggregation_server import AggregationServer
from simulation.runtimes.contract import Opened, Plan
from simulation.runtimes.inprocess import InProcess
from storage.ledger import Ledger
from tests.samples import a_message, a_query
from tests.servers.other_values import COUNTS, OTHER, OTHER_PARAMETER

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

TOGETHER: dict[str, dict[str, Any]] = {
    "parameter inside": {"noise": Placement.PER_PAIR},
    "honest": {"statistic": COUNTS, "noise": Placement.SHARED, "servers": 3},
}
"""What must be changed as well for a query to be one."""

INSTEAD_OF_CHOICE: dict[str, dict[str, Any]] = {
    "servers": {"statistic": COUNTS, "noise": Placement.EACH_SERVER},
    "noise": {"statistic": COUNTS},
    "honest": {"statistic": COUNTS, "noise": Placement.SHARED, "servers": 3},
}
"""The same where two servers choose: others, or with other noise, have no choice to make."""

NO_OTHER = {("quantile-search", "parameter mechanism"), ("first-above", "parameter categories")}
"""Parameters that have one value only: there is nothing else that anybody could be told."""


def changed(query: Query, name: str) -> Query:
    """The query with one of its fields, or `parameter` of its statistic, another one.

    Raises `LocalError` on a value that no query can have: a lie that nobody could be told would
    prove nothing.
    """
    together = (TOGETHER if query.choice is None else INSTEAD_OF_CHOICE).get(name, {})
    if name == "noise" and query.honest:
        together = {"honest": 0}
    if name == "honest" and query.honest:
        together = {}
    if name in OTHER:
        value = OTHER[name](query)
        assert value != getattr(query, name)
        return replace(query, **{name: value}, **together)
    parameter, statistic = name.removeprefix("parameter "), query.statistic
    value = OTHER_PARAMETER[parameter](getattr(statistic, parameter))
    assert value != getattr(statistic, parameter)
    return replace(query, statistic=replace(statistic, **{parameter: value}), **together)


def names_in(query: Query) -> list[str]:
    """All that there is to lie about."""
    fields = [field.name for field in dataclasses.fields(Query)]
    parameters = [f"parameter {field.name}" for field in dataclasses.fields(query.statistic)]
    return [n for n in (*fields, *parameters) if (query.statistic.name, n) not in NO_OTHER]


Lie = Callable[[Query], Query]


class LyingCoordinator(InProcess):
    """All roles are real. Between them sits the coordinator's lie: whoever it lies to is asked
    `told`, under the name of that, and whatever else is said to and by them in this run goes under
    that name as well. One server may be told to release `without_party_0`."""

    without_party_0 = -1

    def lie(self, lied_to: Callable[[Role, int], bool], lie: Lie) -> None:
        self.lied_to, self.told, self.shares = lied_to, lie, [0] * self.plan.servers

    def ask_lying(self, question: Question) -> Opened:
        """Raises `RunFailed` where there is no answer."""
        query = self._coordinator.query(question)
        self.truth, self.other = query, self.told(query)
        return self.ask(question, lambda _: None)

    def _receivers(self, message: Message) -> list[tuple[Participant, Message]]:
        coordinator = Role.COORDINATOR
        if message.sender_role is coordinator and message.run == self.truth.run:
            first = int(message.receivers[0])
            if self.lied_to(message.receiver_role, first):
                message = replace(message, run=self.other.run)
                if message.phase is Phase.QUERY:
                    message = replace(message, body=body_of(self.other.encode()))
            elif message.phase is Phase.RELEASE and first == self.without_party_0:
                body = message.body.copy()
                body[0, 0] &= 0x7F
                message = replace(message, body=body)
        elif message.receiver_role is coordinator:
            if message.phase is Phase.SHARE:
                self.shares[int(message.senders[0])] += 1
            if message.run == self.other.run:
                message = replace(message, run=self.truth.run)
        if message.receiver_role is Role.SERVER and message.receivers[0] >= self.plan.servers:
            return []  # parties were told of one more
        return super()._receivers(message)

    def spends(self) -> list[int]:
        """Of each server."""
        return [len(ledger.rows()) for ledger in self._ledgers[: self.plan.servers]]


@pytest.fixture(params=RUNS, ids=str)
def room(request: pytest.FixtureRequest) -> Iterator[tuple[LyingCoordinator, Question]]:
    servers, question = RUNS[request.param]
    holdings = PAIR if isinstance(question.statistic, Pairs) else HOLDINGS
    with LyingCoordinator(Plan(holdings, servers, hosts=2)) as runtime:
        yield runtime, question


def asked(question: Question, key: str) -> Question:
    return replace(question, key=key)


def test_without_a_lie_there_is_an_answer(room: tuple[LyingCoordinator, Question]) -> None:
    runtime, question = room
    runtime.lie(lambda role, index: True, lambda query: query)
    runtime.ask_lying(asked(question, "the truth"))
    assert min(runtime.shares) >= 1
    assert runtime.spends() == [1] * runtime.plan.servers


@pytest.mark.parametrize("whom", ["servers", "parties", "the last server"])
def test_who_is_asked_something_else_has_no_part_in_a_release(
    room: tuple[LyingCoordinator, Question], whom: str
) -> None:
    runtime, question = room
    servers = runtime.plan.servers
    last = servers - 1
    lied_to: Callable[[Role, int], bool] = {
        "servers": lambda role, index: role is Role.SERVER,
        "parties": lambda role, index: role is Role.PARTY,
        "the last server": lambda role, index: role is Role.SERVER and index == last,
    }[whom]
    runtime.lie(lambda role, index: False, lambda query: query)
    names = names_in(runtime._coordinator.query(asked(question, "names")))
    assert len(names) >= 12
    spared = whom == "the last server" and question.aggregator == "shamir"
    for name in names:
        runtime.lie(lied_to, partial(changed, name=name))
        before = runtime.spends()
        try:
            runtime.ask_lying(asked(question, name))
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
    runtime.without_party_0 = runtime.plan.servers - 1
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


def test_every_aggregator_is_tried() -> None:
    assert {question.aggregator for _, question in RUNS.values()} >= aggregators().keys()


def test_who_was_asked_something_else_is_named() -> None:
    """By the server to the party, with both digests."""
    query, other = a_query(), a_query(epsilon=Fraction(1))
    server = AggregationServer(0, Ledger(None, None), Randomness(bytes(16)))
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
