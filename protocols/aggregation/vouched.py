"""Aggregators whose parties sign what they say to each other through a server."""

import datetime as dt
from abc import abstractmethod
from functools import lru_cache

from tallyroom.protocols.aggregation.contract import Aggregator, Bulk
from tallyroom.protocols.identity.certificates import Authority, Identity
from tallyroom.protocols.identity.vouchers import PartySigner, Vouchers
from tallyroom.protocols.query import Query
from tallyroom.protocols.randomness import Randomness
from tallyroom.protocols.records import Holdings
from tallyroom.protocols.wire.machine import Machine
from tallyroom.protocols.wire.messages import MAX_MEMBERS, Role


class Vouched(Aggregator):
    """A party's machine signs with its host's certificate, and a server's checks that."""

    @abstractmethod
    def vouched_party(
        self, query: Query, holdings: Holdings, randomness: Randomness, signet: PartySigner
    ) -> Machine:
        """The machine of a block of parties. Raises `LocalError` if they cannot answer."""

    @abstractmethod
    def vouched_server(
        self, query: Query, index: int, randomness: Randomness, bulk: Bulk, vouchers: Vouchers
    ) -> Machine:
        """The machine of one server."""

    def party(self, query: Query, holdings: Holdings, randomness: Randomness) -> Machine:
        return self.vouched_party(query, holdings, randomness, own_signet())

    def server(self, query: Query, index: int, randomness: Randomness, bulk: Bulk) -> Machine:
        return self.vouched_server(query, index, randomness, bulk, own_signet())


@lru_cache(maxsize=1)
def own_signet() -> PartySigner:
    """For simulations within one process: of an authority that no other process knows. A deployed
    role that was not given a signet of its federation convinces nobody with this."""
    begin, lifetime = dt.datetime(2000, 1, 1, tzinfo=dt.UTC), dt.timedelta(days=36500)
    authority = Authority.create("this process", begin, lifetime)
    issued = authority.issue(Identity(Role.PARTY, 0, MAX_MEMBERS - 1), begin, lifetime)
    return PartySigner(authority.pem, issued.certificate, issued.key)
