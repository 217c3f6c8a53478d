"""The coordinator of a carried run as the runtime speaks to it: a question is put, its run closed.

Wherever the coordinator lives, these are the only two things asked of it beside messages.
"""

import time
from collections.abc import Container
from dataclasses import dataclass

from tallyroom.protocols.aggregation.contract import Ids
from tallyroom.protocols.query import Query
from tallyroom.protocols.run.begun import next_time
from tallyroom.protocols.run.participant import Reply
from tallyroom.protocols.run.question import Question
from tallyroom.servers.coordinator import Coordinator


@dataclass(frozen=True)
class BegunRun:
    """A question that was put: its query, the run it is asked in, and what the coordinator says
    first. `earlier` is the run whose release answers it; then nothing is asked."""

    query: Query
    run: bytes
    outcome: Reply
    earlier: bytes | None = None


@dataclass(frozen=True)
class Closed:
    """`keeps` tells whether its answer may be given again; `over` are runs to be forgotten."""

    keeps: bool
    over: list[bytes]


def time_after(last: int, seeded: bool) -> int | None:
    """What numbers the run after that of time `last`; under a seed it is named for its key."""
    return None if seeded else next_time(last, time.time())


class CoordinatorFacade:
    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    def put(self, question: Question, kept: Container[bytes], of_time: int | None) -> BegunRun:
        """`kept` are runs whose answers are there still, `of_time` numbers the run: a coordinator
        that is told again what it forgot numbers it as before. Raises `LocalError` and
        `RunFailed`."""
        coordinator = self._coordinator
        query = coordinator.query(question, of_time)
        earlier = coordinator.releases.released(query, coordinator.data)
        if earlier is not None and earlier in kept:
            return BegunRun(query, query.run, Reply(query.run), earlier)
        coordinator.releases.disown(query, coordinator.data)
        run = coordinator.name_of(query)
        return BegunRun(query, run, coordinator.ask(query))

    def close(self, query: Query, run: bytes, contributors: Ids) -> Closed:
        """A run has its answer. One that asked a stored tree again is remembered as that tree."""
        releases, data = self._coordinator.releases, self._coordinator.data
        keeps = False
        if run == query.run:
            releases.remember(run, query, data, contributors)
            keeps = releases.released(query, data) == run
        over = [] if releases.holds(run) else [run]
        over += releases.outdated
        releases.outdated.clear()
        return Closed(keeps, over)
