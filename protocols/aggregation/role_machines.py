"""The interface of statistics that have their own machines for the roles of a run."""

from typing import Protocol

from tallyroom.protocols.aggregation.contract import Aggregator, Bulk, Records
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.wire.machine import Machine


class RoleMachines(Protocol):
    """The machines of a statistic whose parties do more than submit one vector each. Their final
    submissions go through the query's aggregator."""

    @property
    def stages(self) -> int:
        """How many times a role waits for parties, each time until the query's deadline at most."""

    @property
    def repeatable(self) -> bool:
        """Whether a party that is asked again may compute its answer again. It must not if the
        answer depends on messages from other parties."""

    def check(self, aggregator: Aggregator, query: Query) -> None:
        """Raises `LocalError` if that aggregator cannot take what parties submit."""

    def party(
        self, aggregator: Aggregator, query: Query, holdings: Holdings, randomness: Randomness
    ) -> Machine:
        """The machine of a block of parties. Raises `LocalError` if they cannot answer."""

    def server(
        self,
        aggregator: Aggregator,
        query: Query,
        index: int,
        randomness: Randomness,
        bulk: Bulk,
    ) -> Machine:
        """The machine of one server."""

    def collector(self, aggregator: Aggregator, query: Query, records: Records) -> Machine:
        """The coordinator's machine, which is done with a `Total`."""
