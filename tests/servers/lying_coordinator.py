"""A coordinator that shows parties and servers different queries, among roles that are real."""

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction
from typing import Any

from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query
from tallyroom.protocols.run.question import Question
from tallyroom.protocols.statistics import Statistic
from tallyroom.protocols.wire.messages import Message, Phase, Role, body_of
from tallyroom.simulation.runtimes.contract import Opened
from tallyroom.simulation.runtimes.inprocess import BegunRun, InProcess
from tests.servers.other_values import (
    COUNTS,
    OF_STATISTIC,
    ONE_VALUE,
    OTHER,
    OTHER_PARAMETER,
    names_of,
)

IN_RHO: dict[str, Any] = {
    "statistic": COUNTS,
    "noise": Placement.EACH_SERVER,
    "honest": 0,
    "law": "gaussian",
    "epsilon": Fraction(1, 5),
    "delta": 0.0,
}
JOINTLY: dict[str, Any] = {
    "statistic": COUNTS,
    "aggregator": "additive",
    "noise": Placement.JOINT,
    "servers": 2,
    "honest": 0,
    "delta": 0.0,
}
TOGETHER: dict[str, dict[str, Any]] = {
    "rho": IN_RHO,
    "security": JOINTLY,
    "parameter inside": {"noise": Placement.PER_PAIR},
    "honest": {"statistic": COUNTS, "noise": Placement.SHARED, "servers": 3},
}
"""What must be changed as well for a query to be one."""

INSTEAD_OF_CHOICE: dict[str, dict[str, Any]] = {
    "rho": IN_RHO,
    "servers": {"statistic": COUNTS, "noise": Placement.EACH_SERVER},
    "noise": {"statistic": COUNTS},
    "law": {"statistic": COUNTS, "noise": Placement.EACH_SERVER},
    "honest": {"statistic": COUNTS, "noise": Placement.SHARED, "servers": 3},
}
"""The same where two servers choose: others, or with other noise, have no choice to make."""


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
    statistic = with_another(query.statistic, name.removeprefix("parameter "))
    return replace(query, statistic=statistic, **together)


def with_another(statistic: Statistic, parameter: str) -> Statistic:
    """The statistic with another value of a parameter. Raises `LocalError` as `changed` does."""
    before = getattr(statistic, parameter)
    told = (OF_STATISTIC.get((name, parameter)) for name in names_of(statistic))
    changes = next(filter(None, told), None)
    if changes is None:
        changes = {parameter: OTHER_PARAMETER[parameter](before)}
    assert changes[parameter] != before
    return replace(statistic, **changes)


def names_in(query: Query) -> list[str]:
    """All that there is to lie about."""
    return [field.name for field in dataclasses.fields(Query)] + parameters_in(query.statistic)


def parameters_in(statistic: Statistic) -> list[str]:
    """Of them, those of the statistic that have another value."""
    names = [field.name for field in dataclasses.fields(statistic)]
    return [
        f"parameter {name}"
        for name in names
        if not any((each, name) in ONE_VALUE for each in names_of(statistic))
    ]


Lie = Callable[[Query], Query]


class LyingCoordinator(InProcess):
    """All roles are real. Between them sits the coordinator's lie: whoever it lies to is asked
    `told`, under the name of that, and whatever else is said to and by them in this run goes under
    that name as well. One server may be told to release `without_party_0`."""

    without_party_0 = -1

    def lie(self, lied_to: Callable[[Role, int], bool], lie: Lie) -> None:
        self.lied_to, self.told, self.shares = lied_to, lie, [0] * self.layout.servers

    def ask_lying(self, question: Question) -> Opened:
        """Raises `RunFailed` where there is no answer."""
        return self.ask(question, lambda _: None)

    def _begin(self, question: Question) -> BegunRun:
        begun = super()._begin(question)
        self.truth, self.other = begun.query, self.told(begun.query)
        return begun

    def on_way(self, message: Message) -> Iterable[Message]:
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
        if message.receiver_role is Role.SERVER and message.receivers[0] >= self.layout.servers:
            return ()  # parties were told of one more
        return (message,)

    def spends(self) -> list[int]:
        """Of each server."""
        return [len(ledger.rows()) for ledger in self._ledgers[: self.layout.servers]]
