"""Aggregators whose parties sign the messages that a server relays between them."""

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


class SigningAggregator(Aggregator):
    """A party's machine signs with its host's certificate, and a server's machine checks it."""

    @abstractmethod
    def signing_party(
        self, query: Query, holdings: Holdings, randomness: Randomness, signer: PartySigner
    ) -> Machine:
        """The machine of a block of parties. Raises `LocalError` if they cannot answer."""

    @abstractmethod
    def checking_server(
        self, query: Query, index: int, randomness: Randomness, bulk: Bulk, vouchers: Vouchers
    ) -> Machine:
        """The machine of one server."""

    def party(self, query: Query, holdings: Holdings, randomness: Randomness) -> Machine:
        return self.signing_party(query, holdings, randomness, process_signer())

    def server(self, query: Query, index: int, randomness: Randomness, bulk: Bulk) -> Machine:
        return self.checking_server(query, index, randomness, bulk, process_signer())


@lru_cache(maxsize=1)
def process_signer() -> PartySigner:
    """A signer for simulations within one process. No other process knows its authority, so a
    deployed role that was given no signer of its federation convinces nobody with this one."""
    begin, lifetime = dt.datetime(2000, 1, 1, tzinfo=dt.UTC), dt.timedelta(days=36500)
    authority = Authority.create("this process", begin, lifetime)
    issued = authority.issue(Identity(Role.PARTY, 0, MAX_MEMBERS - 1), begin, lifetime)
    return PartySigner(authority.pem, issued.certificate, issued.key)
