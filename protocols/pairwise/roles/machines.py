"""The machines of a statistic of pairs, by role (`protocols.run.machines`)."""

from tallyroom.protocols.aggregation.contract import Aggregator, Bulk, Records
from tallyroom.protocols.aggregation.one_round import OneRound
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.pairwise.roles.party import PairwiseParty
from tallyroom.protocols.pairwise.roles.server_and_collector import (
    STAGES,
    PairwiseCollector,
    PairwiseServer,
)
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.wire.machine import Machine


class PairwiseMachines:
    """Parties meet two by two and submit shares of what their pairs computed."""

    stages = STAGES
    repeatable = False
    """Shares depend on the other party, which may have been started anew since."""

    def check(self, aggregator: Aggregator, query: Query) -> None:
        one_round(aggregator, query)

    def party(
        self, aggregator: Aggregator, query: Query, holdings: Holdings, randomness: Randomness
    ) -> Machine:
        return PairwiseParty(one_round(aggregator, query), query, holdings, randomness)

    def server(
        self,
        aggregator: Aggregator,
        query: Query,
        index: int,
        randomness: Randomness,
        bulk: Bulk,
    ) -> Machine:
        return PairwiseServer(one_round(aggregator, query), query, index, randomness, bulk)

    def collector(self, aggregator: Aggregator, query: Query, records: Records) -> Machine:
        return PairwiseCollector(one_round(aggregator, query), query, records)


def one_round(aggregator: Aggregator, query: Query) -> OneRound:
    """Pairs that lost a party are left out when shares are added up, which takes an aggregator
    whose servers hold every party's share by itself, element by element."""
    if not isinstance(aggregator, OneRound) or not aggregator.elementwise:
        raise LocalError(
            f"{query.statistic.name} adds up shares of pairs: {aggregator.name} cannot, "
            "additive or curator can"
        )
    return aggregator
